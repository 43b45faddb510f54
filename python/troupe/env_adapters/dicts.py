"""Environments that give dicts by agent: PettingZoo's ParallelEnv and RLlib's MultiAgentEnv, old and new."""

from __future__ import annotations

from typing import Any

from troupe.env_adapters.base import StepResult
from troupe.env_adapters.core import ALL, COMMON_KEYS, TIME_LIMIT_KEY, AdapterCore


class DictAdapter(AdapterCore):
    """Common to both kinds; they differ in how an episode's end is said (_ends)."""

    def reset(self, seed: int) -> StepResult:
        result = self._begin_reset()
        self._check_spaces()
        observations = self._reset_env(seed)
        infos: Any = {}
        if isinstance(observations, tuple):
            if len(observations) != 2:
                raise self.error(f"reset returned a tuple of {len(observations)}, expected observations and infos")
            observations, infos = observations
        if not isinstance(observations, dict):
            raise self.error(f"reset returned {type(observations).__name__}, expected a dict of observations by agent")
        if self._pools:
            self._admit(list(observations))
        for key, value in observations.items():
            i = self._index.get(key)
            if i is None:
                raise self._unknown(key, "observations")
            self._observe(i, value)
        if infos:
            self._infos(infos)
        if self._live == 0:
            raise self.error("reset observed no agent, expected at least one")
        return self._finish(result)

    def send(self, actions: list) -> None:
        self._begin_send()
        keys, acted = self._keys, self._acted
        chosen = {}
        for i, action in enumerate(actions):
            if action is not None:
                chosen[keys[i]] = action
                acted[i] = True
        self._returned = self._env.step(chosen)

    def receive(self) -> StepResult:
        result = self._begin_receive()
        observations, rewards, terminated, truncated, infos = self._unpack(self._returned)
        index, acted, done = self._index, self._acted, self._done
        if self._pools:
            self._admit([key for key in observations if not (terminated.get(key) or (truncated and truncated.get(key)))])
        for key, reward in rewards.items():
            i = index.get(key)
            value = reward if isinstance(reward, float) else self._number(i, reward)
            if value != 0.0:
                if i is None:
                    raise self._unknown(key, "rewards")
                if acted[i] and not done[i] and value - value == 0.0:
                    result.rewards[i] = float(value)
                else:
                    self._reward(i, value)
        plain, seen, out = self._plain, self._seen, result.observations
        for key, value in observations.items():
            i = index.get(key)
            if i is None:
                if self._has_left(key):
                    continue
                raise self._unknown(key, "observations")
            if done[i] and (terminated.get(key) or (truncated and truncated.get(key))):
                continue  # it stays in the dicts
            if not plain or done[i] or not seen[i] or value is None:
                self._observe(i, value)
            else:
                out[i] = value
        if infos:
            self._infos(infos)
        self._ends(terminated, truncated, infos)
        return self._finish(result)

    def _unpack(self, returned: Any) -> tuple[dict, dict, dict, Any, dict]:
        """observations, rewards, terminated, truncated (None: the old form, in which terminated holds dones), infos."""
        if isinstance(returned, tuple) and len(returned) == 5:
            observations, rewards, terminated, truncated, infos = returned
            if (
                isinstance(observations, dict)
                and isinstance(rewards, dict)
                and isinstance(terminated, dict)
                and isinstance(truncated, dict)
            ):
                return returned
        elif isinstance(returned, tuple) and len(returned) == 4:
            observations, rewards, terminated, infos = returned
            truncated = None
        else:
            got = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else type(returned).__name__
            raise self.error(
                f"step returned {got}, expected (observations, rewards, terminated, truncated, infos) or "
                f"(observations, rewards, dones, infos)"
            )
        for what, value in (
            ("observations", observations),
            ("rewards", rewards),
            ("terminated flags" if truncated is not None else "dones", terminated),
        ):
            if not isinstance(value, dict):
                raise self.error(f"step's {what} are {type(value).__name__}, expected a dict by agent")
        if truncated is not None and not isinstance(truncated, dict):
            if truncated not in (True, False):
                raise self.error(f"step's truncated flags are {type(truncated).__name__}, expected a dict by agent")
            truncated = {ALL: bool(truncated)}
        return observations, rewards, terminated, truncated, infos

    def _infos(self, infos: Any) -> None:
        index = self._index
        for key, info in infos.items():
            if isinstance(info, dict):
                if not info:
                    continue
                i = index.get(key)
                if i is not None:
                    if not self._done[i]:
                        self._info(i, info)
                    continue
            self._common_info(key, info)

    def _flagged(self, flags: dict, what: str) -> list[int]:
        """The agents whose flag is set, by index; without `__all__`."""
        agents = []
        for key, flag in flags.items():
            if flag and key != ALL:
                i = self._index.get(key)
                if i is not None:
                    agents.append(i)
                elif not self._has_left(key):
                    raise self._unknown(key, what)
        return agents

    def _ends(self, terminated: dict, truncated: Any, infos: dict) -> None:
        raise NotImplementedError

    def _end_agents(self, terminated: list[int], truncated: list[int]) -> None:
        for i in terminated:
            self._end(i, False)
        for i in truncated:
            self._end(i, True)

    def _time_limit(self, infos: dict, i: int) -> bool:
        """Whether the old form's infos say that an agent's `done` is a time limit."""
        info = infos.get(self._keys[i]) if infos else None
        return isinstance(info, dict) and bool(info.get(TIME_LIMIT_KEY))

    def _split_dones(self, dones: dict, infos: dict) -> tuple[list[int], list[int]]:
        done = self._flagged(dones, "dones")
        return [i for i in done if not self._time_limit(infos, i)], [i for i in done if self._time_limit(infos, i)]


class ParallelAdapter(DictAdapter):
    """PettingZoo's ParallelEnv: the episode is over when `agents` is empty, or when everybody seen is done."""

    kind = "PettingZoo parallel"
    usual_form = "parallel"

    def __init__(self, name: str, env: Any, global_state: bool = True):
        super().__init__(name, env, global_state)
        self._set_agents(self._possible_agents(), lambda what, key: getattr(env, f"{what}_space")(key))
        self._probe()

    def _max_episode_steps(self) -> int:
        limit = getattr(getattr(self._env, "unwrapped", None), "max_cycles", 0)
        return limit if isinstance(limit, int) and limit > 0 else 0

    def _ends(self, terminated: dict, truncated: Any, infos: dict) -> None:
        agents = getattr(self._env, "agents", True)  # without the list the ends of those seen say it
        if agents and not any(terminated.values()) and not (truncated and any(truncated.values())):
            return
        if truncated is None:
            ended, cut = self._split_dones(terminated, infos)
        else:
            ended, cut = self._flagged(terminated, "terminations"), self._flagged(truncated, "truncations")
        self._end_agents(ended, cut)
        if terminated.get(ALL) or (truncated and truncated.get(ALL)):
            self._end_all(truncated=not terminated.get(ALL))
        elif not agents or self._live == 0:
            self._end_all(truncated=True in self._result.truncated and True not in self._result.terminated)


class RllibAdapter(DictAdapter):
    """RLlib's MultiAgentEnv: `__all__` says that the episode is over."""

    kind = "RLlib MultiAgentEnv"
    usual_form = "rllib"

    def __init__(self, name: str, env: Any, agents: list, space_of: Any, global_state: bool = True):
        super().__init__(name, env, global_state)
        self._set_agents(agents, space_of)
        self._probe()

    def _ends(self, terminated: dict, truncated: Any, infos: dict) -> None:
        if ALL not in terminated:
            raise self.error(
                f"{'dones' if truncated is None else 'terminated flags'} lack the key '{ALL}', expected True at "
                f"the episode's end, else False"
            )
        if truncated is None:
            ended, cut = self._split_dones(terminated, infos)
            self._end_agents(ended, cut)
            if terminated[ALL]:
                limits = [
                    i
                    for i in range(len(self._keys))
                    if self._seen[i] and not self._done[i] and self._time_limit(infos, i)
                ]
                self._end_agents([], limits)
                common = (
                    any(isinstance(infos.get(key), dict) and infos[key].get(TIME_LIMIT_KEY) for key in COMMON_KEYS)
                    if infos
                    else False
                )
                everybody = self._live == 0 and True in self._result.truncated and True not in self._result.terminated
                self._end_all(truncated=bool(common) or everybody)
            return
        self._end_agents(self._flagged(terminated, "terminateds"), self._flagged(truncated, "truncateds"))
        if terminated[ALL]:
            self._end_all(truncated=False)
        elif truncated.get(ALL):
            self._end_all(truncated=True)
