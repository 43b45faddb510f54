"""One environment as numpy arrays; no PettingZoo and no Gymnasium."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

import numpy as np

from troupe.envs import library as _library
from troupe.envs import spaces
from troupe.envs.library import NativeEnvError

OBSERVED, READY, TERMINATED, TRUNCATED, AGENT_MASK = range(5)


def _plugin_path(plugin: str | os.PathLike | None) -> bytes | None:
    return None if plugin is None else os.fsencode(plugin)


def _check(code: int, error: _library.ErrorText) -> None:
    if code != 0:
        raise NativeEnvError(code, error.text.decode("utf-8", "replace"))


def environments(plugin: str | os.PathLike | None = None) -> dict[str, str]:
    """Name -> description of what is built in, or of what a plug-in has."""
    functions = _library.load(_library.find_library())
    text, error = ctypes.c_void_p(), _library.ErrorText()
    _check(functions.troupe_arrays_list(_plugin_path(plugin), ctypes.byref(text), ctypes.byref(error)), error)
    try:
        entries = json.loads(ctypes.string_at(text))
    finally:
        functions.troupe_arrays_free(text)
    return {entry["name"]: entry["description"] for entry in entries}


class NativeEnv:
    """An environment, native or of a plug-in, and what its last reset or step brought, in arrays that are written in place.

    spec: its agents, spaces (as text) and more, as lib/env/plugin_abi.h describes. agents: their ids, by slot, and
    observation_spaces, action_spaces: what is theirs, parsed.
    observations[slot]: the flattened row, float32 or uint8. action_masks[slot]: uint8, empty without mask.
    actions[slot]: int32 words, and actions_float[slot]: the same memory as float32, to be written before `step` where ready.
    states: [1 or agents, size], empty without a state. rewards: [agents]. infos: [agents, info columns], float64, NaN where none was given.
    flags: [5, agents] of uint8, rows OBSERVED, READY, TERMINATED, TRUNCATED (ended alone in the last call), AGENT_MASK.
    all_done: [2], whether the episode has been terminated, truncated.

    Every error is a NativeEnvError that says what was got and expected; after one in reset or step only reset may follow.
    Not thread-safe; `close` frees the arrays' memory.
    """

    def __init__(self, name: str, args: dict[str, Any] | None = None, plugin: str | os.PathLike | None = None):
        self._env = None
        self._functions = _library.load(_library.find_library())
        self._error = _library.ErrorText()
        self._error_ref = ctypes.byref(self._error)
        try:
            text = json.dumps(args or {}, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(f"environment {name}: arguments must be numbers, texts, booleans, None, lists and dicts: {error}") from None
        env = ctypes.c_void_p()
        _check(self._functions.troupe_arrays_make(_plugin_path(plugin), name.encode(), text.encode(), ctypes.byref(env), self._error_ref),
               self._error)
        self._env = env
        self.name = name
        self.spec: dict[str, Any] = json.loads(self._functions.troupe_arrays_spec(env))
        self.agents: list[str] = [agent["id"] for agent in self.spec["agents"]]
        self.observation_spaces = [spaces.parse(agent["observation_space"]) for agent in self.spec["agents"]]
        self.action_spaces = [spaces.parse(agent["action_space"]) for agent in self.spec["agents"]]
        self._map_arrays(self._functions.troupe_arrays_view(env).contents)

    def _map_arrays(self, view: _library.Arrays) -> None:
        agents = range(view.num_agents)

        def array(pointer, dtype, shape):
            count = int(np.prod(shape))
            if count == 0:
                return np.zeros(shape, dtype)
            size = count * np.dtype(dtype).itemsize
            address = ctypes.cast(pointer, ctypes.c_void_p).value
            memory = (ctypes.c_uint8 * size).from_address(address)
            memory.owner = self  # the environment lives as long as somebody has one of its arrays
            return np.frombuffer(memory, dtype).reshape(shape)

        rows = array(view.observations, np.uint8, (view.observation_offsets[view.num_agents],))
        masks = array(view.action_masks, np.uint8, (view.action_mask_offsets[view.num_agents],))
        words = array(view.actions, np.int32, (view.action_offsets[view.num_agents],))
        self.observations = []
        for slot, space in enumerate(self.observation_spaces):
            row = rows[view.observation_offsets[slot]:view.observation_offsets[slot + 1]].view(space.flat_dtype)
            self.observations.append(row[:space.flat_size])  # without the bytes that align the next row
        self.action_masks = [masks[view.action_mask_offsets[slot]:view.action_mask_offsets[slot + 1]] for slot in agents]
        self.actions = [words[view.action_offsets[slot]:view.action_offsets[slot + 1]] for slot in agents]
        self.actions_float = [row.view(np.float32) for row in self.actions]
        self.states = array(view.states, np.float32, (view.state_rows, view.state_size))
        self.rewards = array(view.rewards, np.float32, (view.num_agents,))
        self.infos = array(view.infos, np.float64, (view.num_agents, view.num_info_columns))
        all_flags = array(view.flags, np.uint8, (5 * view.num_agents + 2,))
        self.flags = all_flags[:-2].reshape(5, view.num_agents)
        self.all_done = all_flags[-2:]

    def reset(self, seed: int = 0, env_id: int = 0, episode: int = 0) -> None:
        """Starts the episode that follows from the three numbers: the same give the same. seed in [0, 2**64), the others in [0, 2**32)."""
        for what, value, bits in (("seed", seed, 64), ("env_id", env_id, 32), ("episode", episode, 32)):
            if not 0 <= value < 1 << bits:
                raise ValueError(f"environment {self.name}: {what} is {value}, expected a number in [0, 2**{bits})")
        numbers = _library.Seed(int(seed), int(env_id), int(episode))
        code = self._functions.troupe_arrays_reset(self._open(), ctypes.byref(numbers), self._error_ref)
        if code != 0:
            _check(code, self._error)

    def step(self) -> None:
        """Steps with the actions of all agents that are ready."""
        code = self._functions.troupe_arrays_step(self._open(), self._error_ref)
        if code != 0:
            _check(code, self._error)

    def _open(self):
        if self._env is None:
            raise ValueError(f"environment {self.name} was closed")
        return self._env

    def close(self) -> None:
        """Frees the environment; the arrays are gone after it. A second call does nothing."""
        if self._env is None:
            return
        functions, env = self._functions, self._env
        self._env = None
        for row in ("observations", "action_masks", "actions", "actions_float", "states", "rewards", "infos", "flags", "all_done"):
            self.__dict__.pop(row, None)
        functions.troupe_arrays_destroy(env)

    def __del__(self):
        if getattr(self, "_env", None) is not None:
            self.close()
