"""Callbacks of episodes: called in the process of an environment in Python, or where a worker tells of the episodes of other ones (docs/hooks.md).

The first call that raises, or does not return in time, is the last one of its process: what callbacks remember is of one piece.
"""

from __future__ import annotations

import json
import signal
import struct
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Sequence

from troupe import _shm_host as shm
from troupe.callbacks import EPISODE_HOOKS, MAX_TRACKED, Callback, EpisodeContext, overrides

MAX_TIMEOUT_S = 30.0


class CallbackTimeout(BaseException):
    """Raised in a callback that takes too long."""


class EpisodeCallbacks:
    """The callbacks of a process, in the order of the configuration."""

    def __init__(self, names: Sequence[str], step_timeout_s: float, evaluating: bool = False) -> None:
        """Half of `step_timeout_s` is left to the environment: the calls of a request share the other half, at most MAX_TIMEOUT_S."""
        self.off = ""  # why they are called no more
        self.enter: Callable[[int], None] = lambda hook: None  # told before each call which one it is, from 1, and 0 after it
        self._timeout_s = self._left_s = min(MAX_TIMEOUT_S, step_timeout_s / 2)
        self._armed = False
        self.evaluating = evaluating
        self._callbacks: List[Callback] = []
        self._names = list(names)
        self._tracked: Dict[str, None] = {}
        try:
            from troupe.env_adapters.resolve import find_callable

            self._callbacks = [find_callable("callback", name)() for name in names]
        except BaseException as error:
            if _is_stop(error):
                raise
            self._turn_off(f"cannot be made: {_describe(error)}")

    def begin_request(self) -> None:
        """The calls from here on have a time of their own."""
        self._left_s = self._timeout_s

    def wants(self, hook: str) -> bool:
        """Whether somebody is called there."""
        return not self.off and any(overrides(callback, hook) for callback in self._callbacks)

    def call(self, hook: str, context: EpisodeContext) -> None:
        """All callbacks, one after the other, until one fails."""
        for name, callback in zip(self._names, self._callbacks):
            if self.off or not overrides(callback, hook):
                continue
            self.enter(1 + EPISODE_HOOKS.index(hook))
            try:
                self._call_in_time(getattr(callback, hook), context)
            except CallbackTimeout:
                traceback.print_exc()
                self._turn_off(f"{hook} of {name}: did not return within {self._timeout_s:g} s")
            except BaseException as error:  # also SystemExit: a callback ends no episode
                if _is_stop(error):
                    raise
                traceback.print_exc()
                self._turn_off(f"{hook} of {name}: {_describe(error)}")
            finally:
                self.enter(0)

    def _call_in_time(self, callback: Callable[[EpisodeContext], None], context: EpisodeContext) -> None:
        """CallbackTimeout also for a callback that caught it, and where no time is left to call one."""
        if self._left_s <= 0:
            raise CallbackTimeout()
        own_timer = signal.setitimer(signal.ITIMER_REAL, 0)  # an environment's
        own_handler = signal.signal(signal.SIGALRM, self._on_alarm)
        begin = time.monotonic()
        try:
            try:  # an alarm may strike from here on, and in the inner finally, too
                self._armed = True
                # Again and again: a callback may catch what it is interrupted with.
                signal.setitimer(signal.ITIMER_REAL, self._left_s, 1.0)
                callback(context)
            finally:
                self._armed = False
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, own_handler)
            signal.setitimer(signal.ITIMER_REAL, *own_timer)
            self._left_s -= time.monotonic() - begin
        if self._left_s < 0:
            raise CallbackTimeout()

    def _on_alarm(self, _signal: int, _frame: Any) -> None:
        if self._armed:
            raise CallbackTimeout()

    def _turn_off(self, words: str) -> None:
        self.off = self.off or words

    def take(self, contexts: Sequence[EpisodeContext]) -> bytes:
        """What these episodes tracked, as lib/envhost/episode_tracks.h reads it."""
        sums: Dict[str, List[float]] = {}
        for context in contexts:
            for name, mean in context.tracked_means().items():
                if name not in self._tracked and len(self._tracked) >= MAX_TRACKED:
                    self._turn_off(f"tracked more than {MAX_TRACKED} names")
                    break
                self._tracked[name] = None
                entry = sums.setdefault(name, [0.0, 0])
                entry[0] += mean
                entry[1] += 1
        tracked = [[name, total, count] for name, (total, count) in sums.items()]
        return json.dumps({"tracked": tracked, "off": self.off[:1000]}).encode()


class EpisodeWatch:
    """The episodes of one environment and the memory that it shares with its worker."""

    def __init__(self, callbacks: EpisodeCallbacks, ids: List[str], header: Any, players: memoryview, tracked: memoryview) -> None:
        self._callbacks, self._ids, self._header = callbacks, ids, header
        self._players, self._tracked = players, tracked
        self._context: Optional[EpisodeContext] = None  # of the episode, where callbacks are called for it
        self._started = False
        self._actions: Sequence[Any] = []
        self._hears_starts, self._hears_steps = callbacks.wants("on_episode_start"), callbacks.wants("on_episode_step")

    def begin(self, adapter: Any, result: Any) -> None:
        """After a reset."""
        self._started = False
        called = self._header[shm.BLOCK_CALLBACKS] and not self._callbacks.off
        self._context = EpisodeContext(adapter.env, self._callbacks.evaluating) if called else None
        if self._context is not None:
            self._note(adapter, result)
            if self._hears_starts or self._hears_steps:
                self._show(self._context, result, [])

    def acting(self, acts: memoryview, actions: Sequence[Any]) -> None:
        """Before a step: who plays is known for those that act."""
        self._callbacks.begin_request()
        context = self._context
        if context is None:
            return
        for index, acts_now in enumerate(acts):
            if acts_now and self._ids[index] not in context.policies:
                player = self._players[index * shm.PLAYER_BYTES : (index + 1) * shm.PLAYER_BYTES]
                context.policies[self._ids[index]] = bytes(player[5 : 5 + player[4]]).decode()
        if not self._started:
            self._started = True
            self._call("on_episode_start", context)
        self._actions = actions

    def stepped(self, adapter: Any, result: Any) -> None:
        """After a step."""
        context = self._context
        if context is None:
            return
        context.length += 1
        self._note(adapter, result)
        for index, reward in enumerate(result.rewards):
            agent = self._ids[index]
            if agent in context.returns:
                context.returns[agent] += reward
        if self._hears_steps:
            self._show(context, result, self._actions)
            self._call("on_episode_step", context)

    def end(self) -> None:
        """The worker says that the episode is over."""
        self._callbacks.begin_request()
        context, self._context = self._context, None
        if context is None:
            answer = self._callbacks.take([])
        else:
            self._call("on_episode_end", context)
            answer = self._callbacks.take([context])
        self._tracked[: len(answer)] = answer
        self._header[shm.BLOCK_CALLBACK_BYTES] = len(answer)

    def _call(self, hook: str, context: EpisodeContext) -> None:
        self._callbacks.enter = self._enter
        self._callbacks.call(hook, context)

    def _enter(self, hook: int) -> None:
        self._header[shm.BLOCK_IN_CALLBACK] = hook

    def _show(self, context: EpisodeContext, result: Any, actions: Sequence[Any]) -> None:
        """What the step brought, as it is: a copy would cost those that look at a part of it."""
        seen = [(agent, index) for index, agent in enumerate(self._ids) if result.observations[index] is not None]
        context.observations = {agent: result.observations[index] for agent, index in seen}
        context.action_masks = {agent: result.action_masks[index] for agent, index in seen if result.action_masks[index] is not None}
        context.actions = {agent: action for agent, action in zip(self._ids, actions) if action is not None}
        decided = [(agent, index) for index, agent in enumerate(self._ids) if agent in context.actions]
        context.log_probs = {agent: struct.unpack_from("=f", self._players, index * shm.PLAYER_BYTES)[0] for agent, index in decided}
        context.rewards = {agent: float(result.rewards[index]) for index, agent in enumerate(self._ids) if agent in context.actions or agent in context.observations}

    def _note(self, adapter: Any, result: Any) -> None:
        context = self._context
        assert context is not None
        for index, observation in enumerate(result.observations):
            if observation is not None:
                context.returns.setdefault(self._ids[index], 0.0)
        context.infos = {self._ids[index]: info for index, info in adapter.kept_infos.items()}


def call_ended(callbacks: EpisodeCallbacks, episodes: List[Dict[str, Any]], budget_s: float) -> Dict[str, Any]:
    """Calls on_episode_end for episodes of environments that are not in Python, in order; stops when the time is over. `called`: how many it was."""
    contexts: List[EpisodeContext] = []
    begin = time.monotonic()
    for episode in episodes:
        context = EpisodeContext(None, callbacks.evaluating)
        context.length = episode["length"]
        context.returns = episode["returns"]
        context.policies = episode["policies"]
        contexts.append(context)
        callbacks.begin_request()
        callbacks.call("on_episode_end", context)
        if callbacks.off or time.monotonic() - begin > budget_s:
            break
    return {"called": len(contexts), **json.loads(callbacks.take(contexts))}


def _is_stop(error: BaseException) -> bool:
    from troupe._shm_env import Stop

    return isinstance(error, Stop)


def _describe(error: BaseException) -> str:
    from troupe._shm_env import headline

    return headline(error)
