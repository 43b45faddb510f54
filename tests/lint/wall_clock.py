#!/usr/bin/env python3
"""No wait and no interval is told by the wall clock, which a person or NTP may set: a step of it freezes the wait or ends it.

  wall_clock.py ROOT [--tighten]   exit 1 and a line for each file that reads the wall clock more often than tests/lint/ratchet.txt allows
  wall_clock.py --self-test        plants uses, good and bad, and checks the verdicts

In lib/ and services/, unit tests included, only the clock itself and the files of SHOWN may read it; everything else takes
base::Deadline or Clock::SteadyNow. gRPC's deadlines are waits, too: std::chrono::system_clock in them counts.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cpp_scan  # noqa: E402  beside this file
import ratchet  # noqa: E402
import trees  # noqa: E402

LIMITS = {"wall_clock": ratchet.Limit(0, "uses of the wall clock")}
TREES = ("lib", "services")
CLOCK = ("lib/base/clock.cc", "lib/base/clock.h")
# Files that show people, or other programs, the time of day -> what they show. An entry that is not needed is an error.
SHOWN = {
    "lib/telemetry/tensorboard_writer.cc": "TensorBoard's events carry the time of day, in their file's name, too",
    "services/cli/runs_command.cc": "how long ago a run was written",
    "services/cli/train_command.cc": "a run that nobody named is named after the time",
    "lib/run/learner/run_setup.cc": "a run that nobody named is named after the time",
}
USE = re.compile(r"\babsl\s*::\s*Now\b|\bWallNow\b|\b(?:system|utc|file)_clock\b|\bGetCurrentTimeNanos\b"
                 r"|\bgettimeofday\b|\b(?:CLOCK|GPR_CLOCK)_REALTIME\b"
                 r"|\btimespec_get\b|\bstd\s*::\s*time\b|\btime\s*\(\s*(?:nullptr|NULL|0)\s*\)")


def measure(root, shown=None):
    files, beyond, needed = 0, {}, set()
    shown = SHOWN if shown is None else shown
    for tree in TREES:
        for path in trees.walk(root, tree):
            if not path.endswith(trees.CPP):
                continue
            files += 1
            text = trees.text(root, path)
            if not USE.search(text):
                continue
            uses = list(USE.finditer(code := cpp_scan.code(text)))
            if uses and path in shown:
                needed.add(path)
            elif uses and path not in CLOCK:
                beyond[path] = (len(uses), f"{path}:{code.count(chr(10), 0, uses[0].start()) + 1}: the file")
    complaints = [f"tests/lint/wall_clock.py: SHOWN names {path}, which is gone or reads no wall clock: remove this line"
                  for path in sorted(set(shown) - needed)]
    return ratchet.Found(files, {"wall_clock": beyond}, complaints)


def self_test():
    shown = {"lib/a/shows.cc": "the time"}
    here = {"lib/a/shows.cc": "Print(clock.WallNow());\n"}
    cases = [
        ("the clock itself, what shows it, other trees, comments", {
            **here, "lib/base/clock.cc": "absl::Now();\n", "bench/a.cc": "absl::Now();\n",
            "lib/a/a.cc": "// absl::Now()\nconst char* t = \"system_clock\"; clock.SteadyNow();\n"}, []),
        ("each spelling", {**here, "lib/a/a.cc": "absl::Now();\nstd::chrono::system_clock::now();\nclock.WallNow();\ntime(nullptr);\n"
                           "gettimeofday(&a, 0);\nclock_gettime(CLOCK_REALTIME, &a);\nstd::time(&a);\nabsl::GetCurrentTimeNanos();\n"},
                            ["lib/a/a.cc:1: the file has 8 uses of the wall clock, expected at most 0"]),
        ("no wall clocks", {**here, "lib/a/a.cc": "std::chrono::steady_clock::now(); wait_time(0); Runtime(0); CLOCK_MONOTONIC; clock.Now();\n"}, []),
        ("a unit test", {**here, "services/a/a_test.cc": "\nabsl::Now();\n"}, ["services/a/a_test.cc:2:"]),
        ("the list names what shows nothing", {"lib/a/shows.cc": ""},
         ["SHOWN names lib/a/shows.cc, which is gone or reads no wall clock: remove this line"]),
        ("in the ratchet, grown, no longer needed", {
            **here, "lib/a/a.h": "absl::Now();\n", "lib/a/b.h": "absl::Now() - absl::Now();\n", "lib/a/c.h": "",
            ratchet.PATH: "".join(f"wall_clock 1 lib/a/{name}.h\n" for name in "abc")},
         ["lib/a/b.h:1: the file has 2 uses of the wall clock, expected at most 1: by tests/lint/ratchet.txt:2",
          "ratchet.txt:3: remove this line: lib/a/c.h"]),
    ]
    return ratchet.check_cases("wall_clock", cases, lambda root: sum(ratchet.judge(root, LIMITS, measure(root, shown)), []))


if __name__ == "__main__":
    sys.exit(ratchet.main("wall_clock", __doc__, LIMITS, measure, self_test))
