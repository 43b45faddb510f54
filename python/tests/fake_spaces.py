"""Spaces with the attributes of Gymnasium's, for tests that need NumPy alone."""

from collections.abc import Mapping

import numpy as np


class Box:
    def __init__(self, low, high, shape=None, dtype=np.float32):
        self.shape = tuple(np.shape(low) if shape is None else shape)
        self.dtype = np.dtype(dtype)
        self.low, self.high = (np.broadcast_to(np.asarray(bound, dtype=dtype), self.shape) for bound in (low, high))


class Discrete:
    def __init__(self, n, start=0):
        self.n, self.start = n, start


class MultiDiscrete:
    dtype = np.dtype(np.int64)

    def __init__(self, nvec, start=None):
        self.nvec = np.asarray(nvec)
        self.start = np.zeros_like(self.nvec) if start is None else np.asarray(start)


class MultiBinary:
    def __init__(self, n):
        self.n = n


class Dict(Mapping):
    """A mapping, as Gymnasium's."""

    def __init__(self, spaces):
        self.spaces = dict(spaces)

    def __getitem__(self, key):
        return self.spaces[key]

    def __iter__(self):
        return iter(self.spaces)

    def __len__(self):
        return len(self.spaces)


class Tuple:
    def __init__(self, spaces):
        self.spaces = tuple(spaces)

    def __len__(self):
        return len(self.spaces)

    def __getitem__(self, i):
        return self.spaces[i]


class Text:
    """A kind that is not supported."""
