"""A learner removes the checkpoint that a command has just found: the command reads the newer one.

    pruned_checkpoint_test.py TROUPE SOURCE LIBRARY

LIBRARY: slow_disk.cc as a library to preload.
"""

import os
import sys
from unittest import mock

import harness

CONFIG = """
env: {name: cartpole, args: {num_agents: 2}}
num_workers: 0
num_envs_per_worker: 4
algorithm: {name: ippo, train_batch_size: 100, minibatch_size: 100, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
multi_agent: {policies: {main: {}, other: {class: random}}, policy_mapping: {agent_0: main, agent_1: other}}
stop: {env_steps: 200}
evaluation: {episodes: 1, at_end: false}
experiment: {checkpoint_interval: 100, keep_checkpoints: 5}
"""


class PrunedCheckpointTest(harness.RunningTestCase):
    library = None

    def setUp(self):
        super().setUp()
        self.write("run.yaml", CONFIG)
        self.troupe("train", "run.yaml", "--name", "run", "--set", "stop.env_steps=100")
        self.troupe("train", "--resume", "run", "--set", "stop.env_steps=200")
        os.mkdir(self.path("away"))

    def checkpoint(self, name):
        return self.path("runs", "run", "checkpoints", name)

    def point_latest_at(self, name):
        os.symlink(name, self.checkpoint("link"))
        os.replace(self.checkpoint("link"), self.checkpoint("latest"))

    def reads_the_newer(self, *command):
        """`command` has opened the manifest of checkpoint 100, the latest, when checkpoint 200 takes its place."""
        os.rename(self.checkpoint("200"), self.path("away", "200"))
        self.point_latest_at("100")
        self.write("slow", "")
        with mock.patch.dict(os.environ, {"LD_PRELOAD": self.library, "SLOW_DISK_FILE": self.path("slow"),
                                          "SLOW_DISK_PART": "runs/run/checkpoints/100/manifest.json"}):
            process = self.start_program(*command)
        self.await_true(lambda: os.path.exists(self.path("slow.waits")) or process.poll() is not None, "the read of the manifest")
        os.rename(self.path("away", "200"), self.checkpoint("200"))
        self.point_latest_at("200")
        os.rename(self.checkpoint("100"), self.path("away", "100"))
        os.remove(self.path("slow"))
        self.assertEqual(process.wait(60), 0, self.log_text())
        os.rename(self.path("away", "100"), self.checkpoint("100"))
        os.remove(self.path("slow.waits"))

    def test_evaluate_and_watch(self):
        self.reads_the_newer("evaluate", "run")
        self.assertIn("runs/run/checkpoints/200: 1 episodes", self.log_text())
        self.reads_the_newer("watch", "run", "--episodes", "1")
        self.assertIn("weights of 200 env steps", self.log_text())

    def test_warm_start_and_a_policy_of_the_run(self):
        self.reads_the_newer("train", "run.yaml", "--name", "warm", "--warm-start", "runs/run")
        self.reads_the_newer("train", "run.yaml", "--name", "frozen", "--set", 'multi_agent.policies.other.class="checkpoint:runs/run#main"')

    def test_export(self):
        self.reads_the_newer("export", "run", "--policy", "main", "--output", "main.safetensors", "--python", sys.executable)
        self.assertTrue(os.path.exists(self.path("main.safetensors")))


if __name__ == "__main__":
    PrunedCheckpointTest.library = os.path.abspath(sys.argv.pop(3))
    harness.main()
