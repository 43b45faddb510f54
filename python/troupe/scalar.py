"""Numbers that come in other forms: environments made on numpy, JAX or PyTorch give arrays of one element."""

from __future__ import annotations

from typing import Any


def one_number(value: Any) -> float:
    """`value` as a float: a number, or an array or tensor of one element. ValueError says what else it is: "an array of shape (2,)"."""
    shape = getattr(value, "shape", None)
    if shape:
        if any(size != 1 for size in shape):
            raise ValueError(f"an array of shape {tuple(shape)}")
        value = value.item()
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r:.200}") from None
