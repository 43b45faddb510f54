"""A configuration that is put together in Python: blocks of keys, and how they reach the program.

The keys are those of docs/configuration.md. The program alone knows which there are and what they may be: `config_keys.py` has their names for editors
and type checkers, and is made of what the program prints.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, TypeVar, Union

from troupe import notebook, program
from troupe.naming import python_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from troupe import config_keys as keys

Env = Union[str, Callable[..., Any]]  # a name, a class, or a function that makes an environment
Source = Union[str, "os.PathLike[str]", Mapping[str, Any], "ConfigBlocks", None]
_Self = TypeVar("_Self", bound="ConfigBlocks")

_SECTIONS = ("env", "multi_agent", "algorithm", "model", "stop", "evaluation", "experiment", "learner")

# Methods of RLlib's AlgorithmConfig, and where their settings are.
_RLLIB = {
    "api_stack": "there is one",
    "build": "train() or start()",
    "build_algo": "train() or start()",
    "checkpointing": "experiment(checkpoint_interval=...)",
    "debugging": "seed(...)",
    "fault_tolerance": "learner(...), and workers that die are started again",
    "framework": "there is one, LibTorch",
    "learners": "learner(...)",
    "reporting": "experiment(write_interval=...)",
    "resources": "learner(device=...)",
    "rl_module": "training(model={...})",
    "rollouts": "env_runners(...)",
}


class Passed(NamedTuple):
    """A configuration on its way to a command."""

    arguments: List[str]  # the file, and --set
    fds: List[int]  # that the command's process gets


class _Code:
    """What of a configuration is code: folders of modules, and what is of `__main__` by its name."""

    def __init__(self) -> None:
        self.paths: List[str] = []
        self.notebook: Dict[str, Any] = {}

    def name(self, thing: Any) -> str:
        """Of a class or function."""
        if getattr(thing, "__module__", None) == notebook.MODULE and "." not in getattr(thing, "__qualname__", "."):
            self.notebook[notebook.name_of(thing)] = thing
            return notebook.name_of(thing)
        named = python_name(thing)
        if named.path is not None and named.path not in self.paths:
            self.paths.append(named.path)
        return named.name


def set_arguments(overrides: Optional[Mapping[str, Any]]) -> List[str]:
    """{"algorithm.lr": 1e-3} as `--set` has it. ValueError for what a command line is no place for."""
    arguments = []
    for key, value in (overrides or {}).items():
        code = _Code()
        plain = _plain(value, code)
        if code.paths or code.notebook:
            raise ValueError(f"{key}: {_json(plain)} is found where its module is, which an override cannot say: give it to a block of the configuration")
        if "wandb_kwargs" in key or (isinstance(plain, dict) and "wandb_kwargs" in plain):
            raise ValueError("experiment.wandb_kwargs may hold secrets, and a command line is everybody's to read: write it into the configuration's "
                             "file, or give a configuration that comes from no file")
        arguments += ["--set", f"{key}={_json(plain)}"]
    return arguments


class ConfigBlocks:
    """A configuration: that of a file with changes, or one that begins with the defaults. Each block method returns the object itself. Keywords are the
    keys of docs/configuration.md; None and "auto" are values like others, what is not given stays as it is.

    Nothing is looked at before a command gets it (`to_dict`, `train`, ...): ConfigError then says what is wrong, in the program's words.
    Not thread-safe.
    """

    def __init__(self, source: Source = None) -> None:
        """`source`: a file of YAML, a mapping with the same keys, or another configuration, which is copied; None: the defaults. Relative paths
        of a mapping are relative to the working folder, those of a file to the file's."""
        self._file: Optional[str] = None
        self._changes: Dict[str, Any] = {}
        self._code = _Code()
        if isinstance(source, ConfigBlocks):
            self._file, self._changes = source._file, copy.deepcopy(source._changes)
            self._code.paths, self._code.notebook = list(source._code.paths), dict(source._code.notebook)
        elif isinstance(source, Mapping):
            self._merge(source)
        elif source is not None:
            self._file = os.path.abspath(source)

    def environment(self: _Self, env: Optional[Env] = None, *, args: Optional[Mapping[str, Any]] = None, **env_keys: "Unpack[keys.EnvKeys]") -> _Self:
        """The section `env`. `env`: a name of `troupe envs ls`, `python:...`, or a class or function of a module or file; `args`: its arguments."""
        section: Dict[str, Any] = dict(env_keys)
        if env is not None:
            section["name"] = env
            if not isinstance(env, str):
                section["python"] = {"interpreter": sys.executable, **section.get("python", {})}
        if args is not None:
            section["args"] = args
        return self._merge({"env": section})

    def multi_agent(self: _Self, *, policy_mapping_fn: Optional[Callable[..., str]] = None,
                    **multi_agent_keys: "Unpack[keys.MultiAgentKeys]") -> _Self:
        """The section `multi_agent`: `policies`, `policy_mapping`, `policies_to_train` and the others. A mapping may be a function of a module, which
        `policy_mapping_fn` is, too. A policy may be RLlib's PolicySpec or (class, observation space, action space, config), and its spaces Gymnasium's.
        ValueError."""
        section: Dict[str, Any] = dict(multi_agent_keys)
        if policy_mapping_fn is not None:
            if "policy_mapping" in section:
                raise ValueError("multi_agent: got policy_mapping and policy_mapping_fn, expected one of them")
            section["policy_mapping"] = policy_mapping_fn
        if callable(section.get("policy_mapping")):
            section["policy_mapping"] = {"function": section["policy_mapping"]}
        if isinstance(section.get("policies"), Mapping):
            section["policies"] = {name: _policy(f"multi_agent.policies.{name}", given) for name, given in section["policies"].items()}
        return self._merge({"multi_agent": section})

    def training(self: _Self, *, model: Optional[Mapping[str, Any]] = None, **algorithm_keys: "Unpack[keys.TrainingKeys]") -> _Self:
        """The section `algorithm`, `name` among its keys; the section `model`; and `preset`, `action_bound_method` and `action_scaling`."""
        return self._merge({**self._beside("algorithm", algorithm_keys, ("preset", "action_bound_method", "action_scaling")), "model": model or {}})

    def env_runners(self: _Self, **run_keys: "Unpack[keys.EnvRunnerKeys]") -> _Self:
        """`num_workers`, `num_envs_per_worker`, `num_envs`, `rollout_fragment_length`, `batch_mode` and `explore`."""
        return self._merge(dict(run_keys))

    def evaluation(self: _Self, **evaluation_keys: "Unpack[keys.EvaluationKeys]") -> _Self:
        """The section `evaluation`."""
        return self._merge({"evaluation": dict(evaluation_keys)})

    def stop(self: _Self, **stop_keys: "Unpack[keys.StopKeys]") -> _Self:
        """The section `stop`: the run ends at whichever comes first."""
        return self._merge({"stop": dict(stop_keys)})

    def experiment(self: _Self, **experiment_keys: "Unpack[keys.ExperimentKeys]") -> _Self:
        """The section `experiment`."""
        return self._merge({"experiment": dict(experiment_keys)})

    def learner(self: _Self, **learner_keys: "Unpack[keys.LearnerKeys]") -> _Self:
        """The section `learner`, and `device`, `precision` and `learner_threads`."""
        return self._merge(self._beside("learner", learner_keys, ("device", "precision", "learner_threads")))

    def callbacks(self: _Self, *classes: Union[str, type]) -> _Self:
        """The key `callbacks`: classes that are derived from troupe.Callback, or their names, instead of those before."""
        for each in classes:
            if not isinstance(each, (str, type)):
                raise ValueError(f"callbacks: got an object of type {type(each).__name__}, expected a class: the run's process makes the object")
        return self._merge({"callbacks": list(classes)})

    def seed(self: _Self, seed: int) -> _Self:
        """The seed of everything random."""
        return self._merge({"seed": seed})

    def __getattr__(self, name: str) -> NoReturn:
        where = f"; RLlib's {name} is here: {_RLLIB[name]}" if name in _RLLIB else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{where}")

    def copy(self: _Self) -> _Self:
        """An equal configuration that shares nothing with this one."""
        return type(self)(self)

    def to_dict(self, overrides: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Every key with its value, defaults filled in, checked against the environment, which is made for it: of a run's configuration that imports
        the environment in Python, which stderr says first. `overrides`: as `train` takes them. ConfigError."""
        shown = program.last_json(self._show(["--json"], overrides))
        assert isinstance(shown, dict)
        return shown

    def to_yaml(self, overrides: Optional[Mapping[str, Any]] = None) -> str:
        """The same as the text of a file, made the same way. ConfigError."""
        return self._show([], overrides)

    @contextlib.contextmanager
    def passed(self, overrides: Optional[Mapping[str, Any]] = None) -> Iterator[Passed]:
        """What a command needs to have it."""
        more = set_arguments(overrides)
        if self._file is not None:
            yield Passed([self._file, *self.set_arguments(), *more], [])
            return
        with program.unnamed_file(_json(self._whole()) + "\n") as fd:
            yield Passed([f"/dev/fd/{fd}", *more], [fd])

    def set_arguments(self) -> List[str]:
        """The changes as `--set` has them."""
        return set_arguments(self._changes)

    def notebook_file(self) -> notebook.NotebookFile:
        """What of it is of `__main__`, for one command. ValueError."""
        text = _json(self._changes)
        things = {name: thing for name, thing in self._code.notebook.items() if _json(name) in text}  # others took the place of the rest
        python = self._python() if things else None
        interpreter = (python or {}).get("interpreter", sys.executable)
        if things and interpreter != sys.executable:
            raise ValueError(f"env.python.interpreter is {interpreter}, but {', '.join(things)} runs with {sys.executable} alone, which has it: leave the "
                             "interpreter out, or put it into a file of its own")
        return notebook.NotebookFile(things)

    def _show(self, arguments: Sequence[str], overrides: Optional[Mapping[str, Any]]) -> str:
        classes = self.notebook_file()
        try:
            with self.passed(overrides) as passed:
                # Of a run's file the command says what it executes.
                echo = sys.stderr if self._file is not None and os.path.basename(self._file) == "config.yaml" else None
                return program.run_command("config", "show", *passed.arguments, *arguments, fds=passed.fds, echo=echo, error=program.ConfigError,
                                           own=classes.variables)
        finally:
            classes.remove()

    @staticmethod
    def _beside(section: str, given: Mapping[str, Any], outside: Tuple[str, ...]) -> Dict[str, Any]:
        """The keys of a section, and those of a block that stand outside of it."""
        return {section: {key: value for key, value in given.items() if key not in outside},
                **{key: value for key, value in given.items() if key in outside}}

    def _merge(self: _Self, layer: Mapping[str, Any]) -> _Self:
        _merge_into(self._changes, _plain(layer, self._code), ())
        python = self._python() if self._code.paths else None
        if python is not None:
            given = [path for path in str(python.get("path", "")).split(os.pathsep) if path]
            python["path"] = os.pathsep.join([*(path for path in self._code.paths if path not in given), *given])
        return self

    def _python(self) -> Optional[Dict[str, Any]]:
        """The section env.python, which is made; None where something else stands in its place, of which the program will speak."""
        env = self._changes.setdefault("env", {})
        python = env.setdefault("python", {}) if isinstance(env, dict) else None
        return python if isinstance(python, dict) else None

    def _whole(self) -> Dict[str, Any]:
        """The changes as a file that lies in no folder: what is relative to the working folder says so."""
        whole = copy.deepcopy(self._changes)
        env = whole.get("env")
        if isinstance(env, dict):
            if isinstance(env.get("plugin"), str) and env["plugin"]:
                env["plugin"] = os.path.abspath(env["plugin"])
            if ".py:" in _json(whole) and isinstance(env.get("python", {}), dict):
                env.setdefault("python", {}).setdefault("folder", os.getcwd())
        _anchor_networks(whole)
        return whole


def _policy(key: str, given: Any) -> Any:
    """RLlib's PolicySpec, or its 4-tuple, as a mapping; anything else as it is. ValueError."""
    if isinstance(given, tuple):
        if len(given) != 4:
            raise ValueError(f"{key}: got a tuple of {len(given)}, expected (None, observation space, action space, config) or a mapping")
        policy_class, observation_space, action_space, config = given
    elif hasattr(given, "policy_class") and hasattr(given, "observation_space"):
        policy_class, observation_space, action_space, config = given.policy_class, given.observation_space, given.action_space, given.config
    else:
        return given
    if not isinstance(config or {}, Mapping):
        raise ValueError(f"{key}: got a config of type {type(config).__name__}, expected a mapping of keys of algorithm, and model")
    algorithm = dict(config or {})
    parts = {"class": policy_class, "observation_space": observation_space, "action_space": action_space, "model": algorithm.pop("model", None),
             "algorithm": algorithm or None}
    return {name: part for name, part in parts.items() if part is not None}


def _anchor_networks(whole: Dict[str, Any]) -> None:
    """Makes paths of TorchScript files absolute."""
    sections: List[Any] = [whole]
    multi_agent = whole.get("multi_agent")
    for overrides in (multi_agent.get("policies"), multi_agent.get("agents")) if isinstance(multi_agent, dict) else ():
        sections += overrides.values() if isinstance(overrides, dict) else ()
    for section in sections:
        for block, key in (("model", "torchscript"), ("model", "critic_torchscript"), ("algorithm", "loss")):
            values = section.get(block) if isinstance(section, dict) else None
            path = values.get(key) if isinstance(values, dict) else None
            if isinstance(path, str) and path not in ("", "none") and not path.startswith("sha256:"):
                values[key] = os.path.abspath(path)


def _is_merged(way: Tuple[str, ...]) -> bool:
    """Whether a mapping at that place, given again, is merged entry by entry, as --set has it; any other value takes the place of the one before."""
    if way in (("env", "python"), ("env", "groups")) or (len(way) == 1 and way[0] in _SECTIONS):
        return True
    if way[:2] in (("env", "args"), ("env", "external"), ("experiment", "wandb_kwargs")):
        return True
    overrides = way[:2] in (("multi_agent", "policies"), ("multi_agent", "agents"))
    return overrides and (len(way) < 4 or (len(way) == 4 and way[3] in ("model", "algorithm")))


def _merge_into(into: Dict[str, Any], layer: Mapping[str, Any], section: Tuple[str, ...]) -> None:
    for key, value in layer.items():
        before = into.get(key)
        if isinstance(before, dict) and isinstance(value, dict) and _is_merged((*section, key)):
            _merge_into(before, value, (*section, key))
        else:
            into[key] = value


def _plain(value: Any, code: _Code) -> Any:
    """The value as JSON has it: a class or function is its name, a space of Gymnasium its text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    space = _space_text(value)  # before all else: Gymnasium's Dict is a Mapping
    if space is not None:
        return space
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, code) for key, entry in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(entry, code) for entry in value)
    if isinstance(value, (list, tuple)):
        return [_plain(entry, code) for entry in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        return _plain(value.tolist(), code)
    return code.name(value)


def _space_text(value: Any) -> Optional[str]:
    """The text of a Gymnasium space; None for anything else. ValueError: a space of a kind that is not supported."""
    try:
        from troupe.env_adapters import spaces
    except ImportError:  # no numpy, and so no spaces
        return None
    return None if isinstance(value, type) or spaces.kind(value) is None else spaces.to_text(spaces.describe(value))


def _json(value: Any) -> str:
    """JSON that YAML reads the same way."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {_json(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    return json.dumps(value, ensure_ascii=False)
