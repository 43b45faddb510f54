"""A run whose files cannot grow for a while: it trains on, says so, and nothing but what it says is missing afterwards.

The full disk is a limit on the size of files, set from outside while the learner runs: writes end in their middle, as on
a full disk. With a file system of its own (needs root; not part of a landing):

    TROUPE_FAULT_DISK=1 python3 -B tests/fault/full_disk_test.py build/release/services/cli/troupe .
"""

import glob
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness

CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 2
num_envs_per_worker: 8
algorithm: {train_batch_size: 400, minibatch_size: 400, num_epochs: 1}
stop: {env_steps: 100000000}
experiment: {write_interval: 2000, checkpoint_interval: 20000}
evaluation: {at_end: false}
"""


def limit_files(pid, size):
    """Lets no file of the process grow beyond `size`; None: as before."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


class FullDiskTest(harness.RunningTestCase):
    def degraded(self):
        return self.status("run")["degraded"]

    def is_degraded(self, part):
        return any(words.startswith(part) for words in self.degraded())

    def size(self, *parts):
        return os.path.getsize(self.path("runs", "run", *parts))

    def events(self):
        return glob.glob(self.path("runs", "run", "events.out.tfevents.*"))[0]

    def assert_lines_whole_and_without_a_gap(self):
        with open(self.path("runs", "run", "progress.jsonl")) as file:
            text = file.read()
        self.assertTrue(text.endswith("\n"))
        steps = [json.loads(line)["env_steps"] for line in text.splitlines()]
        self.assertEqual([step // 2000 for step in steps[:-1]], list(range(1, len(steps))), "a line is missing")
        return len(steps)

    def assert_records_whole(self):
        with open(self.events(), "rb") as file:
            data = file.read()
        at, records = 0, 0
        while at < len(data):
            at += struct.unpack_from("<Q", data, at)[0] + 16
            records += 1
        self.assertEqual(at, len(data), "a record is cut")
        return records

    def check_outage(self, process, begin, end):
        """Between `begin()` and `end()` nothing can be written."""
        self.assertEqual(self.degraded(), [])
        begin()
        for part in ("progress.jsonl", "TensorBoard", "checkpoints"):
            self.await_true(lambda: self.is_degraded(part), f"{part} in degraded")
        for words in self.degraded():
            self.assertNotIn("/", words, "a path")
        self.assertIn("progress.jsonl cannot be written", self.troupe("status", "run").stdout)
        lines = self.status("run")["updates"]
        self.await_true(lambda: self.status("run")["updates"] > lines + 20, "updates while nothing can be written")
        end()
        self.await_true(lambda: self.degraded() == [], "the end of the outage")
        at = self.status("run")["env_steps"]
        self.await_env_steps(at + 4000, process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0, self.log_text())
        self.assertEqual(self.summary("run")["degraded"], [])
        self.assert_nothing_left()
        print(f"{self.assert_lines_whole_and_without_a_gap()} lines, {self.assert_records_whole()} records, none missing", file=sys.stderr)

    def test_files_that_cannot_grow_for_a_while(self):
        process = self.start_run(CONFIG)
        self.await_env_steps(8000, process)
        learner = self.learner(process)
        # Less than any checkpoint, and in the middle of the next line.
        self.check_outage(process, lambda: limit_files(learner, self.size("progress.jsonl") + 10), lambda: limit_files(learner, None))

    def test_a_run_that_ends_meanwhile_says_what_is_missing(self):
        process = self.start_run(CONFIG)
        self.await_env_steps(8000, process)
        limit_files(self.learner(process), self.size("progress.jsonl") + 10)
        self.await_true(lambda: self.is_degraded("progress.jsonl"), "degraded")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 1, self.log_text())
        self.assertIn("DEGRADED: progress.jsonl cannot be written: File too large", self.log_text())
        self.assertIn("the last checkpoint was not written", self.log_text())
        self.assert_nothing_left()

    def test_a_run_folder_that_is_deleted(self):
        process = self.start_run(CONFIG)
        self.await_env_steps(8000, process)
        subprocess.run(["rm", "-rf", self.path("runs", "run")], check=True)
        self.await_true(lambda: "the run folder is gone" in self.log_text(), "words")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 1, self.log_text())
        self.assertIn("troupe-learner: error: the last checkpoint was not written: the run folder is gone", self.log_text())
        self.assertNotIn("taken over", self.log_text())
        self.assertFalse(os.path.exists(self.path("runs", "run")), "what was deleted was made anew")
        self.assert_nothing_left()

    @harness.by_command(os.environ.get("TROUPE_FAULT_DISK"))
    def test_a_small_disk_that_is_full_for_a_while(self):
        """TROUPE_FAULT_DISK=1, as root."""
        os.mkdir(self.path("runs"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", self.path("runs")], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.path("runs")], check=True)
        process = self.start_run(CONFIG)
        self.await_env_steps(8000, process)
        filler = self.path("runs", "filler")

        over = threading.Event()

        def fill():
            """Takes all room, also that which a checkpoint that was given up leaves."""
            with open(filler, "wb", buffering=0) as file:
                while not over.is_set():
                    try:
                        file.write(b"x" * 4096)
                    except OSError:
                        time.sleep(0.01)
        filling = threading.Thread(target=fill)

        def empty():
            over.set()
            filling.join()
            os.remove(filler)
        self.addCleanup(over.set)
        self.check_outage(process, filling.start, empty)


if __name__ == "__main__":
    harness.main()
