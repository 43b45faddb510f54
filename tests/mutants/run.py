#!/usr/bin/env python3
"""Would the tests notice? Compiles the mutants of table.py into a scratch copy of the sources, each behind a switch, and runs the tests that are
to kill it: first without a mutant, when all pass, then with each, when one fails or hangs.

  tests/mutants/run.py                          all: one build (5 to 20 minutes), then a few seconds a mutant
  tests/mutants/run.py clip entropy             those whose name has one of the words
  tests/mutants/run.py --only-check             only whether every old text is in its file exactly once, and every filter finds a test
  tests/mutants/run.py --dir DIR                the scratch copy (default build/mutants), which the next run builds on
  tests/mutants/run.py --build-prefix 'nice'    a command before the build's, --without-torch what needs LibTorch is left out

Exit status 1: a mutant survived, or no longer fits the sources; 2: a test fails without a mutant.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

from table import MUTANTS  # noqa: E402  beside this script

NEEDS_TORCH = ("training_test", "update_parity_test", "fused_parity_test", "device_parity_test")
SWITCH = "tests/mutants/switch.h"
SECONDS = 180  # for a test with a mutant: one that hangs is killed


def test_names():
    """What gtest would call the tests of all sources; an instance of a TEST_P stands for all."""
    names = set()
    for path in [path for folder in ("lib", "services", "tests") for path in (ROOT / folder).rglob("*_test.cc")]:
        for kind, suite, test in re.findall(r"^TEST(|_F|_P)\(\s*(\w+),\s*(\w+)\)", path.read_text(), re.M):
            names.add(f"All/{suite}.{test}/0" if kind == "_P" else f"{suite}.{test}")
    return names


def finds_a_test(tests_filter, names):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in tests_filter.split(":") for name in names)


def misfits(mutants):
    """What no longer fits the sources, in sentences."""
    found = []
    for mutant in mutants:
        for file, old, new in mutant.edits:
            count = (ROOT / file).read_text().count(old)
            if count != 1:
                found.append(f"{mutant.name}: {file} has {count} times {old!r}, expected once")
            if "MUTANT" not in new:
                found.append(f"{mutant.name}: {new!r} does not say MUTANT")
    tests = test_names()
    for mutant in mutants:
        found += [f"{mutant.name}: no test of {name} is called {tests_filter}" for name, tests_filter in mutant.tests if not finds_a_test(tests_filter, tests)]
    names = [mutant.name for mutant in mutants]
    return found + [f"{name}: there are {names.count(name)} of that name" for name in sorted(set(names)) if names.count(name) > 1]


def sources():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def users_of(file, names):
    """Where the switch is declared: in the file itself; of a .inc, which may stand within a namespace, in what includes it."""
    if not file.endswith(".inc"):
        return [file]
    line = f'#include "{file}"'
    including = [name for name in names if name.endswith((".cc", ".h", ".inc")) and line in (ROOT / name).read_text()]
    return sorted({user for name in including for user in users_of(name, names)})


def mutated(mutants, names):
    """file -> text with all mutants in it, each behind its switch."""
    texts = {}
    for mutant in mutants:
        for file, old, new in mutant.edits:
            text = texts.get(file) or (ROOT / file).read_text()
            if text.count(old) != 1:
                raise SystemExit(f"{mutant.name}: another mutant has changed {old!r} in {file}")
            texts[file] = text.replace(old, re.sub(r"\bMUTANT\b", f'TroupeMutant("{mutant.name}")', new))
    for file in [file for file in texts]:
        for user in users_of(file, names):
            text = texts.get(user) or (ROOT / user).read_text()
            if SWITCH not in text:
                texts[user] = f'#include "{SWITCH}"\n' + text
    return texts


def copy_sources(to, mutants):
    """Writes only what changed, so that the build is an incremental one."""
    names = sources()
    texts = mutated(mutants, names)
    for name in names:
        content = texts[name].encode() if name in texts else (ROOT / name).read_bytes()
        path = to / name
        if path.is_file() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        shutil.copymode(ROOT / name, path)
    kept = set(names)
    for path in (to / "lib").rglob("*"):  # what was removed since the last run
        if path.is_file() and str(path.relative_to(to)) not in kept:
            path.unlink()


def build(to, targets, prefix, torch):
    options = [f"-DTROUPE_WITH_TORCH={'ON' if torch else 'OFF'}", "-DTROUPE_BUILD_TESTS=ON", "-DTROUPE_BUILD_BENCHMARKS=OFF"]
    done = subprocess.run([*prefix, to / "troupe", "build", *options, *targets], cwd=to, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise SystemExit("the mutants do not compile (see above)")
    listed = subprocess.run(["ctest", "--test-dir", to / "build" / "release", "--show-only=json-v1"], capture_output=True, check=True)
    return {test["name"]: test["command"] for test in json.loads(listed.stdout)["tests"] if "command" in test}


def run_test(command, tests_filter, mutant):
    """(whether it passed, what it said last of a failure)"""
    environment = dict(os.environ, TROUPE_MUTANT=mutant)
    try:
        done = subprocess.run([*command, f"--gtest_filter={tests_filter}"], env=environment, capture_output=True, text=True, errors="replace",
                              timeout=SECONDS, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        return False, f"it hung for {SECONDS} s"
    if "[==========] 0 tests" in done.stdout or "[==========] Running 0 tests" in done.stdout:
        return True, "no test ran"
    failed = re.findall(r"^\[  FAILED  \] (\S+?),? ", done.stdout, re.M) or [f"exit status {done.returncode}"]
    return done.returncode == 0, failed[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--only-check", action="store_true")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--build-prefix", type=shlex.split, default=[])
    parser.add_argument("--without-torch", action="store_true")
    arguments = parser.parse_args()

    wrong = misfits(MUTANTS)
    for sentence in wrong:
        print(sentence)
    if wrong or arguments.only_check:
        print(f"{len(MUTANTS)} mutants, {len(wrong)} faults")
        return 1 if wrong else 0

    chosen = []
    for mutant in MUTANTS:
        tests = [test for test in mutant.tests if not arguments.without_torch or test[0] not in NEEDS_TORCH]
        if tests and (not arguments.words or any(word in mutant.name for word in arguments.words)):
            chosen.append((mutant, tests))
    # All are compiled in, whichever run: the next run finds them built.
    copy_sources(arguments.dir, MUTANTS)
    targets = sorted({name for _, tests in chosen for name, _ in tests})
    commands = build(arguments.dir, targets, arguments.build_prefix, not arguments.without_torch)

    for name, tests_filter in sorted({test for _, tests in chosen for test in tests}):
        passed, why = run_test(commands[name], tests_filter, "")
        if not passed or why.startswith("no test"):
            print(f"without a mutant {name} --gtest_filter={tests_filter} fails: {why}")
            return 2
    survived = []
    for mutant, tests in chosen:
        for name, tests_filter in tests:
            passed, why = run_test(commands[name], tests_filter, mutant.name)
            if not passed:
                print(f"killed    {mutant.name}  by {name}: {why}", flush=True)
                break
        else:
            survived.append(mutant.name)
            print(f"SURVIVED  {mutant.name}  {', '.join(name for name, _ in tests)}", flush=True)
    print(f"{len(chosen) - len(survived)} killed, {len(survived)} survived, of {len(MUTANTS)} mutants")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
