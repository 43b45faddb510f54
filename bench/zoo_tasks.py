"""What bench/zoo.py trains: environments, the settings of each, what is measured of it, and what was published."""

import dataclasses
import pathlib

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
ENV_STEPS = 1_000_000
PYTHON_ENV_STEPS = 300_000
ALGORITHMS = ("ippo", "mappo")
NETWORKS = ("mlp", "gru")


@dataclasses.dataclass(frozen=True)
class Measure:
    """A mean return of fresh episodes: summed over the agents, or, with `agents`, the mean of those that the globs name. `arguments` of `troupe evaluate`
    say who plays; with `at_random` in their place nobody does who has learned."""

    name: str
    at_random: tuple
    agents: tuple = ()
    arguments: tuple = ()


@dataclasses.dataclass(frozen=True)
class Task:
    """One environment. Its settings are a file below examples/ (`example`, by algorithm or "*") or, where none fits, `text`: a YAML document.

    sets, gru, mlp: KEY=VALUE of all cells, of those with a GRU, and of those without.
    curves: {what is drawn: keys of progress.jsonl, of which it is the mean}.
    published: {algorithm, or "*": (number in words, source)}.
    not_applicable: {(algorithm, network), "*" for any: why}.
    """

    name: str
    family: str
    measures: tuple
    example: dict = dataclasses.field(default_factory=dict)
    text: str = ""
    sets: tuple = ()
    gru: tuple = ()
    mlp: tuple = ()
    curves: dict = dataclasses.field(default_factory=lambda: {"sum": ("return_sum",)})
    published: dict = dataclasses.field(default_factory=dict)
    not_applicable: dict = dataclasses.field(default_factory=dict)
    env_steps: int = ENV_STEPS
    episodes: int = 500
    python: bool = False

    def why_not(self, algorithm, network):
        """Why a cell makes no sense; None where it does."""
        for key in ((algorithm, network), (algorithm, "*"), ("*", network)):
            if key in self.not_applicable:
                return self.not_applicable[key]
        return None

    def file(self, algorithm):
        """The example; None where there is a document of its own."""
        name = self.example.get(algorithm, self.example.get("*"))
        return None if name is None else EXAMPLES / name

    def document(self, algorithm):
        """The text of the settings."""
        path = self.file(algorithm)
        return self.text if path is None else path.read_text()

    def settings(self, algorithm, network):
        """KEY=VALUE of a cell, on top of its file."""
        return (f"algorithm.name={algorithm}", f"stop.env_steps={self.env_steps}", *self.sets, *(self.gru if network == "gru" else self.mlp))


def gru(max_seq_len):
    return ("model.actor_core=gru", "model.critic_core=gru", "model.core_size=64", "model.actor_hidden_sizes=[64]", "model.critic_hidden_sizes=[64]",
            f"model.max_seq_len={max_seq_len}")


NO_CORE = ("model.actor_core=none", "model.critic_core=none")


def at_random(*policies):
    return tuple(part for policy in policies for part in ("--policy", f"{policy}=random"))


def mapping(text):
    return ("--set", f"multi_agent.policy_mapping={{{text}}}")


def team(*policies):
    return (Measure("sum", at_random(*policies)),)


def rivals(roles):
    """`roles`: {name: (globs of its agents, its policies)}: an agent's return in the game of all that learned, and against the others at random."""
    every = [policy for _, policies in roles.values() for policy in policies]
    found = []
    for name, (agents, policies) in roles.items():
        others = [policy for policy in every if policy not in policies]
        found += [Measure(name, at_random(*every), agents), Measure(f"{name}, others at random", at_random(*every), agents, at_random(*others))]
    return tuple(found)


def seats(learned):
    """`learned`: {agent: its policy}: an agent's return against random play, where a policy `dice` plays so."""
    agents = list(learned)
    nobody = mapping(", ".join(f"{agent}: dice" for agent in agents))
    return tuple(
        Measure(f"{agent}, against random play", nobody, (agent,),
                mapping(", ".join(f"{other}: {policy if other == agent else 'dice'}" for other in agents)))
        for agent, policy in learned.items())


# Of the particle worlds without an example: the numbers of examples/simple_reference.yaml, its schedules over the cell's own steps.
MPE_TEXT = """\
seed: 1
env:
  name: mpe/{name}
  args: {max_cycles: 25}

multi_agent:
  policies: [{policies}]
  policy_mapping: {{mapping}}

algorithm:
  train_batch_size: 4000      # 160 environments x 25 steps
  minibatch_size: 1000
  num_epochs: 10
  lr: {initial: 7.0e-4, final: 1.0e-4, env_steps: 1000000}
  adam_epsilon: 1.0e-5
  gamma: 0.95
  gae_lambda: 0.95
  huber_delta: 10.0
  entropy_coeff: {initial: 0.02, final: 0.002, env_steps: 1000000}
  max_grad_norm: 10.0
  common_reward: {common_reward}
  use_agent_id: false

num_workers: 2
num_envs_per_worker: 80
"""
# Of repeated games without an example: the numbers of examples/rock_paper_scissors.yaml.
REPEATED_TEXT = """\
seed: 1
env:
  name: {name}

multi_agent:
  policies: {policies}
  policy_mapping: {{mapping}}

algorithm:
  train_batch_size: 2000
  minibatch_size: 500
  num_epochs: 10
  lr: 1.0e-3
  entropy_coeff: 0.01

num_workers: 2
num_envs_per_worker: 10
"""
# Of tic-tac-toe: the numbers of examples/python/connect_four.yaml with a rate that falls. One policy plays both sides, and a quarter of the games random play.
TIC_TAC_TOE_TEXT = """\
seed: 1
env:
  name: tic_tac_toe

multi_agent:
  policies:
    main: {}
    dice: {class: random, observation_space: "Box(0, 1, [3, 3, 2])", action_space: "Discrete(9)"}
  policy_mapping: {"*": {main: 3, dice: 1}}
  policies_to_train: [main]

algorithm:
  train_batch_size: 4000      # moves of both players
  minibatch_size: 500
  num_epochs: 8
  lr: {initial: 1.0e-3, final: 1.0e-4, env_steps: 1000000}
  gamma: 0.99
  gae_lambda: 0.95
  entropy_coeff: 0.01
  max_grad_norm: 0.5
  use_agent_id: false         # an observation shows the board from the player's own side

num_workers: 2
num_envs_per_worker: 20
"""


def filled(text, **values):
    """The document with these names filled in; other braces are YAML's."""
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def world(name, policies=None, roles=None, **more):
    """A particle world. `policies`: {id: globs of its agents}, all agents share one where there are none; `roles`: as of rivals, of a team none."""
    policies = policies or {"shared": ("*",)}
    pairs = ", ".join(f'"{glob}": {policy}' for policy, globs in policies.items() for glob in globs)
    task = {
        "text": filled(MPE_TEXT, name=name, policies=", ".join(policies), mapping=pairs, common_reward="none" if roles else "mean"),
        "measures": rivals(roles) if roles else team(*policies),
        "curves": curves_of(roles) if roles else {"sum": ("return_sum",)},
        "gru": gru(25),
    }
    return Task(f"mpe/{name}", "Particle worlds", **{**task, **more})


def curves_of(roles):
    return {name: tuple(f"policy/{policy}/return_mean" for policy in policies) for name, (_, policies) in roles.items()}


def repeated(name, policies, pairs, measures, **more):
    """A game that is played again and again."""
    return Task(name, "Games", measures, text=filled(REPEATED_TEXT, name=name, policies=policies, mapping=pairs), **more)


ALONE = "one agent: what it observes is all that there is"
TURNS = "in turn: who waits observes nothing, so that a critic of all observations reads no more"
RIVALS = "a game of one against the other: there is no team"
APART = "each agent has a cart of its own: there is no team"
WHOLE = "an observation is the whole state: there is nothing to remember"
ROUNDS = "no round depends on those before: there is nothing to remember"
BOARD = {("mappo", "*"): TURNS, ("*", "gru"): WHOLE}

TAG = {"predators": (("adversary_*",), ("predators",)), "prey": (("agent_*",), ("prey",))}

TASKS = (
    world("simple", not_applicable={("mappo", "*"): ALONE, ("*", "gru"): WHOLE}),
    Task("mpe/simple_spread", "Particle worlds", team("shared"), {"mappo": "simple_spread_mappo.yaml", "ippo": "simple_spread_ippo.yaml"},
         # The IPPO example names no policy.
         gru=gru(25), sets=("multi_agent.policies=[shared]", 'multi_agent.policy_mapping={"*": shared}')),
    Task("mpe/simple_reference", "Particle worlds", team("shared"), {"*": "simple_reference.yaml"}, gru=gru(25)),
    world("simple_speaker_listener", {"speaker": ("speaker_0",), "listener": ("listener_0",)}),
    world("simple_formation"),
    world("simple_line"),
    world("collect_treasure", {"collectors": ("collector_*",), "deposits": ("deposit_*",)}),
    world("simple_adversary", {"adversary": ("adversary_*",), "good": ("agent_*",)},
          {"adversary": (("adversary_*",), ("adversary",)), "good agent": (("agent_*",), ("good",))}),
    world("simple_push", {"adversary": ("adversary_*",), "agent": ("agent_*",)},
          {"adversary": (("adversary_*",), ("adversary",)), "agent": (("agent_*",), ("agent",))}),
    world("simple_crypto", {"eve": ("eve_0",), "bob": ("bob_0",), "alice": ("alice_0",)},
          {"Eve": (("eve_0",), ("eve",)), "Alice and Bob": (("alice_0", "bob_0"), ("alice", "bob"))}),
    Task("mpe/simple_tag", "Particle worlds", rivals(TAG), {"*": "python/simple_tag.yaml"}, sets=("env.name=mpe/simple_tag",), gru=gru(25),
         curves=curves_of(TAG)),
    world("simple_world_comm", {"leader": ("leadadversary_*",), "adversaries": ("adversary_*",), "good": ("agent_*",)},
          {"adversary": (("leadadversary_*", "adversary_*"), ("leader", "adversaries")), "good agent": (("agent_*",), ("good",))}),
    Task("cartpole", "Control and memory", team("default_policy"), {"*": "cartpole_ippo.yaml"}, env_steps=300_000,
         not_applicable={("mappo", "*"): APART, ("*", "gru"): WHOLE}),
    Task("cartpole, velocities hidden", "Control and memory", team("default_policy"), {"*": "cartpole_memory_gru.yaml"}, mlp=NO_CORE, env_steps=300_000,
         not_applicable={("mappo", "*"): APART}),
    Task("recall", "Control and memory", team("default_policy"), {"*": "recall_gru.yaml"}, mlp=NO_CORE, env_steps=150_000,
         not_applicable={("mappo", "*"): "each agent is asked for a cue of its own: there is no team"},
         published={"*": ("2", "the most there is")}),
    repeated("two_step_game", "[shared]", '"*": shared', team("shared"), env_steps=200_000, not_applicable={("*", "gru"): WHOLE},
             published={"*": ("8", "the optimum; independent Q-learning 7: arXiv 1803.11485")}),
    repeated("matrix_game", "[shared]", '"*": shared', team("shared"), env_steps=200_000, not_applicable={("*", "gru"): ROUNDS},
             published={"*": ("220", "the optimum, 11 a round to both: Claus and Boutilier 1998")}),
    Task("rock_paper_scissors", "Games", (Measure("player_0, against beat_last", at_random("main"), ("player_0",)),), {"*": "rock_paper_scissors.yaml"},
         env_steps=200_000, curves={"player_0": ("agent/player_0/return_mean",)},
         not_applicable={("mappo", "*"): RIVALS, ("*", "gru"): "the opponent answers the last round alone, which is observed: there is nothing to remember"},
         published={"*": ("9", "the most there is")}),
    repeated("matching_pennies", '{main: {}, opponent: {class: "scripted:always_same"}}', "player_0: main, player_1: opponent",
             (Measure("player_0, against always_same", at_random("main"), ("player_0",)),), env_steps=200_000,
             curves={"player_0": ("agent/player_0/return_mean",)}, not_applicable={("mappo", "*"): RIVALS, ("*", "gru"): ROUNDS},
             published={"*": ("10", "the most there is")}),
    Task("tic_tac_toe", "Games", seats({"player_1": "main", "player_2": "main"}), text=TIC_TAC_TOE_TEXT, curves={"all games": ("policy/main/return_mean",)},
         not_applicable=BOARD),
    Task("connect_four", "Games", seats({"player_0": "main", "player_1": "main"}), {"*": "connect_four.yaml"},
         curves={"all games": ("policy/main/return_mean",)}, not_applicable=BOARD),
    Task("kuhn_poker", "Games", (
        Measure("player_0, both learned", mapping("player_0: dice, player_1: dice"), ("player_0",)), *seats({"player_0": "first", "player_1": "second"})),
         {"*": "kuhn_poker.yaml"}, curves={"player_0": ("agent/player_0/return_mean",)}, episodes=10_000,
         not_applicable={("mappo", "*"): TURNS, ("*", "gru"): "an observation has all cards and actions that the player has seen: there is nothing to remember"},
         published={"*": ("-1/18, both in equilibrium", "Kuhn 1950")}),
    Task("Foraging-8x8-2p-2f-coop", "Python environments", team("default_policy"), {"*": "python/lbforaging.yaml"}, gru=gru(25), python=True,
         env_steps=PYTHON_ENV_STEPS, episodes=200),
    Task("rware-tiny-2ag-easy, smaller", "Python environments", team("default_policy"), {"*": "python/rware.yaml"}, gru=gru(50), python=True,
         env_steps=PYTHON_ENV_STEPS, episodes=100),
)
