"""What the end-to-end tests share: the program under test, a folder of their own, and small looks into run folders."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest


# ctest says how many times longer than usual tests may take (cmake/TroupeTargets.cmake). Every wait for a process is so much longer, and so is
# every wait of `await_true`.
SLOWDOWN = float(os.environ.get("TROUPE_TEST_SLOWDOWN", 1))


# The head of an environment in Python that needs no package but NumPy: spaces, and the class that makes a dict by agent RLlib's form.
MULTI_AGENT = '''
import numpy as np


class Box:
    def __init__(self, low, high, shape):
        self.low, self.high = np.full(shape, low, np.float32), np.full(shape, high, np.float32)
        self.shape, self.dtype = shape, np.dtype(np.float32)


class Discrete:
    def __init__(self, n):
        self.n, self.start = n, 0


class MultiAgentEnv:
    pass
'''


class PatientPopen(subprocess.Popen):
    """What subprocess.run and the tests start."""

    def wait(self, timeout=None):
        return super().wait(timeout and timeout * SLOWDOWN)

    def communicate(self, input=None, timeout=None):
        return super().communicate(input, timeout and timeout * SLOWDOWN)


subprocess.Popen = PatientPopen


class TroupeTestCase(unittest.TestCase):
    """A test with a folder of its own in which `troupe` runs. `main` sets program and source from the command line."""

    program = None
    source = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="troupe_e2e_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def troupe(self, *arguments, ok=True, timeout=120, **how):
        """Runs `troupe ARGUMENTS` to its end; with `ok` it must succeed."""
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, **{"cwd": self.folder, **how})
        if ok:
            self.assertEqual(done.returncode, 0, f"troupe {' '.join(arguments)}\n{done.stdout}\n{done.stderr}")
        return done

    def example(self, name):
        return os.path.join(self.source, "examples", name)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def hash_of(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def hashes_below(self, *parts):
        """Every file below a folder with its content's hash, links with their targets."""
        found = {}
        for directory, folders, files in os.walk(self.path(*parts)):
            for name in folders + files:
                path = os.path.join(directory, name)
                if os.path.islink(path):
                    found[path] = os.readlink(path)
                elif os.path.isfile(path):
                    found[path] = self.hash_of(path)
        return found

    def tensors(self, *parts):
        """(name, bytes) of everything in a checkpoint's policies.safetensors."""
        with open(self.path(*parts, "policies.safetensors"), "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header, data = json.loads(file.read(size)), file.read()
        return [(name, data[slice(*entry["data_offsets"])]) for name, entry in header.items() if name != "__metadata__"]

    def progress(self, run):
        with open(self.path("runs", run, "progress.jsonl")) as file:
            return [json.loads(line) for line in file]

    def summary(self, run):
        with open(self.path("runs", run, "summary.json")) as file:
            return json.load(file)

    def assert_adds_up(self, counts, batch=None):
        """Of a summary or a status. The counters of rows are moved in pairs, so that their sums hold whatever is lost: what would tell is that
        each update had its `batch` env steps (None: batches of other sizes, or agents that are masked), its rows were counted once as agent
        steps, and the queue is empty where the run has reached what it was to train: sampling ends with the last batch then. Where it ends
        otherwise, what arrives after the last update stays: a batch at most."""
        rows = counts["rows"]
        self.assertEqual(rows["received"], rows["accepted"] + rows["duplicate"] + rows["stale"] + rows["invalid"], rows)
        self.assertEqual(rows["accepted"], rows["trained"] + rows["queued"] + rows["dropped"] + rows["rolled_back"], rows)
        self.assertGreater(counts["updates"], 0, counts)
        if batch is not None:
            self.assertEqual(counts["env_steps"], counts["updates"] * batch, counts)
            self.assertEqual(rows["trained"], counts["agent_steps"], counts)
        if re.match(r"stop\.(env_steps|agent_steps|updates) reached", counts.get("reason", "")):
            self.assertEqual(rows["queued"], 0, counts)
        elif "reason" in counts and batch is not None:
            # Batches of as many env steps have about as many rows, not the same where agents come and go.
            self.assertLessEqual(rows["queued"] * counts["updates"], 2 * rows["trained"], counts)
        if "reason" in counts:  # of a summary both are of the whole run
            self.assertAlmostEqual(counts["env_steps_per_s"] * counts["wall_clock_s"] / counts["env_steps"], 1, 6, counts)


def processes():
    """pid -> (parent's pid, command line) of everything that runs."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            with open(f"/proc/{name}/cmdline") as file:
                command = file.read().split("\0")
        except OSError:
            continue  # it ended meanwhile
        if fields[0] != "Z":
            found[int(name)] = (int(fields[1]), command)
    return found


# In the environment of all that a test starts.
MARK = "TROUPE_E2E_FOLDER"

# Spaces of a module with an environment in Python that needs numpy alone.
SPACES = """
import numpy as np

class Box:
    low, high, shape, dtype = np.zeros(2, np.float32), np.ones(2, np.float32), (2,), np.dtype(np.float32)

class Discrete:
    n, start = 2, 0

"""


class ServingTestCase(TroupeTestCase):
    """With programs that serve beside the test, each with a log of its own."""

    def start(self, *arguments, name=None):
        """`troupe ARGUMENTS`, killed at the end of the test."""
        log = open(self.path(f"{name or arguments[0]}.log"), "w+")
        self.addCleanup(log.close)
        process = subprocess.Popen([self.program, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def log_of(self, name):
        """What it said, by its name or command."""
        with open(self.path(f"{name}.log")) as log:
            return log.read()

    def stop(self, process):
        """In order."""
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=30), 0)


class RunningTestCase(TroupeTestCase):
    """A test of `troupe train` while it runs: its processes, how far it is, and its end."""

    def start(self, *arguments):
        """`troupe train ARGUMENTS`, killed at the end of the test."""
        return self.start_program("train", *arguments)

    def start_program(self, *arguments, **how):
        """`troupe ARGUMENTS`, killed at the end of the test; what it says is added to the log."""
        with open(self.path("log"), "a") as log:
            process = subprocess.Popen([self.program, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT, env=dict(os.environ, **{MARK: self.folder}), **how)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_run(self, config, *arguments):
        """A run named `run`, once it has trained for a while."""
        process = self.start(self.write("run.yaml", config), "--name", "run", *arguments)
        self.await_env_steps(1, process)
        return process

    def await_true(self, condition, what, seconds=60):
        deadline = time.monotonic() + seconds * SLOWDOWN
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited in vain for {what}\n{self.log_text()}")
            time.sleep(0.02)

    def await_env_steps(self, env_steps, process):
        def there():
            self.assertIsNone(process.poll(), self.log_text())
            path = self.path("runs", "run", "progress.jsonl")
            return os.path.exists(path) and self.env_steps() >= env_steps
        self.await_true(there, f"{env_steps} env steps")

    def env_steps(self):
        with open(self.path("runs", "run", "progress.jsonl")) as file:
            text = file.read()
        # The learner may be about to write a line: line by line, the rest of it would look like one.
        lines = text[:text.rfind("\n") + 1].splitlines()
        return json.loads(lines[-1])["env_steps"] if lines else 0

    def log_text(self):
        with open(self.path("log")) as file:
            return file.read()

    def children(self, process, which):
        return [pid for pid, (parent, command) in processes().items() if parent == process.pid and which in command[:2]]

    def workers(self, process):
        return self.children(process, "worker")

    def learner(self, process):
        found = [pid for pid, (parent, command) in processes().items() if parent == process.pid and command[0].endswith("troupe-learner")]
        self.assertEqual(len(found), 1)
        return found[0]

    def assert_all_gone(self, pids):
        self.await_true(lambda: not any(pid in processes() for pid in pids), "the end of every child")

    def left_over(self):
        """pid -> command of what runs on of all that this test started, whoever its parent is now: by its environment."""
        mark = f"{MARK}={self.folder}".encode()
        found = {}
        for pid, (_, command) in processes().items():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found[pid] = command
            except OSError:
                continue  # it ended meanwhile, or is somebody else's
        return found

    def assert_nothing_left(self):
        """To be called right after the end of a run."""
        self.assertEqual(self.left_over(), {})

    def status(self, target):
        return json.loads(self.troupe("status", target, "--json").stdout.splitlines()[-1])


def by_command(wanted):
    """For a test that only runs where its variable is set. Elsewhere there is none: what is not asked for is not skipped."""
    return lambda test: test if wanted else None


def main():
    TroupeTestCase.program, TroupeTestCase.source = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
