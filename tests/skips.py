#!/usr/bin/env python3
"""Counts the tests that a run skipped, and fails when one skipped for another reason than a processor, a GPU or a compiler that is not there: ctest shows no
output of tests that pass, and a test that skips passes.

  tests/skips.py build/release      of the last run of ctest in that build folder
  tests/skips.py FILE…              of output of GoogleTest or unittest -v, however it came about
"""

import collections
import os
import re
import sys

# Reasons that no set-up removes; and those that './troupe test' removes only where TROUPE_TEST_CLIENTS=1 asks for it, which makes its lack an error.
ALLOWED = re.compile(r"the processor has no|no CUDA|CUDA device|no compiler of|no grpcio of Debian")
# In a build with a sanitizer, also what it makes impossible.
OF_SANITIZERS = re.compile(r"sanitizer")

GTEST = re.compile(r"^\[  SKIPPED \] (\S+) \(\d+ ms\)$")
GTEST_REASON = re.compile(r"^\S+:\d+: Skipped$")
UNITTEST = re.compile(r"^(.*) \.\.\. skipped (['\"])(.*)\2$")
UNITTEST_END = re.compile(r"^(?:OK|FAILED)(?: \((?:.*\bskipped=(\d+))?.*\))?$")


def skips(text):
    """(test, reason) of every skipped test in the output of test programs."""
    found = []
    reason, reading, before, of_program = "", False, "", 0
    for line in text.splitlines():
        if GTEST_REASON.match(line):
            reason, reading = "", True
        elif reading and line.strip():
            reason = f"{reason} {line.strip()}".strip()
        else:
            reading = False
        if match := GTEST.match(line):
            found.append((match[1], reason))
        elif match := UNITTEST.match(line):
            # A test with a docstring has its name on the line before.
            found.append((match[1] if "(" in match[1] else before, match[3]))
            of_program += 1
        elif match := UNITTEST_END.match(line):
            # Without -v, or where the line of a test was broken by other output, there is no reason.
            found += [("a test of unittest", "no reason given")] * max(0, int(match[1] or 0) - of_program)
            of_program = 0
        before = line.strip() or before
    return found


def sanitized(folder):
    try:
        with open(os.path.join(folder, "CMakeCache.txt"), encoding="utf-8") as cache:
            return re.search(r"^TROUPE_SANITIZE:\w+=\w", cache.read(), re.M) is not None
    except OSError:
        return False


def main(paths):
    found, allowed = [], [ALLOWED]
    for path in paths:
        if os.path.isdir(path):
            allowed += [OF_SANITIZERS] if sanitized(path) else []
            path = os.path.join(path, "Testing", "Temporary", "LastTest.log")
        with open(path, encoding="utf-8", errors="replace") as log:
            found += skips(log.read())
    reasons = collections.Counter(reason for _, reason in found)
    print(f"{len(found)} skipped" + "".join(f"\n  {count} times: {reason}" for reason, count in sorted(reasons.items())))
    refused = [(test, reason) for test, reason in found if not any(pattern.search(reason) for pattern in allowed)]
    if refused:
        print(f"error: {len(refused)} of them may not skip; only what needs a GPU or names what the processor lacks may:")
        for test, reason in refused:
            print(f"  {test}: {reason}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
