"""Spaces of Python environments: as JSON, as flat rows, and actions back from words. The other way round, for native
environments in Python: troupe.envs.spaces.

The layout is that of lib/space: a Box as it is, Discrete and MultiDiscrete one-hot, MultiBinary 0/1, Dict (keys in the
order of their bytes) and
Tuple concatenated; uint8 rows for a uint8 Box, float32 for everything else. Actions are 4-byte words, int32 for
discrete leaves and float32 for
continuous ones. Masks have a byte for every category of every discrete leaf, two a bit for MultiBinary.

Spaces are recognized by the names of their classes and their attributes, so that Gymnasium's, Gym's and a user's own
work alike.
"""

import math
import operator
from typing import Any, Callable, Dict, List, Optional

import numpy as np

#: Elements of a flattened row at most, as lib/space.
MAX_ELEMENTS = 1 << 24
#: Levels of Dict and Tuple inside one another at most, as lib/space.
MAX_DEPTH = 32

_KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
#: What a space may be, for errors.
SUPPORTED = f"{', '.join(_KINDS[:-1])} or {_KINDS[-1]}"
_FLOAT32 = np.dtype(np.float32)
_UINT8 = np.dtype(np.uint8)
#: A Box's dtype -> the nearest that lib/space knows.
_DTYPES = {
    "float16": "float32",
    "float32": "float32",
    "float64": "float64",
    "int8": "int32",
    "int16": "int32",
    "int32": "int32",
    "int64": "int64",
    "bool": "int32",
    "uint8": "uint8",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "int64",
}


class SpaceError(ValueError):
    """A space that cannot be described, or a value that does not fit its space."""


class Box:
    """The space of an array of numbers, for environments that declare none: bytes, or floats without bounds."""

    def __init__(self, observation: np.ndarray):
        of_bytes = observation.dtype == _UINT8
        self.shape, self.dtype = observation.shape, _UINT8 if of_bytes else _FLOAT32
        self.low, self.high = (0, 255) if of_bytes else (-np.inf, np.inf)


def kind(space: Any) -> Optional[str]:
    """ "Box", "Discrete", … of a space object; None when it is none of these. A class BoxSpace is a Box, too."""
    for cls in type(space).__mro__:
        name = cls.__name__
        name = name[: -len("Space")] if name.endswith("Space") else name
        if name in _KINDS:
            return name
    return None


def describe(space: Any) -> dict:
    """The space as a dict that JSON can hold. Unsupported kinds, empty ones and bounds that make no sense are a
    SpaceError.
    """
    description = _describe(space, 0)
    size = SpaceCodec(description)
    if max(size.flat_size, size.mask_size) > MAX_ELEMENTS:
        raise SpaceError(
            f"the space is too large: {max(size.flat_size, size.mask_size)} elements, expected at most {MAX_ELEMENTS}"
        )
    return description


def _describe(space: Any, depth: int) -> dict:
    name = kind(space)
    if depth > MAX_DEPTH:
        raise SpaceError(f"the space is nested deeper than {MAX_DEPTH} levels")
    if name == "Box":
        return _describe_box(space)
    if name == "Discrete":
        n, start = int(space.n), int(getattr(space, "start", 0))
        if n < 1 or start < -(1 << 31) or start + n > 1 << 31:
            raise SpaceError(
                f"Discrete({n}, start={start}): expected at least one value, and all of them 32-bit integers"
            )
        return {"type": "Discrete", "n": n, "start": start}
    if name == "MultiDiscrete":
        nvec = np.asarray(space.nvec)
        if nvec.size == 0 or int(nvec.min()) < 1:
            raise SpaceError(f"MultiDiscrete({nvec.tolist()}): expected at least one component, and each at least 1")
        start = np.asarray(getattr(space, "start", 0))
        start = np.broadcast_to(start, nvec.shape).reshape(-1)
        return {
            "type": "MultiDiscrete",
            "nvec": [int(n) for n in nvec.reshape(-1)],
            "python": {
                "shape": list(nvec.shape),
                "dtype": str(getattr(space, "dtype", None) or "int64"),
                "start": [int(s) for s in start],
            },
        }
    if name == "MultiBinary":
        shape = [int(d) for d in np.atleast_1d(space.n)]
        if not shape or min(shape) < 1:
            raise SpaceError(f"MultiBinary({space.n}): expected at least one bit")
        return {"type": "MultiBinary", "n": int(np.prod(shape)), "python": {"shape": shape}}
    if name == "Dict":
        for key in space.spaces:
            if not isinstance(key, str):
                raise SpaceError(f"Dict with the key {key!r} ({type(key).__name__}): expected strings")
        return {
            "type": "Dict",
            "spaces": _children({key: space.spaces[key] for key in sorted_keys(space.spaces)}.items(), name, depth),
        }
    if name == "Tuple":
        return {"type": "Tuple", "spaces": list(_children(enumerate(space.spaces), name, depth).values())}
    raise SpaceError(f"a space of kind {type(space).__name__} is not supported, expected {SUPPORTED}")


def _children(items: Any, name: str, depth: int) -> Dict[Any, dict]:
    described = {}
    for key, child in items:
        try:
            described[key] = _describe(child, depth + 1)
        except SpaceError as e:
            raise SpaceError(f"{name}[{key!r}]: {e}") from None
    if not described:
        raise SpaceError(f"an empty {name}: expected at least one space")
    return described


def sorted_keys(keys: Any) -> List[str]:
    """The keys of a Dict in the order of its rows."""
    return sorted(keys, key=lambda key: key.encode())


def _describe_box(space: Any) -> dict:
    dtype = np.dtype(space.dtype)
    if dtype.name not in _DTYPES:
        raise SpaceError(f"a Box of dtype {dtype.name} is not supported, expected one of {', '.join(_DTYPES)}")
    shape = [int(d) for d in space.shape]
    if shape and min(shape) < 1:
        raise SpaceError(f"a Box of shape {tuple(shape)}: expected dimensions of at least 1")
    if math.prod(shape) > MAX_ELEMENTS:
        raise SpaceError(
            f"the space is too large: a Box of {math.prod(shape)} elements, expected at most {MAX_ELEMENTS}"
        )
    bounds = [
        np.broadcast_to(np.asarray(bound, dtype=np.float64), shape).reshape(-1) for bound in (space.low, space.high)
    ]
    if np.isnan(bounds).any() or (bounds[0] > bounds[1]).any():
        raise SpaceError("a Box with bounds that are NaN or cross: expected low <= high")
    limit = float(1 << 63)
    if dtype.kind == "u" and dtype.itemsize == 8:
        bounds = [np.clip(bound, -limit, limit) for bound in bounds]
    description = {
        "type": "Box",
        "shape": shape or [1],
        "dtype": _DTYPES[dtype.name],
        "low": _bounds(bounds[0]),
        "high": _bounds(bounds[1]),
    }
    if not shape or description["dtype"] != dtype.name:
        description["python"] = {"shape": shape, "dtype": dtype.name}
    return description


def _bounds(values: np.ndarray) -> Any:
    numbers = [_number(v) for v in ([values[0]] if (values == values[0]).all() else values)]
    return numbers[0] if len(numbers) == 1 else numbers


def _number(value: float) -> Any:
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return int(value) if float(value).is_integer() and abs(value) < 1 << 53 else float(value)


def to_text(description: dict) -> str:
    """The space as lib/space's ParseSpace reads it: "Box(-1, 1, [3])", "Dict{a: Discrete(2)}"."""
    name = description["type"]
    if name == "Box":

        def bound(value: Any) -> str:
            return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, list) else str(value)

        dtype = "" if description["dtype"] == "float32" else ", " + description["dtype"]
        return f"Box({bound(description['low'])}, {bound(description['high'])}, {description['shape']}{dtype})"
    if name == "Discrete":
        return (
            f"Discrete({description['n']}, {description['start']})"
            if description["start"]
            else f"Discrete({description['n']})"
        )
    if name == "MultiDiscrete":
        return f"MultiDiscrete({description['nvec']})"
    if name == "MultiBinary":
        return f"MultiBinary({description['n']})"
    if name == "Dict":
        return "Dict{" + ", ".join(f"{_key(k)}: {to_text(c)}" for k, c in description["spaces"].items()) + "}"
    return "Tuple(" + ", ".join(to_text(child) for child in description["spaces"]) + ")"


def _key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "a").isalnum()
    return key if plain else '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


class SpaceCodec:
    """Flattens values of one space and rebuilds its actions. Made once from a description, then used for every row;
    immutable.

    flat_size: elements of an observation row; flat_dtype: "float32" or "uint8". action_words: words of an action row.
    mask_size: bytes of a mask.
    flatten_into(value, out): writes the whole row, out being one-dimensional of flat_size elements; SpaceError says
    what does not fit.
    unflatten_action(words): the action in the space's own form, from int32 words (continuous ones hold float32 bits).
    Owns its memory.
    flatten_mask(mask): a uint8 row of mask_size from a flat array, or from what Gymnasium's sample(mask) takes (None:
    everything allowed).
    mask_leaves: (first byte, end) of every discrete leaf.
    """

    __slots__ = (
        "description",
        "flat_size",
        "flat_dtype",
        "action_words",
        "mask_size",
        "mask_leaves",
        "flatten_into",
        "unflatten_action",
        "_nested_mask",
    )

    def __init__(self, description: dict):
        self.description = description
        self.flat_dtype = "float32"
        make = {
            "Box": self._box,
            "Discrete": self._discrete,
            "MultiDiscrete": self._multi_discrete,
            "MultiBinary": self._multi_binary,
            "Dict": self._composite,
            "Tuple": self._composite,
        }[description["type"]]
        self.flatten_into: Callable[[Any, np.ndarray], None]
        self.unflatten_action: Callable[[np.ndarray], Any]
        self._nested_mask: Callable[[Any, np.ndarray], None]
        make(description)

    def flatten_mask(self, mask: Any) -> np.ndarray:
        if type(mask) is np.ndarray and mask.ndim == 1 and mask.size == self.mask_size and mask.dtype.kind in "uib":
            if mask.dtype.kind != "b" and mask.size and (mask.max() > 1 or mask.min() < 0):
                raise SpaceError(f"got {mask.tolist()}, expected zeros and ones")
            return mask if mask.dtype is _UINT8 else mask.astype(np.uint8)
        flat = np.ones(self.mask_size, dtype=np.uint8)
        array = None if isinstance(mask, dict) else _mask_array(mask)
        if array is not None and array.size == self.mask_size:
            flat[:] = _zeros_and_ones(array)
        else:
            self._nested_mask(mask, flat)
        return flat

    # A leaf fills the attributes with functions that close over its numbers: a call costs no look-up.

    def _box(self, d: dict) -> None:
        source = d.get("python", {})
        shape = tuple(source.get("shape", d["shape"]))
        dtype = np.dtype(source.get("dtype", d["dtype"]))
        self.flat_size = self.action_words = math.prod(shape)
        self.mask_size, self.mask_leaves = 0, ()
        whole = dtype.kind in "uib"
        if d["dtype"] == "uint8":
            self.flat_dtype = "uint8"
        flat = len(shape) == 1

        def flatten_into(value: Any, out: np.ndarray) -> None:
            if type(value) is not np.ndarray or value.dtype is not dtype:
                value = _box_array(value, dtype, whole)
            if value.shape != shape:
                raise SpaceError(f"got an array of shape {value.shape}, expected {shape}")
            if flat:
                out[:] = value
            else:
                out.reshape(shape)[...] = value

        def unflatten_action(words: np.ndarray) -> np.ndarray:
            values = words.view(_FLOAT32)
            return (np.rint(values) if whole else values).astype(dtype).reshape(shape)

        self.flatten_into, self.unflatten_action, self._nested_mask = flatten_into, unflatten_action, _no_mask

    def _discrete(self, d: dict) -> None:
        n, start = d["n"], d["start"]
        self.flat_size = self.mask_size = n
        self.action_words, self.mask_leaves = 1, ((0, n),)

        def flatten_into(value: Any, out: np.ndarray) -> None:
            try:
                category = operator.index(value) - start
            except TypeError:
                raise SpaceError(f"got {_shown(value)}, expected an integer in [{start}, {start + n - 1}]") from None
            if not 0 <= category < n:
                raise SpaceError(f"got {category + start}, expected an integer in [{start}, {start + n - 1}]")
            out.fill(0)
            out[category] = 1

        def unflatten_action(words: np.ndarray) -> int:
            return int(words[0])

        self.flatten_into, self.unflatten_action, self._nested_mask = flatten_into, unflatten_action, _flat_mask

    def _multi_discrete(self, d: dict) -> None:
        nvec = np.asarray(d["nvec"], dtype=np.int64)
        source = d.get("python", {})
        start = np.asarray(source.get("start", [0] * len(nvec)), dtype=np.int64)
        shape, dtype = tuple(source.get("shape", [len(nvec)])), np.dtype(source.get("dtype", "int64"))
        ends = np.cumsum(nvec)
        first = ends - nvec
        self.flat_size = self.mask_size = int(ends[-1])
        self.action_words = len(nvec)
        leaves = self.mask_leaves = tuple(zip(first.tolist(), ends.tolist()))

        def flatten_into(value: Any, out: np.ndarray) -> None:
            array = np.asarray(value)
            if array.shape != shape or array.dtype.kind not in "uib":
                raise SpaceError(f"got {_shown(value)}, expected integers of shape {shape}")
            categories = array.reshape(-1).astype(np.int64) - start
            bad = (categories < 0) | (categories >= nvec)
            if bad.any():
                i = int(bad.argmax())
                raise SpaceError(
                    f"component {i} is {categories[i] + start[i]}, expected an integer in [{start[i]}, "
                    f"{start[i] + nvec[i] - 1}]"
                )
            out.fill(0)
            out[first + categories] = 1

        def unflatten_action(words: np.ndarray) -> np.ndarray:
            return (words + start).astype(dtype).reshape(shape)

        def nested_mask(mask: Any, out: np.ndarray) -> None:
            if mask is None:
                return
            if not isinstance(mask, (tuple, list)) or len(mask) != len(leaves):
                raise SpaceError(
                    f"the action mask is {_shown(mask)}, expected {len(out)} bytes, or {len(leaves)} arrays, one a "
                    f"component"
                )
            for part, (begin, end) in zip(mask, leaves):
                _flat_mask(part, out[begin:end])

        self.flatten_into, self.unflatten_action, self._nested_mask = flatten_into, unflatten_action, nested_mask

    def _multi_binary(self, d: dict) -> None:
        n = d["n"]
        shape = tuple(d.get("python", {}).get("shape", [n]))
        self.flat_size = self.action_words = n
        self.mask_size = 2 * n
        self.mask_leaves = tuple((2 * i, 2 * i + 2) for i in range(n))

        def flatten_into(value: Any, out: np.ndarray) -> None:
            array = np.asarray(value)
            if array.shape != shape or array.dtype.kind not in "uibf" or not ((array == 0) | (array == 1)).all():
                raise SpaceError(f"got {_shown(value)}, expected zeros and ones of shape {shape}")
            out[:] = array.reshape(-1)

        def unflatten_action(words: np.ndarray) -> np.ndarray:
            return words.astype(np.int8).reshape(shape)

        def nested_mask(mask: Any, out: np.ndarray) -> None:
            if mask is None:
                return
            array = _mask_array(mask)
            if array is None or array.shape != shape or not np.isin(array, (0, 1, 2)).all():
                raise SpaceError(
                    f"the action mask is {_shown(mask)}, expected {len(out)} bytes, or of shape {shape} 0 and 1 for "
                    f"only this value and 2 for both"
                )
            pairs = out.reshape(n, 2)
            pairs[:, 0], pairs[:, 1] = array.reshape(-1) != 1, array.reshape(-1) != 0

        self.flatten_into, self.unflatten_action, self._nested_mask = flatten_into, unflatten_action, nested_mask

    def _composite(self, d: dict) -> None:
        named = d["type"] == "Dict"
        keys = sorted_keys(d["spaces"]) if named else range(len(d["spaces"]))
        flat = word = mask_end = 0
        parts = []
        leaves: list = []
        for key in keys:
            child = SpaceCodec(d["spaces"][key])
            parts.append(
                (
                    key,
                    child,
                    flat,
                    flat + child.flat_size,
                    word,
                    word + child.action_words,
                    mask_end,
                    mask_end + child.mask_size,
                )
            )
            leaves.extend((mask_end + begin, mask_end + end) for begin, end in child.mask_leaves)
            flat, word, mask_end = flat + child.flat_size, word + child.action_words, mask_end + child.mask_size
        self.flat_size, self.action_words, self.mask_size, self.mask_leaves = flat, word, mask_end, tuple(leaves)
        expected = f"a dict with the keys {', '.join(map(str, keys))}" if named else f"a tuple of {len(parts)}"

        def flatten_into(value: Any, out: np.ndarray) -> None:
            try:
                size = len(value)
                values = [value[part[0]] for part in parts]
            except (TypeError, KeyError, IndexError):
                raise SpaceError(f"got {_shown(value)}, expected {expected}") from None
            if size != len(parts):
                raise SpaceError(f"got {_shown(value)}, expected {expected}")
            for element, (key, child, begin, end, _, _, _, _) in zip(values, parts):
                try:
                    child.flatten_into(element, out[begin:end])
                except SpaceError as e:
                    raise SpaceError(f"[{key!r}]: {e}") from None

        def unflatten_action(words: np.ndarray) -> Any:
            actions = {key: child.unflatten_action(words[begin:end]) for key, child, _, _, begin, end, _, _ in parts}
            return actions if named else tuple(actions.values())

        def nested_mask(mask: Any, out: np.ndarray) -> None:
            if mask is None:
                return
            if not isinstance(mask, dict if named else (tuple, list)) or (not named and len(mask) != len(parts)):
                raise SpaceError(f"the action mask is {_shown(mask)}, expected {len(out)} bytes, or {expected}")
            unknown = set(mask) - set(keys) if named else ()
            if unknown:
                raise SpaceError(f"the action mask has the key {sorted(map(str, unknown))[0]!r}, expected {expected}")
            for key, child, _, _, _, _, begin, end in parts:
                part = mask.get(key) if named else mask[key]
                if part is not None:
                    out[begin:end] = child.flatten_mask(part)

        self.flatten_into, self.unflatten_action, self._nested_mask = flatten_into, unflatten_action, nested_mask


def _box_array(value: Any, dtype: np.dtype, whole: bool) -> np.ndarray:
    """`value` as an array whose elements the Box can take: any real numbers for a float one, whole ones of the dtype's
    range for an integer one.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise SpaceError(f"got {_shown(value)}, expected an array of {dtype.name}") from None
    if array.dtype.kind not in ("uib" if whole else "uibf"):
        raise SpaceError(f"got {_shown(value)} of dtype {array.dtype.name}, expected {dtype.name}")
    if dtype == _UINT8 and array.dtype.kind != "b" and array.dtype != _UINT8 and array.size:
        if int(array.min()) < 0 or int(array.max()) > 255:
            raise SpaceError(f"got numbers from {array.min()} to {array.max()}, expected uint8")
    return array


def _mask_array(mask: Any) -> Optional[np.ndarray]:
    try:
        array = np.asarray(mask)
    except ValueError:
        return None
    return array if array.dtype.kind in "uibf" else None


def _zeros_and_ones(mask: np.ndarray) -> np.ndarray:
    """The mask in a row."""
    if not ((mask == 0) | (mask == 1)).all():
        raise SpaceError(f"the action mask is {_shown(mask)}, expected zeros and ones")
    return mask.reshape(-1)


def _flat_mask(mask: Any, out: np.ndarray) -> None:
    if mask is None:
        return
    array = _mask_array(mask)
    if array is None or array.size != len(out):
        raise SpaceError(f"the action mask is {_shown(mask)}, expected {len(out)} bytes")
    out[:] = _zeros_and_ones(array)


def _no_mask(mask: Any, _out: np.ndarray) -> None:
    if mask is not None and np.size(mask) != 0:
        raise SpaceError("an action mask for a continuous action, expected None")


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"an array of shape {value.shape}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}... ({type(value).__name__})"


def flatten_into(description: dict, value: Any, out: np.ndarray) -> None:
    """SpaceCodec(description).flatten_into: for one row; keep a codec for many."""
    SpaceCodec(description).flatten_into(value, out)


def unflatten_action(description: dict, words: np.ndarray) -> Any:
    """SpaceCodec(description).unflatten_action: for one action; keep a codec for many."""
    return SpaceCodec(description).unflatten_action(words)


def flat_size(description: dict) -> int:
    return SpaceCodec(description).flat_size


def flat_dtype(description: dict) -> str:
    return SpaceCodec(description).flat_dtype


def action_words(description: dict) -> int:
    return SpaceCodec(description).action_words


def mask_size(description: dict) -> int:
    return SpaceCodec(description).mask_size
