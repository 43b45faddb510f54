"""An environment as a PettingZoo AECEnv."""

from __future__ import annotations

from typing import Any

from pettingzoo import AECEnv

from troupe.envs.base import NativeBase
from troupe.envs.native import OBSERVED, READY


class TroupeAECEnv(NativeBase, AECEnv):
    """Agents act one after another, in the order of possible_agents where several are ready at once; the environment steps when
    the last of them has acted. All possible agents are in `agents` from the start, as in PettingZoo's own games. An agent that
    waits observes what it observed last; before its first observation zeros."""

    def __init__(self, name: str, *, plugin: str | None = None, render_mode: str | None = None, args: dict[str, Any] | None = None):
        super().__init__()
        self._set_up(name, plugin, render_mode, dict(args or {}))
        self._clear()

    def _clear(self) -> None:
        self.agents = []
        self.rewards: dict[str, float] = {}
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self._cumulative_rewards: dict[str, float] = {}
        self._observations: dict[str, Any] = {}
        self._pending: list[str] = []  # who still acts before the environment steps
        self._skip_agent_selection = None
        self.agent_selection = None

    def reset(self, seed: int | None = None, options: dict | None = None) -> None:
        """Starts an episode: that of `seed`, or the next one. `options` is taken and has no meaning."""
        self._clear()
        self._start_episode(seed)
        self.agents = list(self.possible_agents)
        for slot, agent in enumerate(self.agents):
            self._observations[agent] = self._nothing(slot)
            self.rewards[agent] = self._cumulative_rewards[agent] = 0.0
            self.terminations[agent] = self.truncations[agent] = False
            self.infos[agent] = {}
        self._take()
        self.agent_selection = self._pending[0]

    def step(self, action: Any) -> None:
        """The selected agent's action; None for one that has ended. NativeEnvError for an action outside its space."""
        agent = self.agent_selection
        if agent is None or agent not in self.terminations:
            raise ValueError(f"environment {self._native.name}: step in an episode that is over or has not begun, expected reset")
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if not self._pending:
            raise ValueError(f"environment {self._native.name}: the last step failed, expected reset")
        self._writers[self._slots[agent]](action)
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._pending.pop(0)
        if self._pending:
            self.agent_selection = self._pending[0]
            return
        self._native.step()
        self._take()
        while not self._pending and not self._native.all_done.any():
            self._native.step()  # everybody waits
            self._take()
        if self._pending:
            self.agent_selection = self._pending[0]
        self._accumulate_rewards()
        self._deads_step_first()

    def observe(self, agent: str) -> Any:
        """What the agent observed last."""
        return self._observations[agent]

    def _take(self) -> None:
        """Takes over what the native environment's last call brought; rewards are added."""
        flags = self._native.flags.tolist()
        given = self._native.rewards.tolist()
        for slot, agent in enumerate(self.possible_agents):
            observed = flags[OBSERVED][slot]
            if observed:
                self._observations[agent] = self._readers[slot]()
            if agent not in self.terminations or self.terminations[agent] or self.truncations[agent]:
                continue
            self.rewards[agent] += given[slot]
            self.terminations[agent], self.truncations[agent] = self._ends(flags, slot)
            if observed:
                self.infos[agent] = self._info(slot, self._agent_mask(flags, slot))
            elif self._columns:
                kept = {key: value for key, value in self.infos[agent].items() if key not in self._columns}
                self.infos[agent] = {**kept, **self._given_columns(slot)}
        self._pending = [agent for slot, agent in enumerate(self.possible_agents) if flags[READY][slot]]
