#!/usr/bin/env python3
"""What pip calls us: `troupe` there is somebody else's. The name stands in python/troupe/version.py (DISTRIBUTION), and programs read it there.

  distribution_name.py ROOT         exit 1 and a line for each place that has the other name, or a program's that repeats ours
  distribution_name.py --self-test
"""

import os
import re
import runpy
import sys
import tempfile

CONSTANT = os.path.join("python", "troupe", "version.py")
TREES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "troupe", "bench", "cmake", "deploy", "docker", "docs", "examples", "lib", "python", "services", "tests")
# Where ours would be a second constant. Tests say what they expect.
PROGRAMS = (".py", ".cc", ".h", ".cmake", ".in", "CMakeLists.txt", "troupe")
# "pip install" and what follows in the same words, up to `troupe` itself: not troupe-rl, ./troupe, troupe/…, or "troupe: …", which is the program's own name.
OTHER = re.compile(r"pip\d? install(?: +[^\s`;&|,#]+)* +['\"]?troupe(?=\[|==|>=|['\"`\s,;).]|$)")


def files(root):
    for tree in TREES:
        path = os.path.join(root, tree)
        if os.path.isfile(path):
            yield tree
        for folder, _, names in os.walk(path):
            for name in names:
                if not name.endswith((".pyc", ".so")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def is_test(path):
    return path.startswith("tests" + os.sep) or os.sep + "tests" + os.sep in path or path.endswith("_test.cc")


def findings(root):
    name = runpy.run_path(os.path.join(root, CONSTANT))["DISTRIBUTION"]
    found = []
    for path in files(root):
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
        for number, line in enumerate(lines, 1):
            if OTHER.search(line) and os.path.basename(path) != os.path.basename(__file__):
                found.append(f"{path}:{number}: pip has another troupe; expected {name}")
            repeats = path.endswith(PROGRAMS) and path != CONSTANT and not is_test(path)
            if repeats and f"{name}" in line:
                found.append(f"{path}:{number}: {name} is a constant (DISTRIBUTION in {CONSTANT}), expected a use of it")
    return sorted(found)


def self_test():
    with tempfile.TemporaryDirectory() as root:
        for path, text in ((CONSTANT, 'DISTRIBUTION = "troupe-rl"\n'),
                           ("README.md", "pip install 'troupe[cpu]'\npip install troupe-rl ./troupe\n`.venv/bin/pip install -q troupe`\n"
                                         "pip install ./python  # the package troupe\npip install 'troupe-rl[cpu]' && troupe demo\npip install torch, troupe trains\n"),
                           ("lib/x.cc", '"pip install troupe"; "troupe-rl"\n'), ("lib/x_test.cc", '"troupe-rl"\n')):
            os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
            with open(os.path.join(root, path), "w") as file:
                file.write(text)
        places = [line.split(": ")[0] for line in findings(root)]
        assert places == ["README.md:1", "README.md:3", "lib/x.cc:1", "lib/x.cc:1"], places


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return 0
    found = findings(sys.argv[1])
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
