#!/usr/bin/env python3
"""A source file of more than 1000 lines is an error: by then it is several things.  file_length.py ROOT"""

import os
import sys

LIMIT = 1000
TREES = (".ci", "bench", "cmake", "deploy", "docker", "examples", "lib", "proto", "python", "services", "tests")
SUFFIXES = (".cc", ".cmake", ".h", ".proto", ".py", ".sh", "CMakeLists.txt")


def sources(root):
    yield from (os.path.join(root, name) for name in ("CMakeLists.txt", "troupe"))
    for tree in TREES:
        for folder, subfolders, names in os.walk(os.path.join(root, tree)):
            # Environments of other people's packages, wherever a script puts them.
            subfolders[:] = [name for name in subfolders if not name.startswith((".", "venv", "__pycache__"))]
            yield from (os.path.join(folder, name) for name in names if name.endswith(SUFFIXES) or tree == ".ci")


def main():
    root = sys.argv[1]
    too_long, files = 0, 0
    for path in sources(root):
        files += 1
        with open(path, "rb") as source:
            lines = sum(1 for _ in source)
        if lines > LIMIT:
            too_long += 1
            print(f"{os.path.relpath(path, root)}: {lines} lines, expected at most {LIMIT}")
    print(f"file_length: {files} files, {too_long} too long")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
