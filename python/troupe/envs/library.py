"""Finds and loads libtroupe_envs.so and declares its functions (lib/envs/c_api/env_arrays.h)."""

from __future__ import annotations

import ctypes
import functools
import glob
import os

ARRAYS_VERSION = 1
ERROR_BYTES = 1024
LIBRARY = "libtroupe_envs.so"
VARIABLE = "TROUPE_ENVS_LIBRARY"


class NativeEnvError(RuntimeError):
    """What an environment or its library answered. `code` is gRPC's number: 3 a bad argument or action, 5 an unknown name, …"""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code

    def __reduce__(self):
        return type(self), (self.code, str(self))


class ErrorText(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * ERROR_BYTES)]


class Seed(ctypes.Structure):
    _fields_ = [("seed", ctypes.c_uint64), ("env_id", ctypes.c_uint32), ("episode", ctypes.c_uint32)]


class Arrays(ctypes.Structure):
    _fields_ = [
        ("num_agents", ctypes.c_int32),
        ("num_info_columns", ctypes.c_int32),
        ("state_rows", ctypes.c_uint64),
        ("state_size", ctypes.c_uint64),
        ("observation_offsets", ctypes.POINTER(ctypes.c_uint64)),
        ("action_mask_offsets", ctypes.POINTER(ctypes.c_uint64)),
        ("action_offsets", ctypes.POINTER(ctypes.c_uint64)),
        ("observations", ctypes.POINTER(ctypes.c_uint8)),
        ("action_masks", ctypes.POINTER(ctypes.c_uint8)),
        ("states", ctypes.POINTER(ctypes.c_float)),
        ("rewards", ctypes.POINTER(ctypes.c_float)),
        ("infos", ctypes.POINTER(ctypes.c_double)),
        ("flags", ctypes.POINTER(ctypes.c_uint8)),
        ("actions", ctypes.POINTER(ctypes.c_int32)),
    ]


def candidates() -> list[str]:
    """Where the library may be, first come first served."""
    here = os.path.dirname(os.path.abspath(__file__))
    given = os.environ.get(VARIABLE)
    if given:
        return [given]
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    if not os.path.isfile(os.path.join(root, "CMakePresets.json")):  # installed, no checkout
        return [os.path.join(here, LIBRARY)]
    builds = sorted(glob.glob(os.path.join(root, "build", "*", "lib", "envs", "c_api", LIBRARY)))
    release = os.path.join(root, "build", "release", "lib", "envs", "c_api", LIBRARY)
    return [os.path.join(here, LIBRARY), release, *builds]


def find_library() -> str:
    """The library's path. FileNotFoundError says where it was looked for."""
    places = candidates()
    for path in places:
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"found no {LIBRARY} at {', '.join(places)}; the Python package comes without it: './troupe build troupe_envs_c' in a "
                            f"checkout of Troupe makes it, and {VARIABLE}=CHECKOUT/build/release/lib/envs/c_api/{LIBRARY} says where it is")


@functools.lru_cache(maxsize=None)
def load(path: str) -> ctypes.CDLL:
    """The library at `path` with its functions' types. OSError: not a shared library for this machine; ImportError: not ours, or of
    another version."""
    library = ctypes.CDLL(path)
    try:
        version = library.troupe_arrays_version
    except AttributeError:
        raise ImportError(f"{path} has no function troupe_arrays_version, expected Troupe's {LIBRARY}") from None
    version.restype = ctypes.c_uint32
    if version() != ARRAYS_VERSION:
        raise ImportError(f"{path} has version {version()}, expected {ARRAYS_VERSION}: library and Python package are of different Troupes")
    env, error = ctypes.c_void_p, ctypes.POINTER(ErrorText)
    for name, result, arguments in [
        ("list", ctypes.c_int32, [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), error]),
        ("free", None, [ctypes.c_void_p]),
        ("make", ctypes.c_int32, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(env), error]),
        ("spec", ctypes.c_char_p, [env]),
        ("view", ctypes.POINTER(Arrays), [env]),
        ("reset", ctypes.c_int32, [env, ctypes.POINTER(Seed), error]),
        ("step", ctypes.c_int32, [env, error]),
        ("destroy", None, [env]),
    ]:
        function = getattr(library, "troupe_arrays_" + name)
        function.restype, function.argtypes = result, arguments
    return library
