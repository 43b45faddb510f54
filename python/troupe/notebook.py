"""Classes and functions of `__main__`, a notebook or a script, which no other process can import: they travel pickled, by value.

To the processes of Python that a command of this interpreter starts, and to nobody else: in a file of mode 0600 in a folder of mode 0700, which the
command's environment names together with the file's SHA-256, and which is removed with the command's end. A configuration has only the name.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import pickle
import shutil
import sys
import tempfile
import types
from typing import Any, Dict, Mapping, Optional

VARIABLE = "TROUPE_NOTEBOOK"
MODULE = "__main__"
SUFFIX = " (notebook)"


def name_of(thing: Any) -> str:
    """As a configuration has it."""
    return f"python:{MODULE}:{thing.__name__}{SUFFIX}"


class NotebookFile:
    """The file for the processes of one command. `variables`: what its environment has besides."""

    def __init__(self, things: Mapping[str, Any]) -> None:
        """`things`: by name. ValueError where one cannot be pickled."""
        self.variables: Dict[str, str] = {}
        self._folder: Optional[str] = None
        if not things:
            return
        try:
            cloudpickle: Any = importlib.import_module("cloudpickle")
        except ImportError:
            names = ", ".join(things)
            raise ValueError(f"{names} is of {MODULE}, the program itself, and travels to other processes with cloudpickle, which is not there: "
                             f"{sys.executable} -m pip install cloudpickle, or put it into a file of its own and import it from there") from None
        try:
            data = cloudpickle.dumps({name.rpartition(":")[2]: thing for name, thing in things.items()})
        except Exception as error:
            raise ValueError(f"{', '.join(things)} cannot be pickled: {type(error).__name__}: {error}; put it into a file of its own and import it from "
                             "there") from None
        self._folder = tempfile.mkdtemp(prefix="troupe-notebook-")
        path = os.path.join(self._folder, "classes")
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
        except BaseException:
            self.remove()
            raise
        self.variables = {VARIABLE: f"{hashlib.sha256(data).hexdigest()}:{path}"}

    def remove(self) -> None:
        """Once the command has ended; again, it does nothing."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


@functools.lru_cache(maxsize=None)
def load() -> types.ModuleType:
    """In a process of Python that the program started: what travelled, as a module. LookupError where nothing did."""
    digest, _, path = os.environ.get(VARIABLE, "").partition(":")
    if not path:
        raise LookupError("a class or function of a notebook, or of a script, is only where that runs: give it again there (env=...), or put it into a "
                          "file and name that")
    with open(path, "rb") as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != digest:
        raise LookupError(f"{path} is not what the notebook wrote: its SHA-256 is another one")
    sys.path.append(os.getcwd())  # where a notebook finds its neighbours; last, so that it stands in for no module of others
    module = types.ModuleType(MODULE)
    module.__dict__.update(pickle.loads(data))
    return module
