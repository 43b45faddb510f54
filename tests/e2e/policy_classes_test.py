"""Policies of every class in one run: what learns beats what does not, and nothing but what learns changes."""

import json
import os
import shutil

import harness

GAME = """
env: {name: rock_paper_scissors}
algorithm: {name: ppo, train_batch_size: 500, minibatch_size: 250, num_epochs: 10, lr: 3.0e-3}
model: {actor_hidden_sizes: [32], critic_hidden_sizes: [32]}
num_workers: 1
num_envs_per_worker: 10
learner_threads: 2
seed: 5
experiment: {checkpoint_interval: 1000, keep_checkpoints: 20}
evaluation: {episodes: 200}
"""


class PolicyClassesTest(harness.TroupeTestCase):
    def train(self, name, multi_agent, steps, *arguments):
        config = self.write(f"{name}.yaml", GAME + f"multi_agent: {multi_agent}\nstop: {{env_steps: {steps}}}\n")
        self.troupe("train", config, "--name", name, *arguments)

    def points(self, name):
        """What player_0 won in a game of ten rounds."""
        return self.summary(name)["evaluation"]["agents"]["player_0"]["mean"]

    def weights(self, name, steps, policy):
        return [(tensor.split("/", 1)[1], value) for tensor, value in self.tensors("runs", name, "checkpoints", str(steps))
                if tensor.startswith(f"{policy}/")]

    def test_ppo_beats_scripted_opponents(self):
        for script in ("always_same", "beat_last"):
            self.train(script, f'{{policies: {{main: {{}}, other: {{class: "scripted:{script}"}}}}, '
                               'policy_mapping: {player_0: main, player_1: other}}', 8000)
            self.assertGreater(self.points(script), 5, f"chance gives 0 against {script}")
            self.assertEqual(self.summary(script)["rows"]["trained"], 2 * 8000, "rows of both are counted")

    def test_random_scripted_and_frozen_side_by_side(self):
        self.train("source", '{policies: {main: {}, same: {class: "scripted:always_same"}}, '
                             'policy_mapping: {player_0: main, player_1: same}}', 3000)
        self.assertEqual(self.weights("source", 3000, "same"), [], "there is nothing to keep of it")
        mixed = ('{policies: {main: {}, old: {class: "checkpoint:runs/source#main"}, dice: {class: random}, '
                 'same: {class: "scripted:always_same"}}, '
                 'policy_mapping: {player_0: main, player_1: {old: 1, dice: 1, same: 1}}}')
        self.train("mixed", mixed, 2000)
        old = self.weights("source", 3000, "main")
        self.assertTrue(old)
        # What it came from may go: the run's own checkpoints hold it.
        shutil.rmtree(self.path("runs", "source"))
        self.troupe("train", "--resume", "mixed", "--set", "stop.env_steps=4000")
        for steps in (1000, 2000, 3000, 4000):
            self.assertEqual(self.weights("mixed", steps, "old"), old, f"after {steps}")
            self.assertEqual(self.weights("mixed", steps, "dice"), [])
        self.assertNotEqual(self.weights("mixed", 1000, "main"), self.weights("mixed", 4000, "main"))
        summary = self.summary("mixed")
        self.assertEqual(summary["env_steps"], 4000)
        self.assert_adds_up(summary, 500)
        self.troupe("checkpoint", "verify", "runs/mixed")
        result = json.loads(self.troupe("evaluate", "runs/mixed", "--episodes", "50", "--json").stdout.splitlines()[-1])
        self.assertEqual(result["episodes"], 50)
        self.assertEqual(result["return_sum"], {"mean": 0.0, "std": 0.0}, "zero-sum")
        status = json.loads(self.troupe("status", "runs/mixed", "--json").stdout.splitlines()[-1])
        self.assertEqual(status["env_steps"], 4000)

    def test_a_checkpoint_that_does_not_fit_ends_the_start_and_leaves_no_run(self):
        two = '{{policies: {{main: {{}}, old: {{class: "checkpoint:{}"}}}}, policy_mapping: {{player_0: main, player_1: old}}}}'
        config = self.write("bad.yaml", GAME + f"multi_agent: {two.format('runs/nothing')}\n")
        done = self.troupe("train", config, "--name", "bad", ok=False)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn('multi_agent.policies.old.class: "runs/nothing" is neither a checkpoint nor a run folder', done.stderr)
        self.assertFalse(os.path.exists(self.path("runs", "bad")))


if __name__ == "__main__":
    harness.main()
