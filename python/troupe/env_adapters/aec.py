"""PettingZoo's AECEnv: agents take turns."""

from __future__ import annotations

from typing import Any, Hashable

from troupe.env_adapters.base import StepResult
from troupe.env_adapters.core import AdapterCore


class AecAdapter(AdapterCore):
    """Only the agent whose turn it is gets observed. Rewards come as last() gives them: what an agent got since its
    last action, with its next
    observation or its end. Agents that ended are stepped with None, as the AEC form wants, within the call in which
    their turn comes.
    """

    kind = "PettingZoo AEC"

    def __init__(self, name: str, env: Any, global_state: bool = True):
        super().__init__(name, env, global_state)
        self._selected = 0
        self._set_agents(self._possible_agents(), lambda what, key: getattr(env, f"{what}_space")(key))
        self._probe()

    def reset(self, seed: int) -> StepResult:
        result = self._begin_reset()
        self._check_spaces()
        self._reset_env(seed)
        self._next_turn(result)
        if self._live == 0:
            raise self.error("reset observed no agent, expected at least one")
        return self._finish(result)

    def send(self, actions: list) -> None:
        self._begin_send()
        action = actions[self._selected]
        if action is None:
            raise self.error("got no action, though it is its turn", self._selected)
        self._acted[self._selected] = True
        self._env.step(action)

    def receive(self) -> StepResult:
        result = self._begin_receive()
        self._next_turn(result)
        return self._finish(result)

    def _is_flagged(self, key: Hashable) -> bool:
        """True if the agent has ended; where the environment does not say, one that had ended has not returned."""
        return any(getattr(self._env, flags, {}).get(key, True) for flags in ("terminations", "truncations"))

    def _next_turn(self, result: StepResult) -> None:
        """Lets the agents that ended leave, then observes the one whose turn it is."""
        env, index, left = self._env, self._index, None
        for _ in range(2 * len(self._keys) + 2):
            if self._pools:
                self._admit([key for key in env.agents if not self._is_flagged(key)])
            if all(key in index and self._done[index[key]] and self._is_flagged(key) for key in env.agents):
                break  # also where agents that ended stay in `agents`
            key = env.agent_selection
            i = index.get(key)
            if i is None:
                raise self._unknown(key, "the turns")
            observation, reward, terminated, truncated, info = env.last()
            if key == left and (terminated or truncated):
                raise self.error("has its turn again after its end", i)
            value = self._number(i, reward)
            if value != 0.0:
                self._reward(i, value)
            if not terminated and not truncated:
                self._observe(i, observation)
                if info:
                    self._info(i, info)
                self._selected = i
                return
            if observation is not None and self._seen[i] and not self._done[i]:
                self._observe(i, observation)
                if info:
                    self._info(i, info)
            self._end(i, not terminated)
            env.step(None)
            left = key
        else:
            raise self.error(
                f"agents that ended do not leave: still {', '.join(map(str, env.agents))} after a step with None "
                f"for each"
            )
        if self._steps == 0:
            return
        for i in range(len(self._keys)):
            self._end(i, True)  # who is still here: the environment let it go without an end of its own
        self._end_all(truncated=True in result.truncated and True not in result.terminated)
