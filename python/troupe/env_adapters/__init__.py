"""Any Python multi-agent environment behind one interface: PettingZoo parallel and AEC, Gymnasium with one or several
agents, RLlib-style dicts.
"""

from troupe.env_adapters.base import (
    AgentDescription,
    EnvAdapter,
    EnvAdapterError,
    EnvDescription,
    StepResult,
)
from troupe.env_adapters.make import import_environment, make_adapter

__all__ = [
    "AgentDescription",
    "EnvAdapter",
    "EnvAdapterError",
    "EnvDescription",
    "StepResult",
    "import_environment",
    "make_adapter",
]
