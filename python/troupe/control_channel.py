"""What processes of Python that the program starts share: a channel of JSON lines, and their end with it."""

import fcntl
import json
import os
import select
import signal
from typing import Any, Dict

CONTROL_FD, MEMORY_FD, LIFELINE_FD = 3, 4, 5


class ControlChannel:
    """Lines over the control socket."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""

    def readline(self) -> bytes:
        while b"\n" not in self._buffer:
            data = os.read(self._fd, 1 << 16)
            if not data:
                return b""
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def send(self, message: Dict[str, Any]) -> None:
        view = memoryview(json.dumps(message, allow_nan=False, sort_keys=True).encode() + b"\n")
        while view:
            view = view[os.write(self._fd, view) :]


def die_with_worker() -> None:
    """Has the kernel end this process and what it started when the worker dies, also in mid-step: the lifeline's end is a signal to the
    process group, of which this process is the first."""
    fcntl.fcntl(LIFELINE_FD, fcntl.F_SETOWN, -os.getpgrp() if os.getpgrp() == os.getpid() else os.getpid())
    fcntl.fcntl(LIFELINE_FD, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(LIFELINE_FD, fcntl.F_SETFL, fcntl.fcntl(LIFELINE_FD, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(LIFELINE_FD, select.POLLIN)
    if poll.poll(0):
        raise SystemExit(0)  # it died before
