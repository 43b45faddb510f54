#!/usr/bin/env python3
"""The wire's types end where the wire ends: nothing outside lib/rpc, lib/client and lib/config speaks of troupe::v1 or of protobuf.

  generated_types.py ROOT [--tighten]   exit 1 and a line for each file that names a generated type more often than tests/lint/ratchet.txt allows
  generated_types.py --self-test        plants mentions, good and bad, and checks the verdicts

Counts `v1` and `google::protobuf` in the code of lib/, services/, python/ and examples/, comments and texts aside; unit tests, tests/
and bench/ may speak the protocol. A forward declaration (`namespace troupe::v1 {`) counts. What it cannot see: a generated type behind
`auto`. include_edges.py holds who may include the generated headers.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cpp_scan  # noqa: E402  beside this file
import ratchet  # noqa: E402
import trees  # noqa: E402

LIMITS = {"generated_types": ratchet.Limit(0, "mentions of generated types")}
TREES = ("lib", "services", "python", "examples")
MAY = ("lib/rpc/", "lib/client/", "lib/config/")
# `using namespace troupe::v1;` and `namespace pb = v1;` are mentions, a variable that somebody calls v1 is none.
MENTION = re.compile(r"\bv1\s*::|::\s*v1\b(?!\s*::)|=\s*v1\s*;|\bgoogle\s*::\s*protobuf\b")


def measure(root):
    files, beyond = 0, {}
    for tree in TREES:
        for path in trees.walk(root, tree):
            if not path.endswith(trees.CPP) or path.startswith(MAY) or trees.is_test(path):
                continue
            files += 1
            text = trees.text(root, path)
            if not MENTION.search(text):
                continue
            mentions = list(MENTION.finditer(code := cpp_scan.code(text)))
            if mentions:
                beyond[path] = (len(mentions), f"{path}:{code.count(chr(10), 0, mentions[0].start()) + 1}: the file")
    return ratchet.Found(files, {"generated_types": beyond}, [])


def self_test():
    cases = [
        ("the adapters, tests and benchmarks", {
            "lib/rpc/a.cc": "v1::Grant grant;\n", "lib/config/a.h": "namespace troupe::v1 {\nclass RunConfig;\n}\n",
            "services/cli/a_test.cc": "v1::Grant grant;\n",
            "lib/rpc/testing/a.h": "v1::Grant grant;\n", "tests/a.cc": "v1::Grant grant;\n", "bench/a.cc": "v1::Grant grant;\n"}, []),
        ("comments, texts and variables", {"lib/a/a.cc": '// v1::Grant\nint v1 = 3; const char* text = "v1::Grant";\nauto x = v1 + v1;\n'}, []),
        ("includes are include_edges.py's", {"lib/a/a.cc": '#include "proto/troupe/v1/rollout.pb.h"\n'}, []),
        ("a parameter", {"lib/a/a.h": "\nvoid F(const v1::Grant& grant,\n       troupe::v1::Ack ack);\n"},
         ["lib/a/a.h:2: the file has 2 mentions of generated types, expected at most 0"]),
        ("forward declaration", {"lib/a/a.h": "namespace troupe::v1 {\nclass Grant;\n}\n"}, ["has 1 mentions"]),
        ("other names for it", {"services/cli/a.cc": "using namespace troupe::v1;\nnamespace wire = v1;\nnamespace more = troupe::v1;\n"},
         ["has 3 mentions"]),
        ("protobuf itself", {"services/cli/a.cc": "google::protobuf::Message* message;\n"}, ["has 1 mentions"]),
        ("in the ratchet, grown, no longer needed", {
            "lib/a/a.h": "v1::A a;\n", "lib/a/b.h": "v1::A a, v1::B b;\n", "lib/a/c.h": "",
            ratchet.PATH: "".join(f"generated_types 1 lib/a/{name}.h\n" for name in "abc")},
         ["lib/a/b.h:1: the file has 2 mentions of generated types, expected at most 1: by tests/lint/ratchet.txt:2",
          "ratchet.txt:3: remove this line: lib/a/c.h"]),
    ]
    return ratchet.check_cases("generated_types", cases, lambda root: sum(ratchet.judge(root, LIMITS, measure(root)), []))


if __name__ == "__main__":
    sys.exit(ratchet.main("generated_types", __doc__, LIMITS, measure, self_test))
