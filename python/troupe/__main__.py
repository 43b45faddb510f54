"""The program `troupe`: `python -m troupe train run.yaml`, and the command `troupe` of an installed package.

The package does not hold the program. It is the one that TROUPE_PROGRAM names, else the script of the checkout that this package lies in or was installed
from, which builds it at first. A wheel does not know where it was made: it is the installer that notes where a package comes from (PEP 610).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import urllib.parse
import urllib.request

VARIABLE = "TROUPE_PROGRAM"


def installed_from(site: str) -> str | None:
    """The checkout whose folder `python` is what `site` has of this package; None: it comes from elsewhere."""
    for distribution in importlib.metadata.distributions(name="troupe", path=[site]):
        try:
            noted = json.loads(distribution.read_text("direct_url.json") or "{}")
            url = urllib.parse.urlsplit(noted["url"]) if "dir_info" in noted else None
        except (ValueError, KeyError, TypeError):
            continue
        if url is not None and url.scheme == "file":
            return os.path.dirname(os.path.normpath(urllib.request.url2pathname(url.path)))
    return None


def candidates() -> list[str]:
    """Where the program may be, first come first served."""
    given = os.environ.get(VARIABLE)
    if given:
        return [given]
    package = os.path.dirname(os.path.abspath(__file__))
    checkouts = [os.path.dirname(os.path.dirname(package)), installed_from(os.path.dirname(package))]
    return [os.path.join(checkout, "troupe") for checkout in checkouts if checkout and os.path.isfile(os.path.join(checkout, "CMakePresets.json"))]


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
