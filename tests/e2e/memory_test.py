"""Policies that remember: before the first step of an update, networks say of every row what they said when it was acted, wherever fragments,
batches and workers cut the episodes. With one minibatch an epoch and one epoch an update every loss is computed before a step, and with a clip of
1e-4 the clip fraction is the share of rows whose probability ratio is further from 1 than that."""

import harness

CORES = {"model.actor_core": "gru", "model.critic_core": "lstm", "model.core_size": 16, "model.actor_hidden_sizes": "[16]", "model.critic_hidden_sizes": "[16]"}
BEFORE_A_STEP = {"algorithm.num_epochs": 1, "algorithm.clip_param": 1e-4, "evaluation.at_end": "false"}


class Memory(harness.TroupeTestCase):

    def train(self, name, example, updates, batch, rows, sets, model=CORES):
        """Batches of so many env steps, in which a policy has at most so many rows."""
        sets = {**model, **BEFORE_A_STEP, "algorithm.train_batch_size": batch, "algorithm.minibatch_size": rows, "stop.env_steps": updates * batch, "experiment.write_interval": batch, **sets}
        self.troupe("train", self.example(example), "--name", name, *[part for key, value in sets.items() for part in ("--set", f"{key}={value}")])
        lines = self.progress(name)
        self.assertEqual(len(lines), updates)
        return lines

    def numbers(self, line, tag):
        """Of each policy that trained: by itself where there is one, else under its name."""
        found = {key: value for key, value in line.items() if key.endswith(tag)}
        self.assertTrue(found, f"no {tag} in {sorted(line)}")
        return found

    def assert_as_acted(self, lines):
        for line in lines:
            for name, value in self.numbers(line, "Policy/Clip fraction").items():
                self.assertEqual(value, 0, (name, line["updates"]))
            for name, value in self.numbers(line, "Policy/KL").items():
                self.assertLess(abs(value), 1e-6, (name, line["updates"]))

    def assert_unbroken(self, lines):
        for line in lines:
            self.assertEqual(set(self.numbers(line, "Policy/Broken critic streams").values()), {0})

    def test_over_cut_episodes_and_workers(self):
        """Episodes of 25 steps in batches of 10 and fragments of 3 steps: most rows are of episodes that began before."""
        for workers in (0, 1, 2):
            lines = self.train(f"workers_{workers}", "simple_spread_mappo.yaml", 8, 320, 960,
                               {"num_workers": workers, "num_envs_per_worker": 32 // max(workers, 1), "model.max_seq_len": 7, "rollout_fragment_length": 3})
            self.assert_as_acted(lines)
            self.assert_unbroken(lines)

    def test_networks_of_users(self):
        """Actor and critic are TorchScript modules. Episodes of 22 steps in batches of 10 and fragments of 3 steps."""
        for workers in (0, 2):
            lines = self.train(f"modules_{workers}", "recall_torchscript.yaml", 8, 320, 640,
                               {"num_workers": workers, "num_envs_per_worker": 32 // max(workers, 1), "model.max_seq_len": 7, "rollout_fragment_length": 3}, model={})
            self.assert_as_acted(lines)
            self.assert_unbroken(lines)

    def test_where_agents_wait_for_each_other(self):
        """Turns: a decision waits for its outcome while the other agent acts, also over the end of a batch. Weights stand still: what waited was acted by
        those of before."""
        lines = self.train("turns", "kuhn_poker.yaml", 8, 320, 320, {"num_workers": 2, "num_envs_per_worker": 8, "model.max_seq_len": 2, "algorithm.lr": 1e-12})
        self.assert_as_acted(lines)
        self.assert_unbroken(lines)
        self.assertGreater(lines[-1]["rows_waited"], 0)

    def test_over_policies_that_are_evicted(self):
        lines = self.train("evicted", "many_policies.yaml", 5, 512, 2048, {"num_workers": 2, "multi_agent.policy_map_capacity": 3, "model.max_seq_len": 9})
        self.assert_as_acted(lines)
        self.assert_unbroken(lines)


if __name__ == "__main__":
    harness.main()
