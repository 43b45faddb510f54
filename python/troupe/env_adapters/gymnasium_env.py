"""Gymnasium's Env with one agent, and with lists: one space, observation, action and reward for each of several agents
(lbforaging, rware).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from troupe.env_adapters import spaces
from troupe.env_adapters.base import StepResult
from troupe.env_adapters.core import AGENT_MASK_KEY, TIME_LIMIT_KEY, AdapterCore
from troupe.env_adapters.observation_view import STATE_KEY

#: Attributes that say how many env steps an episode has at most.
_LIMITS = ("max_episode_steps", "_max_episode_steps", "max_steps", "max_cycles")


class GymnasiumAdapter(AdapterCore):
    """One agent, `agent_0`."""

    kind = "Gymnasium"
    usual_form = "one"

    def __init__(self, name: str, env: Any, global_state: bool = True):
        super().__init__(name, env, global_state)
        count = tuples_of_one_length(env.observation_space, env.action_space)
        if count > 1:
            self._several = f"its spaces are Tuples of {count}: with an attribute n_agents it has {count} agents"
        self._set_agents(["agent_0"], lambda what, key: getattr(env, f"{what}_space"), take_state=False)
        self._probe()

    def _max_episode_steps(self) -> int:
        return max_episode_steps(self._env)

    def reset(self, seed: int) -> StepResult:
        result = self._begin_reset()
        self._check_spaces()
        observation, info = with_info(self._reset_env(seed))
        self._observe(0, observation)
        if info:
            self._info(0, info)
        return self._finish(result)

    def send(self, actions: list) -> None:
        self._begin_send()
        self._acted[0] = True
        self._returned = self._env.step(actions[0])

    def receive(self) -> StepResult:
        result = self._begin_receive()
        returned = self._returned
        if type(returned) is not tuple or len(returned) != 5:
            returned = unpack(self, returned)
        observation, reward, terminated, truncated, info = returned
        value = reward if isinstance(reward, float) else self._number(0, reward)
        if value != 0.0:
            self._reward(0, value)
        self._observe(0, observation)
        if info:
            self._info(0, info)
        if terminated or truncated:
            self._end(0, not terminated)
            self._end_all(truncated=not terminated)
        return self._finish(result)


class ListAdapter(AdapterCore):
    """Agents `agent_0`, `agent_1`, …, all of whom act in every step. A reward or flag that is no list is
    everybody's.
    """

    kind = "Gymnasium with lists"

    def __init__(self, name: str, env: Any, global_state: bool = True):
        super().__init__(name, env, global_state)
        self._as_list = isinstance(env.action_space, list)
        self.usual_form = "list" if self._as_list else "tuple"
        keys = [f"agent_{i}" for i in range(len(env.action_space))]
        place = {key: i for i, key in enumerate(keys)}
        self._set_agents(keys, lambda what, key: getattr(env, f"{what}_space")[place[key]])
        self._probe()

    def _max_episode_steps(self) -> int:
        return max_episode_steps(self._env)

    def reset(self, seed: int) -> StepResult:
        result = self._begin_reset()
        self._check_spaces()
        observations, info = with_info(self._reset_env(seed))
        for i, observation in enumerate(self._each(observations, "observations")):
            self._observe(i, observation)
        if info:
            self._share_info(info)
        return self._finish(result)

    def send(self, actions: list) -> None:
        self._begin_send()
        done, acted = self._done, self._acted
        # Who ended alone still has a place in the list: an action that the environment ignores.
        chosen = actions[:] if self._live == len(actions) else [self._filler(i, a) for i, a in enumerate(actions)]
        if False in acted:
            acted[:] = [a or not d for a, d in zip(acted, done)]
        self._returned = self._env.step(chosen if self._as_list else tuple(chosen))

    def receive(self) -> StepResult:
        result = self._begin_receive()
        returned, done, count = self._returned, self._done, len(self._keys)
        if type(returned) is not tuple or len(returned) != 5:
            returned = unpack(self, returned)
        observations, rewards, terminated, truncated, info = returned
        if is_list(rewards) or (getattr(rewards, "shape", ()) and len(rewards) == count):
            for i, reward in enumerate(self._each(rewards, "rewards")):
                value = reward if isinstance(reward, float) else self._number(i, reward)
                if value != 0.0:
                    self._reward(i, value)
        else:
            value = rewards if isinstance(rewards, float) else self._number(None, rewards)
            if value != 0.0:
                for i, ended in enumerate(done):
                    if not ended:
                        self._reward(i, value)
        if self._plain and self._live == count:
            self._take_all(result, observations)
        else:
            by_agent = is_list(terminated) or is_list(truncated)
            flags = self._flags(terminated, truncated) if by_agent and True in done else None
            for i, observation in enumerate(self._each(observations, "observations")):
                if not done[i] or (flags is not None and not any(flags[i])):  # else it stays in the lists
                    self._observe(i, observation)
        if info:
            self._share_info(info)
        if is_list(terminated) or is_list(truncated):
            self._end_each(terminated, truncated)
        elif terminated or truncated:
            for i in range(count):
                self._end(i, not terminated)
            self._end_all(truncated=not terminated)
        return self._finish(result)

    def _take_all(self, result: StepResult, observations: Any) -> None:
        """_observe for everybody, where all are in play and nothing is to be taken out of the observations."""
        result.observations[:] = self._each(observations, "observations")
        for i, observation in enumerate(result.observations):
            if observation is None:
                self._observe(i, None)

    def _each(self, values: Any, what: str) -> Any:
        try:
            count = len(values)
        except TypeError:
            raise self.error(
                f"the {what} are {type(values).__name__}, expected a list of {len(self._keys)}, one an agent"
            ) from None
        if count != len(self._keys) or isinstance(values, dict):
            raise self.error(
                f"the {what} are a {type(values).__name__} of {count}, expected a list of {len(self._keys)}, one "
                f"an agent"
            )
        return values

    def _filler(self, i: int, action: Any) -> Any:
        if action is None and self._done[i]:
            codec = self._action_codecs[i]
            return codec.unflatten_action(np.array(_first_words(codec.description), dtype=np.int32))
        return action

    def _flags(self, terminated: Any, truncated: Any) -> list[tuple[Any, Any]]:
        """By agent."""
        count = len(self._keys)
        ends = self._each(terminated, "terminated flags") if is_list(terminated) else [terminated] * count
        cuts = self._each(truncated, "truncated flags") if is_list(truncated) else [truncated] * count
        return list(zip(ends, cuts))

    def _end_each(self, terminated: Any, truncated: Any) -> None:
        for i, (end, cut) in enumerate(self._flags(terminated, truncated)):
            if end or cut:
                self._end(i, not end)
        if self._live == 0:
            self._end_all(truncated=True not in self._result.terminated)

    def _share_info(self, info: Any) -> None:
        """Infos of the environment: a list by agent, or a dict whose lists are by agent and whose other values are
        everybody's.
        """
        count = len(self._keys)
        if not isinstance(info, dict):
            for i, own in enumerate(self._each(info, "infos")):
                if own and not self._done[i]:
                    self._info(i, own)
            return
        by_agent = [{} for _ in range(count)]
        for key, value in info.items():
            if is_list(value) and len(value) == count and not (key == STATE_KEY and _is_row(value)):
                for own, element in zip(by_agent, value):
                    own[key] = element
            elif key in (STATE_KEY, AGENT_MASK_KEY):
                self._common_info(key, value)
            else:
                for own in by_agent:
                    own[key] = value
        for i, own in enumerate(by_agent):
            if own and not self._done[i]:
                self._info(i, own)


def tuples_of_one_length(observation: Any, action: Any) -> int:
    """The length of two spaces that are Tuples of one length; 0 for others."""
    if spaces.kind(observation) != "Tuple" or spaces.kind(action) != "Tuple" or len(observation.spaces) != len(action.spaces):
        return 0
    return len(action.spaces)


def is_list(value: Any) -> bool:
    kind = type(value)
    if kind is list or kind is tuple:
        return True
    if kind is bool or kind is float:
        return False
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1


def _is_row(value: Any) -> bool:
    """An array, or a list of numbers: not a list of what is each agent's."""
    return not isinstance(value, (list, tuple)) or all(isinstance(element, (int, float, np.number)) for element in value)


def _first_words(description: dict) -> list[int]:
    """The words of an action with the first value of every discrete leaf, and 0 for continuous ones."""
    if description["type"] == "Discrete":
        return [description["start"]]
    if description["type"] in ("Dict", "Tuple"):
        children = description["spaces"]
        ordered = [children[key] for key in spaces.sorted_keys(children)] if isinstance(children, dict) else children
        return [word for child in ordered for word in _first_words(child)]
    return [0] * spaces.action_words(description)


def with_info(returned: Any) -> tuple[Any, Any]:
    """What reset returned as (observation, info): older environments return the observation alone."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        return returned
    return returned, None


def unpack(adapter: AdapterCore, returned: Any) -> tuple[Any, Any, Any, Any, Any]:
    """What step returned as (observation, reward, terminated, truncated, info); the older form's `done` is a time limit
    where its info says so.
    """
    if isinstance(returned, tuple) and len(returned) == 5:
        return returned
    if isinstance(returned, tuple) and len(returned) == 4:
        observation, reward, done, info = returned
        limit = isinstance(info, dict) and bool(info.get(TIME_LIMIT_KEY))
        if is_list(done):
            return observation, reward, [d and not limit for d in done], [d and limit for d in done], info
        return observation, reward, done and not limit, done and limit, info
    got = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else type(returned).__name__
    raise adapter.error(
        f"step returned {got}, expected (observation, reward, terminated, truncated, info) or (observation, "
        f"reward, done, info)"
    )


def max_episode_steps(env: Any) -> int:
    unwrapped = getattr(env, "unwrapped", env)
    found = [getattr(getattr(env, "spec", None), "max_episode_steps", None)] + [
        getattr(unwrapped, attribute, None) for attribute in _LIMITS
    ]
    limits = [limit for limit in found if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0]
    return min(limits, default=0)
