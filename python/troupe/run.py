"""Runs: started, watched, changed, evaluated. What trains is the program `troupe`; there is no second trainer here."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

from troupe import program
from troupe.config_blocks import ConfigBlocks, Env, Source, set_arguments
from troupe.evaluation import Evaluation
from troupe.launch import DRAIN_S, POLL_S, TrainProcess, shows_by_itself
from troupe.notebook import NotebookFile
from troupe.progress import NewLines, Progress, last_line

if TYPE_CHECKING:
    from troupe.policy import Agents, Policy

At = Union[str, int]  # "latest", "best", "live" (the newest of a run that trains), or env steps of a checkpoint
CallbackClass = Union[str, type]  # derived from troupe.Callback, or its name
_Self = TypeVar("_Self", bound="Run")

_ASKED_EVERY_S = 0.5


class RunFailed(program.TroupeError):
    """A run that ended badly. The message is the last that the run said; `code` is the exit code of `troupe train`."""


class Config(ConfigBlocks):
    __doc__ = ConfigBlocks.__doc__

    def train(self, *, env: Optional[Env] = None, overrides: Optional[Mapping[str, Any]] = None,
              callbacks: Sequence[CallbackClass] = (), name: Optional[str] = None, progress: Optional[bool] = None) -> "Run":
        """As `troupe.train`."""
        return train(self, env=env, overrides=overrides, callbacks=callbacks, name=name, progress=progress)

    def start(self, *, env: Optional[Env] = None, overrides: Optional[Mapping[str, Any]] = None,
              callbacks: Sequence[CallbackClass] = (), name: Optional[str] = None, progress: bool = False) -> "Run":
        """As `troupe.start`."""
        return start(self, env=env, overrides=overrides, callbacks=callbacks, name=name, progress=progress)


class Run:
    """A run folder, and the training that fills it, if there is one. Made by `train`, `start`, `load` and `resume`.

    A context manager: at its end a training that this process started is drained. One thread uses it. The run's files are read, never written.
    """

    def __init__(self, path: Path, process: Optional[TrainProcess] = None, before: "Optional[_Before]" = None) -> None:
        """`process`: what trains it; None: nothing of this process. `before`: of the folder, before that was started."""
        self.path = path
        self._started = process
        self._before = before
        self._drained = False

    @property
    def _process(self) -> Optional[TrainProcess]:
        """What trains it; None: nothing of this process. In a fork it is a run that another process trains."""
        return self._started if self._started is not None and self._started.is_own else None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.state})"

    @property
    def config(self) -> Config:
        """What the run was started with, every key of it. Its `to_dict`, `to_yaml`, `train` and `start` import the run's environment in Python; stderr
        says so first."""
        return Config(self.path / "config.yaml")

    @property
    def state(self) -> str:
        """"running", "finished" (a stop of the configuration was reached), "stopped" (it may go on) or "failed". Of a run that another process
        trained or trains "stopped" stands for "failed", too."""
        if self._is_running():
            return "running"
        if self._failure() is not None:
            return "failed"
        summary = self.summary
        if summary is None:
            return "stopped"
        # One that was resumed, and had nothing left to do, keeps the summary that it had.
        idle = self._before is not None and not self._drained and _stamp(self.path / "summary.json") == self._before.summary
        return "finished" if idle or str(summary["reason"]).startswith("stop.") else "stopped"

    @property
    def summary(self) -> Optional[Dict[str, Any]]:
        """The run's summary.json; None while it trains, and where it never ended in order."""
        if self._process is not None and (not self._begun() or self._process.poll() is None):
            return None
        try:
            summary = json.loads((self.path / "summary.json").read_text())
        except FileNotFoundError:
            return None
        assert isinstance(summary, dict)
        last = last_line(str(self.path / "progress.jsonl"))  # a life after the one that wrote it may have been killed
        return None if last is not None and last["env_steps"] > summary["env_steps"] else summary

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        """The lines of progress.jsonl, from the run's first on, each as it comes; ends with the training. RunFailed where that ends badly."""
        lines = NewLines(str(self.path / "progress.jsonl"))
        asked, running = 0.0, True
        while running:
            if self._process is not None or time.monotonic() - asked >= _ASKED_EVERY_S:
                running = self._is_running()
                asked = time.monotonic()
            if self._begun():
                yield from lines.read()
            if running:
                time.sleep(POLL_S)
        self._raise_failure()

    def wait(self: _Self, timeout: Optional[float] = None) -> _Self:
        """Returns when the training has ended. RunFailed where it ended badly, TimeoutError after so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._is_running():
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"run {self.path} still trains after {timeout} s")
            time.sleep(POLL_S if self._process is not None else _ASKED_EVERY_S)
        self._raise_failure()
        return self

    def stop(self, timeout: float = DRAIN_S) -> None:
        """Ends the training in order, with a checkpoint from which `resume` goes on. After so many seconds it is ended at once, and RunFailed says
        so. A run that another process trains is asked to end, and killed by nobody: TimeoutError after so many seconds."""
        if self._process is not None:
            self._drained = self._drained or self._process.poll() is None
            self._process.drain(timeout)
            self._raise_failure()
        elif self._is_running():
            deadline = time.monotonic() + timeout
            try:
                program.run_command("stop", str(self.path), "--timeout", str(max(timeout, 0.001)))
            except program.TroupeError:
                if time.monotonic() < deadline:
                    raise
            self.wait(max(0.0, deadline - time.monotonic()))

    def save(self, to: "Optional[Union[str, os.PathLike[str]]]" = None) -> Path:
        """Has a run that trains write a checkpoint now, and returns its folder: one of the run, or `to`, which is outside of runs and is a checkpoint
        to replace or not there. TroupeError."""
        place = [] if to is None else ["--to", os.fspath(to)]
        return Path(program.last_json(program.run_command("checkpoint", "save", str(self.path), "--json", *place))["path"])

    def prune_checkpoints(self, keep: Optional[int] = None) -> int:
        """Removes all checkpoints but the newest `keep`, the newest and the best, of a run that trains or does not. None:
        experiment.keep_checkpoints. Returns how many it has removed. TroupeError."""
        kept = [] if keep is None else ["--keep", str(keep)]
        return int(program.last_json(program.run_command("checkpoint", "prune", str(self.path), "--json", *kept))["removed"])

    def resume(self, *, env: Optional[Env] = None, overrides: Optional[Mapping[str, Any]] = None, callbacks: Optional[Sequence[CallbackClass]] = None,
               progress: bool = False) -> "Run":
        """Goes on with the run from its newest checkpoint, and returns at once, as `start` does. `env`: where its class is of a notebook.
        TroupeError. To whoever resumes it a run folder is a program: its environment in Python is imported."""
        changes = Config().environment(env) if env is not None else Config()
        if callbacks is not None:
            changes.callbacks(*callbacks)
        classes = changes.notebook_file()
        arguments = ["train", "--resume", str(self.path), *changes.set_arguments(), *set_arguments(overrides)]
        return _launch(self.path, arguments, [], classes, progress)

    def progress(self) -> Progress:
        """The lines so far, a list: with `to_pandas`, and a curve in a notebook."""
        return Progress(NewLines(str(self.path / "progress.jsonl")).read() if self._begun() else (), self.path.name)

    def evaluate(self, episodes: int = 100, *, at: At = "latest", deterministic: bool = False, seed: Optional[int] = None, env: Optional[Env] = None,
                 overrides: Optional[Mapping[str, Any]] = None, policies: "Optional[Mapping[str, Union[str, Policy]]]" = None,
                 video: "Optional[Union[str, os.PathLike[str]]]" = None, video_episode: Union[str, int] = "best",
                 overwrite: bool = False) -> Evaluation:
        """Plays whole episodes with the policies of a checkpoint. `overrides`: keys of `env`, `evaluation` and `multi_agent.policy_mapping`.
        `policies`: {id: class} for those that others play: "random", "scripted:NAME", "python:MODULE:NAME", "checkpoint:PATH#ID", or a Policy of
        another run. `at`: "live" has a run that trains write a checkpoint first. `video`: a file that ends in .gif, .mp4 (by ffmpeg) or .png (eight
        pictures), into which `video_episode` is filmed: "best" or "worst" by summed return, "first", or a number; a file that is there is replaced
        only with `overwrite`. TroupeError. Imports the run's environment, as `resume` does."""
        if at == "live":
            at = self.save().name if self._is_running() else "latest"
        changes = Config().environment(env) if env is not None else Config()
        arguments = ["evaluate", str(self.path), "--json", "--episodes", str(episodes), "--checkpoint", str(at)]
        arguments += ["--deterministic"] if deterministic else []
        arguments += ["--seed", str(seed)] if seed is not None else []
        arguments += [*changes.set_arguments(), *set_arguments(overrides)]
        arguments += ["--video", os.fspath(video), "--video-episode", str(video_episode)] if video is not None else []
        arguments += ["--overwrite"] if overwrite else []
        for policy, played_by in (policies or {}).items():
            arguments += ["--policy", f"{policy}={played_by if isinstance(played_by, str) else played_by.source}"]
        classes = changes.notebook_file()
        try:
            return Evaluation.of(program.last_json(program.run_command(*arguments, echo=sys.stderr, own=classes.variables)))
        finally:
            classes.remove()

    def policies(self, at: At = "latest", *, seed: Optional[int] = None) -> "Dict[str, Policy]":
        """The policies of a checkpoint by id, to act in this process; needs numpy. `seed`: of what they sample; None: another one each time. The run
        is data: nothing of it is executed. TroupeError."""
        from troupe.policy import open_policies

        return open_policies(self._checkpoint(at), seed)

    def agents(self, at: At = "latest", *, deterministic: bool = False, seed: Optional[int] = None) -> "Agents":
        """The run's agents with their policies, for a loop of PettingZoo. As `policies`; TroupeError also where the run's environment was wrapped
        (env.frame_stack and its kin), which nobody does here, and for a mapping that is a function in Python."""
        from troupe.policy import open_agents

        _check_unwrapped(self.path / "config.yaml")
        return open_agents(self._checkpoint(at), deterministic, seed)

    def _checkpoint(self, at: At) -> str:
        """Its folder. Of "latest" and "best" the link, whose folder a learner may remove meanwhile."""
        if at == "live":
            if self._is_running():
                return str(self.save())
            at = "latest"
        for entry in program.last_json(program.run_command("checkpoint", "ls", str(self.path), "--json")):
            if str(at) == str(entry["env_steps"]) or (at in ("latest", "best") and entry[at]):
                path = Path(entry["path"])
                return str(path.with_name(str(at)) if at in ("latest", "best") else path)
        program.run_command("checkpoint", "verify", str(self.path), "--checkpoint", str(at))  # says which there are
        raise program.TroupeError(f"no checkpoint {at} in {self.path}")

    def add_policy(self, id: str, *, copy_of: Optional[str] = None, like: Optional[str] = None, policy_class: Optional[str] = None,
                   trains: bool = True) -> None:
        """A policy more in a run that trains: with fresh weights, with spaces and networks as those of `like`, or with all that `copy_of` has
        learned. `policy_class`: as multi_agent.policies has it. Nobody plays it before `set_mapping` says so. TroupeError."""
        frozen = [] if trains else ["--frozen"]
        if copy_of is not None:
            if like is not None or policy_class is not None:
                raise ValueError("got copy_of with like or policy_class, expected one of them: a copy has what the other policy has")
            program.run_command("policy", "copy", str(self.path), copy_of, id, *frozen)
            return
        arguments = [*frozen, *(["--like", like] if like is not None else []), *(["--class", policy_class] if policy_class is not None else [])]
        program.run_command("policy", "add", str(self.path), id, *arguments)

    def remove_policy(self, id: str) -> None:
        """Takes out a policy that no agent is mapped to. TroupeError."""
        program.run_command("policy", "remove", str(self.path), id)

    def set_mapping(self, mapping: Mapping[str, Any]) -> None:
        """Which policies the agents play from their next episode on, as multi_agent.policy_mapping has it. TroupeError."""
        program.run_command("mapping", "set", str(self.path), json.dumps(mapping))

    def set_trainable(self, ids: List[str]) -> None:
        """Exactly these policies train from now on. TroupeError."""
        program.run_command("policy", "set-trainable", str(self.path), *ids)

    def set_policy(self, id: str, *, algorithm: Mapping[str, Any]) -> None:
        """Trains a policy with other options of its algorithm from the next update on: `run.set_policy("main", algorithm={"lr": 1e-4})`.
        A run that is resumed keeps them. TroupeError: an option that cannot change while the run trains, or a value out of range."""
        program.run_command("policy", "set", str(self.path), id, *(f"algorithm.{key}={json.dumps(value)}" for key, value in algorithm.items()))

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Any, _error: Any, _trace: Any) -> None:
        if self._process is not None:
            try:
                self.stop()
            except RunFailed:
                if kind is None:
                    raise

    def _is_running(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        # Where nobody trains the run there is no address; a learner that was killed leaves its own behind, and one that ends takes it away first.
        if _is_locked(self.path / "lock"):
            return True
        if not (self.path / "address").exists():
            return False
        return bool(program.last_json(program.run_command("status", str(self.path), "--json")).get("running"))

    def _begun(self) -> bool:
        """Whether the folder is the run's: until its learner has taken it, it may be another's, or the same run's life before."""
        return self._before is None or _life(self.path) != self._before.life

    def _failure(self) -> Optional[RunFailed]:
        code = self._process.poll() if self._process is not None else None
        if self._process is None or code in (None, 0, 130) or (self._drained and code == 143):  # 143: before there was anything to drain
            return None
        if self._process.killed:
            return RunFailed(f"run {self.path} did not end in order in time, and was killed; resume goes on from its last checkpoint", code or 1)
        return RunFailed(program.own_words(self._process.text()), code or 1)

    def _raise_failure(self) -> None:
        failure = self._failure()
        if failure is not None:
            raise failure


def train(config: Source, *, env: Optional[Env] = None, overrides: Optional[Mapping[str, Any]] = None, callbacks: Sequence[CallbackClass] = (),
          name: Optional[str] = None, progress: Optional[bool] = None) -> Run:
    """Trains, and returns when that has ended: what `troupe train` does, with the same configuration.

    config: a file of YAML, a mapping with the same keys, or a Config. env: the environment, in place of the configuration's: a name, or a class or
    function of a module or file, or of a notebook where cloudpickle is there. overrides: {"algorithm.lr": 1e-3}, as --set. callbacks: classes that
    are derived from troupe.Callback, in place of the configuration's (docs/hooks.md). name: the run's; progress: whether it is shown, None: in a terminal and in a notebook.

    Ctrl-C ends the run in order: its state is "stopped", and `resume` goes on with it. A second one ends it at once, as KeyboardInterrupt. ConfigError,
    before anything is started; RunFailed.
    """
    run = start(config, env=env, overrides=overrides, callbacks=callbacks, name=name,
                progress=shows_by_itself() if progress is None else progress)
    try:
        run.wait()
    except KeyboardInterrupt:
        run.stop()
    return run


def start(config: Source, *, env: Optional[Env] = None, overrides: Optional[Mapping[str, Any]] = None, callbacks: Sequence[CallbackClass] = (),
          name: Optional[str] = None, progress: bool = False) -> Run:
    """As `train`, but returns at once: the run trains beside this process, whose output progress would disturb. It is drained at the end of `with`, and
    when the interpreter ends; where that is killed, the run ends in order by itself."""
    blocks = Config(config)
    if env is not None:
        blocks.environment(env)
    if callbacks:
        blocks.callbacks(*callbacks)
    shown = blocks.to_dict(overrides)
    experiment = shown["experiment"]
    chosen = name or experiment["experiment_name"] or _new_name(shown["algorithm"]["name"])
    classes = blocks.notebook_file()
    with blocks.passed(overrides) as passed:
        return _launch(Path(experiment["directory"]).absolute() / chosen, ["train", *passed.arguments, "--name", chosen], passed.fds, classes, progress)


def load(run: Union[str, "os.PathLike[str]"]) -> Run:
    """A run by its folder, or by its name in `runs`: one that has ended, or that another process trains. TroupeError."""
    for path in (Path(run), Path("runs", run)):
        if (path / "config.yaml").exists():
            return Run(path.absolute())
    program.run_command("status", str(run))  # says what there is
    raise program.TroupeError(f"there is no run {run}")


def runs(directory: "Union[str, os.PathLike[str]]" = "runs") -> List[Dict[str, Any]]:
    """The runs of a folder, the newest first, as `troupe runs ls --json` tells them: name, path, state, env, algorithm, seed, env_steps, return_sum,
    best_return, wall_clock_s and more. Nothing of them is executed. TroupeError."""
    found: List[Dict[str, Any]] = program.last_json(program.run_command("runs", "ls", "--json", "--directory", os.fspath(directory)))
    return found


def _launch(path: Path, arguments: List[str], fds: List[int], classes: NotebookFile, progress: bool) -> Run:
    before = _Before(_life(path), _stamp(path / "summary.json"))
    try:
        return Run(path, TrainProcess(arguments, fds, classes, progress), before)
    except BaseException:
        classes.remove()
        raise


# Keys of `env` that make other observations of the environment's, with the values that do not.
_UNWRAPPED = {"frame_stack": "1", "grayscale": "false", "resize": "none", "crop": "none", "previous_action": "false", "previous_reward": "false"}


def _check_unwrapped(config: Path) -> None:
    """By the lines of a run's configuration, which the program writes, each key in one of its own: the environment is not made. TroupeError."""
    found = re.search(r"^env:\n((?:  .*\n)*)", config.read_text(), re.M)
    for key, value in re.findall(r"^  (\w+): *(.*)$", found[1] if found is not None else "", re.M):
        if value != _UNWRAPPED.get(key, value):
            raise program.TroupeError(f"{config}: env.{key}: got {value}, expected {_UNWRAPPED[key]}: Agents does not wrap the observations that it is "
                                      "given; policies() act for those that were")


class _Before(NamedTuple):
    """A run folder when a training was started in it."""

    life: str
    summary: Optional[Tuple[int, int]]


def _stamp(path: Path) -> Optional[Tuple[int, int]]:
    """Tells a file from the one that takes its place."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _is_locked(path: Path) -> bool:
    """Whether a process that can be seen from here has the file locked, as a learner has its run's. Asked of the kernel: to try would be to hold it."""
    try:
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    return any(line.split()[1:2] == ["FLOCK"] and f":{inode} " in line for line in locks.splitlines())


def _life(path: Path) -> str:
    """Of the learner that has taken the folder last."""
    try:
        return (path / "learner_epoch").read_text()
    except FileNotFoundError:
        return ""


def _new_name(algorithm: str) -> str:
    """As the program makes one."""
    now = time.time()
    return f"{time.strftime('%y-%m-%d_%H-%M-%S', time.localtime(now))}-{int(now % 1 * 1e6):06d}_{algorithm.upper()}"
