"""skrl's MAPPO (or IPPO) with its own sequential trainer; skrl does not vectorize PettingZoo, so 1 environment.

Each agent has its memory and its optimizer over the shared networks: 3 agents x 10 epochs x 4 minibatches of
1000 rows are the same 120 minibatch steps.
"""

import dataclasses
import os

import probe

S = probe.SETTINGS


def main():
    args = probe.parse_args(__doc__, algorithm="mappo", threads=0)
    run_dir = os.environ.get("PEERS_TMP", "/tmp")
    import skrl
    import torch
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
    from skrl.trainers.torch import SequentialTrainer
    from skrl.utils import set_seed

    if args.algorithm == "mappo":
        from skrl.multi_agents.torch.mappo import MAPPO as Algorithm
        from skrl.multi_agents.torch.mappo import MAPPO_CFG as Config
    else:
        from skrl.multi_agents.torch.ippo import IPPO as Algorithm
        from skrl.multi_agents.torch.ippo import IPPO_CFG as Config

    set_seed(args.seed)
    env = wrap_env(probe.make_spread(), wrapper="pettingzoo")
    agents = env.possible_agents
    value_input = "states" if args.algorithm == "mappo" else "observations"

    def network(inputs, outputs):
        layers = []
        for width in S["hidden"]:
            layers += [torch.nn.Linear(inputs, width), torch.nn.Tanh()]
            inputs = width
        return torch.nn.Sequential(*layers, torch.nn.Linear(inputs, outputs))

    class Actor(CategoricalMixin, Model):
        def __init__(self, **spaces):
            Model.__init__(self, device=env.device, **spaces)
            CategoricalMixin.__init__(self, unnormalized_log_prob=True)
            self.net = network(self.num_observations, self.num_actions)

        def compute(self, inputs, role):
            return self.net(inputs["observations"]), {}

    class Critic(DeterministicMixin, Model):
        def __init__(self, **spaces):
            Model.__init__(self, device=env.device, **spaces)
            DeterministicMixin.__init__(self)
            self.net = network(self.num_states if value_input == "states" else self.num_observations, 1)

        def compute(self, inputs, role):
            return self.net(inputs[value_input]), {}

    first = agents[0]
    spaces = dict(
        observation_space=env.observation_spaces[first],
        state_space=env.state_spaces[first],
        action_space=env.action_spaces[first],
    )
    shared = {"policy": Actor(**spaces), "value": Critic(**spaces)}
    batch = S["train_batch_env_steps"]
    config = Config(
        rollouts=batch,
        learning_epochs=S["num_epochs"],
        mini_batches=batch // S["minibatch_rows"],
        discount_factor=S["gamma"],
        gae_lambda=S["gae_lambda"],
        learning_rate=S["learning_rate"],
        grad_norm_clip=S["grad_clip"],
        ratio_clip=S["clip_param"],
        value_clip=0.0,
        entropy_loss_scale=S["entropy_coeff"],
        value_loss_scale=S["vf_loss_coeff"],
    )
    for field in dataclasses.fields(config):
        # skrl 2.1.1 rejects its own default `{}` when it expands a field to one value an agent.
        if field.name.endswith("_kwargs") and getattr(config, field.name) == {}:
            setattr(config, field.name, {agent: {} for agent in agents})
    config.experiment.directory = run_dir
    config.experiment.write_interval = 0
    config.experiment.checkpoint_interval = 0
    learner = Algorithm(
        possible_agents=agents,
        models={agent: shared for agent in agents},
        memories={
            agent: RandomMemory(memory_size=batch, num_envs=env.num_envs, device=env.device) for agent in agents
        },
        cfg=config,
        observation_spaces=env.observation_spaces,
        state_spaces=env.state_spaces,
        action_spaces=env.action_spaces,
        device=env.device,
    )
    trainer = SequentialTrainer(
        env=env, agents=learner, cfg={"timesteps": 10**9, "headless": True, "disable_progressbar": True}
    )
    marks = probe.Marks(args.seconds)
    probe.mark_every_iteration(marks, batch)
    try:
        trainer.train()
    except probe.Enough:
        pass
    marks.write(
        versions={"skrl": skrl.__version__, "torch": torch.__version__}, torch_threads=torch.get_num_threads()
    )
    probe.leave()


if __name__ == "__main__":
    main()
