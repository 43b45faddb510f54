"""The program `troupe`: `python -m troupe train run.yaml`, and the command `troupe` of an installed package.

Where it is looked for says troupe.program. A wheel does not know where it was made: it is the installer that notes where a package comes from (PEP 610).
"""

from __future__ import annotations

import os
import shutil
import sys

from troupe.program import candidates, not_found


def spelling(path: str) -> str:
    """How a person calls the program at `path`, which repeats it in the commands that it prints: `troupe` where that is on the PATH, else the script that
    was started, or the one beside this interpreter. For `python -m troupe` of a package without a script: `path`."""
    script = sys.argv[0]
    if os.path.basename(script) != "troupe":
        script = os.path.join(os.path.dirname(sys.executable), "troupe")
    if not os.path.isfile(script):
        return path
    on_path = shutil.which("troupe")
    return "troupe" if on_path is not None and os.path.samefile(on_path, script) else script


def main() -> int:
    """Becomes the program; returns where there is none."""
    for path in candidates():
        if os.path.isfile(path):
            # Environments in Python run with the interpreter of this package unless the configuration names another.
            if sys.prefix != sys.base_prefix:
                os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
            os.execv(path, [spelling(path), *sys.argv[1:]])
    print(f"troupe: error: {not_found()}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
