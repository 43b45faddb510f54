"""Lives and ends of `troupe train`: workers killed again and again, runs stopped at any moment, and nothing left behind.

A short form by default. The whole of it, which takes some minutes:

    TROUPE_FAULT_KILLS=31 TROUPE_FAULT_STOPS=40 python3 -B tests/fault/lives_test.py build/release/services/cli/troupe .

Times of the short form are reported and asserted nowhere but by the patience of the waits: other processes may keep the machine busy. The whole
form wants every stop within 2 s, and the workers of a killed learner gone within 1 s.
"""

import json
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness

KILLS = int(os.environ.get("TROUPE_FAULT_KILLS", "0"))
STOPS = int(os.environ.get("TROUPE_FAULT_STOPS", "4"))

CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 1
num_envs_per_worker: 8
algorithm: {train_batch_size: 400, minibatch_size: 400, num_epochs: 1}
stop: {env_steps: 100000000}
experiment: {write_interval: 400, checkpoint_interval: 100000}
evaluation: {at_end: false}
"""

# What has processes of its own below those of the workers.
PYTHON = """
env:
  name: python:host_test_envs:counter
  python: {{interpreter: "{python}", path: "{path}", processes: 2}}
algorithm: {{name: ppo, train_batch_size: 40, minibatch_size: 40, num_epochs: 1}}
model: {{actor_hidden_sizes: [8], critic_hidden_sizes: [8]}}
num_workers: 2
num_envs_per_worker: 2
stop: {{env_steps: 100000000}}
experiment: {{write_interval: 40, checkpoint_interval: 0}}
evaluation: {{at_end: false}}
"""


class LivesTest(harness.RunningTestCase):
    def delivered(self, process):
        """The process ids of the workers of whom the learner has accepted rows."""
        alive = self.workers(process)
        accepted = {int(worker["name"].rsplit(":", 1)[1]) for worker in self.status("run")["workers"] if worker["accepted_rows"] > 0}
        return [pid for pid in alive if pid in accepted]

    def test_a_learner_that_is_killed_after_22_s_loses_12_of_them(self):
        """By default the first checkpoint comes after 10 s of training; the next one, by time, would come 60 s later."""
        config = CONFIG.replace(", checkpoint_interval: 100000", "").replace("100000000", "100000000000")
        process = self.start_run(config)
        self.await_true(lambda: self.lines()[-1]["wall_clock_s"] >= 22, "22 s of training", seconds=90)
        os.kill(self.learner(process), signal.SIGKILL)
        self.assertEqual(process.wait(timeout=60), 137, self.log_text())
        lines = self.lines()
        saved = int(os.readlink(self.path("runs", "run", "checkpoints", "latest")))
        longest = max(after["wall_clock_s"] - before["wall_clock_s"] for before, after in zip(lines, lines[1:]))
        (at,) = [line["wall_clock_s"] for line in lines if line["env_steps"] == saved]
        self.assertLess(at, 10 + 2 * longest, "after the update that ends behind 10 s")
        self.troupe("train", "--resume", "run", "--set", f"stop.env_steps={saved + 800}")
        self.assertEqual([line["env_steps"] for line in self.lines() if line["env_steps"] > saved], [saved + 400, saved + 800])

    def lines(self):
        with open(self.path("runs", "run", "progress.jsonl")) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def test_sixteen_fruitful_lives_in_a_row(self):
        """One more than the barren ones that would be the last."""
        process = self.start_run(CONFIG)
        for _ in range(16):
            self.await_true(lambda: self.delivered(process), "a worker that delivers")
            for pid in self.delivered(process):
                os.kill(pid, signal.SIGKILL)
        at = self.env_steps()
        self.await_env_steps(at + 4000, process)
        self.assertEqual(self.log_text().count("was killed by signal 9"), 16, self.log_text())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0, self.log_text())
        self.assert_adds_up(self.summary("run"), 400)
        self.assert_nothing_left()

    @harness.by_command(KILLS > 0)
    def test_all_workers_killed_every_few_seconds(self):
        """TROUPE_FAULT_KILLS=31: so many."""
        process = self.start(self.example("simple_spread_mappo.yaml"), "--name", "run", "--workers", "2", "--set",
                             "stop.env_steps=100000000", "--set", "experiment.write_interval=4000")
        self.await_env_steps(1, process)
        begin, kills = time.monotonic(), 0
        while kills < KILLS:
            time.sleep(random.uniform(2, 3))
            for pid in self.workers(process):
                os.kill(pid, signal.SIGKILL)
                kills += 1
            self.assertIsNone(process.poll(), self.log_text())
        seconds, at = time.monotonic() - begin, self.env_steps()
        self.await_env_steps(at + 20000, process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0, self.log_text())
        self.assert_adds_up(self.summary("run"), 4000)
        self.assert_nothing_left()
        print(f"{kills} kills in {seconds:.0f} s, {at} env steps", file=sys.stderr)

    def test_no_process_of_an_environment_outlives_its_run(self):
        """However that ends; those of a killed worker notice by themselves, so that is waited for."""
        ends = {"SIGTERM": 0, "SIGINT": 130, "SIGQUIT": 131, "SIGKILL": -9, "learner": 137}
        config = PYTHON.format(python=os.environ["TROUPE_TEST_PYTHON"], path=os.path.join(self.source, "lib", "envhost", "testing"))
        for end, code in ends.items():
            with self.subTest(end):
                process = self.start_run(config)
                self.await_true(lambda: len(self.left_over()) >= 8, "four processes of environments")
                if end == "learner":
                    os.kill(self.learner(process), signal.SIGKILL)
                else:
                    process.send_signal(getattr(signal, end))
                self.assertEqual(process.wait(timeout=60), code, self.log_text())
                self.await_true(lambda: self.left_over() == {}, f"the end of {self.left_over()}", seconds=20)
                os.rename(self.path("runs", "run"), self.path("runs", end))

    def test_stops_of_the_main_job(self):
        """At any moment by SIGTERM, and by itself: the exit code, the last checkpoint, and that nobody stays behind."""
        seed = random.randrange(1 << 30)
        draw = random.Random(seed)
        times = []
        for i in range(STOPS):
            self.config = self.example("simple_spread_mappo.yaml")
            by_itself = i % 4 == 3
            times.append(self.end_by_itself(i, draw) if by_itself else self.stop(i, draw))
            self.assert_nothing_left()
        times.sort()
        over = sum(t > 2 for t in times)
        if STOPS >= 40:  # by command, on a machine that nobody else keeps busy
            self.assertEqual(over, 0, times)
        print(f"seed {seed}: {len(times)} stops, median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s, {over} over 2 s",
              file=sys.stderr)

    @harness.by_command(STOPS >= 40)
    def test_workers_of_a_killed_learner_leave_within_a_second(self):
        """Ten times, in the middle of the main job."""
        times = []
        for i in range(10):
            process = self.start(self.example("simple_spread_mappo.yaml"), "--name", f"killed{i}", "--workers", "2", "--set",
                                 "stop.env_steps=100000000", "--set", "experiment.write_interval=4000")
            progress = self.path("runs", f"killed{i}", "progress.jsonl")
            self.await_true(lambda path=progress: os.path.exists(path) and os.path.getsize(path) > 0, "progress")
            workers = self.workers(process)
            begin = time.monotonic()
            os.kill(self.learner(process), signal.SIGKILL)
            self.await_true(lambda pids=workers: not any(pid in harness.processes() for pid in pids), "the end of the workers")
            times.append(time.monotonic() - begin)
            self.assertEqual(process.wait(timeout=60), 128 + signal.SIGKILL, self.log_text())
            self.assert_nothing_left()
        print(f"workers of a killed learner left after {min(times):.2f} to {max(times):.2f} s", file=sys.stderr)
        self.assertLessEqual(max(times), 1, times)

    def stop(self, i, draw):
        process = self.start(self.config, "--name", f"stop{i}", "--workers", "2", "--set", "stop.env_steps=100000000",
                             "--set", "experiment.write_interval=4000")
        progress = self.path("runs", f"stop{i}", "progress.jsonl")
        self.await_true(lambda: os.path.exists(progress) and os.path.getsize(progress) > 0, "progress")
        time.sleep(draw.uniform(0, 1))
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0, self.log_text())
        ended = time.monotonic() - begin
        checkpoints = self.path("runs", f"stop{i}", "checkpoints")
        self.assertEqual(os.readlink(os.path.join(checkpoints, "latest")), str(self.summary(f"stop{i}")["env_steps"]))
        return ended

    def end_by_itself(self, i, draw):
        """From the moment the last checkpoint is there."""
        steps = draw.randrange(4000, 60000)
        process = self.start(self.config, "--name", f"end{i}", "--workers", "2", "--set", f"stop.env_steps={steps}", "--set",
                             "evaluation.at_end=false")
        self.assertEqual(process.wait(timeout=60), 0, self.log_text())
        now = time.time()
        latest = os.lstat(self.path("runs", f"end{i}", "checkpoints", "latest"))
        return now - latest.st_mtime


if __name__ == "__main__":
    harness.main()
