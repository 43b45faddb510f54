"""The follower against a W&B client that only writes down what it is told."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from troupe import wandb_follow  # noqa: E402


class FakeSession:
    def __init__(self):
        self.lines = []
        self.metrics = {}
        self.summary = {}
        self.finished = False

    def define_metric(self, name, step_metric=None):
        self.metrics[name] = step_metric

    def log(self, values):
        self.lines.append(values)

    def finish(self):
        self.finished = True


class FakeWandb(types.ModuleType):
    def __init__(self, on_init=lambda: None):
        super().__init__("wandb")
        self.sessions = []
        self.inits = []
        self.Video = lambda path, format: (os.path.basename(path), format)
        self._on_init = on_init

    def init(self, **options):
        self.inits.append(options)
        self.sessions.append(FakeSession())
        self._on_init()
        return self.sessions[-1]


@contextlib.contextmanager
def installed(module):
    """`import wandb` gives `module`; None: fails."""
    before = sys.modules.get("wandb")
    sys.modules["wandb"] = module
    try:
        yield
    finally:
        if before is None:
            del sys.modules["wandb"]
        else:
            sys.modules["wandb"] = before


class WandbFollowTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = os.path.join(folder.name, "spread")
        os.mkdir(self.run_folder)
        self.wandb = FakeWandb()

    def path(self, name):
        return os.path.join(self.run_folder, name)

    def write(self, name, text, mode="w"):
        with open(self.path(name), mode, encoding="utf-8") as file:
            file.write(text)

    def progress(self, *env_steps, mode="a"):
        self.write("progress.jsonl", "".join(json.dumps({"env_steps": n, "return_sum": -n / 100}) + "\n" for n in env_steps), mode)

    def end_run(self, **summary):
        """Writes summary.json, newer than progress.jsonl whatever the file system's clock."""
        self.write("summary.json", json.dumps(summary))
        newest = os.stat(self.path("progress.jsonl")).st_mtime_ns + 1
        os.utime(self.path("summary.json"), ns=(newest, newest))

    def kwargs(self, text):
        """A file that holds the arguments of wandb.init."""
        self.write("kwargs.json", text)
        return self.path("kwargs.json")

    def follower(self, **options):
        follower = wandb_follow.Follower(self.run_folder, self.wandb, options)
        follower.start()
        return follower

    def logged(self, session=-1):
        return [line["env_steps"] for line in self.wandb.sessions[session].lines]

    def test_logs_lines_as_they_come_over_env_steps(self):
        follower = self.follower()
        self.assertFalse(follower.step())  # not even the file is there
        self.progress(4000, 8000)
        self.assertFalse(follower.step())
        self.progress(12000)
        self.assertFalse(follower.step())
        self.assertFalse(follower.step())
        self.assertEqual(self.wandb.sessions[0].lines,
                         [{"env_steps": n, "return_sum": -n / 100} for n in (4000, 8000, 12000)])
        self.assertEqual(self.wandb.sessions[0].metrics, {"env_steps": None, "*": "env_steps"})

    def test_an_evaluation_after_its_line_is_logged_once(self):
        """The evaluation of the last weights, which papers quote, was never in W&B."""
        self.progress(4000, 8000)
        first = self.follower()
        first.step()
        self.write("progress.jsonl", '{"env_steps": 8000, "evaluation_return_sum": -2}\n', "a")
        first.step()
        first.finish()
        self.assertEqual(self.wandb.sessions[0].lines[-1], {"env_steps": 8000, "evaluation_return_sum": -2})
        self.assertEqual(self.logged(0), [4000, 8000, 8000])
        again = self.follower()
        self.progress(12000)
        again.step()
        self.assertEqual(self.logged(1), [12000])
        # The state of an earlier version knows of one line.
        self.write(wandb_follow.STATE_FILE, json.dumps({"id": "x", "env_steps": 8000}))
        self.follower().step()
        self.assertEqual(self.logged(2), [8000, 12000])

    def test_waits_for_the_rest_of_a_line(self):
        follower = self.follower()
        self.write("progress.jsonl", '{"env_steps": 4000, "return')
        follower.step()
        self.assertEqual(self.logged(), [])
        self.write("progress.jsonl", '_sum": -3}\n', "a")
        follower.step()
        self.assertEqual(self.wandb.sessions[0].lines, [{"env_steps": 4000, "return_sum": -3}])

    def test_leaves_out_null_and_lines_that_are_none(self):
        warnings = []
        follower = wandb_follow.Follower(self.run_folder, self.wandb, warn=warnings.append)
        follower.start()
        self.write("progress.jsonl", 'nonsense\n[1]\n{"return_sum": 1}\n{"env_steps": 4000, "return_sum": null}\n')
        follower.step()
        self.assertEqual(self.wandb.sessions[0].lines, [{"env_steps": 4000}])
        self.assertEqual(len(warnings), 3)

    def test_films_are_logged_once_and_only_as_files_of_a_bounded_size(self):
        warnings = []
        follower = wandb_follow.Follower(self.run_folder, self.wandb, warn=warnings.append)
        follower.start()
        follower.step()
        os.mkdir(self.path("videos"))
        self.write("videos/9000.gif", "GIF89a")
        self.write("videos/12000.gif", "GIF89a")
        for other in ("mine.gif", "1.5.gif", ".unfinished", "².gif"):
            self.write(f"videos/{other}", "x")
        follower.step()
        follower.step()
        self.assertEqual(self.wandb.sessions[0].lines, [{"Videos_Test": (f"{n}.gif", "gif"), "env_steps": n} for n in (9000, 12000)])
        os.symlink("/dev/zero", self.path("videos/13000.gif"))
        self.write("videos/14000.gif", "")
        os.truncate(self.path("videos/14000.gif"), wandb_follow.MOST_VIDEO_BYTES + 1)
        follower.step()
        self.assertEqual((len(self.wandb.sessions[0].lines), len(warnings)), (2, 2))
        again = self.follower()
        self.write("videos/15000.gif", "GIF89a")
        again.step()
        self.assertEqual(self.logged(), [15000])

    def test_values_by_name_are_metrics_of_their_own(self):
        """W&B groups them by what stands before the first slash."""
        follower = self.follower()
        line = {"env_steps": 4000, "rewards_differ": True, "policy/hunter/return_mean": -2.5, "policy/hunter/Loss/Value loss": 0.25,
                "policies/rest/return_max": None}
        self.write("progress.jsonl", json.dumps(line) + "\n")
        follower.step()
        self.assertEqual(self.wandb.sessions[0].lines, [{key: value for key, value in line.items() if value is not None}])

    def test_ends_with_the_summary(self):
        follower = self.follower()
        self.progress(4000)
        self.end_run(evaluation_return_sum=-30.5)
        self.assertTrue(follower.step())
        follower.finish()
        self.assertEqual(self.logged(), [4000])
        self.assertEqual(self.wandb.sessions[0].summary, {"evaluation_return_sum": -30.5})
        self.assertTrue(self.wandb.sessions[0].finished)

    def test_summary_of_an_earlier_life_is_not_the_end(self):
        self.progress(4000)
        self.end_run()
        newer = os.stat(self.path("summary.json")).st_mtime_ns + 1
        os.utime(self.path("progress.jsonl"), ns=(newer, newer))
        self.assertFalse(self.follower().step())

    def test_goes_on_in_the_same_wandb_run(self):
        first = self.follower()
        self.progress(4000, 8000)
        first.step()
        first.finish()
        self.progress(12000)
        self.follower().step()
        self.assertEqual(self.logged(0), [4000, 8000])
        self.assertEqual(self.logged(1), [12000])
        self.assertEqual(self.wandb.inits[0]["id"], self.wandb.inits[1]["id"])
        self.assertEqual(self.wandb.inits[1]["resume"], "allow")

    def test_rolled_back_lines_are_not_logged_twice(self):
        for name, mode in (("cut in place", "w"), ("replaced", None)):
            with self.subTest(name):
                self.setUp()
                follower = self.follower()
                self.progress(4000, 8000, 12000)
                follower.step()
                if mode is None:
                    os.rename(self.path("progress.jsonl"), self.path("old"))
                    mode = "w"
                self.progress(4000, mode=mode)
                follower.step()
                self.progress(8000, 12000, 16000)
                follower.step()
                self.assertEqual(self.logged(), [4000, 8000, 12000, 16000])

    def test_options_reach_wandb_init(self):
        with installed(self.wandb):
            arguments, options = wandb_follow.parse_arguments(
                [self.run_folder, "--project", "p", "--kwargs-file", self.kwargs('{"project": "other", "tags": ["a"], "id": "mine"}')])
            self.progress(4000)
            self.end_run()
            wandb_follow.follow(arguments, options, threading.Event())
        self.assertEqual({key: self.wandb.inits[0][key] for key in ("project", "name", "tags")},
                         {"project": "p", "name": "spread", "tags": ["a"]})
        self.assertNotEqual(self.wandb.inits[0]["id"], "mine")

    def test_a_stop_logs_what_is_left_and_finishes(self):
        stop = threading.Event()

        def learner_ends():
            self.progress(4000)
            stop.set()

        self.wandb = FakeWandb(on_init=learner_ends)
        with installed(self.wandb):
            wandb_follow.follow(*wandb_follow.parse_arguments([self.run_folder]), stop)
        self.assertEqual(self.logged(), [4000])
        self.assertTrue(self.wandb.sessions[0].finished)

    def test_one_follower_a_run(self):
        waits = []
        with wandb_follow.lock_run(self.run_folder, waits.append):
            with self.assertRaisesRegex(wandb_follow.FollowError, "another follower"):
                wandb_follow.lock_run(self.run_folder, waits.append)
        self.assertEqual(len(waits), 30)
        wandb_follow.lock_run(self.run_folder, waits.append).close()

    def main_error(self, *argv):
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            try:
                status = wandb_follow.main(list(argv))
            except SystemExit as exit_error:
                status = exit_error.code
        return status, error.getvalue()

    def test_errors_are_one_line_and_a_status(self):
        with installed(None):
            status, text = self.main_error(self.run_folder)
        self.assertEqual((status, text.count("\n")), (1, 1))
        self.assertIn("pip install wandb", text)
        with installed(self.wandb):
            status, text = self.main_error(self.path("missing"))
            self.assertEqual((status, text.count("\n")), (1, 1))
            self.assertIn("no such run folder", text)
            self.write(wandb_follow.STATE_FILE, "{}")
            status, text = self.main_error(self.run_folder)
            self.assertEqual((status, text.count("\n")), (1, 1))
            self.assertIn(wandb_follow.STATE_FILE, text)
        for kwargs in ('{"api_key": "canary"', '["canary"]'):
            status, text = self.main_error(self.run_folder, "--kwargs-file", self.kwargs(kwargs))
            self.assertEqual(status, 2)
            self.assertIn("--kwargs-file", text)
            self.assertNotIn("canary", text)
        status, text = self.main_error(self.run_folder, "--kwargs-file", self.path("missing"))
        self.assertEqual(status, 2)
        self.assertIn("No such file", text)

    def test_arguments_come_through_a_descriptor_that_nobody_inherits(self):
        fd = os.memfd_create("kwargs")
        os.write(fd, b'{"tags": ["a"]}')
        self.assertEqual(wandb_follow.read_kwargs(f"/dev/fd/{fd}"), {"tags": ["a"]})
        self.assertRaises(OSError, os.fstat, fd)

    def test_the_configuration_that_wandb_shows_holds_no_arguments_of_its_own(self):
        yaml = types.ModuleType("yaml")
        yaml.safe_load = json.load
        before = sys.modules.get("yaml")
        sys.modules["yaml"] = yaml
        self.addCleanup(lambda: sys.modules.pop("yaml") if before is None else sys.modules.update(yaml=before))
        self.write("config.yaml", json.dumps({"seed": 1, "experiment": {"wandb": True, "wandb_kwargs": {"api_key": "canary"}}}))
        self.follower()
        self.assertEqual(self.wandb.inits[0]["config"], {"seed": 1, "experiment": {"wandb": True}})

    def test_help_from_the_command_line(self):
        python = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
        result = subprocess.run([sys.executable, "-m", "troupe.wandb_follow", "--help"], cwd=python, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0)
        self.assertIn("example:", result.stdout)


if __name__ == "__main__":
    unittest.main()
