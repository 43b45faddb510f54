"""SMAC's form: get_obs(), get_state() and get_avail_actions() beside step(), and one reward for all."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np

from troupe.env_adapters.core import AGENT_MASK_KEY
from troupe.env_adapters.gymnasium_env import ListAdapter, with_info
from troupe.env_adapters.observation_view import MASK_KEY, STATE_KEY

#: SMAC's infos about a whole episode. Each step has them, but only those of the last one count.
_SMAC_COLUMNS = ("battle_won", "dead_allies", "dead_enemies")


def is_smac(env: Any) -> bool:
    return all(callable(getattr(env, name, None)) for name in ("get_avail_actions", "get_state", "get_obs", "get_env_info"))


class SmacAdapter(ListAdapter):
    """Agents `agent_0`, `agent_1`, …. get_avail_actions() is their action mask, get_state() the global state. Who may do
    nothing but action 0 is dead: its decisions are in no loss.
    """

    kind = "SMAC"

    def __init__(self, name: str, env: Any, global_state: bool = True):
        super().__init__(name, _Lists(env, global_state), global_state)

    @property
    def env(self) -> Any:
        return self._env.env


class Box(SimpleNamespace):
    """As Gymnasium's."""


class Discrete(SimpleNamespace):
    """As Gymnasium's."""


class _Lists:
    """The environment with lists and infos, as ListAdapter takes them. What is not here is the environment's own."""

    def __init__(self, env: Any, gives_state: bool):
        self.env, self._gives_state = env, gives_state
        info = env.get_env_info()
        shape = info["obs_shape"] if isinstance(info["obs_shape"], (list, tuple)) else (info["obs_shape"],)
        self.observation_space = [Box(low=-np.inf, high=np.inf, shape=shape, dtype=np.float32)] * info["n_agents"]
        self.action_space = [Discrete(n=info["n_actions"])] * info["n_agents"]
        self.max_episode_steps = info.get("episode_limit", 0)
        self._of_episodes = _SMAC_COLUMNS if hasattr(env, "battles_won") and not hasattr(env, "info_columns") else ()
        if self._of_episodes:
            self.info_columns = self._of_episodes
        self.unwrapped = self

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.env, name)
        # SMAC's seed() says the seed that its constructor got.
        if name == "seed" and callable(value) and not inspect.signature(value).parameters:
            raise AttributeError(name)
        return value

    def reset(self, **seed: int) -> tuple[Any, dict]:
        _, info = with_info(self.env.reset(**seed))
        return self.env.get_obs(), self._with_masks(info)

    def step(self, actions: list) -> tuple[Any, Any, Any, Any, dict]:
        returned = self.env.step([int(action) for action in actions])
        if len(returned) == 5:
            _, reward, terminated, truncated, info = returned
        else:
            reward, terminated, info = returned[-3:]
            truncated = bool(terminated) and bool((info or {}).get("episode_limit"))
            terminated = terminated and not truncated
        if not (terminated or truncated):
            info = {key: value for key, value in (info or {}).items() if key not in self._of_episodes}
        return self.env.get_obs(), reward, terminated, truncated, self._with_masks(info)

    def _with_masks(self, info: Any) -> dict:
        masks = [np.asarray(mask, dtype=np.uint8) for mask in self.env.get_avail_actions()]
        alive = [bool(mask[1:].any()) for mask in masks]
        whole = {**(info or {}), MASK_KEY: masks, AGENT_MASK_KEY: alive}
        if self._gives_state:
            whole[STATE_KEY] = np.asarray(self.env.get_state(), dtype=np.float32)
        return whole
