"""Which kind an environment is: by what it offers, not by what it inherits, except where two kinds look alike."""

from __future__ import annotations

from typing import Any

from troupe.env_adapters import spaces
from troupe.env_adapters.base import EnvAdapter, EnvAdapterError
from troupe.env_adapters.dicts import ParallelAdapter


def adapt(name: str, env: Any, global_state: bool = True) -> EnvAdapter:
    """The adapter for an environment that was made. When there is none, or it cannot be used, the environment is closed."""
    try:
        return _adapt(name, env, global_state)
    except BaseException:
        close = getattr(env, "close", None)
        if callable(close):
            close()
        raise


def _adapt(name: str, env: Any, global_state: bool) -> EnvAdapter:
    if not callable(getattr(env, "reset", None)) or not callable(getattr(env, "step", None)):
        raise EnvAdapterError(f"environment {name}: made {type(env).__name__}, which has no methods reset and step: no known kind of environment")
    if callable(getattr(env, "observation_space", None)) and callable(getattr(env, "action_space", None)):
        return ParallelAdapter(name, env, global_state)
    raise EnvAdapterError(f"environment {name}: {type(env).__name__} is no known kind of environment")
