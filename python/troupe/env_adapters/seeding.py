"""Seeds of Python environments: the argument of reset, a method seed(), or the global generators."""

from __future__ import annotations

import inspect
import random
from typing import Any

import numpy as np


class Seeding:
    """Resets an environment by whatever way of seeding it has."""

    def __init__(self, env: Any):
        self._takes_seed = _takes_seed(env)

    def reset(self, adapter: Any, env: Any, seed: int) -> Any:
        """What env.reset returns. `adapter` makes errors and says warnings."""
        reset = env.reset
        if self._takes_seed:
            try:
                return reset(seed=seed)
            except TypeError as e:
                if "unexpected keyword argument 'seed'" not in str(e):
                    raise adapter.error(f"reset(seed={seed}) raised TypeError: {e}") from e
                self._takes_seed = False  # an inner environment's reset takes none
            except ValueError as e:
                raise adapter.error(f"reset(seed={seed}) raised ValueError: {e}") from e
        method = getattr(env, "seed", None)
        if callable(method):
            try:
                method(seed)
            except (TypeError, ValueError) as e:
                raise adapter.error(f"seed({seed}) raised {type(e).__name__}: {e}") from e
            return reset()
        adapter.warn(
            "seed",
            "its reset takes no seed and it has no method seed(): Python's and NumPy's global generators are "
            "seeded instead; episodes are reproducible "
            "only where it draws from these, with one environment to a process",
        )
        random.seed(seed)
        np.random.seed(seed)
        return reset()


def _takes_seed(env: Any) -> bool:
    try:
        parameters = inspect.signature(env.reset).parameters
    except (TypeError, ValueError):
        return True
    return "seed" in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
