"""Calls the callbacks of a run beside its learner: the program of a process that is started by lib/run/learner/callback_host.h and by nobody else.

File descriptors it inherits: 3 the control channel (JSON lines), 5 the lifeline. What callbacks print goes to the learner's log.

The learner sends {"op": "start", callbacks, path, run, program}, and gets {"op": "ready", "hooks", "episode_hooks"} or {"op": "failed", "error"}. From then on each line is
a hook and its facts; the answer is {"op": "done"}, before which come "track", "stop", "asks" and "goes on" (the learner is asked something, and has
answered) and "raised". {"op": "exit"} ends the process.
"""

import faulthandler
import json
import os
import signal
import sys
import traceback
from typing import Any, Dict, List

from troupe.callbacks import CONTEXTS, EPISODE_HOOKS, Callback, Learner, check_hooks, overrides
from troupe.control_channel import CONTROL_FD, ControlChannel, die_with_worker


class CallbackHost:
    """The callbacks of one run, in the order of the configuration."""

    def __init__(self, channel: ControlChannel, start: Dict[str, Any]) -> None:
        """What a class raises is the caller's."""
        from troupe.env_adapters.resolve import find_callable  # needs numpy

        self._channel = channel
        self._learner = Learner(channel.send, start["run"])
        self._callbacks: List[Callback] = []
        for name in start["callbacks"]:
            made = find_callable("callback", name)()
            if not isinstance(made, Callback):
                raise TypeError(f"callback {name}: got an object of type {type(made).__name__}, expected a class that is derived from troupe.Callback")
            try:
                check_hooks(made)
            except TypeError as error:
                raise TypeError(f"callback {name}: {error}") from None
            self._callbacks.append(made)
        self._names = start["callbacks"]

    @property
    def hooks(self) -> List[str]:
        """Those that a callback overrides."""
        return [hook for hook in CONTEXTS if any(overrides(callback, hook) for callback in self._callbacks)]

    @property
    def episode_hooks(self) -> List[List[str]]:
        """Of each callback those that it overrides, which are called in the processes of environments."""
        return [[hook for hook in EPISODE_HOOKS if overrides(callback, hook)] for callback in self._callbacks]

    def call(self, hook: str, facts: Dict[str, Any]) -> None:
        """All callbacks, one after the other; one that raises costs the next one nothing."""
        for name, callback in zip(self._names, self._callbacks):
            if not overrides(callback, hook):
                continue
            try:
                getattr(callback, hook)(CONTEXTS[hook](self._learner, facts))
            except BaseException as error:  # also SystemExit: a callback does not end its neighbours
                traceback.print_exc()
                self._learner.send({"op": "raised", "callback": name, "error": _describe(error)})
        self._learner.send({"op": "done"})


def _describe(error: BaseException) -> str:
    from troupe._shm_env import headline

    return headline(error)


def main() -> int:
    """The process."""
    die_with_worker()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = ControlChannel(CONTROL_FD)
    start = json.loads(channel.readline())
    sys.path[:0] = start["path"]
    if start["program"]:
        os.environ.setdefault("TROUPE_PROGRAM", start["program"])
    try:
        host = CallbackHost(channel, start)
    except BaseException as error:
        try:
            text = _describe(error)
        except ImportError:  # numpy is missing
            text = f"{sys.executable}: {error}; callbacks need numpy: {sys.executable} -m pip install numpy"
        channel.send({"op": "failed", "error": text})
        return 1
    channel.send({"op": "ready", "hooks": host.hooks, "episode_hooks": host.episode_hooks})
    while True:
        line = channel.readline()
        message = json.loads(line) if line else {"op": "exit"}
        if message["op"] == "exit":
            return 0
        host.call(message["op"], message["facts"])


if __name__ == "__main__":
    sys.exit(main())
