"""The lines of a run's progress.jsonl: read while they come, and as a table or a curve."""

from __future__ import annotations

import html
import json
import os
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Tuple

if TYPE_CHECKING:
    import pandas

_WIDTH, _HEIGHT, _MARGIN = 480, 200, 40
_MOST_POINTS = 1000
_LAST_BYTES = 1 << 20  # lines are a few kilobytes


class LineTail:
    """The complete lines of a file that grows, is cut, or is replaced. After a cut or a replacement it begins at the start again: `begins` counts."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode: Optional[int] = None
        self._offset = 0
        self.begins = 0

    def read(self) -> List[bytes]:
        """Lines (bytes, without newline) that have come since the last call; a line without its newline is not there yet."""
        try:
            file = open(self._path, "rb")
        except FileNotFoundError:
            return []
        with file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset, self.begins = status.st_ino, 0, self.begins + 1
            file.seek(self._offset)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._offset += end
        return data[:end].splitlines()


def last_line(path: str) -> Optional[Dict[str, Any]]:
    """The last complete line; None where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return None
    line = json.loads(lines[-2]) if len(lines) > 1 else None
    return line if isinstance(line, dict) else None


class LineCount:
    """Tells apart the lines of progress.jsonl: most env steps have one, and an evaluation that came after it a second one."""

    def __init__(self, tail: LineTail) -> None:
        self._tail = tail
        self._begins = 0
        self._last = (-1, 0)

    def place(self, env_steps: int) -> Tuple[int, int]:
        """(env steps, place among the lines of these env steps, from 1) of the line that was read next."""
        if self._begins != self._tail.begins:
            self._begins, self._last = self._tail.begins, (-1, 0)
        self._last = (env_steps, self._last[1] + 1 if env_steps == self._last[0] else 1)
        return self._last


class NewLines:
    """The lines of progress.jsonl as dicts; those that a resumed run writes again are left out."""

    def __init__(self, path: str) -> None:
        self._tail = LineTail(path)
        self._count = LineCount(self._tail)
        self._newest = (-1, 0)

    def read(self) -> Iterator[Dict[str, Any]]:
        """Those that have come since the last call."""
        for text in self._tail.read():
            line = json.loads(text)
            place = self._count.place(line["env_steps"])
            if place > self._newest:
                self._newest = place
                yield line


class Progress(List[Dict[str, Any]]):
    """A list of the lines so far, as docs/metrics.md has their keys."""

    def __init__(self, lines: Iterable[Dict[str, Any]] = (), title: str = "") -> None:
        super().__init__(lines)
        self.title = title

    def to_pandas(self) -> "pandas.DataFrame":
        """A row a line. ImportError where pandas is not there."""
        import pandas

        return pandas.DataFrame(list(self))

    def curve(self, key: str = "return_sum") -> List[Tuple[float, float]]:
        """(env steps, value) of the lines that have a value."""
        return [(float(line["env_steps"]), float(line[key])) for line in self if isinstance(line.get(key), (int, float))]

    def _repr_html_(self) -> str:
        """The mean return of the last 100 training episodes, summed over agents, over env steps, as SVG."""
        points = self.curve()
        title = html.escape(self.title)
        if not points:
            return f"<p>{title}: no training episode has ended yet</p>"
        every = -(-len(points) // _MOST_POINTS)
        points = points[::every] + ([points[-1]] if (len(points) - 1) % every else [])
        right, low, high = points[-1][0], min(y for _, y in points), max(y for _, y in points)
        left = points[0][0]
        across, up = (_WIDTH - 2 * _MARGIN) / ((right - left) or 1), (_HEIGHT - 2 * _MARGIN) / ((high - low) or 1)
        line = " ".join(f"{_MARGIN + (x - left) * across:.1f},{_HEIGHT - _MARGIN - (y - low) * up:.1f}" for x, y in points)
        text = "".join(f'<text x="{x}" y="{y}" font-size="11" fill="currentColor" text-anchor="{anchor}">{words}</text>' for x, y, anchor, words in (
            (_MARGIN, _HEIGHT - _MARGIN + 16, "start", f"{left:,.0f}"),
            (_WIDTH - _MARGIN, _HEIGHT - _MARGIN + 16, "end", f"{right:,.0f} env steps"),
            (_MARGIN - 6, _HEIGHT - _MARGIN, "end", f"{low:.4g}"),
            (_MARGIN - 6, _MARGIN + 4, "end", f"{high:.4g}"),
            (_MARGIN, _MARGIN - 16, "start", f"{title}: return, sum over agents, {points[-1][1]:.4g}")))
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" role="img">'
                f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>{text}</svg>')
