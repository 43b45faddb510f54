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
from typing import Any, Optional, Sequence, Set

from troupe import program
from troupe.notebook import NotebookFile

POLL_S = 0.05
_SHOWN_EVERY_S = 0.1
_KILL_S = 5.0


class TrainProcess:
    """States: running -> ended. Ended in order by `drain`, by the end of this process, and by Ctrl-C where `train` waits for it. What it says is kept.

    One thread calls its methods; a thread of its own prints what it says.
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

    def drain(self, timeout: float) -> bool:
        """Has it end in order. Whether it did within so many seconds; where not, everything was ended at once."""
        try:
            if self.poll() is None:
                self._child.signal(signal.SIGTERM)
            if self.wait(timeout) is not None:
                return True
        except BaseException:
            self.kill()
            raise
        self.kill()
        return False

    def kill(self) -> None:
        """Ends everything at once."""
        self.killed = True
        # `troupe train` takes the first as an order to kill what it started; what it started ends with it, too.
        for number in (signal.SIGQUIT, signal.SIGKILL):
            if self.poll() is None:
                self._child.signal(number)
                self.wait(_KILL_S)

    def drain_own(self) -> None:
        """At the end of the interpreter; not in a fork, whose parent has it."""
        if self._owner == os.getpid():
            self.drain(30)

    def text(self) -> str:
        """What it said so far."""
        return self._said if self._log.closed else self._read(0).decode(errors="replace")

    def _read(self, begin: int) -> bytes:
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size - begin, begin)

    def _show(self, stream: Any) -> None:
        shown = 0
        while True:
            ended = self._child.process.poll() is not None
            data = self._read(shown)
            data = data if ended else data[: data.rfind(b"\n") + 1]
            if data:
                stream.write(program.without_error(data.decode(errors="replace")))
                stream.flush()
                shown += len(data)
            if ended:
                return
            time.sleep(_SHOWN_EVERY_S)


_running: Set[TrainProcess] = set()


@atexit.register
def _drain_all() -> None:
    for process in list(_running):
        process.drain_own()


def _is_terminal() -> bool:
    """Whether what a child writes to its stdout is seen by who sees sys.stdout, in a terminal."""
    try:
        return sys.stdout.isatty() and sys.stdout.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False


def shows_by_itself() -> bool:
    """Whether progress is shown where nothing is said of it: in a terminal and in a notebook."""
    return _is_terminal() or "ipykernel" in sys.modules
