"""Spaces as Troupe writes them, "Box(-1, 1, [3])", and what stands in flattened rows of them (lib/space/space.h): rows to
observations and masks, actions to rows. The other way round, for environments in Python: troupe.env_adapters.spaces."""

from __future__ import annotations

import dataclasses
import operator
import re
from typing import Any

import numpy as np

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([A-Za-z_][A-Za-z_0-9]*)|([-+]?(?:inf\b|[0-9.][0-9.eE+-]*))|([()\[\]{},:=]))')


@dataclasses.dataclass(frozen=True)
class Space:
    """kind: Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple; the other fields as the kind needs them."""

    kind: str
    low: Any = None
    high: Any = None
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    n: int = 0
    start: int = 0
    nvec: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    children: tuple["Space", ...] = ()

    @property
    def flat_dtype(self) -> type:
        return np.uint8 if self.kind == "Box" and self.dtype == "uint8" else np.float32

    @property
    def flat_size(self) -> int:
        """Elements of a flattened observation."""
        if self.kind == "Box":
            return int(np.prod(self.shape))
        if self.kind in ("Discrete", "MultiBinary"):
            return self.n
        return sum(self.nvec) if self.kind == "MultiDiscrete" else sum(child.flat_size for child in self.children)

    @property
    def action_words(self) -> int:
        if self.kind == "Box":
            return int(np.prod(self.shape))
        if self.kind in ("Discrete", "MultiBinary"):
            return 1 if self.kind == "Discrete" else self.n
        return len(self.nvec) if self.kind == "MultiDiscrete" else sum(child.action_words for child in self.children)

    @property
    def mask_size(self) -> int:
        """Bytes of an action mask: one for each category of every discrete part."""
        if self.kind in ("Discrete", "MultiBinary"):
            return self.n if self.kind == "Discrete" else 2 * self.n
        return sum(self.nvec) if self.kind == "MultiDiscrete" else sum(child.mask_size for child in self.children)

    def description(self) -> dict[str, Any]:
        """As troupe.env_adapters.spaces.SpaceCodec reads it."""
        if self.kind == "Dict":
            return {"type": "Dict", "spaces": {key: child.description() for key, child in zip(self.keys, self.children)}}
        if self.kind == "Tuple":
            return {"type": "Tuple", "spaces": [child.description() for child in self.children]}
        return {"type": self.kind, "shape": list(self.shape), "dtype": self.dtype, "n": self.n, "start": self.start, "nvec": list(self.nvec)}

    def words_are_discrete(self) -> list[bool]:
        """Of an action row, word by word."""
        if self.kind in ("Dict", "Tuple"):
            return [word for child in self.children for word in child.words_are_discrete()]
        return [self.kind != "Box"] * self.action_words

    def unflatten(self, row: np.ndarray) -> Any:
        """The observation that a flattened row holds, a copy, in Gymnasium's form."""
        if self.kind == "Box":
            return row.reshape(self.shape).astype(self.dtype)
        if self.kind == "Discrete":
            return np.int64(self.start + int(np.argmax(row)))
        if self.kind == "MultiBinary":
            return row.astype(np.int8)
        if self.kind == "MultiDiscrete":
            return np.array([np.argmax(part) for part in self._split(row, self.nvec)], dtype=np.int64)
        parts = self._split(row, [child.flat_size for child in self.children])
        return self._compose([child.unflatten(part) for child, part in zip(self.children, parts)])

    def unflatten_rows(self, rows: np.ndarray) -> Any:
        """The observations of flattened rows, a copy: an array with a row each, or a list where the space is a Dict or Tuple."""
        if self.kind == "Box":
            return rows.reshape(len(rows), *self.shape).astype(self.dtype)
        observations = [self.unflatten(row) for row in rows]
        return observations if self.kind in ("Dict", "Tuple") else np.array(observations)

    def nothing(self) -> Any:
        """An observation of zeros, or what the space has that is nearest: for who has not observed anything yet."""
        if self.kind == "Box":
            return np.clip(np.zeros(self.shape), self._bound(self.low, np.dtype(float)), self._bound(self.high, np.dtype(float))).astype(self.dtype)
        if self.kind in ("Dict", "Tuple"):
            return self._compose([child.nothing() for child in self.children])
        return self.unflatten(np.zeros(self.flat_size, dtype=np.float32))

    def encode(self, action: Any, words: np.ndarray, floats: np.ndarray) -> None:
        """Writes an action of Gymnasium's form into an action row, given as int32 and, the same memory, as float32. ValueError or
        TypeError when it has another form; whether it is inside the space the environment checks."""
        if self.kind == "Box":
            floats[:] = self._sized(np.asarray(action, dtype=np.float32), floats.size)
        elif self.kind == "Discrete":
            words[0] = operator.index(action.item() if isinstance(action, np.ndarray) else action)
        elif self.kind in ("MultiDiscrete", "MultiBinary"):
            numbers = self._sized(np.asarray(action), words.size)
            if numbers.dtype.kind not in "iub":
                raise TypeError(f"got elements of type {numbers.dtype}, expected integers")
            if any(number != word for number, word in zip(numbers.tolist(), numbers.astype(np.int32).tolist())):
                raise ValueError(f"got {numbers.tolist()}, expected numbers of 32 bits")
            words[:] = numbers
        else:
            if len(action) != len(self.children):
                raise ValueError(f"got {len(action)} parts, expected {len(self.children)}")
            offset = 0
            for key, child in zip(self.keys or range(len(self.children)), self.children):
                end = offset + child.action_words
                child.encode(action[key], words[offset:end], floats[offset:end])
                offset = end

    @staticmethod
    def _sized(values: np.ndarray, size: int) -> np.ndarray:
        """The values in a row; assigning would repeat a single one."""
        if values.size != size:
            raise ValueError(f"got {values.size} elements, expected {size}")
        return values.reshape(-1)

    def mask(self, row: np.ndarray) -> Any:
        """An action mask as Gymnasium's `sample(mask)` takes it, a copy; None for continuous parts."""
        if self.kind == "Box":
            return None
        if self.kind == "Discrete":
            return row.astype(np.int8)
        if self.kind == "MultiDiscrete":
            return tuple(part.astype(np.int8) for part in self._split(row, self.nvec))
        if self.kind == "MultiBinary":  # 0 and 1: only this value, 2: both
            pairs = row.reshape(-1, 2)
            return np.where(pairs.all(axis=1), 2, pairs[:, 1]).astype(np.int8)
        parts = self._split(row, [child.mask_size for child in self.children])
        return self._compose([child.mask(part) for child, part in zip(self.children, parts)])

    def gymnasium(self):
        """The gymnasium.spaces.Space."""
        from gymnasium import spaces

        if self.kind == "Box":
            dtype = np.dtype(self.dtype)
            return spaces.Box(self._bound(self.low, dtype), self._bound(self.high, dtype), shape=self.shape, dtype=dtype.type)
        if self.kind == "Discrete":
            return spaces.Discrete(self.n, start=self.start)
        if self.kind == "MultiDiscrete":
            return spaces.MultiDiscrete(self.nvec)
        if self.kind == "MultiBinary":
            return spaces.MultiBinary(self.n)
        return (spaces.Dict if self.kind == "Dict" else spaces.Tuple)(self._compose([child.gymnasium() for child in self.children]))

    def gymnasium_mask(self):
        """The space of `mask`'s results, or None where some part has none: only Discrete and MultiDiscrete have."""
        from gymnasium import spaces

        if self.kind == "Discrete":
            return spaces.Box(0, 1, (self.n,), np.int8)
        if self.kind == "MultiDiscrete":
            return spaces.Tuple([spaces.Box(0, 1, (n,), np.int8) for n in self.nvec])
        return None

    def _bound(self, bound: Any, dtype: np.dtype) -> Any:
        if not isinstance(bound, list):
            return dtype.type(bound) if dtype.kind == "f" or np.isfinite(bound) else bound
        return np.array(bound, dtype=dtype).reshape(self.shape)

    def _compose(self, parts: list) -> Any:
        return dict(zip(self.keys, parts)) if self.kind == "Dict" else tuple(parts)

    @staticmethod
    def _split(row: np.ndarray, sizes) -> list[np.ndarray]:
        return np.split(row, np.cumsum(sizes)[:-1])


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error()
            self.tokens.append(match.group().strip())
            position = match.end()

    def error(self) -> ValueError:
        return ValueError(f"'{self.text[:80]}' is not a space, expected one like Box(-1, 1, [3])")

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def take(self, expected: str | None = None) -> str:
        if not self.tokens or (expected is not None and self.tokens[0] != expected):
            raise self.error()
        return self.tokens.pop(0)

    def try_take(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.tokens.pop(0)
        return True

    def many(self, end: str, one) -> list:
        items = [one()]
        while self.try_take(","):
            items.append(one())
        self.take(end)
        return items

    def number(self) -> float:
        try:
            return float(self.take())
        except ValueError:
            raise self.error() from None

    def integers(self) -> tuple[int, ...]:
        self.take("[")
        return tuple(int(number) for number in self.many("]", self.number))

    def bound(self) -> float | list[float]:
        return self.many("]", self.number) if self.try_take("[") else self.number()

    def item(self) -> tuple[str, Space]:
        key = self.take()
        if key.startswith('"'):
            key = re.sub(r"\\(.)", r"\1", key[1:-1])
        self.take(":")
        return key, self.space()

    def space(self) -> Space:
        kind = self.take()
        if kind == "Dict":
            self.take("{")
            items = sorted(self.many("}", self.item))
            return Space(kind, keys=tuple(key for key, _ in items), children=tuple(child for _, child in items))
        self.take("(")
        if kind == "Tuple":
            return Space(kind, children=tuple(self.many(")", self.space)))
        if kind == "MultiDiscrete":
            space = Space(kind, nvec=self.integers())
        elif kind == "MultiBinary":
            space = Space(kind, n=int(self.number()))
        elif kind == "Discrete":
            n, start = int(self.number()), 0
            if self.try_take(","):
                if self.try_take("start"):
                    self.take("=")
                start = int(self.number())
            space = Space(kind, n=n, start=start)
        elif kind == "Box":
            low = self.bound()
            self.take(",")
            high, shape, dtype = self.bound(), None, "float32"
            while self.try_take(","):
                if self.peek() == "[":
                    shape = self.integers()
                else:
                    dtype = self.take()
            if shape is None:
                shape = (len(low),) if isinstance(low, list) else ()
            space = Space(kind, low=low, high=high, shape=shape, dtype=dtype)
        else:
            raise self.error()
        self.take(")")
        return space


def parse(text: str) -> Space:
    """ValueError for what is not a space."""
    parser = _Parser(text)
    space = parser.space()
    if parser.tokens:
        raise parser.error()
    return space
