"""Forks processes of Python environments: the program of a process that is started by lib/envhost/fork_server.h and by nobody else.

It has imported what they need, the environment's module included, so that a process is there in milliseconds instead of
after the interpreter's start and these imports. It makes no environment.

File descriptors it inherits: 3 the control channel (JSON lines), 5 the lifeline; 4 is taken by nothing of use. The worker sends the line that starts
an environment's process (env_host.py), of which this one imports the module; it answers with {"op": "ready"}, or with
{"op": "refused", reason} where a fork would not be safe, and then ends. From then on, one at a time:

{"op": "fork"}, with four file descriptors: the pipe of what the process prints, its control channel, shared memory and
lifeline; answered with {"pid"}. {"op": "reap", pid}, of a process that has ended: answered with {"status"}, as waitpid
gives it. Until then its number is its own, and so is its process group's. {"error"} answers what the system refuses.
"""

import array
import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from troupe import env_host
from troupe.env_adapters import import_environment

#: Above the descriptors that a process gets, so that none is overwritten before it is moved.
_FIRST_FREE_FD = 16
_RECEIVE_BYTES = 1 << 16


class ControlSocket:
    """Lines over the control channel, with the file descriptors that come with them."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._buffer = b""

    def receive(self) -> Tuple[Optional[Dict[str, Any]], List[int]]:
        """The next message; None when the worker is gone."""
        fds: List[int] = []
        while b"\n" not in self._buffer:
            space = socket.CMSG_LEN(4 * array.array("i").itemsize)
            data, ancillary, _, _ = self._socket.recvmsg(_RECEIVE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    received = array.array("i")
                    received.frombytes(content[: len(content) - len(content) % received.itemsize])
                    fds += received
            if not data:
                return None, fds
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line), fds

    def send(self, message: Dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def detach(self) -> None:
        """Leaves the file descriptor to others."""
        self._socket.detach()


def threads() -> int:
    """How many threads this process has, those that Python does not know of included."""
    return len(os.listdir("/proc/self/task"))


def prepare(start: Dict[str, Any]) -> Dict[str, Any]:
    """Imports the environment's module; the answer to the worker."""
    sys.path[:0] = start["path"]
    try:
        import_environment(start["name"])
    except BaseException:  # the process that makes the environment meets the same error, and tells it
        return {"op": "refused", "reason": f"importing {start['name']} failed"}
    if threads() > 1:
        return {"op": "refused", "reason": f"importing {start['name']} has started {threads() - 1} threads"}
    gc.collect()
    gc.freeze()  # a collection in a fork need not touch, and so copy, what was imported
    return {"op": "ready"}


def become_host(control: ControlSocket, fds: List[int]) -> None:
    """Turns a fork into a process of environments; returns never."""
    code = 1
    try:
        control.detach()
        os.setpgid(0, 0)
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_FREE_FD) for fd in fds]
        output, channel, memory, lifeline = moved
        targets = ((1, output), (2, output), (env_host.CONTROL_FD, channel))
        targets += ((env_host.MEMORY_FD, memory), (env_host.LIFELINE_FD, lifeline))
        for target, fd in targets:
            os.dup2(fd, target)
        for fd in {*moved, *fds} - {target for target, _ in targets}:
            os.close(fd)
        np.random.seed()  # `random` sees to that itself
        code = env_host.main()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def fork(control: ControlSocket, fds: List[int]) -> Dict[str, Any]:
    """Starts a process with these file descriptors; the answer to the worker."""
    try:
        pid = os.fork()
    except OSError as error:
        return {"error": str(error)}
    if pid == 0:
        become_host(control, fds)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # here, too: whichever of the two comes first
    return {"pid": pid}


def reap(pid: int) -> Dict[str, Any]:
    """Frees the number of a process that has ended; the answer to the worker."""
    try:
        return {"status": os.waitpid(pid, 0)[1]}
    except OSError as error:
        return {"error": str(error)}


def serve(control: ControlSocket) -> None:
    """Answers until the worker is gone."""
    while True:
        message, fds = control.receive()
        if message is None:
            return
        control.send(fork(control, fds) if message["op"] == "fork" else reap(message["pid"]))
        for fd in fds:
            os.close(fd)


def main() -> int:
    """The process."""
    env_host.die_with_worker()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = ControlSocket(env_host.CONTROL_FD)
    start, _ = control.receive()
    if start is None:
        return 0
    answer = prepare(start)
    control.send(answer)
    if answer["op"] == "ready":
        serve(control)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of the module that was imported are not waited for
