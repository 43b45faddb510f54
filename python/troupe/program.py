"""Finds the program `troupe` and runs its commands for the Python API.

What it says of an error is what an exception of this package says: nothing is checked here that the program checks.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import weakref
from typing import IO, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Type

from troupe.version import DISTRIBUTION

try:
    import fcntl
except ImportError:  # Windows, where there is no program to start
    pass

VARIABLE = "TROUPE_PROGRAM"

# ./troupe, a script, uses descriptors below 10 for its locks: what a child gets has a larger number.
_FIRST_FD = 64
_ERROR = re.compile(r"^troupe[\w-]*: error: ", re.M)
_LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z ", re.M)
_UNNAMED = re.compile(r"/dev/fd/\d+(:\d+:\d+)?: ")


# Exit codes (base::ExitCode): wrong use of the command line; no other try ends differently before somebody changes
# something.
USAGE, REFUSED = 2, 78


class TroupeError(Exception):
    """What a command of the program said; `code` is its exit code (docs/cli.md)."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class ConfigError(TroupeError, ValueError):
    """A configuration that is none: unknown keys, values out of range, an environment that cannot be made."""


def installed_from(site: str) -> Optional[str]:
    """The checkout whose folder `python` is what `site` has of this package; None: it comes from elsewhere."""
    for distribution in importlib.metadata.distributions(name=DISTRIBUTION, path=[site]):
        try:
            noted = json.loads(distribution.read_text("direct_url.json") or "{}")
            url = urllib.parse.urlsplit(noted["url"]) if "dir_info" in noted else None
        except (ValueError, KeyError, TypeError):
            continue
        if url is not None and url.scheme == "file":
            return os.path.dirname(os.path.normpath(urllib.request.url2pathname(url.path)))
    return None


def candidates() -> List[str]:
    """Where the program may be, first come first served: where TROUPE_PROGRAM says and nowhere else; beside the package, as a wheel and a bundle have it; in
    the checkout that the package lies in or was installed from, whose script builds it at first."""
    given = os.environ.get(VARIABLE)
    if given:
        return [given]
    package = os.path.dirname(os.path.abspath(__file__))
    above = os.path.dirname(os.path.dirname(package))
    checkouts = [above, installed_from(os.path.dirname(package))]
    return [os.path.join(package, "bin", "troupe"), os.path.join(above, "bin", "troupe")] + [
        os.path.join(checkout, "troupe") for checkout in checkouts if checkout and os.path.isfile(os.path.join(checkout, "CMakePresets.json"))]


def foreign_machine() -> str:
    """This machine's system and processor where the programs are made for others; "" on Linux for x86-64."""
    system, processor = platform.system(), platform.machine()
    return "" if (system, processor) == ("Linux", "x86_64") else f"{system} ({processor})"


def not_found() -> str:
    """The sentence for who has no program."""
    given = os.environ.get(VARIABLE)
    foreign = foreign_machine()
    if foreign and not given:
        return (f"troupe's programs run on Linux for x86-64, and this is {foreign}; in a clone of Troupe "
                "`docker build --platform linux/amd64 -f docker/Dockerfile --target learner -t troupe/learner .` makes an image, and "
                '`docker run --rm --platform linux/amd64 -v "$PWD:/runs" troupe/learner train /runs/CONFIG.yaml --directory /runs` trains with it')
    return (f"found no program troupe{f' at {given}' if given else ''}: the Python package comes without it; install the wheel of {DISTRIBUTION} for Linux "
            f"(glibc 2.34 or later), or from a checkout of Troupe (pip install CHECKOUT/python), or say where it is with {VARIABLE}=CHECKOUT/troupe")


def find_program() -> str:
    """The path of the program. TroupeError."""
    places = candidates()
    if not os.environ.get(VARIABLE):
        on_path = shutil.which("troupe")
        # The command of an installed package would only look where we did.
        if on_path is not None and not _is_own_command(on_path):
            places.append(on_path)
    for path in places:
        if os.path.isfile(path):
            return os.path.abspath(path)
    raise TroupeError(not_found())


def _is_own_command(path: str) -> bool:
    with open(path, "rb") as file:
        return b"troupe.__main__" in file.read(2048)


def environment(own: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The program's environment: what it runs in Python it runs with this interpreter, where a configuration names none."""
    variables = dict(os.environ, **(own or {}))
    if os.access(os.path.join(sys.prefix, "bin", "python"), os.X_OK):
        variables["VIRTUAL_ENV"] = sys.prefix
    else:
        variables.pop("VIRTUAL_ENV", None)
        variables["PATH"] = os.path.dirname(sys.executable) + os.pathsep + variables.get("PATH", os.defpath)
    return variables


def own_words(text: str) -> str:
    """The error in what a program said: what follows its last `troupe: error: `, else its last line. Without the place in a text that has no name."""
    found = list(_ERROR.finditer(text))
    if found:
        text = text[found[-1].end():]
        behind = _LOG_LINE.search(text)  # of a worker that goes after its learner
        text = text if behind is None else text[: behind.start()]
    else:
        text = (text.strip().splitlines() or ["it said nothing"])[-1]
    return _UNNAMED.sub("", text).strip()


class HeldError:
    """Tells what a program says but for the error with which it ends, which is raised. An error that something follows is none of these."""

    def __init__(self) -> None:
        self._held = ""

    def shown(self, text: str) -> str:
        """What may be shown of what it said up to these lines. Of its error every line that is not of the log is part."""
        told = ""
        for line in text.splitlines(keepends=True):
            begins = _ERROR.match(line) is not None
            if begins or _LOG_LINE.match(line):
                told += self.take()
            if begins or self._held:
                self._held += line
            else:
                told += line
        return told

    def take(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held


@contextlib.contextmanager
def unnamed_file(text: str) -> Iterator[int]:
    """A descriptor of a file with this text, which has no name and goes with the last process that has it: a configuration may hold secrets, and a
    command line is everybody's to read. A child that is given it reads /dev/fd/N. TroupeError where there is no program to be given it."""
    if not hasattr(os, "memfd_create"):
        raise TroupeError(not_found())
    low = os.memfd_create("troupe-configuration")
    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
    finally:
        os.close(low)
    try:
        with open(high, "wb", closefd=False) as file:
            file.write(text.encode())
        yield high
    finally:
        os.close(high)


class Lifeline:
    """A pipe whose end is SIGTERM to a child, which ends in order then: also where this interpreter is killed, and its own code runs no more.

    The kernel sends the signal when the last process that holds the writing end is gone: this one, since neither children nor forks keep it.
    """

    _open: "weakref.WeakSet[Lifeline]" = weakref.WeakSet()

    def __init__(self) -> None:
        low, self._writer = os.pipe()
        self.reader = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
        os.close(low)
        Lifeline._open.add(self)

    def tie(self, pid: int) -> None:
        """To be called once, when the child has the reader."""
        fcntl.fcntl(self.reader, fcntl.F_SETOWN, pid)
        fcntl.fcntl(self.reader, fcntl.F_SETSIG, signal.SIGTERM)
        fcntl.fcntl(self.reader, fcntl.F_SETFL, fcntl.fcntl(self.reader, fcntl.F_GETFL) | os.O_ASYNC)
        os.close(self.reader)

    def close(self) -> None:
        """Once the child has ended."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    @staticmethod
    def leave_to_parent() -> None:
        """In a fork."""
        for line in list(Lifeline._open):
            line.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Lifeline.leave_to_parent)


def spawn(arguments: Sequence[str], stdout: Any, stderr: Any, fds: Sequence[int] = (), own: Optional[Mapping[str, str]] = None) -> "Child":
    """Starts `troupe ARGUMENTS` in a session of its own, which a terminal's Ctrl-C does not reach: this process decides. TroupeError;
    ValueError for arguments that no process can have."""
    command = [find_program(), *arguments]
    lifeline = Lifeline()
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, pass_fds=[lifeline.reader, *fds],
                                   start_new_session=True, env=environment(own))
    except BaseException as error:
        os.close(lifeline.reader)
        lifeline.close()
        if isinstance(error, OSError):
            raise TroupeError(f"cannot start {command[0]}: {error.strerror}") from None
        if isinstance(error, ValueError):  # a zero byte
            raise ValueError(f"cannot start {command[0]} with {' '.join(map(repr, arguments))}: {error}") from None
        raise
    lifeline.tie(process.pid)
    return Child(process, lifeline)


class Child:
    """A command that runs. Ends at the latest with this process."""

    def __init__(self, process: "subprocess.Popen[bytes]", lifeline: Lifeline) -> None:
        self.process = process
        self._lifeline = lifeline

    def poll(self) -> Optional[int]:
        """Its exit code as a shell gives it; None: it runs."""
        code = self.process.poll()
        if code is None:
            return None
        self._lifeline.close()
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """Nothing happens where it has ended."""
        self.process.send_signal(number)


def run_command(*arguments: str, fds: Sequence[int] = (), echo: Optional[IO[str]] = None, error: Type[TroupeError] = TroupeError,
                own: Optional[Mapping[str, str]] = None) -> str:
    """What `troupe ARGUMENTS` prints to stdout. `echo` gets what it says on stderr, as it says it, but not its error: that is raised, as `error`."""
    with tempfile.TemporaryFile() as out:
        child = spawn(arguments, out, subprocess.PIPE, fds, own)
        said: List[str] = []
        held = HeldError()
        try:
            stream = child.process.stderr
            assert stream is not None
            for line in stream:
                text = line.decode(errors="replace")
                said.append(text)
                if echo is not None:
                    echo.write(held.shown(text))
                    echo.flush()
            if child.process.wait() == 0 and echo is not None:
                echo.write(held.take())
        except BaseException:
            child.signal(signal.SIGKILL)
            child.process.wait()
            raise
        finally:
            if child.process.stderr is not None:
                child.process.stderr.close()
            code = child.poll()
        if code:
            raise error(own_words("".join(said)), code)
        out.seek(0)
        return out.read().decode()


def last_json(text: str) -> Any:
    """The object or list of the last line, where commands print theirs."""
    return json.loads(text.splitlines()[-1])
