"""Two algorithms in one run: PPO for one agent, A2C for the other; each group's rows, versions and optimizer are its own, and all of it adds up."""

import harness

GROUPS = ("a2c", "ppo")
BATCH = 2048  # env steps of the example's batch


class TwoAlgorithms(harness.TroupeTestCase):

    def train(self, name, env_steps, *more):
        sets = {"stop.env_steps": env_steps, "num_workers": 1, "num_envs_per_worker": 32, "evaluation.at_end": "false",
                "experiment.checkpoint_interval": 3 * BATCH, "experiment.write_interval": BATCH}
        self.troupe("train", self.example("cartpole_ppo_and_a2c.yaml"), "--name", name,
                    *[part for key, value in sets.items() for part in ("--set", f"{key}={value}")], *more)

    def of(self, policy, run, checkpoint):
        """The tensors of a policy's networks: name -> bytes."""
        return {name: data for name, data in self.tensors("runs", run, "checkpoints", str(checkpoint)) if name.startswith(f"{policy}/")}

    def assert_groups_add_up(self, line, updates):
        """Of a progress line: either group's rows. In whole iterations each row is in one batch. A policy has a row an env step at most, and in most:
        an agent whose pole has fallen waits for the other one's."""
        for group in GROUPS:
            of = {key: line[f"group/{group}/{key}"] for key in ("rows_accepted", "rows_queued", "rows_trained", "rows_aged", "rows_evicted", "row_uses")}
            self.assertEqual(of["rows_accepted"], of["rows_queued"] + of["rows_trained"] + of["rows_aged"] + of["rows_evicted"], (group, of))
            self.assertEqual(of["rows_trained"], of["row_uses"], group)
            self.assertTrue(updates * BATCH / 2 < of["rows_trained"] <= updates * BATCH, (group, of))

    def assert_totals_are_of_groups(self, line):
        for total, parts in (("accepted", ("accepted",)), ("trained", ("trained",)), ("queued", ("queued",)), ("dropped", ("aged", "evicted"))):
            self.assertEqual(line[f"rows_{total}"], sum(line[f"group/{group}/rows_{part}"] for group in GROUPS for part in parts), total)

    def test_each_policy_learns_by_its_own_algorithm_and_the_rows_of_both_add_up(self):
        self.train("run", 6 * BATCH)
        lines = self.progress("run")
        self.assertEqual([line["updates"] for line in lines], [1, 2, 3, 4, 5, 6])
        for line in lines:
            self.assert_groups_add_up(line, line["updates"])
            self.assert_totals_are_of_groups(line)
            self.assertEqual(sum(line[f"group/{group}/rows_trained"] for group in GROUPS), line["agent_steps"])
            for policy in GROUPS:
                self.assertIn(f"policy/{policy}/Loss/Policy loss", line)
        self.assert_adds_up(self.summary("run"), BATCH)
        for policy in GROUPS:
            before, after = self.of(policy, "run", 3 * BATCH), self.of(policy, "run", 6 * BATCH)
            self.assertGreaterEqual(len(before), 12, before.keys())
            self.assertEqual([name for name in before if before[name] == after[name]], [], "a tensor that did not move")

    def test_a_neighbour_that_learns_changes_no_bit_of_a_first_update(self):
        """What either algorithm makes of the same rows does not depend on whether, or by what, the other policy learns. On one thread: of two, a
        group that is alone has both, and sums in another order."""
        one_thread = ("--set", "learner_threads=1")
        self.train("both", BATCH, *one_thread)
        for policy, other in (GROUPS, GROUPS[::-1]):
            self.train(policy, BATCH, *one_thread, "--set", f"multi_agent.policies_to_train=[{policy}]")
            together, alone = (self.of(policy, run, BATCH) for run in ("both", policy))
            self.assertGreaterEqual(len(together), 12, together.keys())
            self.assertEqual(together, alone)
            self.assertNotEqual(self.of(other, "both", BATCH), self.of(other, policy, BATCH), "it did not learn there")

    def test_a_resumed_run_goes_on_with_both(self):
        self.train("run", 3 * BATCH)
        self.troupe("train", "--resume", "run", "--set", f"stop.env_steps={6 * BATCH}")
        self.assert_adds_up(self.summary("run"), BATCH)
        line = self.progress("run")[-1]
        self.assertEqual(line["updates"], 6)
        # The groups' books are of the learner's life, which began with the fourth update.
        self.assert_groups_add_up(line, 3)
        for policy in GROUPS:
            before, after = self.of(policy, "run", 3 * BATCH), self.of(policy, "run", 6 * BATCH)
            self.assertEqual([name for name in before if before[name] == after[name]], [], "a tensor that did not move")

    def test_a_run_does_not_go_on_with_another_algorithm(self):
        """What Adam remembers of PPO's steps is not A2C's."""
        self.train("run", BATCH)
        refused = self.troupe("train", "--resume", "run", "--set", f"stop.env_steps={2 * BATCH}", "--set", "multi_agent.policies.ppo.algorithm.name=a2c", ok=False)
        self.assertEqual(refused.returncode, 78, refused.stderr)
        self.assertRegex(refused.stderr, r"multi_agent\.policies: got \{ppo: \{algorithm: \{name: a2c.*but the run was started with \{ppo: \{\}")
        self.assertEqual([line["env_steps"] for line in self.progress("run")], [BATCH], "nothing was trained")


if __name__ == "__main__":
    harness.main()
