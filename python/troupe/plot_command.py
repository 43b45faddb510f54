"""The Python half of `troupe runs plot`, which reads the runs and becomes this: curves from stdin, a picture by matplotlib."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from typing import Any, Dict, List, Optional, Sequence

from troupe.program import REFUSED
from troupe.version import DISTRIBUTION

_EXTRA = f"{DISTRIBUTION}[plot]"
_NAMES = {"env_steps": "env steps", "agent_steps": "agent steps", "updates": "updates", "wall_clock_s": "seconds of training",
          "return_sum": "return, sum over agents", "return_mean": "return, mean over agents"}
_UNITS = ((1e6, "million "), (1e3, "thousand "))


def _unit(name: str, largest: float) -> "tuple[float, str]":
    if name == "wall_clock_s":
        return 1.0, ""
    return next(((size, word) for size, word in _UNITS if largest >= 10 * size), (1.0, ""))


def _plain(text: str) -> str:
    """As matplotlib shows it unchanged: neither as mathematics nor, from "_" on, not at all. What cannot be printed, nor stand in XML, as its escape."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return (" " if shown.startswith("_") else "") + shown.replace("$", r"\$")


def draw(document: Dict[str, Any], path: str) -> None:
    """Draws `series` ({"label", "x", "mean", "low", "high"} each) into a file of the format that its ending says."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    series: List[Dict[str, Any]] = document["series"]
    size, word = _unit(document["x"], max(each["x"][-1] for each in series))
    figure, axis = plt.subplots(figsize=(7, 4), constrained_layout=True)
    for each in series:
        x = [value / size for value in each["x"]]
        (line,) = axis.plot(x, each["mean"], label=_plain(each["label"]), linewidth=1.5)
        if each["low"]:
            axis.fill_between(x, each["low"], each["high"], color=line.get_color(), alpha=0.2, linewidth=0)
    axis.set_xlabel(word + _NAMES[document["x"]])
    axis.set_ylabel(_NAMES.get(document["metric"], _plain(document["metric"])))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if len(series) > 1 or series[0]["low"]:
        axis.legend(frameon=False, fontsize="small")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a character that the font lacks is drawn as a box, and is not quoted to a terminal
        figure.savefig(path, dpi=130)
    plt.close(figure)


def _put(document: Dict[str, Any], path: str, overwrite: bool) -> None:
    """The whole picture or none: drawn beside, in a folder that is nobody else's, then put in its place."""
    with tempfile.TemporaryDirectory(prefix=".plot-", dir=os.path.dirname(path) or ".") as folder:
        drawn = os.path.join(folder, "picture" + os.path.splitext(path)[1])
        draw(document, drawn)
        if overwrite:
            os.replace(drawn, path)
        else:
            os.link(drawn, path)  # fails where something has come meanwhile


def main(words: Optional[Sequence[str]] = None) -> int:
    """What `troupe runs plot` runs. Prints; returns the exit code."""
    parser = argparse.ArgumentParser(prog="troupe runs plot")
    parser.add_argument("--output", required=True)
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(words)
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        print(f"troupe: error: {sys.executable} cannot draw ({error}), expected matplotlib, which the extra plot brings: "
              f"{sys.executable} -m pip install '{_EXTRA}'", file=sys.stderr)
        return REFUSED
    document = json.load(sys.stdin)
    try:
        _put(document, asked.output, asked.overwrite)
    except OSError as error:
        print(f"troupe: error: --output: {asked.output!r} cannot be written: {error.strerror}", file=sys.stderr)
        return REFUSED if isinstance(error, FileExistsError) else 1
    if asked.json:
        print(json.dumps({"path": asked.output, "series": [each["label"] for each in document["series"]]}))
    else:
        print(f"wrote {asked.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
