"""The spaces of an adapter's agents and of the global state: what the environment declares, and what it shows."""

from __future__ import annotations

from typing import Any, Callable, Hashable, Iterable

import numpy as np

from troupe.env_adapters import spaces
from troupe.env_adapters.base import EnvAdapterError
from troupe.env_adapters.observation_view import STATE_KEY, ObservationView, float_rows

#: The end of errors about a global state.
NO_STATE = "env.python.global_state: false asks for none"


class AgentSpaces:
    """The part of AdapterCore, its only subclass, that finds spaces and checks that they stay."""

    def _possible_agents(self) -> list:
        """The agents that may take part; those after a first reset where the environment does not say."""
        agents = getattr(self._env, "possible_agents", None)
        if agents is None:
            self._reset_env(0)
            agents = getattr(self._env, "agents", None)
        if agents is None:
            raise EnvAdapterError(
                f"environment {self.name}: {type(self._env).__name__} has methods observation_space and action_space, "
                f"but says neither before nor after a reset who plays; expected a list possible_agents, or agents, as "
                f"PettingZoo's ParallelEnv has"
            )
        return in_order(agents)

    def _first_spaces(self) -> list[tuple[Any, Any]]:
        """The agents' spaces. Some environments know them after a reset only, and some declare none of what they observe:
        then the first observation says it, where it is an array of numbers.
        """
        try:
            return [self._spaces_of(key) for key in self._declared]
        except EnvAdapterError as missing:
            try:
                returned = self._reset_env(0)
            except Exception:
                raise missing from None
        observations = returned[0] if isinstance(returned, tuple) and returned else returned
        for key in self._declared:
            value = observations.get(key) if isinstance(observations, dict) else None
            if isinstance(value, np.ndarray) and _shape_of_numbers(value) and self._declared_space("observation", key)[0] is None:
                self._observed_spaces[key] = spaces.Box(value)
        found = [self._spaces_of(key) for key in self._declared]
        if self._observed_spaces:
            key, space = next(iter(self._observed_spaces.items()))
            text = spaces.to_text(spaces.describe(space))
            self.warn("spaces", f"agent {key} declares no observation space: its first observation makes it {text}")
        return found

    def _declared_space(self, what: str, key: Hashable) -> tuple[Any, str]:
        """The space, or None and why."""
        try:
            return self._space_of(what, key), ""
        except (KeyError, AttributeError, IndexError) as e:
            return None, f" ({type(e).__name__}: {e})"

    def _spaces_of(self, key: Hashable) -> tuple[Any, Any]:
        found = []
        for what in ("observation", "action"):
            space, why = self._declared_space(what, key)
            if space is None and what == "observation":
                space = self._observed_spaces.get(key)
            if space is None:
                raise EnvAdapterError(f"environment {self.name}, agent {key}: its {what} space is missing{why}")
            found.append(space)
        return found[0], found[1]

    def _described(self, key: Hashable, what: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except spaces.SpaceError as e:
            raise EnvAdapterError(f"environment {self.name}, agent {key}, {what} space: {e}") from None

    def _find_state(self) -> dict | None:
        """Sets where the state comes from: Dict observations, else infos, else the environment's state()."""
        if not self._global_state:
            return None
        states = [view.state_description for view in self._views]
        if any(states):
            if any(state != states[0] for state in states):
                raise EnvAdapterError(
                    f"environment {self.name}: the key 'state' of the observation spaces differs between agents, "
                    f"expected one space for all"
                )
            self._state_source = "observation"
            return states[0]
        if STATE_KEY in self._probed:
            return self._find_state_of_infos(*self._probed[STATE_KEY])
        space, state = getattr(self._env, "state_space", None), getattr(self._env, "state", None)
        if space is None or not callable(state):
            return None
        self._state_source = "environment"
        try:
            return float_rows(spaces.describe(space))
        except spaces.SpaceError as e:
            raise EnvAdapterError(f"environment {self.name}, state space: {e} ({NO_STATE})") from None

    def _find_state_of_infos(self, source: str, values: list) -> dict | None:
        """The state is what infos call `state`, if that is an array of numbers, of one shape for all agents."""
        shapes = [_shape_of_numbers(value) for value in values]
        wrong = next((value for value, shape in zip(values, shapes) if not shape or shape != shapes[0]), None)
        if not shapes[0] or any(shape != shapes[0] for shape in shapes):
            self.warn(
                "state",
                f"infos hold the key 'state' (got {wrong!r:.100}), which is not taken for the global state: expected an array "
                f"of numbers, of one shape for all agents",
            )
            return None
        self._state_source, self._state_shape = source, shapes[0]
        return {
            "type": "Box",
            "shape": list(shapes[0]),
            "dtype": "float32",
            "low": "-inf",
            "high": "inf",
        }

    def _state_of_info(self, value: Any, i: int | None = None) -> Any:
        """A state that infos hold, checked."""
        if _shape_of_numbers(value) != self._state_shape:
            raise self.error(
                f"the info's key 'state' is {value!r:.100}, expected an array of numbers of shape {self._state_shape}, as at the "
                f"first reset, from when on it is taken for the global state ({NO_STATE})",
                i,
            )
        return value

    def _check_spaces(self) -> None:
        for i, (key, (observation, action)) in enumerate(zip(self._declared, self._raw_spaces)):
            if i > 0 and self._in_one_pool(i - 1, i):
                continue
            now = self._spaces_of(key)
            if now[0] is observation and now[1] is action:
                continue
            view = self._described(key, "observation", lambda s=now[0]: ObservationView(s, self._take_state))
            for what, before, after in (
                ("observation", self._views[i].description, view.description),
                ("action", self._action_spaces[i], self._described(key, "action", lambda s=now[1]: spaces.describe(s))),
            ):
                if before != after:
                    raise self.error(
                        f"its {what} space changed from {spaces.to_text(before)} to {spaces.to_text(after)}, "
                        f"expected the same for ever",
                        i,
                    )
            self._raw_spaces[i] = now


def in_order(agents: Iterable[Hashable]) -> list:
    """The agents as a list. The order of a set differs between processes, so that its agents are sorted."""
    if isinstance(agents, (set, frozenset)):
        return sorted(agents, key=lambda key: (len(str(key)), str(key)))
    return list(agents)


def _shape_of_numbers(value: Any) -> tuple | None:
    """The shape of an array of numbers, or of lists of them that have the form of one; None for anything else."""
    try:
        array = np.asarray(value)
    except Exception:  # whatever an object's own __array__ raises
        return None
    return array.shape if array.ndim and array.size and array.dtype.kind in "biuf" else None
