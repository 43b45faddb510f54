"""Finds and loads libtroupe_acting.so and declares its functions (lib/acting/acting.h)."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from typing import Any, Dict, List, Optional, Tuple

from troupe.program import TroupeError

ACTING_VERSION = 2
LIBRARY = "libtroupe_acting.so"
VARIABLE = "TROUPE_ACTING_LIBRARY"
MAX_ROWS = 65536


class ErrorText(ctypes.Structure):
    """TroupeActingError."""

    _fields_ = [("text", ctypes.c_char * 1024)]


class Rows(ctypes.Structure):
    """TroupeActingRows; pointers as addresses."""

    _fields_ = [("policy", ctypes.c_int32), ("deterministic", ctypes.c_int32), ("rows", ctypes.c_int64), ("observations", ctypes.c_void_p),
                ("action_masks", ctypes.c_void_p), ("keys", ctypes.c_void_p), ("state_in", ctypes.c_void_p), ("state_out", ctypes.c_void_p),
                ("actions", ctypes.c_void_p), ("logp", ctypes.c_void_p)]


def candidates() -> List[str]:
    """Where the library may be, first come first served."""
    given = os.environ.get(VARIABLE)
    if given:
        return [given]
    package = os.path.dirname(os.path.abspath(__file__))
    return [os.path.join(package, LIBRARY), os.path.join(os.path.dirname(os.path.dirname(package)), "build", "release", "lib", "acting", LIBRARY)]


@functools.lru_cache(maxsize=None)
def load() -> Any:
    """The library with its functions' types. TroupeError where there is none, or it is another Troupe's."""
    path = next((path for path in candidates() if os.path.isfile(path)), None)
    if path is None:
        raise TroupeError(f"found no {LIBRARY} at {', '.join(candidates())}: './troupe build troupe_acting' in a checkout of Troupe makes it, and "
                          f"{VARIABLE}=CHECKOUT/build/release/lib/acting/{LIBRARY} says where it is")
    library = ctypes.CDLL(path)
    library.troupe_acting_version.restype = ctypes.c_uint32
    version = library.troupe_acting_version()
    if version != ACTING_VERSION:
        raise TroupeError(f"{path} has version {version}, expected {ACTING_VERSION}: library and Python package are of different Troupes")
    library.troupe_acting_rows_bytes.restype = ctypes.c_size_t
    rows_bytes = library.troupe_acting_rows_bytes()
    if rows_bytes != ctypes.sizeof(Rows):
        raise TroupeError(f"{path} has rows of {rows_bytes} bytes, expected {ctypes.sizeof(Rows)}: library and Python package are of different Troupes")
    error = ctypes.POINTER(ErrorText)
    for name, result, arguments in (
        ("open", ctypes.c_int32, [ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p), error]),
        ("describe", ctypes.c_char_p, [ctypes.c_void_p]),
        ("map", ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(ctypes.c_int32), error]),
        ("network", ctypes.c_int32, [ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p), error]),
        ("weights", ctypes.c_int32, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, error]),
        ("outputs", ctypes.c_int32, [ctypes.c_void_p, ctypes.POINTER(Rows), ctypes.c_void_p, error]),
        ("act", ctypes.c_int32, [ctypes.c_void_p, ctypes.POINTER(Rows), error]),
        ("close", None, [ctypes.c_void_p]),
    ):
        function = getattr(library, f"troupe_acting_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Checkpoint:
    """The policies of a checkpoint folder, which is data: nothing of it is executed. Thread-safe."""

    def __init__(self, path: str, seed: int) -> None:
        """TroupeError."""
        self.path = os.path.abspath(path)
        self._library = load()
        self.handle = ctypes.c_void_p()
        error = ErrorText()
        code = self._library.troupe_acting_open(os.fsencode(path), seed, ctypes.byref(self.handle), ctypes.byref(error))
        self.check(code, error)
        self.description: Dict[str, Any] = json.loads(self._library.troupe_acting_describe(self.handle))
        self.act = self._library.troupe_acting_act

    def map(self, env_id: int, episode: int) -> List[int]:
        """By agent slot the place of the policy that plays it in the episode. TroupeError."""
        places = (ctypes.c_int32 * len(self.description["agents"]))()
        error = ErrorText()
        self.check(self._library.troupe_acting_map(self.handle, env_id, episode, places, ctypes.byref(error)), error)
        return list(places)

    def network(self, place: int) -> Dict[str, Any]:
        """What the policy is made of, as troupe_acting_network says it. TroupeError for one without networks."""
        text, error = ctypes.c_char_p(), ErrorText()
        self.check(self._library.troupe_acting_network(self.handle, place, ctypes.byref(text), ctypes.byref(error)), error)
        network: Dict[str, Any] = json.loads(text.value or b"{}")
        return network

    def weights(self, place: int, parameters: int, moments: int) -> Tuple[bytes, Optional[bytes]]:
        """So many float32 of the acting part, and so many float64, means before variances; None where that is 0. TroupeError."""
        floats, doubles, error = (ctypes.c_float * parameters)(), (ctypes.c_double * moments)(), ErrorText()
        self.check(self._library.troupe_acting_weights(self.handle, place, floats, doubles if moments else None, ctypes.byref(error)), error)
        return bytes(floats), bytes(doubles) if moments else None

    def outputs(self, rows: Rows, address: int) -> None:
        """Writes the actor's last layer of the rows there, float32 [rows, outputs]. TroupeError."""
        error = ErrorText()
        self.check(self._library.troupe_acting_outputs(self.handle, ctypes.byref(rows), address, ctypes.byref(error)), error)

    @staticmethod
    def check(code: int, error: ErrorText) -> None:
        """Raises what a function answered."""
        if code != 0:
            raise TroupeError(error.text.decode(errors="replace"), 1)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.troupe_acting_close(self.handle)
