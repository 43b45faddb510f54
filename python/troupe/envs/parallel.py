"""An environment as a PettingZoo ParallelEnv."""

from __future__ import annotations

from typing import Any

from pettingzoo import ParallelEnv

from troupe.envs.base import NativeBase
from troupe.envs.native import OBSERVED, READY


class TroupeParallelEnv(NativeBase, ParallelEnv):
    """Every agent that is there acts in every step. Where one is left waiting, RuntimeError says so: aec_env is for those."""

    def __init__(self, name: str, *, plugin: str | None = None, render_mode: str | None = None, args: dict[str, Any] | None = None):
        self._set_up(name, plugin, render_mode, dict(args or {}))

    def reset(self, seed: int | None = None, options: dict | None = None):
        """Starts an episode: that of `seed`, or the next one. `options` is taken and has no meaning. -> (observations, infos)"""
        self.agents = []
        self._start_episode(seed)
        flags = self._native.flags.tolist()
        slots = [slot for slot, observed in enumerate(flags[OBSERVED]) if observed]
        self.agents = [self.possible_agents[slot] for slot in slots]
        self._last = {slot: self._readers[slot]() for slot in slots}
        return (dict(zip(self.agents, self._last.values())),
                {agent: self._info(slot, self._agent_mask(flags, slot)) for agent, slot in zip(self.agents, slots)})

    def step(self, actions: dict[str, Any]):
        """-> (observations, rewards, terminations, truncations, infos) of all agents that acted or came; `agents` loses those that
        ended. ValueError for a missing or surplus action, NativeEnvError for one outside its space."""
        name, slots = self._native.name, self._slots
        for agent in self.agents:
            try:
                action = actions[agent]
            except KeyError:
                raise ValueError(f"environment {name}: got no action of agent {agent}, expected those of {', '.join(self.agents)}") from None
            self._writers[slots[agent]](action)
        if len(actions) != len(self.agents):
            surplus = [str(agent) for agent in actions if agent not in self.agents]
            raise ValueError(f"environment {name}: got an action of {', '.join(surplus)}, expected those of {', '.join(self.agents) or 'nobody'}")
        self._native.step()
        flags = self._native.flags.tolist()
        observed, ready = flags[OBSERVED], flags[READY]
        given = self._native.rewards.tolist()
        there = set(self.agents)
        if any(seen and agent not in there for seen, agent in zip(observed, self.possible_agents)):
            self.agents = [agent for slot, agent in enumerate(self.possible_agents) if agent in there or observed[slot]]
        observations, rewards, terminations, truncations, infos = {}, {}, {}, {}, {}
        for agent in self.agents:
            slot = slots[agent]
            if observed[slot]:
                self._last[slot] = self._readers[slot]()
            observations[agent] = self._last[slot]
            rewards[agent] = given[slot]
            terminations[agent], truncations[agent] = (False, False) if ready[slot] else self._ends(flags, slot)
            infos[agent] = self._info(slot, self._agent_mask(flags, slot))
            if not ready[slot] and not terminations[agent] and not truncations[agent]:
                raise RuntimeError(f"environment {name}: agent {agent} waits for its turn, but in a ParallelEnv every agent acts in every "
                                   "step; use troupe.aec_env")
        self.agents = [agent for agent in self.agents if ready[slots[agent]]]
        return observations, rewards, terminations, truncations, infos
