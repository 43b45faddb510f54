"""Limits that not everything keeps yet: what is beyond one stands in tests/lint/ratchet.txt with its value, which may only shrink.

What is beyond a limit and not in the file fails; so does what grew beyond its value there, and a line that nothing needs any
more ("remove this line"). A value that shrank passes with a note; --tighten writes the lower values and removes such lines,
and never adds or raises one.
"""

import os
import sys
from typing import NamedTuple

PATH = "tests/lint/ratchet.txt"


class Limit(NamedTuple):
    most: int
    unit: str  # "700 lines": what is counted


class Found(NamedTuple):
    """What a lint has measured."""
    files: int
    beyond: dict      # kind -> {key: (value, where in words)}: all that is beyond its limit
    complaints: list  # what is wrong whatever the ratchet says


class Line(NamedTuple):
    kind: str
    value: int
    key: str
    number: int


def read(root):
    """(lines, complaints) of the ratchet file: KIND VALUE KEY a line, # begins a comment."""
    lines, complaints, seen = [], [], set()
    path = os.path.join(root, PATH)
    if not os.path.exists(path):
        return lines, complaints
    with open(path, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            words = text.split(None, 2)
            if not words or text.startswith("#"):
                continue
            if len(words) < 3 or not words[1].isdigit():
                complaints.append(f"{PATH}:{number}: expected KIND VALUE KEY, got {text.strip()!r}")
                continue
            line = Line(words[0], int(words[1]), words[2].strip(), number)
            if (line.kind, line.key) in seen:
                complaints.append(f"{PATH}:{number}: {line.kind} of {line.key} stands in an earlier line, too: remove this line")
            seen.add((line.kind, line.key))
            lines.append(line)
    return lines, complaints


def judge(root, limits, found):
    """(complaints, notes) of what a lint found. `limits`: kind -> Limit; lines of other kinds are other lints'."""
    lines, complaints = read(root)
    notes = []
    mine = {(line.kind, line.key): line for line in lines if line.kind in limits}
    for kind, values in found.beyond.items():
        unit = limits[kind].unit
        for key, (value, where) in sorted(values.items()):
            line = mine.pop((kind, key), None)
            if line is None:
                complaints.append(f"{where} has {value} {unit}, expected at most {limits[kind].most}")
            elif value > line.value:
                complaints.append(f"{where} has {value} {unit}, expected at most {line.value}: by {PATH}:{line.number}, whose values may only shrink")
            elif value < line.value:
                notes.append(f"{PATH}:{line.number}: {key} has shrunk from {line.value} to {value} {unit}: --tighten writes that")
    for line in mine.values():
        limit = limits[line.kind]
        complaints.append(f"{PATH}:{line.number}: remove this line: {line.key} is gone or keeps the limit of {limit.most} {limit.unit}")
    return found.complaints + complaints, notes


def tighten(root, limits, found):
    """Writes the lower values into the ratchet file and leaves out what is not needed; says how many lines it changed."""
    path = os.path.join(root, PATH)
    if not os.path.exists(path):
        return 0
    with open(path, encoding="utf-8") as file:
        texts = file.readlines()
    changed = 0
    for line in read(root)[0]:
        if line.kind not in limits:
            continue
        value = found.beyond.get(line.kind, {}).get(line.key, (None, ""))[0]
        if value is None:
            texts[line.number - 1] = ""
        elif value < line.value:
            texts[line.number - 1] = f"{line.kind:<16} {value:>6}  {line.key}\n"
        else:
            continue
        changed += 1
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(texts)
    return changed


def main(name, doc, limits, measure, self_test):
    """What a lint's main is: LINT ROOT [--tighten] | LINT --self-test."""
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    if not arguments or len(arguments) > 2 or arguments[1:] not in ([], ["--tighten"]):
        print(doc, file=sys.stderr)
        return 2
    root = arguments[0]
    found = measure(root)
    if not found.files:
        print(f"{name}: no sources below {root}")
        return 1
    if arguments[1:]:
        print(f"{name}: {tighten(root, limits, found)} lines of {PATH} changed")
    complaints, notes = judge(root, limits, found)
    for text in complaints + notes:
        print(text)
    kept = sum(line.kind in limits for line in read(root)[0])
    print(f"{name}: {found.files} files, {len(complaints)} complaints, {kept} of {PATH}'s lines")
    return 1 if complaints else 0


def check_cases(name, cases, verdicts):
    """A self-test: each case is (what it is, files of a tree by path, texts of which each complaint or note must contain one, in
    order); verdicts(root) -> complaints and notes."""
    import tempfile  # only here: a lint starts in 40 ms

    failures = 0
    for what, files, expected in cases:
        with tempfile.TemporaryDirectory(prefix="troupe_lint_") as root:
            for path, text in files.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            got = verdicts(root)
        if len(got) != len(expected) or any(text not in given for text, given in zip(expected, got)):
            failures += 1
            print(f"self-test: {what}: expected {expected}, got {got}")
    print(f"{name} self-test: {len(cases) - failures} passed, {failures} failed")
    return 1 if failures else 0
