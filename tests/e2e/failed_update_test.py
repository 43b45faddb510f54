"""An update that fails, for lack of memory: the run says so and ends, and nothing but that update is lost.

    failed_update_test.py TROUPE SOURCE LIBRARY

LIBRARY: ending_memory.cc as a library to preload.
"""

import os
import sys

import harness

# A layer wider than 1024: trained by LibTorch, whose activations of a minibatch are blocks of 1 MB and more.
CONFIG = """
env: {name: mpe/simple_spread}
model: {actor_hidden_sizes: [128, 128], critic_hidden_sizes: [1100]}
num_workers: 1
num_envs_per_worker: 16
algorithm: {train_batch_size: 1000, minibatch_size: 2000, num_epochs: 1}
device: cpu
stop: {env_steps: 1000000}
experiment: {checkpoint_interval: 0, write_interval: 1}
evaluation: {at_end: false}
"""
BLOCK_BYTES = 1000000


class FailedUpdateTest(harness.RunningTestCase):
    library = None

    def test_the_state_before_it_is_saved_and_resumed(self):
        # The run's processes inherit it.
        for name, value in {"LD_PRELOAD": self.library, "ENDING_MEMORY_FILE": self.path("full"),
                            "ENDING_MEMORY_BYTES": str(BLOCK_BYTES)}.items():
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name)
        run = self.start_run(CONFIG)
        self.write("full", "")
        self.assertEqual(run.wait(timeout=60), 1, self.log_text())
        # LibTorch's words, and what follows from them.
        for words in ["can't allocate memory", "policies are as they were before this update", "--resume"]:
            self.assertIn(words, self.log_text())

        checkpoints = [name for name in os.listdir(self.path("runs", "run", "checkpoints")) if name.isdigit()]
        self.assertEqual(len(checkpoints), 1, checkpoints)
        saved = int(checkpoints[0])
        self.assertGreaterEqual(saved, self.env_steps())
        self.troupe("checkpoint", "verify", "runs/run")
        # Memory is there again: the run goes on where it was.
        os.remove(self.path("full"))
        self.troupe("train", "--resume", "run", "--set", f"stop.env_steps={saved + 5000}")
        summary = self.summary("run")
        self.assertEqual(summary["env_steps"], saved + 5000)
        self.assert_adds_up(summary, 1000)


if __name__ == "__main__":
    FailedUpdateTest.library = sys.argv.pop()
    harness.main()
