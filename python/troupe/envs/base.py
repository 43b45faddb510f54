"""What the PettingZoo forms share: spaces, observations, infos, seeds."""

from __future__ import annotations

import math
import os
from typing import Any, Callable

import numpy as np

from troupe.envs.native import AGENT_MASK, NativeEnv


class NativeBase:
    """Mixed into a PettingZoo class.

    Observations have the spec's space; an agent with an action mask observes {"observation": …, "action_mask": …} as PettingZoo's own
    environments do, where every part of its action space is discrete, and finds the mask in its infos, too. infos: the
    info columns that the step gave; "agent_mask" where it has one (False: the next action should train nothing).
    """

    render_mode = None

    def _set_up(self, name: str, plugin: str | None, render_mode: str | None, args: dict[str, Any]) -> None:
        if render_mode is not None:
            raise ValueError(f"environment {name}: render_mode is {render_mode!r}, expected None: it does not draw")
        self._made_of = (name, plugin, args)
        self._native = native = NativeEnv(name, args, plugin)
        self.metadata = {"name": name, "render_modes": [], "is_parallelizable": False}
        self.possible_agents: list[str] = list(native.agents)
        self.agents: list[str] = []
        self._slots = {agent: slot for slot, agent in enumerate(native.agents)}
        self._columns: list[str] = native.spec["info_columns"]
        self._has_agent_mask: bool = native.spec["agent_mask"]
        self._masked = [agent["action_mask"] for agent in native.spec["agents"]]
        self._seed: int | None = None
        self._episode = 0
        self._readers: list[Callable[[], Any]] = []
        self._writers: list[Callable[[Any], None]] = []
        self.observation_spaces, self.action_spaces = {}, {}
        for slot, agent in enumerate(native.agents):
            self._readers.append(self._reader(slot))
            self._writers.append(self._writer(slot))
            self.observation_spaces[agent] = self._observation_space(slot)
            self.action_spaces[agent] = native.action_spaces[slot].gymnasium()
        self.state_space = self._state_space()

    def __reduce__(self):
        name, plugin, args = self._made_of
        return _make, (type(self), name, plugin, args)

    def _observation_space(self, slot: int):
        from gymnasium import spaces

        space = self._native.observation_spaces[slot].gymnasium()
        mask = self._native.action_spaces[slot].gymnasium_mask() if self._masked[slot] else None
        return space if mask is None else spaces.Dict({"observation": space, "action_mask": mask})

    def _state_space(self):
        from gymnasium import spaces

        states = self._native.states
        return spaces.Box(-np.inf, np.inf, states.shape if len(states) > 1 else states.shape[1:], np.float32) if states.size else None

    def _reader(self, slot: int) -> Callable[[], Any]:
        """A function that copies the agent's observation out of its row."""
        row, space = self._native.observations[slot], self._native.observation_spaces[slot]
        read: Callable[[], Any] = lambda: space.unflatten(row)
        if space.kind == "Box" and np.dtype(space.dtype) == row.dtype:
            read = row.reshape(space.shape).copy
        if not self._masked[slot] or self._native.action_spaces[slot].gymnasium_mask() is None:
            return read
        mask, action_space = self._native.action_masks[slot], self._native.action_spaces[slot]
        return lambda: {"observation": read(), "action_mask": action_space.mask(mask)}

    def _nothing(self, slot: int) -> Any:
        """What an agent observes before its first observation: zeros."""
        nothing = self._native.observation_spaces[slot].nothing()
        if not self._masked[slot] or self._native.action_spaces[slot].gymnasium_mask() is None:
            return nothing
        return {"observation": nothing, "action_mask": self._native.action_spaces[slot].mask(np.zeros_like(self._native.action_masks[slot]))}

    def _writer(self, slot: int) -> Callable[[Any], None]:
        """A function that writes the agent's action into its row."""
        words, floats, space = self._native.actions[slot], self._native.actions_float[slot], self._native.action_spaces[slot]
        agent, name = self._native.agents[slot], self._native.name

        def write(action: Any) -> None:
            try:
                space.encode(action, words, floats)
            except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
                raise ValueError(f"environment {name}, agent {agent}: action {action!r} does not fit {self.action_spaces[agent]}: {error}") from None

        return write

    def _given_columns(self, slot: int) -> dict[str, Any]:
        values = self._native.infos[slot].tolist() if self._columns else []
        return {column: value for column, value in zip(self._columns, values) if not math.isnan(value)}

    def _info(self, slot: int, agent_mask: bool) -> dict[str, Any]:
        info: dict[str, Any] = self._given_columns(slot)
        if self._masked[slot]:
            info["action_mask"] = self._native.action_spaces[slot].mask(self._native.action_masks[slot])
        if self._has_agent_mask:
            info["agent_mask"] = agent_mask
        return info

    def _start_episode(self, seed: int | None) -> None:
        """The first episode of a seed, or the one after the last; without any seed one is drawn."""
        if seed is not None or self._seed is None:
            self._seed = int.from_bytes(os.urandom(8), "little") if seed is None else int(seed)
            self._episode = 0
        else:
            self._episode += 1
        self._native.reset(seed=self._seed, episode=self._episode)

    def _ends(self, flags: list[list[int]], slot: int) -> tuple[bool, bool]:
        """Whether the last call terminated, truncated the agent: alone, else with the episode."""
        alone = flags[2][slot], flags[3][slot]
        terminated, truncated = alone if any(alone) else self._native.all_done.tolist()
        return bool(terminated), bool(truncated)

    def _agent_mask(self, flags: list[list[int]], slot: int) -> bool:
        return bool(flags[AGENT_MASK][slot])

    def observation_space(self, agent: str):
        return self.observation_spaces[agent]

    def action_space(self, agent: str):
        return self.action_spaces[agent]

    def state(self) -> np.ndarray:
        """The global state, [size], or [agents, size] where every agent has its own. NotImplementedError without one."""
        states = self._native.states
        if states.size == 0:
            raise NotImplementedError(f"environment {self._native.name} has no global state")
        return states.copy() if len(states) > 1 else states[0].copy()

    def render(self) -> None:
        """Nothing: `troupe evaluate --video` makes pictures of native environments."""

    def close(self) -> None:
        """Frees the environment; a second call does nothing."""
        self._readers, self._writers = [], []
        self._native.close()


def _make(cls, name: str, plugin: str | None, args: dict[str, Any]):
    return cls(name, plugin=plugin, args=args)
