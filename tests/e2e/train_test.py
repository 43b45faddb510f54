"""`troupe train` as a supervisor: kills are survived, signals end it in order, nothing stays behind; and what status tells of a run."""

import json
import os
import re
import signal
import time

import harness

CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 2
num_envs_per_worker: 8
algorithm: {train_batch_size: 400, minibatch_size: 300, num_epochs: 1}
stop: {env_steps: 100000000}
experiment: {write_interval: 400, checkpoint_interval: 4000}
evaluation: {at_end: false}
"""


class TrainTest(harness.RunningTestCase):
    def start_run(self, *arguments):
        process = super().start_run(CONFIG, *arguments)
        self.await_env_steps(4000, process)
        return process

    def test_killed_workers_are_replaced_and_the_rows_add_up(self):
        process = self.start_run()
        for _ in range(3):
            victims = self.workers(process)
            self.assertEqual(len(victims), 2)
            os.kill(victims[0], signal.SIGKILL)
            self.await_true(lambda: victims[0] not in self.workers(process) and len(self.workers(process)) == 2, "a successor")
            self.await_env_steps(self.env_steps() + 4000, process)
        status = self.status("run")
        self.assertTrue(status["running"])
        self.assertEqual(status["run_name"], "run")
        self.assertGreaterEqual(status["env_steps"], 4000)
        self.assertEqual(len(status["policies"]), 1)
        self.assert_adds_up(status, 400)
        self.assertIn("env steps", self.troupe("status", "runs/run").stdout)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())
        self.assert_adds_up(self.summary("run"), 400)
        stopped = self.status("run")
        self.assertFalse(stopped["running"])
        self.assertEqual(stopped["env_steps"], self.summary("run")["env_steps"])

    def test_a_signal_drains_and_the_run_can_go_on(self):
        process = self.start_run()
        children = [self.learner(process), *self.workers(process)]
        sockets = [command[command.index("--learner") + 1] for pid, (_, command) in harness.processes().items() if pid in children[1:]]
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=20), 130, self.log_text())
        self.assertLess(time.monotonic() - begin, 20)
        self.assert_all_gone(children)
        self.assertFalse(os.path.exists(os.path.dirname(sockets[0][len("unix:"):])), "the socket's folder stays behind")
        self.assertTrue(self.log_text().endswith(
            f"results in runs/run\n  evaluate  {self.program} evaluate runs/run\n"
            f"  video     {self.program} evaluate runs/run --video run.gif\n  curves    tensorboard --logdir runs/run\n"
            f"  query     {self.program} query runs/run\n  resume    {self.program} train --resume runs/run\n"), self.log_text())
        ended_at = self.summary("run")["env_steps"]
        latest = json.loads(self.troupe("checkpoint", "ls", "run", "--json").stdout.splitlines()[-1])[-1]
        self.assertEqual((latest["env_steps"], latest["latest"]), (ended_at, True))
        done = self.troupe("train", "--resume", "run", "--workers", "1", "--set", f"stop.env_steps={ended_at + 2000}", "--json")
        summary = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(summary["env_steps"], ended_at + 2000)
        self.assert_adds_up(summary, 400)
        # For people as well the rate is that of the steps and the seconds beside it.
        said = re.search(r"^run after (\d+) env steps, \d+ updates, ([\d.]+) s \((\d+) env steps/s\): ", done.stdout, re.MULTILINE)
        env_steps, seconds, rate = (float(word) for word in said.groups())
        self.assertEqual(env_steps, ended_at + 2000)
        self.assertGreaterEqual(rate + 1, env_steps / (seconds + 0.05), said[0])
        if seconds > 0.05:  # else it was too fast for a tenth of a second
            self.assertLessEqual(rate - 1, env_steps / (seconds - 0.05), said[0])

    def test_a_killed_learner_ends_the_run_and_resume_goes_on(self):
        process = self.start_run()
        workers = self.workers(process)
        os.kill(self.learner(process), signal.SIGKILL)
        self.assertEqual(process.wait(timeout=30), 128 + signal.SIGKILL)
        self.assertIn("the learner was killed by signal 9 (Killed)", self.log_text())
        self.assertIn(f"; the run can go on with {self.program} train --resume runs/run\n", self.log_text())
        self.assertNotIn("results in", self.log_text())
        self.assertNotIn(" evaluate ", self.log_text())
        self.assertIn("the learner is away: nobody takes what is left", self.log_text(), "workers waited for the learner")
        self.assertNotIn("were not acknowledged within", self.log_text())
        self.assert_all_gone(workers)
        self.assertFalse(self.status("run")["running"])
        self.troupe("train", "--resume", "runs/run", "--set", "stop.updates=3")
        self.assert_adds_up(self.summary("run"), 400)

    def test_a_killed_parent_leaves_no_orphan(self):
        process = self.start_run()
        children = [self.learner(process), *self.workers(process)]
        self.assertEqual(len(children), 3)
        process.kill()
        process.wait()
        self.assert_all_gone(children)

    def test_quit_leaves_nobody_behind(self):
        process = self.start_run()
        children = [self.learner(process), *self.workers(process)]
        process.send_signal(signal.SIGQUIT)
        self.assertEqual(process.wait(timeout=30), 128 + signal.SIGQUIT)
        self.assertEqual([pid for pid in children if pid in harness.processes()], [], "a child outlives its parent")

    def test_a_second_interrupt_ends_everything_at_once(self):
        process = self.start_run()
        children = [self.learner(process), *self.workers(process)]
        os.kill(children[0], signal.SIGSTOP)  # it cannot end in order
        process.send_signal(signal.SIGINT)
        self.await_true(lambda: "stopping: the learner ends the run in order" in self.log_text(), "the first signal")
        process.send_signal(signal.SIGTERM)  # no copy of the first one
        self.assertEqual(process.wait(timeout=30), 143)
        self.assertEqual([pid for pid in children if pid in harness.processes()], [])

    def test_a_signal_that_comes_twice_at_once_counts_once(self):
        """GNU timeout sends one to the process and one to its process group."""
        process = self.start_run("--workers", "0")
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.002)  # or the two are one for the kernel, too
        self.assertEqual(process.wait(timeout=30), 0, self.log_text())
        env_steps = self.summary("run")["env_steps"]
        self.assertTrue(os.path.exists(self.path("runs", "run", "checkpoints", str(env_steps), "manifest.json")))
        learner = self.start_program("learner", "--resume", "run", "--workers", "0")
        self.await_env_steps(env_steps + 1, learner)
        for _ in range(2):
            learner.send_signal(signal.SIGTERM)
            time.sleep(0.002)
        self.assertEqual(learner.wait(timeout=30), 0, self.log_text())
        self.assertGreater(self.summary("run")["env_steps"], env_steps)

    def test_an_interrupt_of_one_program_is_130(self):
        """Of a worker, a learner and a server, each of which ends in order."""
        config = self.write("run.yaml", CONFIG)
        address = "unix:" + self.path("learner.sock")
        learner = self.start_program("learner", config, "--name", "run", "--workers", "1", "--listen", address)
        self.await_true(lambda: os.path.exists(self.path("learner.sock")), "the learner's socket")
        worker = self.start_program("worker", "--learner", address)
        self.await_env_steps(400, learner)
        worker.send_signal(signal.SIGINT)
        self.assertEqual(worker.wait(timeout=30), 130, self.log_text())
        learner.send_signal(signal.SIGINT)
        self.assertEqual(learner.wait(timeout=30), 130, self.log_text())
        self.assertIn("results in", self.log_text())
        server = self.start_program("serve", "run", "--listen", "unix:" + self.path("serve.sock"))
        self.await_true(lambda: os.path.exists(self.path("serve.sock")), "the server's socket")
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(timeout=30), 130, self.log_text())

    def test_no_worker_process_when_the_learner_samples(self):
        process = self.start_run("--workers", "0")
        self.assertEqual(self.workers(process), [])
        self.assertTrue(self.status("run")["running"])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())


if __name__ == "__main__":
    harness.main()
