"""The program `troupe`: `python -m troupe train run.yaml`, and the command `troupe` of an installed package.

The package does not hold the program. It is the one that TROUPE_PROGRAM names, else the script of the checkout that this package lies in or was installed
from, which builds it at first.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "TROUPE_PROGRAM"


def candidates() -> list[str]:
    """Where the program may be, first come first served."""
    given = os.environ.get(VARIABLE)
    if given:
        return [given]
    package = os.path.dirname(os.path.abspath(__file__))
    checkouts = [os.path.dirname(os.path.dirname(package))]
    try:
        with open(os.path.join(package, "_checkout.txt"), encoding="utf-8") as file:
            checkouts.append(file.read().strip())
    except OSError:
        pass  # not installed
    return [os.path.join(checkout, "troupe") for checkout in checkouts if os.path.isfile(os.path.join(checkout, "CMakePresets.json"))]


def main() -> int:
    """Becomes the program; returns where there is none."""
    places = candidates()
    for path in places:
        if os.path.isfile(path):
            # Environments in Python run with the interpreter of this package unless the configuration names another.
            if sys.prefix != sys.base_prefix:
                os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
            os.execv(path, [path, *sys.argv[1:]])
    looked = f" at {', '.join(places)}" if places else ""
    print(f"troupe: error: found no program troupe{looked}: the Python package comes without it; install from a checkout of Troupe (pip install "
          f"CHECKOUT/python), or say where it is with {VARIABLE}=CHECKOUT/troupe", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
