"""Runs one program with a time limit, keeps its output, samples the CPU time of its processes, and ends all of them.

A program gets a session of its own (setsid). Whatever it starts stays in that session, unless it asks for another, so
that ending the session ends them all; `troupe train` puts its learner and workers in process groups of their own.
"""

import ctypes
import dataclasses
import os
import re
import resource
import selectors
import shlex
import signal
import subprocess
import time

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
POLL_S = 0.1
GRACE_S = 2.0  # between SIGTERM and SIGKILL
TAIL_LINES = 200
LINE_BYTES = 1 << 20  # a longer line is cut
PR_SET_PDEATHSIG = 1
LINE_SHOWN = 200
ERROR_WORDS = re.compile(r"error|fail|fatal|exception|what\(\)|terminate called|cannot|not found|refused", re.IGNORECASE)
LIBC = ctypes.CDLL(None, use_errno=True)


class OutOfTime(Exception):
    """A part's limit has passed; the message has the last line of what ran then."""


class Log:
    """All output of all programs, cut off at `limit_bytes`."""

    def __init__(self, path, limit_bytes=8 << 20):
        self._file = open(path, "w", encoding="utf-8", errors="replace")
        self._left_bytes = limit_bytes

    def write(self, text):
        if self._left_bytes <= 0:
            return
        self._file.write(text[: self._left_bytes])
        self._left_bytes -= len(text.encode("utf-8", "replace"))
        if self._left_bytes <= 0:
            self._file.write("\n(log.txt is full: the rest of the output is left out)\n")
        self._file.flush()

    def close(self):
        self._file.close()


@dataclasses.dataclass
class Ended:
    """How a program ended. `code` is None when its time was up, 0 when `on_tick` had enough; `lines` are its stdout,
    `tail` the last of both."""

    command: list
    code: int = None
    seconds: float = 0.0
    others_cpus: float = 0.0  # CPUs that other processes kept busy meanwhile; what orphans of this one used counts, too
    limit_s: float = 0.0
    lines: list = dataclasses.field(default_factory=list)
    tail: list = dataclasses.field(default_factory=list)

    @property
    def timed_out(self):
        return self.code is None

    def first_error(self):
        """The line that most likely says what went wrong, "" without output."""
        for line in self.tail:
            if ERROR_WORDS.search(line) and not line.startswith("[ "):  # GoogleTest's own marks
                return line.strip()
        return self.last_line()

    def last_line(self):
        line = next((line.strip() for line in reversed(self.tail) if line.strip()), "")
        return line if len(line) <= LINE_SHOWN else line[:LINE_SHOWN].rstrip() + " …"

    def problem(self):
        """A sentence about an end that is no success, "" for a success."""
        if self.timed_out:
            last = self.last_line()
            return f"timed out after {self.seconds:.0f} s" + (f"; its last line: {last}" if last else "; it printed nothing")
        if self.code == 0:
            return ""
        how = f"exited with code {self.code}"
        if self.code < 0:
            how = f"was ended by {signal.Signals(-self.code).name}"
        error = self.first_error()
        return how + (f": {error}" if error else "; it printed nothing")


def _stat(pid):
    """(state, session, CPU seconds) of a process, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], int(fields[3]), (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    except (OSError, IndexError, ValueError):
        return None


def system_busy_s():
    """CPU seconds that all processes of the machine have used; 0 where /proc/stat does not tell."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            values = [int(value) for value in file.readline().split()[1:]]
        return (sum(values[:3]) + sum(values[5:7])) / TICKS_PER_S  # user, nice, system, irq, softirq
    except (OSError, ValueError):
        return 0.0


def own_busy_s():
    """CPU seconds of this process and of those that it has waited for, or that those have."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def members(session):
    """{pid: CPU seconds} of the processes of a session that still run."""
    found = {}
    for name in os.listdir("/proc"):
        stat = _stat(name) if name.isdigit() else None
        if stat and stat[1] == session and stat[0] not in "ZX":
            found[int(name)] = stat[2]
    return found


def role_of(pid):
    """"learner", "worker" or "other", by the command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return "other"
    if any(os.path.basename(argument) == "troupe-learner" for argument in arguments[:3]):
        return "learner"
    return "worker" if "worker" in arguments[1:4] else "other"


class CpuTimes:
    """CPU seconds by role of a session's processes; those that ended count with what was seen last."""

    def __init__(self):
        self._seconds = {}  # pid: (role, CPU seconds)

    def sample(self, session):
        for pid, seconds in members(session).items():
            role = self._seconds.get(pid, ("other",))[0]
            if role == "other":  # a process that is about to become another program
                role = role_of(pid)
            self._seconds[pid] = (role, seconds)
        totals = {"learner": 0.0, "worker": 0.0, "other": 0.0}
        for role, seconds in self._seconds.values():
            totals[role] += seconds
        return totals


def end_session(process, grace_s=GRACE_S):
    """Ends all processes of the session that `process` leads: SIGTERM, after a grace SIGKILL. Blocks until they are gone."""
    for how, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience_s
        sent = set()
        while True:
            process.poll()
            left = members(process.pid)
            if not left:
                return
            for pid in set(left) - sent:
                try:
                    os.kill(pid, how)
                except ProcessLookupError:
                    pass
                sent.add(pid)
            if time.monotonic() >= deadline:
                break
            time.sleep(0.05)


def _die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class _Stream:
    """The whole lines of a pipe."""

    def __init__(self, pipe, on_line):
        os.set_blocking(pipe.fileno(), False)
        self.pipe = pipe
        self._on_line = on_line
        self._rest = b""

    def read(self):
        """False at the end."""
        try:
            data = os.read(self.pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        # A progress line that is overwritten with carriage returns counts as lines.
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        if (not data or len(self._rest) > LINE_BYTES) and self._rest:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._on_line(line.decode("utf-8", "replace"))
        return bool(data)


def run(command, *, cwd, env, limit_s, log, on_line=None, on_tick=None, tick_s=0.2):
    """Runs `command` for at most `limit_s` and returns an Ended.

    `on_line` gets every line of stdout as it comes. `on_tick` is called with the session's id every `tick_s`, must not
    block for long, and ends the program in good order by answering True. A program that cannot be started has code
    127. Nothing of its session is left at the return.
    """
    command = [str(part) for part in command]
    ended = Ended(command, limit_s=limit_s)
    log.write(f"\n$ {shlex.join(command)}\n")
    start, others_s = time.monotonic(), system_busy_s() - own_busy_s()

    def keep(line):
        log.write(line + "\n")
        ended.tail.append(line)
        del ended.tail[:-TAIL_LINES]

    def keep_stdout(line):
        keep(line)
        ended.lines.append(line)
        if on_line:
            on_line(line)

    try:
        process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True, preexec_fn=_die_with_parent)
    except OSError as error:
        ended.code = 127
        keep(f"cannot start {command[0]}: {error.strerror}")
        return ended
    with selectors.DefaultSelector() as selector:
        try:
            for pipe, take in ((process.stdout, keep_stdout), (process.stderr, keep)):
                selector.register(pipe, selectors.EVENT_READ, _Stream(pipe, take))
            tick_at, gone_at, enough = start, None, False
            while time.monotonic() < start + limit_s and not enough:
                now = time.monotonic()
                if on_tick and now >= tick_at:
                    enough = on_tick(process.pid) is True
                    tick_at = now + tick_s
                for key, _ in selector.select(POLL_S):
                    if not key.data.read():
                        selector.unregister(key.fileobj)
                if process.poll() is not None:
                    # A process that it left behind may hold its pipes open.
                    gone_at = gone_at or now
                    if not selector.get_map() or now >= gone_at + 1.0:
                        break
            ended.code = 0 if enough else process.poll()
        finally:
            end_session(process, 0.3 if ended.code == 0 else GRACE_S)
            process.wait()
            process.stdout.close()
            process.stderr.close()
    ended.seconds = time.monotonic() - start
    ended.others_cpus = max(0.0, system_busy_s() - own_busy_s() - others_s) / ended.seconds
    log.write(f"({ended.problem() or 'exited with code 0'}; {ended.seconds:.1f} s)\n")
    return ended
