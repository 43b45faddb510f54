"""`troupe demo`: trains, films, says what comes next, and replaces no file."""

import json
import os
import re

import harness


class DemoTest(harness.TroupeTestCase):
    def commands(self, said):
        return re.findall(r"^  (\w+) +(.*)$", said, re.M)

    def test_trains_films_and_ends_with_three_commands_that_work(self):
        said = self.troupe("demo", "--seconds", "2").stdout
        self.assertTrue(said.startswith("three agents learn to cover three landmarks, for 2 s\n"), said)
        self.assertRegex(said, r"\nepisode \d+ \(best\) in spread\.gif: 26 pictures, summed return -\d+\.\d+\n  evaluate ")
        with open(self.path("spread.gif"), "rb") as file:
            self.assertEqual(file.read(6), b"GIF89a")
        self.assertGreaterEqual(self.summary("demo")["wall_clock_s"], 2)
        self.assertIn("stop.wall_clock reached", self.summary("demo")["reason"])
        commands = self.commands(said)
        self.assertEqual(commands, [("evaluate", f"{self.program} evaluate runs/demo"), ("query", f"{self.program} query runs/demo"),
                                    ("resume", f"{self.program} train --resume runs/demo --set stop.wall_clock=4")])
        for _, command in commands:
            self.troupe(*command.split()[1:])

    def test_replaces_nothing(self):
        self.write("spread.gif", "mine")
        os.makedirs(self.path("runs", "demo_2"))
        self.write("runs/demo_2/mine", "mine")
        before = self.hashes_below()
        said = self.troupe("demo", "--seconds", "1").stdout
        self.assertIn(" in spread_3.gif: ", said)
        self.assertEqual({path: digest for path, digest in self.hashes_below().items() if path in before}, before)
        # Where the video has a name of its own, that of the run is free.
        said = self.troupe("demo", "--seconds", "1", "--out", "mine.gif", "--directory", "elsewhere").stdout
        self.assertIn(" in mine.gif: ", said)
        self.assertTrue(os.path.isfile(self.path("elsewhere", "demo", "summary.json")))

    def test_a_video_that_cannot_be_is_refused_before_the_training(self):
        self.write("there.gif", "mine")
        for out, words in (("there.gif", "there.gif"), ("film.mp4", ".gif"), ("no/such/folder/x.gif", "no/such/folder")):
            done = self.troupe("demo", "--out", out, ok=False)
            self.assertEqual((done.returncode != 0, done.stdout, done.stderr.count("\n")), (True, "", 1), done.stderr)
            self.assertIn(words, done.stderr)
        for seconds in ("0", "3601", "soon"):
            done = self.troupe("demo", "--seconds", seconds, ok=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("--seconds", done.stderr)
        self.assertEqual(os.listdir(self.folder), ["there.gif"])

    def test_what_it_trains_is_the_example(self):
        self.troupe("demo", "--seconds", "1")
        shown = [json.loads(self.troupe("config", "show", name, "--json").stdout) for name in (self.path("runs", "demo", "config.yaml"), self.example("simple_spread_mappo.yaml"))]
        for config in shown:
            for key in ("stop", "evaluation", "experiment", "seed"):
                config.pop(key, None)
            config["env"].pop("args")
        self.assertEqual(*shown)


if __name__ == "__main__":
    harness.main()
