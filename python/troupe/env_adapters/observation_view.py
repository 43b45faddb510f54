"""Dict observations that hold more than the actor's input."""

from __future__ import annotations

from typing import Any

from troupe.env_adapters import spaces

MASK_KEY = "action_mask"
STATE_KEY = "state"


class ObservationView:
    """How an agent's observation is read: a Dict's keys `action_mask` and `state` are no input of the actor.

    What is left is the observation; a single key that is left (`observation`, `obs`) stands for itself. `plain`:
    nothing is taken out.
    """

    __slots__ = ("description", "state_description", "has_mask", "has_state", "plain", "_keys", "_only")

    def __init__(self, space: Any, take_state: bool):
        self.has_mask = self.has_state = False
        self.state_description: dict | None = None
        self._keys: list[str] = []
        self._only: str | None = None
        if spaces.kind(space) == "Dict":
            self.has_mask = MASK_KEY in space.spaces
            self.has_state = take_state and STATE_KEY in space.spaces and len(space.spaces) > 1 + self.has_mask
        self.plain = not (self.has_mask or self.has_state)
        if self.plain:
            self.description = spaces.describe(space)
            return
        taken = ([MASK_KEY] if self.has_mask else []) + ([STATE_KEY] if self.has_state else [])
        self._keys = [key for key in space.spaces if key not in taken]
        if not self._keys:
            raise spaces.SpaceError(f"a Dict of nothing but {' and '.join(taken)}: expected an observation, too")
        if self.has_state:
            self.state_description = float_rows(spaces.describe(space.spaces[STATE_KEY]))
        if len(self._keys) == 1:
            self._only = self._keys[0]
            self.description = spaces.describe(space.spaces[self._only])
        else:
            whole = spaces.describe(space)
            self.description = {"type": "Dict", "spaces": {k: d for k, d in whole["spaces"].items() if k in self._keys}}

    def split(self, value: Any) -> tuple[Any, Any, Any]:
        """(observation, mask or None, state or None). KeyError names a missing key."""
        mask = value[MASK_KEY] if self.has_mask else None
        state = value[STATE_KEY] if self.has_state else None
        if self._only is not None:
            return value[self._only], mask, state
        return {key: value[key] for key in self._keys}, mask, state


def float_rows(description: dict) -> dict:
    """The description of a state: its rows are float32, also of a uint8 Box."""
    return (
        {
            **description,
            "dtype": "int32",
            "python": {"shape": description["shape"], "dtype": "uint8", **description.get("python", {})},
        }
        if description["type"] == "Box" and description["dtype"] == "uint8"
        else description
    )
