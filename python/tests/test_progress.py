"""Lines of progress.jsonl: as they come, each env step once; as a table and as a curve."""

import json
import os
import re
import sys
import tempfile
import types
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from troupe.progress import NewLines, Progress, last_line  # noqa: E402


class ProgressTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "progress.jsonl")

    def write(self, text, mode="a"):
        with open(self.path, mode) as file:
            file.write(text)

    def test_lines_come_whole_and_each_env_step_once(self):
        lines = NewLines(self.path)
        self.assertEqual((list(lines.read()), last_line(self.path)), ([], None), "there is no file yet")
        self.write('{"env_steps": 1}\n{"env_steps": 2}\n{"env_st')
        self.assertEqual([line["env_steps"] for line in lines.read()], [1, 2])
        self.assertEqual(last_line(self.path), {"env_steps": 2})
        self.write('eps": 3}\n')
        self.assertEqual([line["env_steps"] for line in lines.read()], [3])
        # A resumed run's learner cuts the file at its checkpoint, and trains some env steps again.
        self.write('{"env_steps": 1}\n{"env_steps": 2}\n', "w")
        self.assertEqual(list(lines.read()), [])
        self.write('{"env_steps": 3}\n{"env_steps": 4}\n')
        self.assertEqual([line["env_steps"] for line in lines.read()], [4])
        self.assertEqual(last_line(self.path), {"env_steps": 4})
        # An evaluation that comes after its line has a line of its own, once.
        self.write('{"env_steps": 4, "evaluation_return_sum": 5}\n')
        self.assertEqual(list(lines.read()), [{"env_steps": 4, "evaluation_return_sum": 5}])
        self.write('{"env_steps": 4}\n{"env_steps": 4, "evaluation_return_sum": 5}\n{"env_steps": 5}\n', "w")
        self.assertEqual([line["env_steps"] for line in lines.read()], [5])

    def test_a_curve_is_svg_of_what_has_a_value(self):
        progress = Progress([{"env_steps": 0, "return_sum": None}, {"env_steps": 1000, "return_sum": -20.0}, {"env_steps": 2000, "return_sum": -10.0},
                             {"env_steps": 3000, "return_sum": -15.0}], "<b>run</b>")
        self.assertEqual(progress.curve(), [(1000.0, -20.0), (2000.0, -10.0), (3000.0, -15.0)])
        svg = xml.etree.ElementTree.fromstring(progress._repr_html_())
        points = [tuple(map(float, point.split(","))) for point in svg.find("{*}polyline").get("points").split()]
        self.assertEqual(points, [(40, 160), (240, 40), (440, 100)])
        texts = [text.text for text in svg.findall("{*}text")]
        self.assertEqual(texts, ["1,000", "3,000 env steps", "-20", "-10", "<b>run</b>: return, sum over agents, -15"])

    def test_a_curve_of_one_value_of_none_and_of_many(self):
        self.assertEqual(Progress([], "a&b")._repr_html_(), "<p>a&amp;b: no training episode has ended yet</p>")
        one = Progress([{"env_steps": 5, "return_sum": 1}], "one")._repr_html_()
        self.assertIn('points="40.0,160.0"', one)
        many = Progress([{"env_steps": i, "return_sum": i % 7} for i in range(25003)], "many")._repr_html_()
        points = re.search(r'points="([^"]*)"', many)[1].split()
        self.assertLessEqual(len(points), 1001)
        self.assertTrue(points[-1].startswith("440.0,"), "the last one is among them")

    def test_a_table_is_pandas(self):
        made = []
        pandas = types.ModuleType("pandas")
        pandas.DataFrame = lambda rows: made.append(rows) or "frame"
        before = sys.modules.get("pandas")
        sys.modules["pandas"] = pandas
        self.addCleanup(sys.modules.__setitem__ if before else sys.modules.pop, "pandas", *([before] if before else []))
        self.assertEqual(Progress([{"env_steps": 1}]).to_pandas(), "frame")
        self.assertEqual(json.dumps(made), '[[{"env_steps": 1}]]')


if __name__ == "__main__":
    unittest.main()
