"""Whose returns decide: a worker over TCP may report anything, so one of them ends no run and sets no best checkpoint."""

import re

import harness

CONFIG = """
env: {name: cartpole}
algorithm: {name: ippo, train_batch_size: 500, minibatch_size: 250, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
num_envs_per_worker: 5
learner_threads: 1
seed: 1
experiment: {checkpoint_interval: 1000, best_by: sum}
evaluation: {episodes: 5, at_end: false}
stop: {episode_return: 5, env_steps: 8000}
"""
# Two untrained carts have returns of 20 or so each: 100 episodes reach 5 long before the run's last step.
REACHED, NOT_REACHED = "stop.episode_return reached", "stop.env_steps reached: 8000 of 8000"


class StrangersTest(harness.ServingTestCase):
    def run_with(self, name, address, workers, *settings):
        """The summary of a run with workers that come to `address`, and what its learner said."""
        learner = self.start("learner", self.write("run.yaml", CONFIG), "--name", name, "--workers", str(workers), "--listen", address, *settings, name=name)

        def listens():
            self.assertIsNone(learner.poll(), self.log_of(name))
            return re.search(r'learner ready.*listen="([^"]+)"', self.log_of(name))
        self.await_true(listens, "the learner's address")
        for number in range(workers):
            self.start("worker", "--learner", listens()[1], name=f"{name}_worker_{number}")
        self.assertEqual(learner.wait(timeout=120), 0, self.log_of(name))
        return self.summary(name), self.log_of(name)

    def await_true(self, condition, what):
        harness.RunningTestCase.await_true(self, condition, what)

    def log_text(self):
        return ""

    def test_one_worker_over_tcp_decides_nothing(self):
        summary, log = self.run_with("tcp", "127.0.0.1:0", 1)
        self.assertEqual(summary["reason"], NOT_REACHED)
        self.assertIsNone(summary["best_return"])
        self.assertGreater(summary["return_sum"], 5, "people see what it reported")
        warnings = [line for line in log.splitlines() if "set neither" in line]
        self.assertEqual(len(warnings), 1, log)
        self.assertIn("set evaluation.interval", warnings[0])

    def test_an_own_worker_does(self):
        summary, log = self.run_with("own", f"unix:{self.path('own.sock')}", 1)
        self.assertIn(REACHED, summary["reason"])
        self.assertGreater(summary["best_return"], 5)
        self.assertNotIn("set neither", log)

    def test_three_workers_over_tcp_do(self):
        summary, log = self.run_with("three", "127.0.0.1:0", 3)
        self.assertIn(REACHED, summary["reason"])
        self.assertNotIn("set neither", log)

    def test_evaluations_do(self):
        summary, log = self.run_with("evaluated", "127.0.0.1:0", 1, "--set", "evaluation.interval=1000")
        self.assertIn(REACHED, summary["reason"])
        self.assertEqual(summary["env_steps"], 1000, "the first evaluation")
        self.assertNotIn("set neither", log)


if __name__ == "__main__":
    harness.main()
