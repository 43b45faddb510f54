"""A run that ever had a checkpoint never begins at 0 by itself; --start-over begins it anew, once, and deletes nothing."""

import os

import harness

CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 0
num_envs_per_worker: 8
algorithm: {train_batch_size: 200, minibatch_size: 100, num_epochs: 1}
stop: {env_steps: 400}
evaluation: {at_end: false}
experiment: {write_interval: 200}
"""
REFUSED = 78


class StartOverTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        self.config = self.write("good.yaml", CONFIG)

    def train_and_damage(self):
        """A run of 400 env steps, none of whose checkpoints is whole; its progress.jsonl."""
        self.troupe("train", self.config, "--name", "run")
        checkpoints = self.path("runs", "run", "checkpoints")
        for name in os.listdir(checkpoints):
            if name.isdigit():
                os.truncate(os.path.join(checkpoints, name, "manifest.json"), 100)
        return self.hash_of("runs", "run", "progress.jsonl")

    def refused(self, *arguments, saying, code=REFUSED):
        done = self.troupe("train", *arguments, ok=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for words in saying:
            self.assertIn(words, done.stderr)
        self.assertEqual(done.stderr.count("error:"), 1, done.stderr)
        return done

    def test_a_damaged_run_is_refused_each_time(self):
        progress = self.train_and_damage()
        for arguments in [["--resume", "run"], ["--resume", "run"], [self.config, "--name", "run", "--resume-or-start"],
                          [self.config, "--name", "run", "--resume-or-start"]]:
            self.refused(*arguments, "--set", "stop.env_steps=800", saying=["400.corrupt", "--start-over run", "does not begin at 0"])
            self.assertEqual(self.hash_of("runs", "run", "progress.jsonl"), progress)
        # Somebody finds a copy of what was lost: the run goes on.
        self.assertEqual(os.listdir(self.path("runs")), ["run"])

    def test_start_over_works_once(self):
        self.train_and_damage()
        before = sorted(self.hashes_below("runs", "run", "checkpoints").values())
        progress = self.hash_of("runs", "run", "progress.jsonl")
        command = [self.config, "--name", "run", "--start-over", "run"]
        self.refused(self.config, "--name", "run", "--start-over", "ruin", saying=['"ruin"', '"run"'])
        self.refused(*command, "--resume-or-start", saying=["--resume-or-start", "--start-over"], code=2)
        self.refused(*command, "--set", "algorithm.gamma=1.5", saying=["algorithm.gamma"])
        self.assertEqual(os.listdir(self.path("runs")), ["run"])

        done = self.troupe("train", *command)
        self.assertIn("run.before-1", done.stderr)
        self.assertEqual(self.summary("run")["env_steps"], 400)
        self.assertEqual(self.hash_of("runs", "run.before-1", "progress.jsonl"), progress)
        self.assertEqual(sorted(self.hashes_below("runs", "run.before-1", "checkpoints").values()), before)

        begun = self.hashes_below("runs", "run")
        for _ in range(2):
            self.refused(*command, saying=["works once"])
        self.assertEqual(self.hashes_below("runs", "run"), begun)
        self.assertEqual(sorted(os.listdir(self.path("runs"))), ["run", "run.before-1"])
        self.troupe("train", "--resume", "run", "--set", "stop.env_steps=600")
        self.assertEqual(self.summary("run")["env_steps"], 600)

    def test_start_over_with_the_configuration_of_the_run(self):
        self.train_and_damage()
        self.troupe("train", "--resume", "runs/run/", "--start-over", "runs/run")
        self.assertEqual(self.summary("run")["env_steps"], 400)
        self.assertTrue(os.path.exists(self.path("runs", "run.before-1", "checkpoints")))

    def test_what_there_is_not_and_what_lives_is_not_moved(self):
        self.refused(self.config, "--name", "run", "--start-over", "run", saying=["there is no run"])
        process = self.start_run(CONFIG.replace("stop: {env_steps: 400}", "stop: {env_steps: 100000000}"))
        self.refused(self.config, "--name", "run", "--start-over", "run", saying=["in use by another learner"], code=1)
        at = self.env_steps()
        self.await_env_steps(at + 1000, process)
        self.assertEqual(os.listdir(self.path("runs")), ["run"])
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.log_text())


if __name__ == "__main__":
    harness.main()
