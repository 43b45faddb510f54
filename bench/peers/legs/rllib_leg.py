"""RLlib's PPO on its new API stack: remote env runners, learner in the driver, one shared policy.

Its critic sees one agent's own observation, so this is IPPO: a little less work than MAPPO.
"""

import logging
import os

import probe

S = probe.SETTINGS


def main():
    args = probe.parse_args(__doc__, runners=2, envs=8, threads=0)
    import ray
    import torch
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
    from ray.tune.registry import register_env

    ray.init(
        num_cpus=max(2, args.runners + 1),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=1 << 30,
        _temp_dir=os.environ.get("PEERS_TMP"),
    )
    register_env("simple_spread", lambda _: ParallelPettingZooEnv(probe.make_spread()))
    config = PPOConfig()
    config.environment("simple_spread")
    config.debugging(seed=args.seed, log_level="ERROR")
    config.env_runners(
        num_env_runners=args.runners, num_envs_per_env_runner=args.envs, rollout_fragment_length="auto"
    )
    config.learners(num_learners=0)
    config.multi_agent(policies={"team"}, policy_mapping_fn=lambda agent_id, episode, **_: "team")
    config.rl_module(
        model_config=DefaultModelConfig(
            fcnet_hiddens=S["hidden"], fcnet_activation="tanh", vf_share_layers=False
        )
    )
    config.training(
        train_batch_size_per_learner=S["train_batch_env_steps"],
        minibatch_size=S["minibatch_rows"],
        num_epochs=S["num_epochs"],
        lr=S["learning_rate"],
        gamma=S["gamma"],
        lambda_=S["gae_lambda"],
        clip_param=S["clip_param"],
        entropy_coeff=S["entropy_coeff"],
        vf_loss_coeff=S["vf_loss_coeff"],
        vf_clip_param=float("inf"),
        use_kl_loss=False,
        grad_clip=S["grad_clip"],
    )
    algorithm = config.build_algo()
    counter = probe.StepCounter().install()
    marks = probe.Marks(args.seconds)
    enough = False
    while not enough:
        result = algorithm.train()
        enough = marks.add(result["num_env_steps_sampled_lifetime"], counter.value)
    marks.write(
        return_sum=result["env_runners"].get("episode_return_mean"),
        versions={"ray": ray.__version__, "torch": torch.__version__},
        torch_threads=torch.get_num_threads(),
    )
    algorithm.stop()
    ray.shutdown()
    probe.leave()


if __name__ == "__main__":
    main()
