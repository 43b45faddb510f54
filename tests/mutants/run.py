#!/usr/bin/env python3
"""Would the tests notice? Plants the mutants of table.py in a scratch copy of the sources and runs the tests that have to kill each: first without
a mutant, when all pass, then with each, when one fails or hangs. Mutants in C++ are compiled all at once, each behind a switch. A mutant in Python is
an edit, undone after its tests.

  tests/mutants/run.py                          all: one build (5 to 20 minutes), then a few seconds a mutant
  tests/mutants/run.py clip entropy             those whose name has one of the words
  tests/mutants/run.py --only-check             only whether every old text is in its file exactly once, and every filter finds a test
  tests/mutants/run.py --only-python            the mutants in Python, which need no build
  tests/mutants/run.py --dir DIR                the scratch copy (default build/mutants), which the next run builds on
  tests/mutants/run.py --build-prefix 'nice'    a command before the build's, --without-torch what needs LibTorch is left out

Run it with a Python that has what the tests need (numpy, grpcio, protobuf): a test that skips has not run.
Exit status 1: a mutant survived, or no longer fits the sources; 2: a test fails without a mutant.
"""

import argparse
import ast
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


def is_python(mutant):
    return all(file.endswith(".py") for file, _, _ in mutant.edits)


def python_file(name):
    """Of the tests that ctest calls python_NAME_test."""
    return f"tests/test_{name.removeprefix('python_').removesuffix('_test')}.py"


def test_names():
    """What gtest and unittest would call the tests of all sources; an instance of a TEST_P stands for all."""
    names = set()
    for path in [path for folder in ("lib", "services", "tests") for path in (ROOT / folder).rglob("*_test.cc")]:
        for kind, suite, test in re.findall(r"^TEST(|_F|_P)\(\s*(\w+),\s*(\w+)\)", path.read_text(), re.M):
            names.add(f"All/{suite}.{test}/0" if kind == "_P" else f"{suite}.{test}")
    for path in (ROOT / "python" / "tests").glob("test_*.py"):
        suites = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        names |= {f"{suite.name}.{test.name}" for suite in suites for test in suite.body if isinstance(test, ast.FunctionDef)}
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
            if is_python(mutant) == ("MUTANT" in new):
                found.append(f"{mutant.name}: {new!r} says MUTANT in Python, or does not in C++")
        if is_python(mutant):
            found += [f"{mutant.name}: there is no python/{python_file(name)}" for name, _ in mutant.tests if not (ROOT / "python" / python_file(name)).is_file()]
            for file, text in edited(mutant).items():
                compile(text, file, "exec")  # one that cannot be imported would be killed by every test
    tests = test_names()
    for mutant in mutants:
        found += [f"{mutant.name}: no test of {name} is called {tests_filter}" for name, tests_filter in mutant.tests if not finds_a_test(tests_filter, tests)]
    names = [mutant.name for mutant in mutants]
    return found + [f"{name}: there are {names.count(name)} of that name" for name in sorted(set(names)) if names.count(name) > 1]


def edited(mutant):
    """file -> its text with the edits of a mutant in Python."""
    texts = {}
    for file, old, new in mutant.edits:
        texts[file] = (texts.get(file) or (ROOT / file).read_text()).replace(old, new)
    return texts


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


def planted(mutants):
    """file -> text with all these mutants in C++ in it, each behind its switch."""
    texts = {}
    for mutant in mutants:
        for file, old, new in mutant.edits:
            text = texts.get(file) or (ROOT / file).read_text()
            if text.count(old) != 1:
                raise SystemExit(f"{mutant.name}: another mutant has changed {old!r} in {file}")
            texts[file] = text.replace(old, re.sub(r"\bMUTANT\b", f'TroupeMutant("{mutant.name}")', new))
    return texts


def mutated(mutants, names):
    """The same with the declaration of the switch."""
    texts = planted(mutants)
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
    # A program that takes long is several tests (troupe_test's SHARDS), all of one command.
    return {re.sub(r"_test_\d+$", "_test", test["name"]): test["command"] for test in json.loads(listed.stdout)["tests"] if "command" in test}


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


def run_python_test(to, name, tests_filter):
    """(whether it passed, what it said last of a failure)"""
    patterns = [word for pattern in tests_filter.split(":") for word in ("-k", f"*.{pattern}")]
    try:
        done = subprocess.run([sys.executable, "-B", "-m", "unittest", *patterns, python_file(name)], cwd=to / "python", capture_output=True, text=True,
                              errors="replace", timeout=SECONDS, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        return False, f"it hung for {SECONDS} s"
    if re.search(r"^(Ran 0 tests|OK \(skipped)", done.stderr, re.M):
        return True, "no test ran, or one skipped"
    failed = re.findall(r"^(?:FAIL|ERROR): (\S+)", done.stderr, re.M) or [f"exit status {done.returncode}"]
    return done.returncode == 0, failed[0]


def run_chosen(chosen, run):
    """Each mutant's tests by `run(mutant, name, filter)`, until one of them kills it; run(None, ...) without a mutant. -> the names of those that
    survived, or None where a test fails without one."""
    for name, tests_filter in sorted({test for _, tests in chosen for test in tests}):
        passed, why = run(None, name, tests_filter)
        if not passed or why.startswith("no test"):
            print(f"without a mutant {name} {tests_filter} fails: {why}")
            return None
    survived = []
    for mutant, tests in chosen:
        for name, tests_filter in tests:
            passed, why = run(mutant, name, tests_filter)
            if not passed:
                print(f"killed    {mutant.name}  by {name}: {why}", flush=True)
                break
        else:
            survived.append(mutant.name)
            print(f"SURVIVED  {mutant.name}  {', '.join(name for name, _ in tests)}", flush=True)
    return survived


def run_python(to, chosen):
    """As run_chosen."""
    shutil.copytree(ROOT / "python", to / "python", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))

    def run(mutant, name, tests_filter):
        texts = edited(mutant) if mutant else {}
        for file, text in texts.items():
            (to / file).write_text(text)
        try:
            return run_python_test(to, name, tests_filter)
        finally:
            for file in texts:
                shutil.copy2(ROOT / file, to / file)
    return run_chosen(chosen, run)


def run_cpp(arguments, chosen):
    """As run_chosen. All mutants are compiled in, whichever run: the next run finds them built."""
    copy_sources(arguments.dir, [mutant for mutant in MUTANTS if not is_python(mutant)])
    targets = sorted({name for _, tests in chosen for name, _ in tests})
    commands = build(arguments.dir, targets, arguments.build_prefix, not arguments.without_torch)
    return run_chosen(chosen, lambda mutant, name, tests_filter: run_test(commands[name], tests_filter, mutant.name if mutant else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--only-check", action="store_true")
    parser.add_argument("--only-python", action="store_true")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--build-prefix", type=shlex.split, default=[])
    parser.add_argument("--without-torch", action="store_true")
    arguments = parser.parse_args()

    wrong = misfits(MUTANTS)
    for sentence in wrong:
        print(sentence)
    if not wrong:
        planted([mutant for mutant in MUTANTS if not is_python(mutant)])  # whether they fit beside each other
    if wrong or arguments.only_check:
        print(f"{len(MUTANTS)} mutants, {len(wrong)} faults")
        return 1 if wrong else 0

    in_python, in_cpp = [], []
    for mutant in MUTANTS:
        tests = [test for test in mutant.tests if not arguments.without_torch or test[0] not in NEEDS_TORCH]
        if tests and (not arguments.words or any(word in mutant.name for word in arguments.words)):
            (in_python if is_python(mutant) else in_cpp).append((mutant, tests))
    survived = run_python(arguments.dir, in_python)
    if survived is not None and in_cpp and not arguments.only_python:
        others = run_cpp(arguments, in_cpp)
        survived = None if others is None else survived + others
    if survived is None:
        return 2
    count = len(in_python) + (0 if arguments.only_python else len(in_cpp))
    print(f"{count - len(survived)} killed, {len(survived)} survived, of {len(MUTANTS)} mutants")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
