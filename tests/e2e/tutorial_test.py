"""docs/tutorial.md: every command runs, in order, on the files that the page has, and prints what the page shows."""

import os
import re

import harness
import pages


class TutorialTest(pages.PageTestCase):
    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_every_command_runs_and_prints_what_the_page_shows(self):
        outputs = self.follow("docs", "tutorial.md")
        self.assertGreaterEqual(len(outputs), 14)
        # What the text says of the numbers: it learns, and random play is far from it.
        trained = float(re.search(r"evaluation, 100 episodes: return (\S+)", outputs["./troupe train orchard.yaml --name orchard --set stop.env_steps=200000"])[1])
        random = float(re.search(r"return, sum over agents +(\S+)", outputs["./troupe evaluate orchard --episodes 200 --policy default_policy=random"])[1])
        self.assertGreater(trained, 20)
        self.assertLess(random, 4)
        slow, fast = re.findall(r"^0\.\d+ (\S+)$", outputs[".venv/bin/python rates.py"], re.M)
        self.assertGreater(float(fast), float(slow) + 1)
        for name in ("orchard.png", "rates.png"):
            with open(self.path(name), "rb") as picture:
                self.assertEqual(picture.read(8), b"\x89PNG\r\n\x1a\n")

    def test_what_is_installed_the_tests_python_has(self):
        self.assert_pinned("docs", "tutorial.md")

    def test_the_look_at_what_is_printed_tells_lines_and_their_order(self):
        printed = "wrote a.yaml\nmean  1.50, 20,000 env steps/s\n. a o\n"
        self.assert_printed("wrote a.yaml\nmean 2.75, 31 env steps/s\no . b\n", printed)
        for wrong in ("wrote b.yaml", "mean 2.75", "o . b .", "mean 2.75, 31 env steps/s\nwrote a.yaml"):
            with self.assertRaises(AssertionError):
                self.assert_printed(wrong, printed)


if __name__ == "__main__":
    harness.main()
