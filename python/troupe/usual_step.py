"""The short way of nearly every step: troupe._usual_step (python/extension), where there is one for this interpreter.

Without it everything is as with it, and takes longer.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from typing import Any

import numpy as np

_NAME = "troupe._usual_step"
_VERSION = 1
#: Of modules for the stable ABI; an interpreter without the GIL does not take them.
_SUFFIX = ".abi3.so"
#: Of Boxes whose arrays are their rows, or are them in double precision.
_COPIED = ("float32", "float64", "uint8")


def load(path: str) -> Any:
    """The module in this file, or the installed one for "". None where there is none, or not for this interpreter."""
    if sys.version_info < (3, 11) or _SUFFIX not in importlib.machinery.EXTENSION_SUFFIXES:
        return None
    try:
        if path:
            loader = importlib.machinery.ExtensionFileLoader(_NAME, path)
            module = importlib.util.module_from_spec(importlib.util.spec_from_loader(_NAME, loader))
            loader.exec_module(module)
        else:
            module = importlib.import_module(_NAME)
    except ImportError:
        return None
    return module if module.VERSION == _VERSION else None


def make(module: Any, adapter: Any, agents: list, layout: dict, memory: Any, readers: list, words: bool) -> Any:
    """The short way for an adapter's environment and its block; None where it has none: rows that Python must convert,
    masks, states, infos that are read. `readers` give the agents' actions; `words`: these are words, one after another.
    """
    parts = adapter.usual_parts()
    boxes = [agent["observation_space"] for agent in agents]
    if module is None or parts is None or any(box.get("dtype") not in _COPIED for box in boxes):
        return None
    form, env, keys = parts
    rows = zip(keys, layout["observations"], layout["observation_uint8"], boxes, readers)
    return module.UsualStep(
        form,
        env,
        (np.ndarray, np.False_, np.float64, np.float32),
        memory,
        tuple((key, offset, uint8, tuple(box["shape"]), read) for key, offset, uint8, box, read in rows),
        layout["acts"],
        layout["actions"][0] if words else -1,
        layout["agent_flags"],
        layout["rewards"],
    )
