"""Python companions of Troupe: training by the program `troupe` (docs/python.md), environments, queries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from troupe.version import VERSION

if TYPE_CHECKING:
    from troupe.callbacks import Callback as Callback
    from troupe.evaluation import Evaluation as Evaluation
    from troupe.external import EpisodeError as EpisodeError
    from troupe.external import ExternalEnv as ExternalEnv
    from troupe.external import RunEnded as RunEnded
    from troupe.policy import Agents as Agents
    from troupe.policy import Policy as Policy
    from troupe.program import ConfigError as ConfigError
    from troupe.program import TroupeError as TroupeError
    from troupe.run import Config as Config
    from troupe.run import Run as Run
    from troupe.run import RunFailed as RunFailed
    from troupe.run import load as load
    from troupe.run import runs as runs
    from troupe.run import start as start
    from troupe.run import train as train

__version__ = VERSION

# Where the package's names are, which are imported when they are asked for: most who import troupe are processes of environments.
_PLACES = {
    **dict.fromkeys(("Config", "Run", "RunFailed", "load", "runs", "start", "train"), "troupe.run"),
    **dict.fromkeys(("ConfigError", "TroupeError"), "troupe.program"),
    "Callback": "troupe.callbacks",
    "Evaluation": "troupe.evaluation",
    **dict.fromkeys(("EpisodeError", "ExternalEnv", "RunEnded"), "troupe.external"),
    **dict.fromkeys(("Agents", "Policy"), "troupe.policy"),
    **dict.fromkeys(("env", "aec_env", "parallel_env", "environments"), "troupe.envs"),
}


def __getattr__(name: str) -> Any:
    if name == "envs":
        return importlib.import_module("troupe.envs")
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'troupe' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, "envs"})
