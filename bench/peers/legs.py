"""The legs of the comparison: what each runs, in which virtual environment, and which environment it steps."""

import dataclasses
import json
import pathlib
import re


@dataclasses.dataclass(frozen=True)
class Kind:
    """A program in legs/. `venv` is None for one that needs only the standard library."""

    script: str
    venv: str | None
    title: str
    environment: str
    # "troupe", "troupe_python" (with the peers' environment), "troupe_recurrent" (with a GRU), "peer" (a framework), "script" (plain PyTorch),
    # "script_recurrent" (with a GRU), "jitted", "floor"
    role: str
    iteration_lag: str  # how old the rows trained on may be
    fixed: tuple[str, ...] = ()  # arguments of the program


MPE2 = "mpe2 1.1.1, Python, one object per env"
PZ_124 = "PettingZoo 1.24.3 mpe, Python, one object per env"
PZ_125 = "PettingZoo 1.25.0 mpe, Python, one object per env"
NUMPY = "numpy, 160 envs in one array program"
JAX = "JaxMARL 0.2.0, 160 envs in the same jitted program as the update"
NATIVE = "Troupe's native C++ mpe/simple_spread"

KINDS = {
    "troupe": Kind("troupe_leg.py", None, "Troupe", NATIVE, "troupe", "0"),
    "troupe_mpe2": Kind(
        "troupe_leg.py",
        "rllib",
        "Troupe with mpe2",
        MPE2,
        "troupe_python",
        "0",
        ("--env", "python:mpe2.simple_spread_v3"),
    ),
    "troupe_gru": Kind(
        "troupe_leg.py",
        None,
        "Troupe with GRUs",
        NATIVE,
        "troupe_recurrent",
        "0",
        (
            "--set",
            "model.actor_core=gru,model.critic_core=gru,model.core_size=64,model.actor_hidden_sizes=[64],"
            "model.critic_hidden_sizes=[64],model.max_seq_len=25",
        ),
    ),
    "rllib": Kind("rllib_leg.py", "rllib", "RLlib PPO, new API stack", MPE2, "peer", "0"),
    "sample_factory": Kind(
        "sample_factory_leg.py", "sample_factory", "Sample Factory APPO", PZ_124, "peer", "as reported"
    ),
    "xuance": Kind("xuance_leg.py", "xuance", "XuanCe", PZ_125, "peer", "0"),
    "skrl": Kind("skrl_leg.py", "rllib", "skrl", MPE2, "peer", "0"),
    "reference": Kind("reference_leg.py", "plain", "plain PyTorch script", NUMPY, "script", "0"),
    "recurrent": Kind(
        "recurrent_leg.py", "plain", "plain PyTorch script with GRUs", NUMPY, "script_recurrent", "0"
    ),
    "jaxmarl": Kind("jaxmarl_leg.py", "jaxmarl", "JaxMARL, sampling and update jitted as one", JAX, "jitted", "0"),
    "env": Kind("env_leg.py", "rllib", "Python env alone, random actions", MPE2, "floor", "-"),
}

# The settings tried, by peer: environments by core, processes, and torch's threads where the peer's own default is more than one.
SWEEP = {
    "rllib": tuple(f"rllib:runners=2,envs={envs}" for envs in (8, 20, 40, 80)) + tuple(f"rllib:runners=2,envs=40,threads={n}" for n in (1, 2)),
    "sample_factory": tuple(f"sample_factory:workers=2,envs={envs}" for envs in (4, 8, 16)) + ("sample_factory:workers=2,envs=8,mode=sync",),
    "xuance": tuple(f"xuance:algorithm=mappo,envs={envs}" for envs in (8, 16, 32)) + tuple(f"xuance:algorithm=mappo,envs=16,threads={n}" for n in (1, 2)),
    "skrl": ("skrl:algorithm=mappo", "skrl:algorithm=mappo,threads=1", "skrl:algorithm=mappo,threads=2"),
    "reference": ("reference:threads=1", "reference:threads=2"),
    "recurrent": ("recurrent:threads=1", "recurrent:threads=2"),
    "jaxmarl": ("jaxmarl:algorithm=mappo",),
}
# Where nobody has swept yet: what was fastest on two cores.
FASTEST_SO_FAR = {
    "rllib": "rllib:runners=2,envs=40",
    "sample_factory": "sample_factory:workers=2,envs=8",
    "xuance": "xuance:algorithm=mappo,envs=16",
    "skrl": "skrl:algorithm=mappo",
    "reference": "reference:threads=2",
    "recurrent": "recurrent:threads=1",
    "jaxmarl": "jaxmarl:algorithm=mappo",
}
SWEPT = pathlib.Path(__file__).resolve().parent / "sweep.json"


def fastest(swept):
    """The fastest setting of each peer in {leg's name: env steps/s}; of one that is not in it, what was fastest before."""
    found = {}
    for kind, names in SWEEP.items():
        rates = {name: swept[name] for name in names if name in swept}
        found[kind] = max(rates, key=rates.get) if rates else FASTEST_SO_FAR[kind]
    return found


def default_legs(swept=None):
    """Troupe, and each peer in the best of its settings of the recorded sweep; JaxMARL without a central critic, too."""
    if swept is None:
        swept = json.loads(SWEPT.read_text())["env_steps_per_s"] if SWEPT.exists() else {}
    return ("troupe", "troupe_mpe2", "troupe_gru", *fastest(swept).values(), "jaxmarl:algorithm=ippo")


@dataclasses.dataclass(frozen=True)
class Leg:
    """One row of the table: a kind with its options."""

    name: str
    kind: Kind
    options: tuple[tuple[str, str], ...]

    def arguments(self):
        options = [part for key, value in self.options for part in ("--" + key.replace("_", "-"), value)]
        return [*self.kind.fixed, *options]


def parse_leg(text: str) -> Leg:
    """`KIND` or `KIND:key=value,key=value`; the text is the row's name. ValueError says what is wrong."""
    match = re.fullmatch(r"([a-z_0-9]+)(?::((?:[a-z_]+=[^,=\s]+)(?:,[a-z_]+=[^,=\s]+)*))?", text)
    if not match:
        raise ValueError(f"leg {text!r}: expected KIND or KIND:key=value,key=value")
    if match[1] not in KINDS:
        raise ValueError(f"leg {text!r}: unknown kind {match[1]!r}, expected one of {', '.join(KINDS)}")
    pairs = tuple(tuple(pair.split("=")) for pair in match[2].split(",")) if match[2] else ()
    return Leg(text, KINDS[match[1]], pairs)
