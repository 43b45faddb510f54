"""Troupe's native environments, and those of plug-ins, for Python.

    import troupe
    env = troupe.env("mpe/simple_spread", N=5)          # a PettingZoo ParallelEnv
    env = troupe.aec_env("testing/turn_based")          # a PettingZoo AECEnv
    env = troupe.env("mine", plugin="libmine.so")       # of a plug-in

`NativeEnv` is what they are made on: one environment as numpy arrays, which needs neither PettingZoo nor Gymnasium.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from troupe.envs.native import NativeEnv, NativeEnvError, environments

__all__ = ["NativeEnv", "NativeEnvError", "aec_env", "env", "environments", "module", "parallel_env"]


def _need_pettingzoo() -> None:
    try:
        import gymnasium  # noqa: F401
        import pettingzoo  # noqa: F401
    except ImportError as error:
        raise ImportError(f"this form of an environment needs PettingZoo and Gymnasium ({error}): {sys.executable} -m pip install pettingzoo gymnasium; "
                          f"troupe.envs.NativeEnv needs neither") from None


def parallel_env(name: str, *, plugin: str | None = None, render_mode: str | None = None, **args: Any):
    """The environment as a PettingZoo ParallelEnv: every agent that is there acts in every step.

    name: as `troupe envs ls` shows it. plugin: the shared library that has it; None: it is built in. args: the environment's
    arguments, as in `env.args` of a configuration. NativeEnvError for what it refuses.
    """
    _need_pettingzoo()
    from troupe.envs.parallel import TroupeParallelEnv

    return TroupeParallelEnv(name, plugin=plugin, render_mode=render_mode, args=args)


def aec_env(name: str, *, plugin: str | None = None, render_mode: str | None = None, **args: Any):
    """The environment as a PettingZoo AECEnv: agents act one after another. Made for turn-based ones; all others work, too."""
    _need_pettingzoo()
    from troupe.envs.aec import TroupeAECEnv

    return TroupeAECEnv(name, plugin=plugin, render_mode=render_mode, args=args)


def env(name: str, *, aec: bool = False, plugin: str | None = None, render_mode: str | None = None, **args: Any):
    """`parallel_env`, or `aec_env` with aec=True."""
    return (aec_env if aec else parallel_env)(name, plugin=plugin, render_mode=render_mode, **args)


def module(name: str, *, plugin: str | None = None) -> types.SimpleNamespace:
    """The environment in the form of PettingZoo's modules, whose `env` is the AEC form: env, raw_env and parallel_env, which take its
    arguments."""
    def make_aec(**args: Any):
        return aec_env(name, plugin=plugin, **args)

    def make_parallel(**args: Any):
        return parallel_env(name, plugin=plugin, **args)

    return types.SimpleNamespace(env=make_aec, raw_env=make_aec, parallel_env=make_parallel)
