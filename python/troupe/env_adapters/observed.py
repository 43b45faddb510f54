"""What agents observe instead of what their environment gives them: `multi_agent.observation_fn: "python:module:name"`.

    def observe(observation, agent, info):
        return np.concatenate([observation, [info.get("fuel", 0.0)]], dtype=np.float32)

    observe.observation_space = lambda agent, space: gymnasium.spaces.Box(-10, 10, (space.shape[0] + 1,))

The function is called with each observation, of a reset and of a step, the agent's id and its info, {} where there is none. One with two parameters,
observe(observations, infos), is called once instead: with dicts by agent of all that are observed now, and answers a dict for the same agents. An answer is in
`observation_space` of the function: a Gymnasium space for all agents, or a callable of an agent and the space that its environment declares. Without one
the space stays as it is. A class is made once, without arguments, for each environment, and its object is called; what it remembers is the environment's.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, Callable

from troupe.env_adapters import spaces
from troupe.env_adapters.base import EnvAdapter, EnvAdapterError, StepResult
from troupe.env_adapters.resolve import find_callable


def wrap(adapter: EnvAdapter, name: str) -> "ObservedAdapter":
    """`adapter` with the function `name` behind it. EnvAdapterError where there is none, or its spaces are none."""
    function = find_callable("observation function", name)
    if inspect.isclass(function):
        function = function()
        if not callable(function):
            raise EnvAdapterError(f"observation function {name}: its objects cannot be called, expected a method __call__")
    return ObservedAdapter(adapter, name, function)


class ObservedAdapter:
    """An adapter but for its observations and their spaces."""

    def __init__(self, adapter: EnvAdapter, name: str, function: Callable[..., Any]) -> None:
        self._adapter, self._function = adapter, function
        self._sees_all = _num_parameters(function) == 2
        adapter.keep_infos()
        description = adapter.description
        declared = getattr(function, "observation_space", None)
        agents = []
        for index, agent in enumerate(description.agents):
            space = agent.observation_space
            if declared is not None:
                where = f"observation function {name}: observation_space of agent {agent.id}"
                space = _described(where, declared, agent.key, adapter.declared_space(index))
            agents.append(replace(agent, observation_space=space))
        self.description = replace(description, agents=agents)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def usual_parts(self) -> None:
        """There is no short way past the function."""

    def reset(self, seed: int) -> StepResult:
        return self._observed(self._adapter.reset(seed))

    def step(self, actions: list) -> StepResult:
        return self._observed(self._adapter.step(actions))

    def receive(self) -> StepResult:
        return self._observed(self._adapter.receive())

    def _observed(self, result: StepResult) -> StepResult:
        infos, keys = self._adapter.kept_infos or {}, self._adapter.keys()
        observed = [index for index, observation in enumerate(result.observations) if observation is not None]
        made: Any = None
        if self._sees_all and observed:
            made = self._function({keys[i]: result.observations[i] for i in observed}, {keys[i]: infos.get(i, {}) for i in observed})
            if not isinstance(made, dict):
                raise self._adapter.error(f"the observation function answered {type(made).__name__}, expected a dict of observations by agent")
        for index in observed:
            key = keys[index]
            answer = made.get(key) if self._sees_all else self._function(result.observations[index], key, infos.get(index, {}))
            if answer is None:
                raise self._adapter.error("the observation function answered None, expected an observation", index)
            result.observations[index] = answer
        return result


def _num_parameters(function: Callable[..., Any]) -> int:
    """Those that may be given by place; 3 where Python cannot say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 3
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 3
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _described(where: str, declared: Any, key: Any, space: Any) -> dict:
    try:
        is_space = spaces.kind(declared) is not None
        return spaces.describe(declared if is_space else declared(key, space))
    except Exception as error:
        raise EnvAdapterError(f"{where}: {error}") from error
