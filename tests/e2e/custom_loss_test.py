#!/usr/bin/env python3
"""A loss of a user's own, as TorchScript: it trains with workers that have no file, goes on without its original, and is no other's.

usage: custom_loss_test.py TROUPE SOURCE_DIRECTORY
"""

import os
import shutil

import harness

REFUSED = 78
FAST = ["--set", "algorithm.train_batch_size=512", "--set", "num_envs_per_worker=8", "--set", "evaluation.at_end=false"]


class CustomLossTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        for name in ("cartpole_custom_loss.yaml", "custom_loss.pt", "cartpole_torchscript.pt"):
            shutil.copy(self.example(name), self.folder)
        self.hash = self.hash_of("custom_loss.pt")

    def fails(self, *arguments):
        done = self.troupe(*arguments, ok=False)
        self.assertEqual(done.returncode, REFUSED, done.stdout + done.stderr)
        return done.stderr

    def test_trains_goes_on_without_the_original_and_refuses_another(self):
        self.troupe("train", "cartpole_custom_loss.yaml", "--name", "run", "--workers", "1", *FAST, "--set", "stop.env_steps=1024")
        summary = self.summary("run")
        for name in ("Loss/Loss", "Loss/Surrogate", "Loss/Value error", "Loss/Clip fraction", "Policy/Entropy"):
            self.assertIsNotNone(summary["losses"][name], name)
        self.assertNotIn("Loss/Policy loss", summary["losses"])
        for config in (self.path("runs", "run", "config.yaml"), self.path("runs", "run", "checkpoints", "latest", "config.yaml")):
            with open(config) as file:
                self.assertIn(f'loss: "sha256:{self.hash}"', file.read())
        self.assertEqual(self.hash_of(self.path("runs", "run", "torchscript", f"{self.hash}.pt")), self.hash)

        shutil.copy(self.path("cartpole_torchscript.pt"), self.path("custom_loss.pt"))
        error = self.fails("train", "cartpole_custom_loss.yaml", "--resume", "run", *FAST, "--set", "stop.env_steps=2048")
        self.assertRegex(error, r"cartpole_custom_loss\.yaml:11:\d+: algorithm\.loss: "
                                f'got "sha256:{self.hash_of("custom_loss.pt")}", but the run was started with "sha256:{self.hash}"')

        os.remove(self.path("custom_loss.pt"))
        resumed = self.troupe("train", "--resume", "run", "--set", "stop.env_steps=2048")
        self.assertIn(f"this run executes algorithm.loss: sha256:{self.hash}", resumed.stderr)
        self.assertEqual(self.summary("run")["env_steps"], 2048)
        self.assert_adds_up(self.summary("run"), batch=512)
        evaluated = self.troupe("evaluate", "run", "--episodes", "2")
        self.assertNotIn("executes", evaluated.stderr, "who evaluates runs no loss")

    def test_a_worker_needs_no_file(self):
        address = "unix:" + self.path("l")
        learner = self.start_program("learner", "cartpole_custom_loss.yaml", "--name", "run", "--workers", "1", "--listen", address, *FAST,
                                     "--set", "stop.env_steps=1024")
        self.await_true(lambda: "learner ready" in self.log_text(), "the learner")
        os.remove(self.path("custom_loss.pt"))
        self.troupe("worker", "--learner", address, "--config", "cartpole_custom_loss.yaml")
        self.assertEqual(learner.wait(60), 0, self.log_text())

    def test_what_is_no_loss_is_said_before_there_is_a_run(self):
        start = ("train", "cartpole_custom_loss.yaml", "--name", "run", "--workers", "0")
        error = self.fails(*start, "--set", "algorithm.loss=cartpole_torchscript.pt")
        self.assertRegex(error, r"algorithm\.loss: TorchScript file \S+/cartpole_torchscript\.pt has forward\(.*expected forward\(self, outputs: ")
        self.assertIn("algorithm.loss: got nothing, expected a TorchScript file", self.fails(*start, "--set", "algorithm.loss=none"))
        unknown = "sha256:" + 64 * "a"
        self.assertIn("algorithm.loss: there is no TorchScript file with SHA-256 aaaa", self.fails(*start, "--set", f"algorithm.loss={unknown}"))
        os.remove(self.path("custom_loss.pt"))
        self.assertRegex(self.fails(*start), r"cartpole_custom_loss\.yaml:11:\d+: algorithm\.loss: got \S+\.pt, which cannot be read")
        self.assertFalse(os.path.exists(self.path("runs", "run")))


if __name__ == "__main__":
    harness.main()
