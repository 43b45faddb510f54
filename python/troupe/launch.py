"""A `troupe train` of this process: started, watched, and ended with it."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, List, Optional, Sequence, Set

from troupe import program
from troupe.notebook import NotebookFile

POLL_S = 0.05
DRAIN_S = 30.0
_SHOWN_EVERY_S = 0.1
_KILL_S = 5.0
_COPY_S = 1.0


class TrainProcess:
    """States: running -> ended. Ended in order by `drain`, by the end of this process, and by Ctrl-C where `train` waits for it. What it says is kept.

    One thread of the process that started it calls its methods; a thread of its own prints what it says.
    """

    def __init__(self, arguments: Sequence[str], fds: Sequence[int], notebook: NotebookFile, show: bool) -> None:
        """Starts it. `show`: what it says goes to sys.stdout, progress as lines, or as a block where that is a terminal; else warnings, and what code
        of others it executes, go to sys.stderr, and no progress. TroupeError."""
        self._log = tempfile.TemporaryFile()
        self._said = ""
        self._notebook = notebook
        to_terminal = show and _is_terminal()
        self._owner = os.getpid()
        progress: Any = None if to_terminal else self._log if show else subprocess.DEVNULL
        self._child = program.spawn([*arguments, *([] if show else ["--log-level", "warn"])], progress, self._log, fds, notebook.variables)
        self.killed = False
        _running.add(self)
        stream = sys.stdout if show and not to_terminal else sys.stderr
        self._shower = threading.Thread(target=self._show, args=(stream,), daemon=True)
        self._shower.start()

    @property
    def is_own(self) -> bool:
        """False in a fork, whose parent has it."""
        return self._owner == os.getpid()

    @property
    def pid(self) -> int:
        """Of `troupe train`, whose children the other processes are."""
        return self._child.process.pid

    def poll(self) -> Optional[int]:
        """Its exit code; None: it runs."""
        code = self._child.poll()
        if code is not None:
            self._notebook.remove()
            _running.discard(self)
            self._shower.join()  # the last words
            if not self._log.closed:
                self._said = self._read(0).decode(errors="replace")
                self._log.close()
        return code

    def wait(self, timeout: Optional[float] = None) -> Optional[int]:
        """Its exit code; None: it still runs after so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            code = self.poll()
            if code is not None or (deadline is not None and time.monotonic() >= deadline):
                return code
            time.sleep(POLL_S)

    def drain(self, timeout: float) -> None:
        """Has it end in order, and at once where it did not within so many seconds."""
        _end([self], timeout)

    def signal(self, number: int) -> None:
        """Nothing happens where it has ended."""
        self._child.signal(number)

    def text(self) -> str:
        """What it said so far."""
        return self._said if self._log.closed else self._read(0).decode(errors="replace")

    def _read(self, begin: int) -> bytes:
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size - begin, begin)

    def _show(self, stream: Any) -> None:
        shown, held = 0, program.HeldError()
        while True:
            code = self._child.process.poll()
            data = self._read(shown)
            data = data if code is not None else data[: data.rfind(b"\n") + 1]
            text = held.shown(data.decode(errors="replace"))
            if code in (0, 130):  # nothing is raised
                text += held.take()
            if text:
                stream.write(text)
                stream.flush()
            shown += len(data)
            if code is not None:
                return
            time.sleep(_SHOWN_EVERY_S)


_running: Set[TrainProcess] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _end_all() -> None:
    _end(list(_running), DRAIN_S)


def _end(processes: Sequence[TrainProcess], timeout: float) -> None:
    """All in order, and together; at once what did not within so many seconds. A KeyboardInterrupt ends them at once, too, but not within the first
    second: it may be a copy of the one that led here, as GNU timeout sends SIGINT to a process and to its group."""
    begun = time.monotonic()
    running: Sequence[TrainProcess] = processes
    number: int = signal.SIGTERM
    while running:
        try:
            running = _signal(running, number, begun + timeout - time.monotonic())
            break
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and time.monotonic() - begun < _COPY_S:
                number = 0
                continue
            _kill(processes)
            raise
    _kill(running)


def _kill(processes: Sequence[TrainProcess]) -> None:
    for process in processes:
        process.killed = True
    # `troupe train` takes the first as an order to kill what it started; what it started ends with it, too.
    for number in (signal.SIGQUIT, signal.SIGKILL):
        processes = _signal(processes, number, _KILL_S)


def _signal(processes: Sequence[TrainProcess], number: int, timeout: float) -> List[TrainProcess]:
    """Those that still run so many seconds after it."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.signal(number)
    deadline = time.monotonic() + timeout
    return [process for process in running if process.wait(max(0.0, deadline - time.monotonic())) is None]


def _is_terminal() -> bool:
    """Whether what a child writes to its stdout is seen by who sees sys.stdout, in a terminal."""
    try:
        return sys.stdout.isatty() and sys.stdout.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False


def shows_by_itself() -> bool:
    """Whether progress is shown where nothing is said of it: in a terminal and in a notebook."""
    return _is_terminal() or "ipykernel" in sys.modules
