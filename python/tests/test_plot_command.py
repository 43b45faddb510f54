"""The Python half of `troupe runs plot`: whole pictures or none, and words where matplotlib is missing."""

import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest
import warnings
import xml.etree.ElementTree
from unittest import mock

from troupe import plot_command

SERIES = [{"label": "a", "x": [10, 2_000_000], "mean": [1, 2], "low": [0, 1], "high": [2, 3]},
          {"label": "$b", "x": [10, 20], "mean": [1, 2], "low": [], "high": []}]
DOCUMENT = {"x": "env_steps", "metric": "return_sum", "series": SERIES}


class PlotCommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "curve.png")

    def run_main(self, *words, draw=None, matplotlib=types.ModuleType("matplotlib")):
        """(exit code, stdout, stderr)"""
        out, err = io.StringIO(), io.StringIO()
        draw = draw or (lambda document, path: pathlib.Path(path).write_text(document["metric"]))
        with mock.patch.dict(sys.modules, matplotlib=matplotlib), mock.patch.object(plot_command, "draw", draw), \
                mock.patch("sys.stdin", io.StringIO(json.dumps(DOCUMENT))), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return plot_command.main([f"--output={self.path}", *words]), out.getvalue(), err.getvalue()

    def test_without_matplotlib_the_extra_is_named(self):
        code, _, said = self.run_main(matplotlib=None)
        self.assertEqual(code, 78)
        self.assertIn("the extra plot", said)
        self.assertIn("pip install 'troupe-rl[plot]'", said)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_picture_is_there_whole_or_not_at_all(self):
        def fails(_document, path):
            pathlib.Path(path).write_text("half")
            raise OSError(28, "No space left on device")

        code, _, said = self.run_main(draw=fails)
        self.assertEqual((code, os.listdir(self.folder)), (1, []))
        self.assertIn("No space left on device", said)
        self.assertEqual(self.run_main("--json"), (0, json.dumps({"path": self.path, "series": ["a", "$b"]}) + "\n", ""))
        self.assertEqual(os.listdir(self.folder), ["curve.png"])
        code, _, said = self.run_main()
        self.assertEqual(code, 78, "it came meanwhile")
        self.assertIn("File exists", said)
        self.assertEqual(self.run_main("--overwrite")[0], 0)

    def test_it_is_drawn_where_nobody_else_has_put_anything(self):
        seen = []

        def look(document, path):
            folder = os.path.dirname(path)
            seen.append((os.path.dirname(folder), os.stat(folder).st_mode & 0o777, os.listdir(folder)))
            pathlib.Path(path).write_text(document["metric"])

        self.assertEqual(self.run_main(draw=look)[0], 0)
        self.assertEqual(seen, [(self.folder, 0o700, [])])

    def test_words_of_others_are_no_mathematics(self):
        self.assertEqual(plot_command._plain("_a$b$"), " _a\\$b\\$")

    def test_words_of_others_are_no_control_characters(self):
        self.assertEqual(plot_command._plain("é \x1b[2J\u202e\ufffe\n"), "é \\x1b[2J\\u202e\\ufffe\\n")
        path = os.path.join(self.folder, "curve.svg")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            plot_command.draw(dict(DOCUMENT, metric="r\x07", series=[dict(SERIES[0], label="a\x1b[2J \u4e00\ufffe")]), path)
        self.assertEqual([str(each.message) for each in warned], [], "they would quote the characters as they are")
        xml.etree.ElementTree.parse(path)
        said = re.findall("<!-- (.*?) -->", pathlib.Path(path).read_text())
        self.assertIn("a\\x1b[2J \u4e00\\ufffe", said)
        self.assertIn("r\\x07", said)

    def test_axes_have_a_fitting_unit(self):
        self.assertEqual([plot_command._unit("env_steps", size) for size in (9_999, 10_000, 1e7)], [(1.0, ""), (1e3, "thousand "), (1e6, "million ")])
        self.assertEqual(plot_command._unit("wall_clock_s", 1e7), (1.0, ""))

    def test_matplotlib_draws_curves_and_names_them(self):
        from matplotlib import pyplot
        self.addCleanup(pyplot.close, "all")
        drawn = []
        for ending, begin in (("png", b"\x89PNG"), ("svg", b"<?xml")):
            path = os.path.join(self.folder, f"curve.{ending}")
            with mock.patch.object(pyplot, "close", drawn.append):
                plot_command.draw(DOCUMENT, path)
            with open(path, "rb") as file:
                self.assertEqual(file.read(len(begin)), begin)
        for figure in drawn:
            (axis,) = figure.axes
            self.assertEqual([(line.get_label(), list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines],
                             [("a", [0.01, 2000], [1, 2]), ("\\$b", [0.01, 0.02], [1, 2])])
            (band,) = axis.collections
            self.assertEqual({tuple(corner) for corner in band.get_paths()[0].vertices}, {(0.01, 0), (0.01, 2), (2000, 1), (2000, 3)})
            self.assertEqual((axis.get_xlabel(), axis.get_ylabel()), ("thousand env steps", "return, sum over agents"))
            self.assertIsNotNone(axis.get_legend())
        self.assertEqual(len(drawn), 2)


if __name__ == "__main__":
    unittest.main()
