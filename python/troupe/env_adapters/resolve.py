"""From an environment's name and arguments to the environment: imports, looks up, calls. What cannot be found is said
with what is near.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import pkgutil
import sys
import warnings
from typing import Any

from troupe import notebook
from troupe.env_adapters.base import EnvAdapterError

#: What a module is asked for when the name holds no attribute, in this order.
MODULE_ATTRIBUTES = ("parallel_env", "env", "raw_env", "make_env")
#: Names of the one parameter of makers that take a dict, as RLlib's do.
CONFIG_PARAMETERS = ("config", "env_config", "env_context")


class Place:
    """The number of an environment in its run, `env_index`, and of its worker. -1: it is made to be looked at alone. A
    constructor gets both numbers by parameters of these names; in arguments stands ${env_index}. `asked_for`: one of them
    was wanted.
    """

    def __init__(self, worker_index: int = 0, env_index: int = -1):
        self._numbers = {"worker_index": worker_index, "env_index": env_index}
        self.asked_for = False

    def fill(self, value: Any) -> Any:
        """The value with the numbers in the place of their marks; a mark alone is a number."""
        if isinstance(value, dict):
            return {key: self.fill(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.fill(entry) for entry in value]
        for name, number in self._numbers.items():
            mark = "${" + name + "}"
            if isinstance(value, str) and mark in value:
                self.asked_for = True
                value = number if value == mark else value.replace(mark, str(number))
        return value

    def wanted_by(self, parameters: list[inspect.Parameter], args: dict) -> dict:
        """The numbers that parameters ask for, where no argument has that name."""
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        wanted = {p.name: self._numbers[p.name] for p in parameters if p.kind in named and p.name in self._numbers and p.name not in args}
        self.asked_for = self.asked_for or bool(wanted)
        return wanted


def make_environment(name: str, args: dict, draws: bool = False, place: Place | None = None) -> Any:
    """`name`: "module", "module:attribute", "path/file.py[:attribute]", or "module:Id" with an id that Gymnasium knows
    once the module is imported. `draws`: one that is to be drawn.
    """
    place = place or Place()
    args = place.fill(args)
    if draws and "render_mode" not in args:
        return _make_to_be_drawn(name, args, place)
    module_name, _, attribute = name.partition(":")
    if name.endswith(":") and module_name:
        raise EnvAdapterError(f"environment {name}: nothing follows the colon, expected an attribute or a Gymnasium id")
    module = import_module_of(name)
    if not attribute:
        for candidate in MODULE_ATTRIBUTES:
            if callable(getattr(module, candidate, None)):
                return _call(name, getattr(module, candidate), args, place)
        near = [
            n
            for n in dir(module)
            if not n.startswith("_") and inspect.isclass(getattr(module, n)) and hasattr(getattr(module, n), "step")
        ]
        raise EnvAdapterError(
            f"environment {name}: module {module_name} has none of {', '.join(MODULE_ATTRIBUTES)}, expected one, "
            f"or a name after a colon" + (f" ({name}:{near[0]}?)" if near else "")
        )
    found = _attribute(f"environment {name}", module, attribute)
    if callable(found):
        return _call(name, found, args, place)
    if found is not None:
        raise EnvAdapterError(
            f"environment {name}: {attribute} of module {module_name} is {type(found).__name__}, expected a class "
            f"or function that makes an environment"
        )
    registry = _gymnasium_registry()
    if attribute in registry:
        gymnasium = sys.modules["gymnasium"]
        # The checker compares rewards and observations with one agent's, and costs time in every step.
        return gymnasium.make(attribute, disable_env_checker=True, **args)
    public = [n for n in dir(module) if not n.startswith("_") and callable(getattr(module, n))]
    near = difflib.get_close_matches(attribute, public + list(registry), n=3)
    also = " and no id that Gymnasium knows" if registry else ""
    raise EnvAdapterError(
        f"environment {name}: {attribute!r} is no attribute of module {module_name}{also}"
        + (f", did you mean {' or '.join(near)}?" if near else "")
    )


def _make_to_be_drawn(name: str, args: dict, place: Place) -> Any:
    """With PettingZoo's and Gymnasium's render_mode, and without it where that is refused: then the environment may draw
    itself all the same, or says that it cannot.
    """
    try:
        return make_environment(name, {**args, "render_mode": "rgb_array"}, True, place)
    except Exception as error:
        warnings.warn(f"environment {name}: made without render_mode rgb_array: {error}", stacklevel=2)
        return make_environment(name, args, place=place)


def import_module_of(name: str) -> Any:
    """The module of an environment's name."""
    module_name = name.partition(":")[0]
    if not module_name:
        raise EnvAdapterError(
            f"environment {name}: the module is missing, expected module, module:attribute or gymnasium:Id"
        )
    return _module(f"environment {name}", module_name)


def find_callable(what: str, name: str) -> Any:
    """What `name`, "module:attribute" or "path/file.py:attribute", is; `what` begins the messages of errors."""
    module_name, _, attribute = name.rpartition(":")
    module = _module(f"{what} {name}", module_name)
    found = _attribute(f"{what} {name}", module, attribute)
    if callable(found):
        return found
    if found is not None:
        raise EnvAdapterError(
            f"{what} {name}: {attribute} of module {module_name} is {type(found).__name__}, expected a function or class"
        )
    near = difflib.get_close_matches(attribute, [n for n in dir(module) if callable(getattr(module, n))], n=3)
    raise EnvAdapterError(
        f"{what} {name}: {attribute!r} is no attribute of module {module_name}"
        + (f", did you mean {' or '.join(near)}?" if near else "")
    )


def _attribute(what: str, module: Any, attribute: str) -> Any:
    """What the module calls `attribute`; None where there is nothing. A name of its own may be anything, also what it
    imported from elsewhere (mpe2's parallel_env, gymnasium's make). With dots it must not lead out of the module: each
    part before a dot is a class that the module defines, or an object of one, so that `module:os.system` is refused.
    """
    found: Any = module
    through = ""
    for part in attribute.split("."):
        if part.startswith("__"):
            raise EnvAdapterError(f"{what}: {part!r} is Python's own, expected a name of module {module.__name__}")
        if through:
            _stay_inside(what, module, through, part, found)
        found = getattr(found, part, None)
        if found is None:
            break
        through = f"{through}.{part}" if through else part
    return found


def _stay_inside(what: str, module: Any, through: str, part: str, found: Any) -> None:
    """Refuses to look `part` up in `found`, which `module` calls `through`, where that is not the module's own."""
    if inspect.ismodule(found):
        raise EnvAdapterError(
            f"{what}: {through} of module {module.__name__} is the module {found.__name__}, and no name leads through "
            f"another module, expected {found.__name__}:{part}"
        )
    owner = found if inspect.isclass(found) else type(found)
    if owner.__module__ != module.__name__:
        own = f"{owner.__module__}:{owner.__qualname__}.{part}" if found is owner else "an object of one"
        raise EnvAdapterError(
            f"{what}: {through} of module {module.__name__} is of {owner.__module__}.{owner.__qualname__}, expected a "
            f"class that the module defines before a dot, or {own}"
        )


def _module(what: str, module_name: str) -> Any:
    if module_name == notebook.MODULE:
        try:
            return notebook.load()
        except Exception as e:
            reason = str(e) if isinstance(e, LookupError) else f"unpickling failed: {type(e).__name__}: {e}"
            raise EnvAdapterError(f"{what}: {reason}") from e
    return _load_file(what, module_name) if module_name.endswith(".py") else _import(what, module_name)


def _import(what: str, module_name: str) -> Any:
    top = module_name.partition(".")[0]
    try:
        if top not in sys.modules and importlib.util.find_spec(top) is None:
            if importlib.machinery.PathFinder.find_spec(top, [os.getcwd()]) is not None:
                sys.path.append(os.getcwd())  # last: what lies there stands in for no other module
        return importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        if e.name is None or not (module_name == e.name or module_name.startswith(e.name + ".")):
            raise _import_failed(what, module_name, e) from e
        near = difflib.get_close_matches(e.name, _siblings(e.name), n=3)
        raise EnvAdapterError(
            f"{what}: there is no module {e.name} for {sys.executable}"
            + (f", did you mean {' or '.join(near)}?" if near else "")
            + _how_to_get(e.name)
        ) from None
    except Exception as e:
        raise _import_failed(what, module_name, e) from e


def _import_failed(what: str, imported: str, error: Exception) -> EnvAdapterError:
    """The error of a module or file that is there and cannot be imported."""
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        why = f"it needs the module {error.name}, which {sys.executable} does not find{_how_to_get(error.name)}"
    return EnvAdapterError(f"{what}: importing {imported} failed: {why}")


def _how_to_get(module_name: str | None) -> str:
    """The end of an error about a module that is missing."""
    if not module_name or "." in module_name:
        return ""
    return (
        f"; install its package, {sys.executable} -m pip install {module_name}, or name a Python that has it as "
        f"env.python.interpreter in the configuration (--python of train, learner and envs)"
    )


def _siblings(module_name: str) -> list[str]:
    parent, _, _ = module_name.rpartition(".")
    if not parent:  # Python's own modules are no environments
        own = getattr(sys, "stdlib_module_names", frozenset())  # since 3.10
        return [m.name for m in pkgutil.iter_modules([*sys.path, os.getcwd()]) if m.name not in own]
    try:
        return [f"{parent}.{m.name}" for m in pkgutil.iter_modules(importlib.import_module(parent).__path__)]
    except (ImportError, AttributeError):
        return []


def _load_file(what: str, path: str) -> Any:
    if not os.path.isfile(path):
        folder = os.path.dirname(os.path.abspath(path))
        files = [name for name in os.listdir(folder) if name.endswith(".py")] if os.path.isdir(folder) else []
        near = difflib.get_close_matches(os.path.basename(path), files, n=3)
        raise EnvAdapterError(
            f"{what}: there is no file {os.path.abspath(path)}, expected a program in Python"
            + (f", did you mean {' or '.join(near)}?" if near else "")
        )
    whole = os.path.abspath(path)
    if sys.path[:1] != [os.path.dirname(whole)]:
        sys.path.insert(0, os.path.dirname(whole))  # as `python FILE.py`: it can import its neighbours
    spec = _spec_of_file(whole)
    if spec.name in sys.modules:
        return sys.modules[spec.name]
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        del sys.modules[spec.name]
        raise _import_failed(what, path, e) from e
    return module


def _spec_of_file(path: str) -> Any:
    """The spec of a file whose folder comes first in sys.path: under the name by which processes that multiprocessing spawns
    import it, too, or one of our own where that is another module's.
    """
    name = os.path.basename(path)[: -len(".py")]
    if "." not in name:
        importlib.invalidate_caches()
        loaded = sys.modules.get(name)
        spec = importlib.util.find_spec(name) if loaded is None else getattr(loaded, "__spec__", None)
        if spec is not None and spec.origin == path:
            return spec
    return importlib.util.spec_from_file_location("troupe_env_" + "".join(c if c.isalnum() else "_" for c in path), path)


def _gymnasium_registry() -> dict:
    """Gymnasium's ids, where something imported it."""
    module = sys.modules.get("gymnasium")
    return getattr(module, "registry", None) or {} if module is not None else {}


def _call(name: str, maker: Any, args: dict, place: Place) -> Any:
    """maker(**args), or maker(args) for makers that take one dict. What the environment's own code raises is its own
    affair.
    """
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):
        return maker(**args)
    parameters = list(signature.parameters.values())
    if (
        len(parameters) == 1
        and parameters[0].name in CONFIG_PARAMETERS
        and parameters[0].name not in args
        and parameters[0].kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ):
        return maker(dict(args))
    args = {**args, **place.wanted_by(parameters, args)}
    try:
        signature.bind(**args)
    except TypeError as e:
        takes = ", ".join(str(p) for p in parameters) or "none"
        raise EnvAdapterError(f"environment {name}: {e}; it takes the arguments: {takes}") from None
    return maker(**args)
