"""XuanCe's MAPPO (or IPPO) agents on XuanCe's own wrapper of simple_spread, discrete actions.

XuanCe cuts a batch into minibatches of whole env steps, all three agents' rows together, and an uneven cut
adds a small thirteenth one. 4008 env steps are 12 minibatches of 334 (1002 rows) for 8 environments: the
nearest batch with exactly 120 minibatch steps.
"""

import math
import os
import warnings
from argparse import Namespace

import probe

S = probe.SETTINGS


def main():
    args = probe.parse_args(__doc__, algorithm="mappo", envs=8, vector="dummy", threads=0)
    warnings.filterwarnings("ignore")
    os.environ.update(TQDM_DISABLE="1", SDL_VIDEODRIVER="dummy", WANDB_MODE="disabled")
    run_dir = os.environ.get("PEERS_TMP", "/tmp")
    os.chdir(run_dir)
    import torch
    import xuance
    import yaml
    from xuance.environment import make_envs
    from xuance.torch.agents import REGISTRY_Agents

    configs = os.path.join(os.path.dirname(xuance.__file__), "configs")
    config = {}
    for name in ("basic.yaml", os.path.join(args.algorithm, "mpe", "simple_spread_v3.yaml")):
        with open(os.path.join(configs, name)) as f:
            config.update(yaml.safe_load(f))
    multiple = math.lcm(probe.MINIBATCHES, args.envs)
    batch = -(-S["train_batch_env_steps"] // multiple) * multiple
    config.update(
        continuous_action=False,
        policy="Categorical_MAAC_Policy",
        vectorize="SubprocVecMultiAgentEnv" if args.vector == "subproc" else "DummyVecMultiAgentEnv",
        parallels=args.envs,
        buffer_size=batch,
        n_minibatch=probe.MINIBATCHES,
        n_epochs=S["num_epochs"],
        # One layer in the "representation", one in the head: 18 -> 64 -> 64 -> 5.
        representation="Basic_MLP",
        representation_hidden_size=S["hidden"][:1],
        actor_hidden_size=S["hidden"][1:],
        critic_hidden_size=S["hidden"][1:],
        activation="tanh",
        activation_action=None,
        use_parameter_sharing=True,
        use_global_state=False,
        learning_rate=S["learning_rate"],
        gamma=S["gamma"],
        gae_lambda=S["gae_lambda"],
        clip_range=S["clip_param"],
        ent_coef=S["entropy_coeff"],
        vf_coef=S["vf_loss_coeff"],
        grad_clip_norm=S["grad_clip"],
        use_value_clip=False,
        use_value_norm=False,
        use_huber_loss=False,
        device="cpu",
        distributed_training=False,
        dl_toolbox="torch",
        logger="tensorboard",
        log_dir="logs",
        model_dir="models",
        running_steps=10**9,
        seed=args.seed,
        env_seed=args.seed,
        render=False,
        render_mode="rgb_array",
        test_mode=False,
    )
    config = Namespace(**config)
    config.agent_name = args.algorithm
    envs = make_envs(config)
    agents = REGISTRY_Agents[config.agent](config, envs)

    returns = []

    def keep_returns(info, step, *_):
        """In place of the TensorBoard writer: the peer is not charged for its logs."""
        for name, value in info.items():
            if "Episode-Rewards" in name and isinstance(value, dict):
                returns.extend(float(v) for v in value.values())

    agents.log_infos = keep_returns
    marks = probe.Marks(args.seconds)
    probe.mark_every_iteration(marks, batch)
    try:
        agents.train(10**9)
    except probe.Enough:
        pass
    last = returns[-160:]
    marks.write(
        # XuanCe reports the mean over agents.
        return_sum=S["num_agents"] * sum(last) / len(last) if last else None,
        versions={"xuance": xuance.__version__, "torch": torch.__version__},
        torch_threads=torch.get_num_threads(),
    )
    probe.leave()


if __name__ == "__main__":
    main()
