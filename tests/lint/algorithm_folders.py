#!/usr/bin/env python3
"""An algorithm is a folder of lib/training: what names it elsewhere is a list, the schema and the build.

  algorithm_folders.py ROOT         exit 1 and a line for each algorithm that more places know than may
  algorithm_folders.py --self-test  plants algorithms, good and bad, and checks the verdicts

For each algorithm of lib/training/registry.inc it counts the files outside the algorithm's folder whose code names it, and the lines
that do: its includes, its functions and types, its name in the schema, its files in CMake. At most 4 files with 20 lines of them.
Its own message (config_algorithms.proto), generated files, tests, benchmarks, comments and the folders of algorithms that build on it do
not count. What it cannot see: code that means an algorithm without naming it.
"""

import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import trees  # noqa: E402  beside this file

REGISTRY = "lib/training/registry.inc"
MOST_FILES = 4
MOST_LINES = 20
# Its message, and what is generated from the schema.
OWN = ("proto/troupe/v1/config_algorithms.proto", "python/troupe/config_keys.py")
NOT_COUNTED = ("tests/", "bench/", "examples/", "docs/", "python/tests/")
COMMENT = re.compile(r"^\s*(//|#(?!\s*include)).*|\s//.*")


def algorithms(root):
    """["A2c", "Ppo"]"""
    return re.findall(r"^TROUPE_ALGORITHM\((\w+)\)", trees.text(root, REGISTRY), re.M)


def mention(name):
    word, capitals = name.lower(), name.upper()
    return re.compile(rf"\b{name}[A-Z]\w*|\({name}\)|\bALGORITHM_NAME_\w*{capitals}\b|\b{word}/|options: \"{word}\"|\bConfig {word} =")


def complaints(root):
    found = []
    sources = [path for path in trees.sources(root)
               if not path.startswith(NOT_COUNTED) and path not in OWN and not trees.is_test(path)]
    lines = {path: [COMMENT.sub("", line) for line in trees.text(root, path).splitlines()] for path in sources}
    lines[REGISTRY] = trees.text(root, REGISTRY).splitlines()
    names = algorithms(root)
    folders = tuple(f"lib/training/{name.lower()}/" for name in names)
    lines = {path: of for path, of in lines.items() if not path.startswith(folders)}
    for name in names:
        pattern, folder = mention(name), f"lib/training/{name.lower()}/"
        if not os.path.isdir(os.path.join(root, folder)):
            found.append(f"{REGISTRY}: {name} has no folder {folder}")
            continue
        places = {path: sum(bool(pattern.search(line)) for line in of if "_test" not in line) for path, of in lines.items()}
        places = {path: count for path, count in places.items() if count}
        total = sum(places.values())
        if len(places) > MOST_FILES or total > MOST_LINES:
            listed = ", ".join(f"{path} ({count})" for path, count in sorted(places.items()))
            found.append(f"{folder}: {len(places)} files outside it name {name}, in {total} lines, expected at most {MOST_FILES} "
                         f"in {MOST_LINES}: {listed}")
    return found


def self_test():
    registry = "// TROUPE_ALGORITHM(None)\nTROUPE_ALGORITHM(Dqn)\n"
    folder = {REGISTRY: registry, "lib/training/dqn/dqn.cc": "DqnOptions a;\n" * 30}
    few = {"lib/training/CMakeLists.txt": "dqn/dqn.cc\n# dqn/more.cc\ndqn/dqn_test.cc\n", "proto/troupe/v1/config.proto":
           "  ALGORITHM_NAME_DQN = 7;\n  DqnConfig dqn = 34;\n", "proto/troupe/v1/config_algorithms.proto": "message DqnConfig {}\n" * 30,
           "tests/a.cc": "DqnOptions a;\n" * 30, "lib/a/a_test.cc": "DqnOptions a;\n" * 30, "lib/a/a.cc": "// DqnOptions\nint dqn;\n" * 30}
    many = {f"lib/a/a{i}.cc": '#include "lib/training/dqn/dqn_options.h"\n' for i in range(4)}
    cases = [("a folder, a list, the schema, the build", {**folder, **few}, None),
             ("four files more", {**folder, **many, **few}, "7 files outside it name Dqn, in 8 lines"),
             ("twenty lines more", {**folder, "lib/a/a.h": "DqnOptions a;\n" * 20}, "2 files outside it name Dqn, in 21 lines"),
             ("no folder", {REGISTRY: registry}, "Dqn has no folder lib/training/dqn/")]
    failures = 0
    for what, files, expected in cases:
        with tempfile.TemporaryDirectory() as root:
            for path, content in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(content)
            got = complaints(root)
        if (expected is None and got) or (expected is not None and not any(expected in line for line in got)):
            failures += 1
            print(f"algorithm_folders: {what}: got {got}, expected {expected}")
    return 1 if failures else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    found = complaints(sys.argv[1])
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
