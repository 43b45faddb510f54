"""Sample Factory's APPO: rollout, policy and learner processes; three agents share one policy.

It is asynchronous: rows may be many updates old when they are trained on. `version_diff_max` in the result
is the largest lag it reports. `--mode sync` and `--mode serial` are its other ways to run.
"""

import os

import probe

S = probe.SETTINGS
ROLLOUT = S["max_cycles"]
os.environ["PEERS_ENV_SOURCE"] = "pettingzoo_mpe"  # mpe2 does not import beside the PettingZoo it needs

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
from sample_factory.algo.utils.misc import ExperimentStatus, LEARNER_ENV_STEPS  # noqa: E402
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args  # noqa: E402
from sample_factory.envs.env_utils import TrainingInfoInterface, register_env  # noqa: E402
from sample_factory.train import make_runner  # noqa: E402


class Spread(gym.Env, TrainingInfoInterface):
    """PettingZoo's parallel dicts as Sample Factory's lists; resets itself, as it asks."""

    def __init__(self, full_env_name, cfg, env_config=None, render_mode=None):
        TrainingInfoInterface.__init__(self)
        self.env = probe.make_spread()
        self.ids = list(self.env.possible_agents)
        self.num_agents = len(self.ids)
        self.is_multiagent = True
        self.render_mode = render_mode
        space = self.env.observation_space(self.ids[0])
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        self.action_space = gym.spaces.Discrete(int(self.env.action_space(self.ids[0]).n))

    def _list(self, by_agent):
        return [by_agent[a] for a in self.ids]

    def reset(self, **kwargs):
        return self._list(self.env.reset()[0]), [{}] * self.num_agents

    def step(self, actions):
        obs, reward, terminated, truncated, _ = self.env.step(
            {a: int(action) for a, action in zip(self.ids, actions)}
        )
        observations = self._list(obs) if self.env.agents else self.reset()[0]
        rewards = [float(r) for r in self._list(reward)]
        infos = [{} for _ in self.ids]
        return observations, rewards, self._list(terminated), self._list(truncated), infos

    def render(self):
        return None


# At module level: the learner and the workers are spawned and import this file again.
register_env("simple_spread", Spread)
COUNTER = probe.StepCounter(os.environ["PEERS_COUNTER"]).install() if "PEERS_COUNTER" in os.environ else None


def main():
    global COUNTER
    args = probe.parse_args(__doc__, workers=2, envs=8, mode="async", share_weights=False)
    run_dir = os.environ.get("PEERS_TMP", "/tmp")
    if COUNTER is None:
        os.environ["PEERS_COUNTER"] = os.path.join(run_dir, f"steps.{os.getpid()}")
        COUNTER = probe.StepCounter(os.environ["PEERS_COUNTER"]).install()
    options = dict(
        algo="APPO",
        env="simple_spread",
        experiment="peer",
        train_dir=run_dir,
        restart_behavior="overwrite",
        device="cpu",
        seed=args.seed,
        serial_mode=args.mode == "serial",
        async_rl=args.mode == "async",
        num_workers=args.workers,
        num_envs_per_worker=args.envs,
        worker_num_splits=2 if args.mode == "async" and args.envs % 2 == 0 else 1,
        batched_sampling=False,
        env_frameskip=1,
        set_workers_cpu_affinity=False,
        rollout=ROLLOUT,
        batch_size=S["minibatch_rows"],
        num_batches_per_epoch=probe.MINIBATCHES,
        num_epochs=S["num_epochs"],
        shuffle_minibatches=True,
        use_rnn=False,
        nonlinearity="tanh",
        actor_critic_share_weights=args.share_weights,
        normalize_input=False,
        normalize_returns=False,
        learning_rate=S["learning_rate"],
        gamma=S["gamma"],
        gae_lambda=S["gae_lambda"],
        ppo_clip_ratio=S["clip_param"],
        exploration_loss_coeff=S["entropy_coeff"],
        value_loss_coeff=S["vf_loss_coeff"],
        max_grad_norm=S["grad_clip"],
        train_for_env_steps=10**10,
        save_every_sec=10**6,
        experiment_summaries_interval=10,
        with_wandb=False,
    )
    argv = [f"--{name}={value}" for name, value in options.items()]
    argv += ["--encoder_mlp_layers"] + [str(width) for width in S["hidden"]]
    parser, _ = parse_sf_args(argv=argv)
    config, runner = make_runner(parse_full_cfg(parser, argv))
    if runner.init() != ExperimentStatus.SUCCESS:
        raise SystemExit("sample-factory did not initialize")

    marks = probe.Marks(args.seconds)

    def on_trained(runner, message, policy_id):
        """Runs once a training iteration; counts rows that were trained on, so drops do not flatter."""
        rows = message[LEARNER_ENV_STEPS]
        if marks.add(rows // S["num_agents"], COUNTER.value):
            import importlib.metadata

            rewards = runner.policy_avg_stats.get("reward")
            per_agent = rewards[policy_id] if rewards else ()
            mean = float(np.mean(per_agent)) if len(per_agent) else None
            marks.write(
                return_sum=None if mean is None else mean * S["num_agents"],
                versions={name: importlib.metadata.version(name) for name in ("sample-factory", "torch")},
                version_diff_max=float(runner.policy_lag[0].get("version_diff_max", -1)),
            )
            probe.leave()  # the harness ends the children: this runner has no prompt way out

    # Not register_policy_msg_handler: in 2.1.1 it puts a function where the runner expects a list.
    runner.policy_msg_handlers[LEARNER_ENV_STEPS].append(on_trained)
    runner.run()  # comes back only on an error, with its children still there
    print("sample-factory's runner came back before enough was measured", flush=True)
    os._exit(1)


if __name__ == "__main__":
    main()
