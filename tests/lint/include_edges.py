#!/usr/bin/env python3
"""Checks every #include of ours against the layers.

docs/architecture.md has the table of layers, and this reads its rows: a folder of lib/ may include itself, what its row lists, and
what those may include in turn; nothing else. An edge that is missing there is a decision about the design, so it is argued there first.

  include_edges.py ROOT         exit 1 and one line per forbidden edge, or for what is wrong with the table
  include_edges.py --self-test  plants edges and tables, good and bad, and checks the verdicts
"""

import os
import re
import sys
import tempfile
from typing import NamedTuple

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import trees  # noqa: E402  beside this file

TABLE = "docs/architecture.md"
COLUMNS = ["folder", "what it is", "may include directly", "foreign code"]

# What the table calls foreign code -> how the path of an included header of it begins.
FOREIGN = {
    "LibTorch": re.compile(r"(torch|ATen|c10|caffe2)/"),
    "gRPC": re.compile(r"(grpc|grpcpp|grpc\+\+)/|.*\.grpc\.pb\.h$"),
    "AGG": re.compile(r"agg2/"),
    "giflib": re.compile(r"gif_lib\.h$"),
    "zlib": re.compile(r"zlib\.h$"),
    "generated code": re.compile(r"(proto/|troupe/v1/|google/protobuf/)"),
}
# Trees that measure or test foreign code itself.
UNRESTRICTED_TREES = {"tests", "bench"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
OWN_ROOTS = ("lib/", "services/", "tests/", "bench/", "examples/", "proto/")
TREES = ("lib", "services", "tests", "bench", "examples")


class Layers(NamedTuple):
    """The table. Folders are those of lib/; environments' families (envs/<family>) are layers of their own."""
    closure: dict  # folder -> folders that it may include, itself among them
    headers: list  # (folder, pattern of a path): single headers that it may include beside those
    foreign: dict  # what of FOREIGN -> the folders that may see it


def read_table(text):
    """(layers, folders that are planned, complaints) of the page with the table."""
    closure, headers, foreign, planned, complaints = {}, [], {what: set() for what in FOREIGN}, set(), []
    in_table = found = False
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{TABLE}:{number}"
        cells = [cell.strip() for cell in line.strip().split("|")[1:-1]] if line.lstrip().startswith("|") else None
        if cells == COLUMNS:
            if found:
                complaints.append(f"{where}: a second table of layers, expected one")
                break
            in_table = found = True
            continue
        if not in_table or cells is None:
            in_table = False
            continue
        if all(set(cell) <= set("-: ") for cell in cells) and "".join(cells):
            continue  # the line below the heads
        name = re.fullmatch(r"`lib/(\w+)`( \(planned\))?", cells[0]) if len(cells) == len(COLUMNS) else None
        if name is None or not cells[1]:
            complaints.append(f"{where}: expected | `lib/NAME` | what it is | `folder` … | foreign code |, got {line.strip()}")
            continue
        folder = name[1]
        if folder in closure:
            complaints.append(f"{where}: a second row of lib/{folder}")
            continue
        closure[folder] = {folder}
        if name[2]:
            planned.add(folder)
        entries = re.findall(r"`([^`]*)`", cells[2])
        if re.sub(r"`[^`]*`", "", cells[2]).strip(" ,"):
            complaints.append(f"{where}: lib/{folder} may include {cells[2]}, expected folders in backquotes")
        for entry in entries:
            if entry in closure and entry != folder:
                closure[folder] |= closure[entry]
            elif re.fullmatch(r"\w+/[\w*]+\.h", entry) and entry.split("/")[0] in closure:
                headers.append((folder, re.compile("lib/" + re.escape(entry).replace(r"\*", r"\w+") + "$")))
            else:
                complaints.append(f"{where}: lib/{folder} may include {entry}, expected the folder of a row above, or headers of one")
        for what in filter(None, (what.strip() for what in cells[3].split(","))):
            if what in foreign:
                foreign[what].add(folder)
            else:
                complaints.append(f"{where}: foreign code {what}, expected {', '.join(FOREIGN)}")
    if not found:
        complaints.append(f"{TABLE}: no table with the columns {' | '.join(COLUMNS)}")
    return Layers(closure, headers, foreign), planned, complaints


def check_folders(root, layers, planned):
    """That the rows are the folders of lib/."""
    lib = os.path.join(root, "lib")
    there = {name for name in os.listdir(lib) if os.path.isdir(os.path.join(lib, name)) and name[0] not in "._"} if os.path.isdir(lib) else set()
    complaints = [f"lib/{folder}: has no row in the table of layers of {TABLE}" for folder in sorted(there - set(layers.closure))]
    complaints += [f"{TABLE}: the row of lib/{folder} names no folder: remove it, or write (planned)"
                   for folder in sorted(set(layers.closure) - there - planned)]
    complaints += [f"{TABLE}: lib/{folder} is there: remove the word (planned) from its row" for folder in sorted(planned & there)]
    return complaints


def layer_of(path):
    """lib/env/x.h -> ("env", ""); lib/envs/mpe/x.h -> ("envs", "mpe"); otherwise None."""
    parts = path.split("/")
    if len(parts) < 3 or parts[0] != "lib":
        return None
    family = parts[2] if parts[1] == "envs" and len(parts) > 3 else ""
    return parts[1], family


def verdict(path, quote, target, root, layers):
    """What is wrong with `path` including `target`, or None."""
    tree = path.split("/")[0]
    own = layer_of(path)
    is_test = re.search(r"_(test|bench)\.(cc|h)$", path) is not None

    if quote == '"' and not target.startswith(OWN_ROOTS):
        if os.path.exists(os.path.join(root, os.path.dirname(path), target)):
            return "own headers are included by their path from the root"

    if tree not in UNRESTRICTED_TREES:
        for what, pattern in FOREIGN.items():
            allowed = layers.foreign[what]
            if pattern.match(target) and (own is None or own[0] not in allowed):
                return f"only {' and '.join(f'lib/{folder}' for folder in sorted(allowed)) or 'nobody'} may see {what}"

    if target.startswith("services/") and tree not in ("services", "tests", "bench"):
        return "nothing depends on services/"
    if target.startswith("examples/") and tree != "examples":
        return "nothing depends on examples/"
    if target.startswith("bench/") and tree != "bench":
        return "nothing depends on bench/"
    if target.startswith("tests/"):
        if tree == "tests" or (is_test and target.startswith("tests/testing/")):
            return None
        return "only tests depend on tests/ (unit tests: on tests/testing/)"

    if own is None:
        return None
    other = layer_of(target)
    if other is None or own[0] not in layers.closure:
        return None  # what has no row is said once, not for each of its includes
    if any(own[0] == folder and pattern.match(target) for folder, pattern in layers.headers):
        return None
    if other[0] not in layers.closure[own[0]]:
        return f"lib/{own[0]} may not include lib/{other[0]} (allowed: {', '.join(sorted(layers.closure[own[0]] - {own[0]})) or 'nothing'})"
    if own[0] == other[0] == "envs" and own[1] and other[1] and own[1] != other[1]:
        return "families of environments do not see each other"
    return None


def check(root):
    """-> (number of files, list of complaints)"""
    if not os.path.exists(os.path.join(root, TABLE)):
        return 0, [f"{TABLE}: is not there: it has the table of layers"]
    layers, planned, complaints = read_table(trees.text(root, TABLE))
    if complaints:
        return 0, complaints  # what a broken table says of the edges is worth nothing
    files, complaints = 0, check_folders(root, layers, planned)
    for tree in TREES:
        for path in trees.walk(root, tree):
            if not path.endswith(trees.CPP):
                continue
            files += 1
            for number, line in enumerate(trees.text(root, path).splitlines(), 1):
                include = INCLUDE.match(line)
                wrong = include and verdict(path, include[1], include[2], root, layers)
                if wrong:
                    complaints.append(f"{path}:{number}: includes {include[2]}: {wrong}")
    return files, complaints


# Of the self-test: (file, what it includes) that may be and that may not be, by the table as it is.
GOOD = [
    ("lib/env/a.cc", '"lib/base/x.h"'),  # transitive
    ("lib/rollout/a.cc", '"lib/inference/x.h"'),
    ("lib/envs/mpe/a.cc", '"lib/env/x.h"'),
    ("lib/envs/register.cc", '"lib/envs/mpe/x.h"'),
    ("lib/training/a.cc", "<torch/torch.h>"),
    ("lib/rpc/a.cc", "<grpcpp/grpcpp.h>"),
    ("lib/rpc/a.cc", '"proto/troupe/v1/x.grpc.pb.h"'),
    ("lib/config/a.cc", '"proto/troupe/v1/x.pb.h"'),
    ("lib/config/a.cc", '"lib/training/ppo_options.h"'),
    ("lib/config/a.cc", '"lib/envs/mpe/x.h"'),
    ("lib/env/a_test.cc", '"tests/testing/x.h"'),
    ("lib/base/a.cc", '"absl/status/status.h"'),
    ("lib/storage/a.cc", '"lib/policy/x.h"'),
    ("services/cli/a.cc", '"lib/rpc/x.h"'),
    ("services/learner/a.cc", '"lib/training/x.h"'),
    ("bench/a.cc", "<grpcpp/grpcpp.h>"),
    ("tests/parity/a.cc", "<torch/torch.h>"),
]
BAD = [
    ("lib/base/a.h", '"lib/tensor/x.h"'),
    ("lib/env/a.cc", '"lib/policy/x.h"'),
    ("lib/learner/a.cc", '"lib/rollout/x.h"'),
    ("lib/sample/a.cc", '"lib/env/x.h"'),
    ("lib/rollout/a.cc", '"lib/envs/mpe/x.h"'),
    ("lib/envs/mpe/a.cc", '"lib/envs/cartpole/x.h"'),
    ("lib/telemetry/a.cc", '"lib/tensor/x.h"'),
    ("lib/config/a.cc", '"lib/rpc/x.h"'),
    ("lib/config/a.cc", '"lib/training/ppo.h"'),
    ("lib/rpc/a.cc", '"lib/training/ppo.h"'),
    ("lib/learner/a.cc", "<torch/torch.h>"),
    ("lib/learner/a.cc", "  <ATen/ATen.h>"),
    ("services/learner/a.cc", "<c10/core/Device.h>"),
    ("services/cli/a.cc", "<grpcpp/grpcpp.h>"),
    ("lib/config/a.cc", '"proto/troupe/v1/x.grpc.pb.h"'),
    ("lib/learner/a.cc", '"proto/troupe/v1/x.pb.h"'),
    ("services/cli/a.cc", "<google/protobuf/message.h>"),
    ("lib/base/a.cc", '"services/cli/x.h"'),
    ("lib/base/a.cc", '"tests/testing/x.h"'),
    ("lib/base/a.cc", '"a.h"'),
    ("lib/misc/a.cc", "<vector>"),
]

# (what it is, the table's page, folders of lib/, texts in the complaints).
HEADS = f"| {' | '.join(COLUMNS)} |\n|---|---|---|---|\n"
BASE, ENV = "| `lib/base` | x | | |\n", "| `lib/env` | x | `base` | gRPC, LibTorch |\n"
TABLES = [
    ("sound", f"words\n\n{HEADS}{BASE}{ENV}\n| another | table |\n", ["base", "env"], []),
    ("none", None, ["base"], ["docs/architecture.md: is not there"]),
    ("without the heads", "words\n| folder | what |\n|---|---|\n", ["base"],
     ["no table with the columns folder | what it is | may include directly | foreign code"]),
    ("a folder without a row", HEADS + BASE, ["base", "env"], ["lib/env: has no row in the table of layers"]),
    ("a row without a folder", HEADS + BASE + ENV, ["base"], ["the row of lib/env names no folder"]),
    ("a planned folder", HEADS + BASE + "| `lib/env` (planned) | x | `base` | |\n", ["base"], []),
    ("a planned folder that is there", HEADS + BASE + "| `lib/env` (planned) | x | `base` | |\n", ["base", "env"],
     ["lib/env is there: remove the word (planned)"]),
    ("a cell too few", HEADS + BASE + "| `lib/env` | x | `base` |\n", ["base"], ["docs/architecture.md:4: expected | `lib/NAME` |"]),
    ("no name", HEADS + BASE + "| env | x | `base` | |\n", ["base"], ["docs/architecture.md:4: expected | `lib/NAME` |"]),
    ("no words", HEADS + "| `lib/base` | | | |\n", ["base"], ["docs/architecture.md:3: expected | `lib/NAME` |"]),
    ("a row twice", HEADS + BASE + BASE, ["base"], ["docs/architecture.md:4: a second row of lib/base"]),
    ("an edge upwards", HEADS + "| `lib/base` | x | `env` | |\n" + ENV, ["base", "env"],
     ["docs/architecture.md:3: lib/base may include env, expected the folder of a row above"]),
    ("an edge in words", HEADS + BASE + "| `lib/env` | x | base | |\n", ["base", "env"],
     ["lib/env may include base, expected folders in backquotes"]),
    ("headers of nobody", HEADS + BASE + "| `lib/env` | x | `gone/*_options.h` | |\n", ["base", "env"],
     ["may include gone/*_options.h, expected the folder"]),
    ("unknown foreign code", HEADS + "| `lib/base` | x | | Boost |\n", ["base"],
     ["foreign code Boost, expected LibTorch, gRPC, AGG, giflib, zlib, generated code"]),
    ("two tables", HEADS + BASE + "\n" + HEADS + ENV, ["base", "env"], ["docs/architecture.md:5: a second table of layers"]),
]


def self_test():
    table = trees.text(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), TABLE)
    layers, planned, broken = read_table(table)
    if broken:
        print("\n".join(broken))
        return 1
    folders = set(layers.closure) - planned

    def tree(path, target):
        """The complaints about a tree with the table, its folders, and one file with one include."""
        with tempfile.TemporaryDirectory() as root:
            for folder in folders:
                os.makedirs(os.path.join(root, "lib", folder))
            plant(root, TABLE, table)
            plant(root, os.path.join(os.path.dirname(path), "a.h"), "")
            plant(root, path, f"// a comment\n#include {target}\n")
            return check(root)[1]

    failures = 0
    for expected, edges in ((0, GOOD), (1, BAD)):
        for path, target in edges:
            complaints = tree(path, target)
            if len(complaints) != expected:
                failures += 1
                print(f"self-test: {path} including {target}: expected {expected} complaints, got {complaints}")

    for what, text, names, expected in TABLES:
        with tempfile.TemporaryDirectory() as root:
            for name in names:
                plant(root, f"lib/{name}/a.cc", "")
            if text is not None:
                plant(root, TABLE, text)
            complaints = check(root)[1]
        if len(complaints) != len(expected) or any(words not in complaint for words, complaint in zip(expected, complaints)):
            failures += 1
            print(f"self-test: table: {what}: expected {expected}, got {complaints}")
    print(f"include_edges self-test: {len(GOOD) + len(BAD) + len(TABLES) - failures} passed, {failures} failed")
    return 1 if failures else 0


def plant(root, path, text):
    os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.argv[1] == "--self-test":
        return self_test()
    files, complaints = check(sys.argv[1])
    for complaint in complaints:
        print(complaint)
    if not files and not complaints:
        print(f"include_edges: no sources below {sys.argv[1]}")
        return 1
    print(f"include_edges: {files} files, {len(complaints)} forbidden edges")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
