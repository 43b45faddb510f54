#!/usr/bin/env python3
"""No circle among the modules of python/troupe, imports inside of functions included: who imports whom goes one way.

  import_circles.py ROOT         exit 1 and a line for each circle
  import_circles.py --self-test  plants packages with circles and without, and checks what is found
"""

import ast
import os
import sys
import tempfile


def modules_of(package):
    """dotted name -> path, of a package's folder and below."""
    parent = os.path.dirname(package)
    found = {}
    for folder, _, files in os.walk(package):
        for file in files:
            if file.endswith(".py"):
                path = os.path.join(folder, file)
                name = os.path.relpath(path, parent)[: -len(".py")].replace(os.sep, ".")
                found[name.removesuffix(".__init__")] = path
    return found


def imports_of(name, path, modules):
    """The modules of the package that the module `name` imports. `from package import module` is an import of that module."""
    package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
    with open(path) as file:
        tree = ast.parse(file.read())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(above + ([node.module] if node.module else []))
            for alias in node.names:
                inside = f"{base}.{alias.name}"
                found.add(inside if inside in modules else base)
    return {module for module in found if module in modules and module != name}


def circles(package):
    """Each as the names on the way round."""
    modules = modules_of(package)
    edges = {name: sorted(imports_of(name, path, modules)) for name, path in modules.items()}
    found, done = [], set()

    def visit(name, way):
        if name in way:
            found.append([*way[way.index(name):], name])
            return
        if name not in done:
            for other in edges[name]:
                visit(other, [*way, name])
            done.add(name)

    for name in sorted(edges):
        visit(name, [])
    return found


def self_test():
    files = {
        "straight/__init__.py": "from straight.a import f\n", "straight/a.py": "from straight import b\n", "straight/b.py": "import os\n",
        "late/__init__.py": "", "late/a.py": "from late import b\n", "late/b.py": "def f():\n    from late.a import g\n    return g\n",
        "dots/__init__.py": "", "dots/a.py": "from . import b\n", "dots/b.py": "from .a import f\n",
        "self/__init__.py": "from self import a\n", "self/a.py": "import self\n",
    }
    expected = {"straight": [], "late": [["late.a", "late.b", "late.a"]], "dots": [["dots.a", "dots.b", "dots.a"]], "self": [["self", "self.a", "self"]]}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        for package, circle in expected.items():
            assert circles(os.path.join(folder, package)) == circle, (package, circles(os.path.join(folder, package)))


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return 0
    found = circles(os.path.join(sys.argv[1], "python", "troupe"))
    for circle in found:
        print("circle: " + " imports ".join(circle))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
