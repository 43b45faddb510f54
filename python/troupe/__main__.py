"""The program `troupe`: `python -m troupe train run.yaml`, and the command `troupe` of an installed package.

Where it is looked for says troupe.program. A wheel does not know where it was made: it is the installer that notes where a package comes from (PEP 610).
"""

from __future__ import annotations

import os
import sys

from troupe.program import candidates, not_found


def main() -> int:
    """Becomes the program; returns where there is none."""
    for path in candidates():
        if os.path.isfile(path):
            # Environments in Python run with the interpreter of this package unless the configuration names another.
            if sys.prefix != sys.base_prefix:
                os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
            os.execv(path, [path, *sys.argv[1:]])
    print(f"troupe: error: {not_found()}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
