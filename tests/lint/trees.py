"""Where the sources of this repository lie, for the lints."""

import os

# Trees of sources, and what counts as one. In .ci every file does.
TREES = (".ci", "bench", "cmake", "deploy", "docker", "examples", "lib", "proto", "python", "services", "tests")
SUFFIXES = (".cc", ".cmake", ".h", ".inc", ".proto", ".py", ".sh", "CMakeLists.txt")
CPP = (".cc", ".h", ".inc")


def walk(root, tree):
    """Paths of all files below a tree, relative to the root, sorted."""
    for folder, subfolders, names in os.walk(os.path.join(root, tree)):
        # Environments of other people's packages, wherever a script puts them.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith((".", "venv", "__pycache__")))
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), root)


def sources(root):
    """Paths of all sources, relative to the root."""
    yield from (name for name in ("CMakeLists.txt", "troupe") if os.path.exists(os.path.join(root, name)))
    for tree in TREES:
        yield from (path for path in walk(root, tree) if path.endswith(SUFFIXES) or tree == ".ci")


def text(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def is_test(path):
    """A unit test beside the code, or what such tests share."""
    return path.split(".")[0].endswith("_test") or "/testing/" in path
