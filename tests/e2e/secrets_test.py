"""What experiment.wandb_kwargs holds is seen by its follower alone: no message, log, status, error, metric, checkpoint or
command line has it. And the follower does get it.
"""

import json
import os
import socket
import stat
import subprocess
import threading
import time

import harness

CANARY = "canary-4cf17a90"

CONFIG = f"""
env: {{name: mpe/simple_spread, args: {{max_cycles: 5}}}}
algorithm: {{train_batch_size: 400, minibatch_size: 200, num_epochs: 1}}
num_workers: 1
num_envs_per_worker: 4
evaluation: {{episodes: 4}}
stop: {{env_steps: 1000000000}}
experiment:
  write_interval: 400
  checkpoint_interval: 4000
  wandb: true
  wandb_kwargs: {{project: mine, settings: {{api_key: {CANARY}}}}}
"""

# Notes what it is told, as a client of W&B would send it.
FAKE_WANDB = """
import json, os

class Session:
    summary = {}

    def define_metric(self, *args, **kwargs):
        pass

    def log(self, values):
        pass

    def finish(self):
        pass

def init(**options):
    with open(os.environ["FAKE_WANDB_NOTES"], "a") as file:
        file.write(json.dumps(options) + "\\n")
    return Session()
"""


class Recorder:
    """Hands connections on to a Unix socket and keeps every byte that passes, in both directions."""

    def __init__(self, path, target):
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(16)
        self.seen = []
        self._ends = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._listener.close()
        for end in self._ends:
            end.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            self._ends += [client, server]
            server.connect(self._target)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._hand_on, args=(source, sink), daemon=True).start()

    def _hand_on(self, source, sink):
        passed = bytearray()
        self.seen.append(passed)
        try:
            while data := source.recv(1 << 16):
                passed += data
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class SecretsTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("fake"))
        self.write("fake/wandb.py", FAKE_WANDB)
        for name, value in (("PYTHONPATH", self.path("fake")), ("FAKE_WANDB_NOTES", self.path("notes"))):
            before = os.environ.get(name)
            os.environ[name] = value
            self.addCleanup(lambda name=name, before=before: os.environ.pop(name) if before is None else os.environ.update({name: before}))

    def notes(self):
        if not os.path.exists(self.path("notes")):
            return []
        with open(self.path("notes")) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def assert_no_command_line_holds_it(self):
        for pid, (_, command) in harness.processes().items():
            self.assertFalse(any(CANARY in word for word in command), f"command line of {pid}: {command}")

    def assert_no_file_holds_it_but(self, allowed):
        holders = set()
        for directory, _, names in os.walk(self.path("runs")):
            for name in names:
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    if CANARY.encode() in file.read():
                        holders.add(os.path.relpath(path, self.folder))
        self.assertEqual(holders, allowed)

    def train_until_followed(self, count, *arguments):
        process = self.start(*arguments)
        seen = [0]

        def followed():
            self.assert_no_command_line_holds_it()
            seen[0] += 1
            self.assertIsNone(process.poll(), self.log_text())
            return len(self.notes()) >= count
        self.await_true(followed, "the follower")
        self.await_env_steps(1, process)
        return process

    def end(self, process):
        process.terminate()
        self.await_true(lambda: process.poll() is not None, "the end")
        self.assertEqual(process.returncode, 0, self.log_text())
        self.assertNotIn(CANARY, self.log_text())

    def test_a_run_on_this_machine(self):
        process = self.train_until_followed(1, self.write("run.yaml", CONFIG), "--name", "run", "--log-level", "debug")
        # Not vacuous: it did arrive.
        self.assertEqual(self.notes()[0]["settings"], {"api_key": CANARY})
        self.assertEqual(self.notes()[0]["project"], "mine")
        self.await_true(lambda: os.path.lexists(self.path("runs", "run", "checkpoints", "latest")), "a checkpoint")
        self.assertNotIn(CANARY, json.dumps(self.status("runs/run")))
        for command in (("policy", "ls", "run"), ("mapping", "show", "run"), ("checkpoint", "ls", "runs/run")):
            done = self.troupe(*command)
            self.assertNotIn(CANARY, done.stdout + done.stderr)
        self.assert_no_command_line_holds_it()
        self.end(process)
        run = self.path("runs", "run")
        configs = [os.path.join(run, "config.yaml")]
        configs += [os.path.join(run, "checkpoints", name, "config.yaml") for name in os.listdir(os.path.join(run, "checkpoints"))]
        self.assertGreater(len(configs), 1)
        for path in configs:
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600, path)
        self.assert_no_file_holds_it_but({"runs/run/config.yaml"})
        # A resumed run still has a follower that may sign in.
        process = self.train_until_followed(2, "--resume", "run")
        self.assertEqual(self.notes()[1]["settings"], {"api_key": CANARY})
        self.end(process)
        self.assert_no_file_holds_it_but({"runs/run/config.yaml"})

    def test_no_message_holds_it(self):
        self.write("run.yaml", CONFIG)
        logs = [open(self.path(name), "w+") for name in ("learner.log", "worker.log")]
        for log in logs:
            self.addCleanup(log.close)

        def start(log, *arguments):
            process = subprocess.Popen([self.program, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            return process
        start(logs[0], "learner", "run.yaml", "--name", "run", "--listen", "unix:" + self.path("learner.sock"))
        deadline = time.monotonic() + 60
        while not os.path.exists(self.path("learner.sock")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        recorder = Recorder(self.path("between.sock"), self.path("learner.sock"))
        self.addCleanup(recorder.close)
        between = "unix:" + self.path("between.sock")
        start(logs[1], "worker", "--learner", between)
        path = self.path("runs", "run", "progress.jsonl")
        while not (os.path.exists(path) and os.path.getsize(path) > 0):
            self.assertLess(time.monotonic(), deadline, self.texts(logs))
            self.assert_no_command_line_holds_it()
            time.sleep(0.02)
        done = self.troupe("status", "--learner", between, "--json")
        self.assertNotIn(CANARY, done.stdout)
        seen = b"".join(bytes(passed) for passed in recorder.seen)
        self.assertIn(b"mpe/simple_spread", seen)  # Welcome, in plain text
        for word in (CANARY, "wandb", "checkpoint_interval", "interpreter"):
            self.assertNotIn(word.encode(), seen)
        self.assertNotIn(CANARY, self.texts(logs))

    def texts(self, files):
        texts = []
        for file in files:
            with open(file.name) as again:
                texts.append(again.read())
        return "\n".join(texts)

    def test_no_error_holds_it(self):
        self.write("scalar.yaml", f"env: {{name: cartpole}}\nexperiment: {{wandb_kwargs: {CANARY}}}\n")
        self.write("good.yaml", "env: {name: cartpole}\n")
        for arguments in (["scalar.yaml"], ["good.yaml", "--set", f"experiment.wandb_kwargs={CANARY}"],
                          ["good.yaml", "--set", f"experiment={{wandb_kwargs: [{CANARY}]}}"]):
            done = self.troupe("train", *arguments, ok=False)
            self.assertIn(done.returncode, (1, 78))
            self.assertIn("experiment.wandb_kwargs", done.stderr)
            self.assertNotIn(CANARY, done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
