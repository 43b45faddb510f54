"""From a class or function to the name `python:MODULE:NAME` by which the program's own Python processes find it."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from typing import Any, NamedTuple, Optional


class Named(NamedTuple):
    """`name` as a configuration has it; `path`: the folder in which the module is looked for, None: the interpreter finds it by itself."""

    name: str
    path: Optional[str]


def python_name(thing: Any) -> Named:
    """The name of a class or function that is defined in a module or file. ValueError for one that no other process can import, with what to do."""
    module_name, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not callable(thing) or not isinstance(module_name, str) or not isinstance(qualname, str):
        raise ValueError(f"got an object of type {type(thing).__name__}, expected a name, a class or a function")
    what = f"{qualname} of {module_name}"
    if "<" in qualname:
        raise ValueError(f"{what} is made inside of a function, so that no other process finds it: define it in a module, outside of functions")
    if module_name == "__main__":
        raise ValueError(f"{what}, the program itself, is nothing that another process can import: put it into a file of its own and import it from there")
    module = sys.modules.get(module_name)
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if module is None or found is not thing:
        raise ValueError(f"{what} is not what module {module_name} has under that name, so that another process would find something else")
    file = getattr(module, "__file__", None)
    if file is None:
        return Named(f"python:{module_name}:{qualname}", None)
    root = _root(module_name, os.path.abspath(file))
    if root is None:
        return Named(f"python:{os.path.abspath(file)}:{qualname}", None)
    return Named(f"python:{module_name}:{qualname}", None if _finds_by_itself(root) else root)


def _root(module_name: str, file: str) -> Optional[str]:
    """The folder from which an import of that name finds that file; None: there is none, the file has another name than the module."""
    folder, name = os.path.split(file)
    parts = module_name.split(".")
    if name != "__init__.py" and name.partition(".")[0] != parts.pop():
        return None
    for part in reversed(parts):
        folder, name = os.path.split(folder)
        if name != part:
            return None
    return folder


def _finds_by_itself(folder: str) -> bool:
    """Whether every process of this interpreter looks there."""
    paths = sysconfig.get_paths()
    own = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], *site.getsitepackages()}
    if site.ENABLE_USER_SITE:
        own.add(site.getusersitepackages())
    return os.path.realpath(folder) in {os.path.realpath(path) for path in own}
