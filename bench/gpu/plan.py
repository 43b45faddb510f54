"""Parts of the check: what each may take, what came of it, and what a part sees while it runs."""

import dataclasses
import os
import signal
import time
import traceback

import processes

OK, FAILED, NOT_RUN = "ok", "FAILED", "not run"
RESERVE_S = 4.0  # of the whole time, for the report and for ending what hangs
OVERTIME_S = 6.0  # of a part that hangs by itself
SECTION_TAIL_LINES = 15


class NotRun(Exception):
    """A part cannot run here; the message says why."""


class PartFailed(Exception):
    """A part cannot go on; the message says what is wrong."""


@dataclasses.dataclass(frozen=True)
class Part:
    """`run` takes a Context and an Outcome, which it fills in as it goes."""

    name: str
    title: str
    limit_s: float
    run: object


@dataclasses.dataclass
class Outcome:
    """What came of a part. Whatever it holds when its time is up stays in the report."""

    name: str
    title: str
    verdict: str = NOT_RUN
    line: str = ""  # one line for the table at the top
    seconds: float = 0.0
    limit_s: float = 0.0
    checks: list = dataclasses.field(default_factory=list)  # {"what", "holds"}
    notes: list = dataclasses.field(default_factory=list)  # sentences below the tables
    tables: list = dataclasses.field(default_factory=list)  # {"title", "header", "rows"}
    figures: dict = dataclasses.field(default_factory=dict)  # raw numbers
    commands: list = dataclasses.field(default_factory=list)  # {"command", "seconds", "end"}
    tail: list = dataclasses.field(default_factory=list)  # of the program that failed

    def check(self, holds, what):
        """Notes something that must hold; `what` is a sentence that is true when it does, and gives the value."""
        self.checks.append({"what": what, "holds": bool(holds)})
        return bool(holds)

    def table(self, title, header):
        """A new table; its rows may be appended later."""
        self.tables.append({"title": title, "header": list(header), "rows": []})
        return self.tables[-1]["rows"]

    def failed_with(self, ended):
        """Keeps the end of the output of a program that failed."""
        self.tail = ended.tail[-SECTION_TAIL_LINES:]


def limits(parts, seconds):
    """What the parts get if each takes all it may: their own limits, or the same share of them where there is less."""
    found, left = [], seconds
    for at in range(len(parts)):
        found.append(limit_for(parts, at, left))
        left -= found[-1]
    return found


def limit_for(parts, at, seconds_left):
    """Seconds of part `at`: its own limit, or its share where the parts from here on want more than is left."""
    wanted = sum(part.limit_s for part in parts[at:])
    if seconds_left <= 0:
        return 0.0
    return parts[at].limit_s * min(1.0, seconds_left / wanted)


class Context:
    """What a part sees: the bundle, the device, and a way to run programs within its time."""

    def __init__(self, *, root, device, folder, out, log, environment, cores=None, save=lambda: None):
        self.root = root  # of the unpacked bundle
        self.device = device  # "cuda" or "cpu"
        self.folder = folder  # temporary
        self.out = out
        self.log = log
        self.environment = environment
        self.cores = cores or len(os.sched_getaffinity(0))
        self.gpu_index = 0
        self.found = {}  # figures of parts that ran before, by name
        self._save = save
        self._outcome = None
        self._deadline = 0.0

    @property
    def stand_in(self):
        """True when the CPU stands in for CUDA."""
        return self.device == "cpu"

    def begin(self, outcome, limit_s):
        self._outcome = outcome
        self._deadline = time.monotonic() + limit_s
        outcome.limit_s = limit_s

    def seconds_left(self):
        """Of the part's time."""
        return self._deadline - time.monotonic()

    def program(self, *names):
        """The path of a program of the bundle. NotRun when the bundle lacks it."""
        path = self.root.joinpath(*names)
        if not path.exists():
            raise NotRun(f"the bundle has no {'/'.join(names)}")
        return path

    def run(self, command, *, limit_s=None, environment=None, **options):
        """processes.run within the part's time. OutOfTime when that is over, also in the middle of the program."""
        left = self.seconds_left()
        if left <= 0:
            raise processes.OutOfTime("no time is left")
        limit = left if limit_s is None else min(limit_s, left)
        entry = {"command": [str(part) for part in command], "seconds": None, "end": "did not end"}
        self._outcome.commands.append(entry)
        all_of_it = {**self.environment, **(environment or {})}
        ended = processes.run(command, cwd=self.folder, limit_s=limit,
                              env={name: value for name, value in all_of_it.items() if value is not None},
                              log=self.log, **options)
        entry["seconds"] = round(ended.seconds, 2)
        entry["end"] = ended.problem() or "exited with code 0"
        self._save()
        if ended.timed_out and self.seconds_left() <= 0:
            self._outcome.failed_with(ended)
            raise processes.OutOfTime(ended.last_line())
        return ended

    def must_run(self, command, what, **options):
        """run() whose program has to succeed. PartFailed with its first error otherwise."""
        ended = self.run(command, **options)
        if ended.problem():
            self._outcome.failed_with(ended)
            raise PartFailed(f"{what} {ended.problem()}")
        return ended


def settle(outcome):
    """The verdict of a part that came to its end."""
    broken = [check["what"] for check in outcome.checks if not check["holds"]]
    outcome.verdict = FAILED if broken else OK
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        outcome.line = "does not hold: " + broken[0] + more


def _too_late(_number, _frame):
    raise processes.OutOfTime("")


def run_part(part, context, outcome, limit_s):
    """Runs a part and fills in its Outcome, whatever happens; KeyboardInterrupt passes through."""
    start = time.monotonic()
    outcome.verdict, outcome.line = FAILED, "did not end"
    context.begin(outcome, limit_s)
    # Programs are held to the limit one by one; the timer is for a part that hangs by itself.
    signal.signal(signal.SIGALRM, _too_late)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, limit_s) + OVERTIME_S)
    try:
        if limit_s < 1.0:
            raise NotRun("no time was left")
        outcome.line = ""
        part.run(context, outcome)
        settle(outcome)
    except NotRun as reason:
        outcome.verdict, outcome.line = NOT_RUN, str(reason)
    except PartFailed as reason:
        outcome.line = str(reason)
    except processes.OutOfTime as last:
        so_far = f"; until then: {outcome.line}" if outcome.line else ""
        last_line = f"; its last line: {last}" if str(last) else "; it printed nothing"
        outcome.line = f"timed out after {limit_s:.0f} s{last_line}{so_far}"
    except KeyboardInterrupt:
        outcome.line = "interrupted"
        raise
    except Exception as error:  # noqa: BLE001: a part must not end the check
        outcome.line = f"{type(error).__name__}: {error}"
        context.log.write(traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        outcome.seconds = time.monotonic() - start
        if outcome.figures:
            context.found[part.name] = outcome.figures
