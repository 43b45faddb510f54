"""Policies that see images, alone or among leaves of a Dict: trained from bytes by workers and learner, before the first step of an update
networks say of every row what they said when it was acted (see memory_test.py); a run goes on as if it had not stopped. How a served policy
answers is in docs_test.py."""

import harness

SMALL = {"algorithm.train_batch_size": 192, "algorithm.minibatch_size": 384, "num_envs_per_worker": 16, "evaluation.at_end": "false",
         "experiment.write_interval": 192, "algorithm.lr": "1e-3"}
SHARED = {"model__critic_encoder": "shared"}
ALL = {"algorithm__name": "mappo"}  # the critic convolves all agents' images
# Leaves image and state; episodes of 8 steps.
LEAVES = """
env: {name: testing/signals, args: {dict: true}, state_key: ""}
algorithm: {name: ippo, num_epochs: 4}
model: {leaf_encoders: {image: {conv_filters: [[6, 3, 1]], hidden_sizes: [8]}, state: {hidden_sizes: [5]}}}
"""


class Images(harness.TroupeTestCase):

    def setUp(self):
        super().setUp()
        self.leaves = self.write("leaves.yaml", LEAVES)

    def train(self, name, updates, *more, config=None, **sets):
        sets = {**SMALL, "stop.env_steps": updates * 192, **{key.replace("__", "."): value for key, value in sets.items()}}
        return self.troupe("train", config or self.example("catch_cnn.yaml"), "--name", name,
                           *[part for key, value in sets.items() for part in ("--set", f"{key}={value}")], *more)

    def test_rows_are_learned_as_they_were_acted(self):
        """With one epoch of one minibatch and a clip of 1e-4 the clip fraction is the share of rows whose ratio is further from 1."""
        cores = {"model__actor_core": "gru", "model__critic_core": "lstm", "model__core_size": 8, "model__max_seq_len": 5}
        for name, sets in (("local", {"num_workers": 0}), ("two", {"num_workers": 2, "num_envs_per_worker": 8}), ("remembers", {"num_workers": 1, **cores}),
                           ("stacked", {"num_workers": 1, "env__frame_stack": 3, "env__resize": "[28, 30]", "env__crop": "[0, 0, 42, 40]"}),
                           ("all", {"num_workers": 2, "num_envs_per_worker": 8, **ALL}),
                           ("leaves", {"num_workers": 2, "num_envs_per_worker": 12, "config": self.leaves, **cores}),
                           ("shared", {"num_workers": 1, **SHARED, "model__actor_core": "gru", "model__core_size": 8, "model__max_seq_len": 5})):
            self.train(name, 4, algorithm__num_epochs=1, algorithm__clip_param=1e-4, **sets)
            lines = self.progress(name)
            self.assertEqual(len(lines), 4, name)
            for line in lines:
                self.assertEqual(line["Policy/Clip fraction"], 0, (name, line["updates"]))
                self.assertLess(abs(line["Policy/KL"]), 1e-6, (name, line["updates"]))

    def test_a_run_goes_on_as_if_it_had_not_stopped(self):
        """Batches of whole episodes, so that none is under way at the stop."""
        for kind, sets in (("cnn", {}), ("all", ALL), ("leaves", {"config": self.leaves, "num_envs_per_worker": 24}), ("shared", SHARED)):
            self.train(f"{kind}_whole", 6, num_workers=1, **sets)
            self.train(f"{kind}_parts", 3, num_workers=1, **sets)
            self.troupe("train", "--resume", f"{kind}_parts", "--set", f"stop.env_steps={6 * 192}")
            values = [self.progress(f"{kind}_{name}")[-1] for name in ("whole", "parts")]
            for tag in ("Loss/Policy loss", "Loss/Value loss", "Policy/Entropy"):
                self.assertEqual(values[0][tag], values[1][tag], (kind, tag))

    def test_a_critic_that_shares_the_actors_encoder_is_trained_and_evaluated(self):
        done = self.train("shared", 40, num_workers=1, algorithm__minibatch_size=96, algorithm__lr="2e-3", evaluation__at_end="true",
                          evaluation__episodes=200, **SHARED)
        self.assertIn("the fused back end computes encoders of kind mlp, got cnn for the actor", done.stderr)
        self.assertNotIn("Policy/Broken critic streams", self.progress("shared")[-1])
        # Whoever plays at random has -1.4.
        self.assertGreater(self.summary("shared")["evaluation"]["return_sum"]["mean"], 0.5)
        names = [name for name, _ in self.tensors("runs", "shared", "checkpoints", "latest")]
        self.assertEqual([name for name in names if "/critic." in name], ["default_policy/critic.0.bias", "default_policy/critic.0.weight"])

    def test_says_which_back_end_trains_and_what_reads_an_image_as_a_row(self):
        done = self.train("cnn", 1, num_workers=0)
        self.assertIn("the fused back end computes encoders of kind mlp, got cnn for the actor", done.stderr)
        self.assertNotIn("as a row of numbers", done.stderr)
        done = self.train("mlp", 1, num_workers=0, model__encoder="mlp")
        self.assertEqual(done.stderr.count("as a row of numbers"), 1)
        done = self.train("leaves", 1, num_workers=0, config=self.leaves)
        self.assertIn("the fused back end computes encoders of kind mlp, got leaves for the actor", done.stderr)
        done = self.train("mappo", 1, num_workers=0, algorithm__name="mappo")
        self.assertNotIn("as a row of", done.stderr)
        done = self.train("mappo_mlp", 1, num_workers=0, algorithm__name="mappo", model__critic_encoder="mlp")
        self.assertIn("reads the images of all agents as a row of 3530 numbers", done.stderr)


if __name__ == "__main__":
    harness.main()
