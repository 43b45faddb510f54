"""What goes wrong in Python environments is counted where people look: progress.jsonl, summed over workers."""

import os

import harness

RUN = """
env:
  name: python:host_test_envs:Faulty
  args: {{faults: {fault}, at_step: {at_step}, length: 1000}}
  python: {{interpreter: "{python}", path: "{path}", processes: 1}}
  max_failed_share: 1.0
algorithm: {{name: ppo, train_batch_size: {batch}, minibatch_size: 40, num_epochs: 1}}
model: {{actor_hidden_sizes: [8], critic_hidden_sizes: [8]}}
num_workers: {workers}
num_envs_per_worker: 1
seed: 5
stop: {{env_steps: {env_steps}}}
experiment: {{write_interval: 1, checkpoint_interval: 0}}
evaluation: {{at_end: false}}
"""
KEYS = ("env_errors", "env_exceptions", "env_bad_outputs", "env_timeouts", "env_process_deaths", "env_process_restarts")


class EnvErrorsTest(harness.TroupeTestCase):
    def counters(self, **settings):
        """By key, as they were on the lines of progress.jsonl."""
        config = self.write("run.yaml", RUN.format(python=os.environ["TROUPE_TEST_PYTHON"],
                                                   path=os.path.join(self.source, "lib", "envhost", "testing"), **settings))
        self.troupe("train", config, "--name", "run")
        lines = self.progress("run")
        self.assertEqual(lines[-1]["env_steps"], settings["env_steps"])
        for before, after in zip(lines, lines[1:]):
            for key in KEYS:
                self.assertLessEqual(before[key], after[key])
        return {key: [line[key] for line in lines] for key in KEYS}

    def test_exceptions_of_two_workers(self):
        counters = self.counters(fault="exception", at_step=10, workers=2, batch=40, env_steps=200)
        # Each environment fails at its tenth step, which is taken again: a worker's share of 20 steps holds 2 failures, the next one 2 more, ...
        self.assertEqual(counters["env_errors"], counters["env_exceptions"])
        self.assertGreaterEqual(counters["env_errors"][0], 4, "a line knows of the failures before its update, of both workers")
        self.assertGreaterEqual(counters["env_errors"][-1], 2 * (100 // 9))
        self.assertEqual(counters["env_process_deaths"][-1], 0)

    def test_processes_that_end_under_a_sampler_in_the_learner(self):
        counters = self.counters(fault="exit", at_step=90, workers=0, batch=40, env_steps=200)
        for key in ("env_errors", "env_process_deaths", "env_process_restarts"):
            self.assertEqual(counters[key], [0, 0, 1, 1, 2], key)
        self.assertEqual(counters["env_exceptions"][-1], 0)


if __name__ == "__main__":
    harness.main()
