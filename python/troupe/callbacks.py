"""Callbacks of a run: classes whose methods are called as it goes (docs/hooks.md).

    class Stopper(troupe.Callback):
        def on_update_end(self, ctx):
            if ctx.return_mean is not None and ctx.return_mean > 25:  # None before the first episode ended
                ctx.stop("solved")

A run names them, `callbacks: ["python:MODULE:Stopper"]` or `troupe.train(..., callbacks=[Stopper])`, and makes an object of each, without arguments, in
one process of Python beside the learner. Calls are made one after the other, in the order of what happened; training goes on meanwhile, up to 64 calls
ahead. None is left out. A call that raises is counted and costs nothing else; one that does not return within 30 s ends that process, and the run says so.

Those of episodes are called beside the environments (EpisodeContext), by other objects of the same classes: one a process there.
"""

from __future__ import annotations

import difflib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from troupe.program import TroupeError
from troupe.scalar import one_number

if TYPE_CHECKING:
    from troupe.evaluation import Evaluation
    from troupe.run import Run

MAX_TRACKED = 256  # different names of a run
MAX_TRACKED_NAME = 128  # characters
MAX_TRACKED_NUMBER = 1e100  # either way; of sums over episodes, too (lib/base/tracked_total.h)

MAX_TRACKED_OF_EPISODE = 64  # different names

_Send = Callable[[Dict[str, Any]], None]


class Learner:
    """What the contexts of one run share: the way to its learner. Made by the process of callbacks."""

    def __init__(self, send: _Send, path: str) -> None:
        self._send, self._lock = send, threading.Lock()  # a callback may have threads
        self.path = Path(path).absolute()
        self.tracked: Dict[str, None] = {}

    def send(self, message: Dict[str, Any]) -> None:
        """Tells the learner."""
        with self._lock:
            self._send(message)

    def ask(self, question: Callable[["Run"], Any]) -> Any:
        """Time that the learner takes to answer is none of the call's."""
        from troupe.run import Run

        self.send({"op": "asks"})
        try:
            return question(Run(self.path))
        finally:
            self.send({"op": "goes on"})


class Context:
    """What a call knows and may do. Decisions are made by the run's own commands and have their errors, TroupeError; while the run ends it refuses them.

    path: the run folder. env_steps: trained so far.
    """

    env_steps: int

    def __init__(self, learner: Learner, facts: Mapping[str, Any]) -> None:
        self._learner = learner
        self.path: Path = learner.path
        for name, value in facts.items():
            setattr(self, name, value)

    def track(self, name: str, value: float) -> None:
        """`Custom/NAME` in progress.jsonl and TensorBoard: the mean of what was tracked since the line before. ValueError for a number that is not
        finite or beyond 1e100 either way, a name of more than 128 printable characters, and more than 256 names in a run."""
        number = _check_tracked(name, value)
        if name not in self._learner.tracked and len(self._learner.tracked) >= MAX_TRACKED:
            raise ValueError(f"track {name}: this run has {MAX_TRACKED} names already, expected at most so many")
        self._learner.tracked[name] = None
        self._learner.send({"op": "track", "name": name, "value": number})

    def stop(self, reason: str) -> None:
        """Has the run end in order, with a checkpoint, as `troupe stop` does; calls that are due are still made."""
        self._learner.send({"op": "stop", "reason": str(reason)[:200]})

    def save(self) -> Path:
        """Has a checkpoint written now; returns when it is durable, its folder."""
        path = self._learner.ask(lambda run: run.save())
        assert isinstance(path, Path)
        return path

    def evaluate(self, episodes: int = 100, **evaluate: Any) -> "Evaluation":
        """Plays whole episodes with the policies of now, in processes beside training; as `Run.evaluate`, whose other arguments it takes."""
        arguments = {"at": "live", **evaluate}
        return self._learner.ask(lambda run: run.evaluate(episodes, **arguments))  # type: ignore[no-any-return]

    def add_policy(self, id: str, *, copy_of: Optional[str] = None, like: Optional[str] = None, policy_class: Optional[str] = None,
                   trains: bool = True) -> None:
        """As `Run.add_policy`."""
        self._learner.ask(lambda run: run.add_policy(id, copy_of=copy_of, like=like, policy_class=policy_class, trains=trains))

    def remove_policy(self, id: str) -> None:
        """As `Run.remove_policy`."""
        self._learner.ask(lambda run: run.remove_policy(id))

    def set_mapping(self, mapping: Mapping[str, Any]) -> None:
        """As `Run.set_mapping`."""
        self._learner.ask(lambda run: run.set_mapping(mapping))

    def set_trainable(self, ids: List[str]) -> None:
        """As `Run.set_trainable`."""
        self._learner.ask(lambda run: run.set_trainable(ids))

    def set_policy(self, id: str, *, algorithm: Mapping[str, Any]) -> None:
        """As `Run.set_policy`."""
        self._learner.ask(lambda run: run.set_policy(id, algorithm=algorithm))


class RunContext(Context):
    """resumed: whether it goes on from a checkpoint (None at the end). reason: why it ends (None at the start)."""

    resumed: Optional[bool] = None
    reason: Optional[str] = None


class UpdateContext(Context):
    """An update, and the last 100 episodes in training.

    return_sum, return_mean, episode_length: means over these episodes, None before the first one. metrics: losses and the like by tag (docs/metrics.md),
    None for what is not finite. policies: {id: {"episodes", "mean", "min", "max"}}, returns of the agents that a policy played, of at most 100
    policies: those with most rows.
    """

    agent_steps: int
    updates: int
    episodes: int
    wall_clock_s: float
    env_steps_per_s: float
    return_sum: Optional[float]
    return_mean: Optional[float]
    episode_length: Optional[float]
    metrics: Dict[str, Optional[float]]
    policies: Dict[str, Dict[str, Any]]


class EvaluationContext(Context):
    """An evaluation of `evaluation` of the configuration.

    result: as `troupe evaluate --json`, and `policies` as UpdateContext has them; None at the start, and if the evaluation failed. metrics: the same
    numbers by the names of progress.jsonl (`evaluation_return_sum`); empty where result is None. error: why it failed; None if it did not.
    """

    result: Optional[Dict[str, Any]] = None
    metrics: Dict[str, Optional[float]] = {}
    error: Optional[str] = None


class CheckpointContext(Context):
    """A checkpoint. is_best: it is the best so far. error: why it could not be written, None of one that was; training goes on either way."""

    is_best: bool
    error: Optional[str]

    def save(self) -> Path:
        """Refused: each checkpoint would ask for the next."""
        raise TroupeError("save in on_checkpoint_end: a checkpoint has just been written, expected it in another callback")

    @property
    def checkpoint(self) -> Path:
        """Its folder, which is removed when there are newer ones enough (experiment.keep_checkpoints)."""
        return self.path / "checkpoints" / str(self.env_steps)


class EpisodeContext:
    """An episode of training or of an evaluation, the same object from its start to its end: attributes that a callback sets last as long.

    env: the environment as its own code made it; None where it is not in Python. agents: those that have been observed, by id. policies: {agent: id of
    the policy} of those that have acted. returns: {agent: sum of rewards so far}, as the environment gives them; of one that is not in Python after
    env.reward_scale and reward_clip. infos: {agent: info} of the last step that brought some. length: env steps so far. evaluating: whether it is one
    of an evaluation.

    In on_episode_step, {agent: value} of the step that was just made: actions, of those that acted, and their log_probs (of the agent's policy; of
    actions that a client decided, the client's); rewards; observations that it brought, and
    action_masks of those that have one (uint8, 1 allowed). They are the environment's own objects: copy what you keep, change nothing. In
    on_episode_start observations and action_masks are the reset's. In on_episode_end they are those of the last step, if a callback hears of steps.
    """

    def __init__(self, env: Any, evaluating: bool = False) -> None:
        self.env = env
        self.evaluating = evaluating
        self.observations: Dict[str, Any] = {}
        self.actions: Dict[str, Any] = {}
        self.log_probs: Dict[str, float] = {}
        self.rewards: Dict[str, float] = {}
        self.action_masks: Dict[str, Any] = {}
        self.policies: Dict[str, str] = {}
        self.returns: Dict[str, float] = {}
        self.infos: Dict[str, Mapping[str, Any]] = {}
        self.length = 0
        self._tracked: Dict[str, List[float]] = {}

    @property
    def agents(self) -> List[str]:
        """In the order of their first observations."""
        return list(self.returns)

    def track(self, name: str, value: float) -> None:
        """`Custom/NAME` in progress.jsonl and TensorBoard: the mean over episodes of the mean that each tracked. ValueError for a number that is not
        finite or beyond 1e100 either way, a name of more than 128 printable characters, and more than 64 names in an episode. A worker tracks at most
        256 names, and under each at most 1e100 in sum over its episodes."""
        number = _check_tracked(name, value)
        if name not in self._tracked and len(self._tracked) >= MAX_TRACKED_OF_EPISODE:
            raise ValueError(f"track {name}: this episode has {MAX_TRACKED_OF_EPISODE} names already, expected at most so many")
        entry = self._tracked.setdefault(name, [0.0, 0])
        entry[1] += 1
        entry[0] += (number - entry[0]) / entry[1]

    def tracked_means(self) -> Dict[str, float]:
        """What it has tracked so far."""
        return {name: mean for name, (mean, _) in self._tracked.items()}


class Callback:
    """Override what you need: what is not overridden is not called, and costs nothing."""

    def on_run_start(self, ctx: RunContext) -> None:
        """First of all."""

    def on_update_end(self, ctx: UpdateContext) -> None:
        """After each update."""

    def on_evaluation_start(self, ctx: EvaluationContext) -> None:
        """Before each evaluation of the configuration, for which training waits."""

    def on_evaluation_end(self, ctx: EvaluationContext) -> None:
        """After it."""

    def on_checkpoint_end(self, ctx: CheckpointContext) -> None:
        """When a checkpoint is durable, or could not be written."""

    def on_run_end(self, ctx: RunContext) -> None:
        """Last of all, once the last checkpoint is written and before summary.json is; decisions are refused."""

    # Episodes of training and of the configuration's evaluations: called in the processes of the environments, by objects of their own there, which
    # only track.

    def on_episode_start(self, ctx: EpisodeContext) -> None:
        """Before the first step, when it is known who plays. Of environments in Python."""

    def on_episode_step(self, ctx: EpisodeContext) -> None:
        """After each step. Of environments in Python."""

    def on_episode_end(self, ctx: EpisodeContext) -> None:
        """After the last step, before the next reset. Of every environment; not of an episode that failed or was given up."""


def check_hooks(callback: Callback) -> None:
    """TypeError for a method that is named like a hook and is none: nothing would call it."""
    hooks = [name for name in vars(Callback) if name.startswith("on_")]
    for name in dir(callback):
        if not name.startswith("on_") or name in hooks or not callable(getattr(callback, name)):
            continue
        nearest = difflib.get_close_matches(name, hooks, 1)
        if name in _COUNTERPARTS:
            library, hook = _COUNTERPARTS[name]
            hint = f"{library}'s {name} is {hook}" if hook else f"of {library}'s {name} there is no counterpart"
        else:
            hint = f"the nearest is {nearest[0]}" if nearest else "a method of your own begins otherwise than with on_"
        raise TypeError(f"got the method {name}, which nothing calls, expected one of {', '.join(hooks)}; {hint}")


# Methods of other libraries' callbacks: whose they are, and the hook that is called at that time; empty: none is.
_COUNTERPARTS = {
    "on_algorithm_init": ("RLlib", "on_run_start"),
    "on_checkpoint_loaded": ("RLlib", "on_run_start"),
    "on_create_policy": ("RLlib", ""),
    "on_episode_created": ("RLlib", "on_episode_start"),
    "on_env_runners_recreated": ("RLlib", ""),
    "on_environment_created": ("RLlib", ""),
    "on_evaluate_end": ("RLlib", "on_evaluation_end"),
    "on_evaluate_start": ("RLlib", "on_evaluation_start"),
    "on_learn_on_batch": ("RLlib", "on_update_end"),
    "on_postprocess_trajectory": ("RLlib", ""),
    "on_sample_end": ("RLlib", "on_update_end"),
    "on_sub_environment_created": ("RLlib", ""),
    "on_train_result": ("RLlib", "on_update_end"),
    "on_workers_recreated": ("RLlib", ""),
    "on_rollout_end": ("Stable-Baselines3", "on_update_end"),
    "on_rollout_start": ("Stable-Baselines3", "on_update_end"),
    "on_step": ("Stable-Baselines3", "on_episode_step"),
    "on_training_end": ("Stable-Baselines3", "on_run_end"),
    "on_training_start": ("Stable-Baselines3", "on_run_start"),
}

EPISODE_HOOKS = ("on_episode_start", "on_episode_step", "on_episode_end")


def overrides(callback: Callback, hook: str) -> bool:
    """Whether it is to be called there."""
    return getattr(type(callback), hook) is not getattr(Callback, hook) or hook in vars(callback)


def _check_tracked(name: str, value: float) -> float:
    try:
        number = one_number(value)
    except ValueError as error:
        raise ValueError(f"track {name}: got {error}, expected one number") from None
    if not abs(number) <= MAX_TRACKED_NUMBER:  # nor is NaN
        raise ValueError(f"track {name}: got {value}, expected a finite number of at most {MAX_TRACKED_NUMBER:g} either way")
    if not isinstance(name, str) or not 0 < len(name.encode()) <= MAX_TRACKED_NAME or not name.isascii() or not name.isprintable():
        raise ValueError(f"track: got the name {name!r:.100}, expected 1 to {MAX_TRACKED_NAME} printable characters of ASCII")
    return number


CONTEXTS = {
    "on_run_start": RunContext,
    "on_update_end": UpdateContext,
    "on_evaluation_start": EvaluationContext,
    "on_evaluation_end": EvaluationContext,
    "on_checkpoint_end": CheckpointContext,
    "on_run_end": RunContext,
}
