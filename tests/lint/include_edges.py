#!/usr/bin/env python3
"""Checks every #include of ours against the layers.

A folder of lib/ may include itself, what its row below lists, and what those may include in turn; nothing else. The rows are
docs' table of layers: an edge that is missing here is a decision about the design, so it is argued there first.

  include_edges.py ROOT         exit 1 and one line per forbidden edge
  include_edges.py --self-test  plants edges, good and bad, and checks the verdicts
"""

import os
import re
import sys
import tempfile

# Folder of lib/ -> the folders it may include directly. envs/<family> are layers of their own: families do not see each other.
MAY_INCLUDE = {
    "base": [],
    "tensor": ["base"],
    "space": ["tensor"],
    "env": ["space"],
    "envs": ["env"],
    "envhost": ["env", "inference"],
    "policy": ["space"],
    "sample": ["policy"],
    "inference": ["policy"],
    "rollout": ["env", "sample", "inference"],
    "learner": ["sample", "policy"],
    "serving": ["inference"],
    "league": ["policy"],
    "training": ["learner"],
    "storage": ["policy", "learner"],
    "telemetry": ["base"],
    # All above but rpc. Of training only what ALLOWED_HEADERS says: config must build without LibTorch.
    "config": ["envs", "envhost", "rollout", "learner", "serving", "league", "storage", "telemetry"],
    "rpc": ["rollout", "learner", "serving", "config"],
}

# (folder, pattern of the included path): edges for single headers only.
ALLOWED_HEADERS = [("config", re.compile(r"lib/training/\w+_options\.h$"))]

# Foreign headers -> the folders (of lib/, or whole trees) that may see them.
FOREIGN = [
    ("LibTorch", re.compile(r"(torch|ATen|c10|caffe2)/"), {"training"}),
    ("gRPC", re.compile(r"(grpc|grpcpp|grpc\+\+)/|.*\.grpc\.pb\.h$"), {"rpc"}),
    ("generated code", re.compile(r"(proto/|troupe/v1/|google/protobuf/)"), {"config", "rpc"}),
]
# Trees that measure or test foreign code itself.
UNRESTRICTED_TREES = {"tests", "bench"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
OWN_ROOTS = ("lib/", "services/", "tests/", "bench/", "examples/", "proto/")
TREES = ("lib", "services", "tests", "bench", "examples")


def closure(folder):
    """The folders that `folder` may include, itself included."""
    seen, todo = set(), [folder]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo += MAY_INCLUDE[current]
    return seen


CLOSURE = {folder: closure(folder) for folder in MAY_INCLUDE}


def layer_of(path):
    """lib/env/x.h -> ("env", ""); lib/envs/mpe/x.h -> ("envs", "mpe"); otherwise None."""
    parts = path.split("/")
    if len(parts) < 3 or parts[0] != "lib":
        return None
    family = parts[2] if parts[1] == "envs" and len(parts) > 3 else ""
    return parts[1], family


def verdict(path, quote, target, root):
    """What is wrong with `path` including `target`, or None."""
    tree = path.split("/")[0]
    own = layer_of(path)
    is_test = re.search(r"_(test|bench)\.(cc|h)$", path) is not None

    if quote == '"' and not target.startswith(OWN_ROOTS):
        if os.path.exists(os.path.join(root, os.path.dirname(path), target)):
            return "own headers are included by their path from the root"

    if tree not in UNRESTRICTED_TREES:
        for what, pattern, allowed in FOREIGN:
            if pattern.match(target) and (own is None or own[0] not in allowed):
                return f"only lib/{' and lib/'.join(sorted(allowed))} may see {what}"

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
    if own[0] not in MAY_INCLUDE:
        return f"lib/{own[0]} is not a layer: add it to the table of layers"
    other = layer_of(target)
    if other is None:
        return None
    if other[0] not in MAY_INCLUDE:
        return f"lib/{other[0]} is not a layer"
    for folder, pattern in ALLOWED_HEADERS:
        if own[0] == folder and pattern.match(target):
            return None
    if other[0] not in CLOSURE[own[0]]:
        return f"lib/{own[0]} may not include lib/{other[0]} (allowed: {', '.join(sorted(CLOSURE[own[0]] - {own[0]})) or 'nothing'})"
    if own[0] == other[0] == "envs" and own[1] and other[1] and own[1] != other[1]:
        return "families of environments do not see each other"
    return None


def check(root):
    """-> (number of files, list of complaints)"""
    files, complaints = 0, []
    for tree in TREES:
        for folder, subfolders, names in os.walk(os.path.join(root, tree)):
            subfolders.sort()
            for name in sorted(names):
                if not name.endswith((".h", ".cc")):
                    continue
                files += 1
                full = os.path.join(folder, name)
                path = os.path.relpath(full, root)
                with open(full, encoding="utf-8", errors="replace") as lines:
                    for number, line in enumerate(lines, 1):
                        include = INCLUDE.match(line)
                        if include:
                            wrong = verdict(path, include[1], include[2], root)
                            if wrong:
                                complaints.append(f"{path}:{number}: includes {include[2]}: {wrong}")
    return files, complaints


def self_test():
    good = [
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
        ("services/cli/a.cc", '"lib/rpc/x.h"'),
        ("bench/a.cc", "<grpcpp/grpcpp.h>"),
        ("tests/parity/a.cc", "<torch/torch.h>"),
    ]
    bad = [
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
    failures = 0
    for expected, edges in ((0, good), (1, bad)):
        for path, target in edges:
            with tempfile.TemporaryDirectory() as root:
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full))
                with open(os.path.join(os.path.dirname(full), "a.h"), "w", encoding="utf-8"):
                    pass
                with open(full, "w", encoding="utf-8") as source:
                    source.write(f"// a comment\n#include {target}\n")
                _, complaints = check(root)
                if len(complaints) != expected:
                    failures += 1
                    print(f"self-test: {path} including {target}: expected {expected} complaints, got {complaints}")
    print(f"include_edges self-test: {len(good) + len(bad) - failures} passed, {failures} failed")
    return 1 if failures else 0


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.argv[1] == "--self-test":
        return self_test()
    files, complaints = check(sys.argv[1])
    for complaint in complaints:
        print(complaint)
    if not files:
        print(f"include_edges: no sources below {sys.argv[1]}")
        return 1
    print(f"include_edges: {files} files, {len(complaints)} forbidden edges")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
