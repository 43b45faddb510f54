"""Which kind an environment is: by what it offers, not by what it inherits, except where two kinds look alike."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Callable

from troupe.env_adapters import spaces
from troupe.env_adapters.aec import AecAdapter
from troupe.env_adapters.agent_spaces import in_order
from troupe.env_adapters.base import EnvAdapter, EnvAdapterError, close_after_error
from troupe.env_adapters.core import AdapterCore
from troupe.env_adapters.dicts import ParallelAdapter, RllibAdapter
from troupe.env_adapters.gymnasium_env import GymnasiumAdapter, ListAdapter, tuples_of_one_length
from troupe.env_adapters.seeding import Seeding
from troupe.env_adapters.smac import SmacAdapter, is_smac

#: Attributes of environments with lists that tell them from one agent whose spaces are Tuples.
_SEVERAL = ("n_agents", "num_agents", "players", "agents", "possible_agents")
_MOST_LAYERS = 64
#: Where RLlib-style environments name their agents, in this order.
_AGENT_ATTRIBUTES = ("possible_agents", "get_agent_ids", "_agent_ids", "agents")


def adapt(name: str, env: Any, global_state: bool = True) -> EnvAdapter:
    """The adapter for an environment that was made. When there is none, or it cannot be used, the environment is
    closed.
    """
    try:
        return _adapt(name, env, global_state)
    except BaseException:
        close_after_error(name, env)
        raise


def _adapt(name: str, env: Any, global_state: bool) -> EnvAdapter:
    if not callable(getattr(env, "reset", None)) or not callable(getattr(env, "step", None)):
        raise EnvAdapterError(
            f"environment {name}: made {type(env).__name__}, which has no methods reset and step: no known kind of "
            f"environment"
        )
    if callable(getattr(env, "last", None)) and callable(getattr(env, "observe", None)):
        return AecAdapter(name, env, global_state)
    if is_smac(env):
        return SmacAdapter(name, env, global_state)
    multi_agent_env = any(cls.__name__ == "MultiAgentEnv" for cls in type(env).__mro__)
    observation, action = getattr(env, "observation_space", None), getattr(env, "action_space", None)
    if not multi_agent_env:
        if callable(observation) and callable(action):
            return ParallelAdapter(name, env, global_state)
        if _has_lists(env, observation, action):
            return ListAdapter(name, env, global_state)
    agents = _rllib_agents(name, env, multi_agent_env)
    if agents is not None:
        return RllibAdapter(name, env, agents, _rllib_spaces(env, agents), global_state)
    if spaces.kind(observation) is not None and spaces.kind(action) is not None:
        return GymnasiumAdapter(name, env, global_state)
    for what, space in (("observation", observation), ("action", action)):
        if space is None:
            raise EnvAdapterError(
                f"environment {name}: {type(env).__name__} has no {what} spaces: expected an attribute "
                f"{what}_space (one space, or a dict by agent) "
                f"or a method {what}_space(agent)"
            )
        if not callable(space) and spaces.kind(space) is None:
            raise EnvAdapterError(
                f"environment {name}: the {what} space is {type(space).__name__}, which is not supported, expected "
                f"{spaces.SUPPORTED}, or a dict of them by agent"
            )
    raise EnvAdapterError(
        f"environment {name}: {type(env).__name__} is no known kind of environment, expected PettingZoo's "
        f"ParallelEnv or AECEnv, Gymnasium's Env "
        "(one agent, or lists), or dicts by agent as RLlib's MultiAgentEnv"
    )


def _is_gym(env: Any) -> bool:
    return any(cls.__name__ in ("Env", "Wrapper") for cls in type(env).__mro__)


def _has_lists(env: Any, observation: Any, action: Any) -> bool:
    if isinstance(observation, list) and isinstance(action, list):
        return len(observation) == len(action) > 0
    return tuples_of_one_length(observation, action) > 0 and any(hasattr(layer, attribute) for layer in _layers(env) for attribute in _SEVERAL)


def _layers(env: Any) -> list:
    """The environment and what it wraps: a wrapper of Gymnasium 1 does not hand on attributes."""
    layers = [env]
    while len(layers) < _MOST_LAYERS and getattr(layers[-1], "env", None) is not None:
        layers.append(layers[-1].env)
    return [*layers, getattr(env, "unwrapped", env)]


def _children(space: Any) -> dict | None:
    """The spaces by key of a plain dict or a Dict space; None for anything else."""
    if isinstance(space, dict):
        return space
    return space.spaces if spaces.kind(space) == "Dict" else None


def _rllib_agents(name: str, env: Any, multi_agent_env: bool) -> list | None:
    """The agents of an environment that gives dicts by agent, None for another kind. An attribute that may name agents
    does not decide: environments of one agent have lists of that name, too.
    """
    observation, action = getattr(env, "observation_space", None), getattr(env, "action_space", None)
    named, of_spaces = _named_agents(env), _agents_of_spaces(env, observation, action)
    if named is None:
        if of_spaces is not None:
            return of_spaces
        if multi_agent_env or (not _is_gym(env) and spaces.kind(observation) not in (None, "Dict")):
            return _agents_of_reset(name, env)
        return None
    could_be_one_agent = spaces.kind(observation) is not None and spaces.kind(action) is not None
    if multi_agent_env or not could_be_one_agent or not set(named).isdisjoint(of_spaces or ()):
        return named
    observed = _agents_of_reset(name, env)
    if observed is None or (spaces.kind(observation) == "Dict" and not set(observed) <= set(named)):
        return None
    return named


def _named_agents(env: Any) -> list | None:
    for attribute in _AGENT_ATTRIBUTES:
        found = getattr(env, attribute, None)
        if callable(found):
            found = found()
        if isinstance(found, (list, tuple, set, frozenset)) and found and all(isinstance(key, Hashable) for key in found):
            return in_order(found)
    return None


def _agents_of_spaces(env: Any, observation: Any, action: Any) -> list | None:
    """The keys of spaces by agent."""
    for by_agent in (getattr(env, "observation_spaces", None), observation):
        children, actions = _children(by_agent), _children(getattr(env, "action_spaces", None) or action)
        if children and (isinstance(by_agent, dict) or (actions is not None and set(actions) == set(children))):
            return list(children)
    return None


def _agents_of_reset(name: str, env: Any) -> list | None:
    """The keys of a first reset's observations, where they are a dict."""
    returned = Seeding(env).reset(AdapterCore(name, env, global_state=False), env, 0)
    observations = returned[0] if isinstance(returned, tuple) and returned else returned
    return list(observations) if isinstance(observations, dict) and observations else None


def _rllib_spaces(env: Any, agents: list) -> Callable[[str, Hashable], Any]:
    def space_of(what: str, key: Hashable) -> Any:
        own = _children(getattr(env, f"{what}_spaces", None))
        if own is not None and key in own:
            return own[key]
        space = getattr(env, f"{what}_space", None)
        children = _children(space)
        if children is not None and all(agent in children for agent in agents):
            return children[key]
        if isinstance(space, dict):
            return space[key]
        if callable(space):
            return space(key)
        get = getattr(env, f"get_{what}_space", None)
        if space is None and callable(get):
            return get(key)
        return space

    return space_of
