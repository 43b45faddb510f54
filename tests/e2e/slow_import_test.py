"""A policy is imported from a disk that does not answer: training goes on meanwhile, and the changes keep their order.

    slow_import_test.py TROUPE SOURCE LIBRARY

LIBRARY: slow_disk.cc as a library to preload.
"""

import json
import os
import signal
import subprocess
import sys

import data_test
import harness


class SlowImportTest(harness.RunningTestCase):
    library = None

    def change(self, *arguments):
        process = subprocess.Popen([self.program, "policy", *arguments, "--json"], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def setUp(self):
        super().setUp()
        config = self.write("mine.yaml", data_test.CONFIG)
        self.troupe("train", config, "--name", "foreign", "--set", "stop.env_steps=64")
        for name, value in {"LD_PRELOAD": self.library, "SLOW_DISK_FILE": self.path("slow"),
                            "SLOW_DISK_PART": "runs/foreign/checkpoints"}.items():
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name)
        self.run_process = self.start(config, "--name", "run")
        del os.environ["LD_PRELOAD"]  # the learner alone
        os.environ["LD_PRELOAD"] = ""
        self.await_env_steps(64, self.run_process)
        self.write("slow", "")

    def slow_import(self):
        """A change that the learner has received: its import waits for the disk. A busy machine may start the program of a later change first."""
        process = self.change("import", "run", "runs/foreign#main", "guest")
        self.await_true(lambda: os.path.exists(self.path("slow.waits")), "the learner's read of the slow disk")
        return process

    def test_training_goes_on_and_changes_keep_their_order(self):
        slow = self.slow_import()
        self.await_env_steps(self.env_steps() + 2000, self.run_process)
        behind = self.change("freeze", "run", "main")
        self.await_env_steps(self.env_steps() + 2000, self.run_process)
        self.assertEqual((slow.poll(), behind.poll()), (None, None), "both wait for the disk")
        os.remove(self.path("slow"))
        self.assertEqual((slow.wait(timeout=30), behind.wait(timeout=30)), (0, 0), self.log_text())
        first, second = (json.loads(process.stdout.read())["revision"] for process in (slow, behind))
        self.assertLess(first, second, "the revisions are in the order of the changes")

    def test_a_disk_that_never_answers_does_not_hold_up_the_end(self):
        slow = self.slow_import()
        self.await_env_steps(self.env_steps() + 2000, self.run_process)
        self.assertIsNone(slow.poll())
        self.run_process.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_process.wait(timeout=20), 0, self.log_text())
        self.assertEqual(slow.wait(timeout=20), 1)


if __name__ == "__main__":
    SlowImportTest.library = sys.argv.pop()
    harness.main()
