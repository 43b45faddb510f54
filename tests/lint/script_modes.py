#!/usr/bin/env python3
"""Whoever is to be run can be: a file that begins with #! has the mode for it, since pages print it as a command.

  script_modes.py ROOT         exit 1 and a line for each file without it
  script_modes.py --self-test
"""

import os
import sys
import tempfile

TREES = ("bench", "deploy", "docker", "examples", "python", "services", "tests")


def not_runnable(root):
    found = []
    for tree in TREES:
        for folder, _, files in os.walk(os.path.join(root, tree)):
            for name in files:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    if file.read(2) == b"#!" and not os.stat(path).st_mode & 0o111:
                        found.append(os.path.relpath(path, root))
    return sorted(found)


def self_test():
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "bench", "inner"))
        for name, text, mode in (("inner/bad.py", "#!/bin/sh\n", 0o644), ("good.sh", "#!/bin/sh\n", 0o755), ("data", "#", 0o644)):
            path = os.path.join(root, "bench", name)
            with open(path, "w") as file:
                file.write(text)
            os.chmod(path, mode)
        assert not_runnable(root) == ["bench/inner/bad.py"], not_runnable(root)


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return 0
    found = not_runnable(sys.argv[1])
    for path in found:
        print(f"{path} begins with #! and cannot be run: chmod +x")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
