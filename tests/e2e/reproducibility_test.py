"""The same configuration and seed give the same bytes: twice, stopped and resumed, and with more workers; another seed does not.
And evaluating changes nothing. Episodes of simple_spread have 25 steps and so have the fragments here: nothing is cut."""

import json
import os

import harness

STEPS = 4800  # six updates of 800


class ReproducibilityTest(harness.TroupeTestCase):
    def train(self, name, *arguments, workers=1, steps=STEPS, seed=3):
        self.troupe("train", self.example("simple_spread_mappo.yaml"), "--workers", str(workers), "--name", name,
                    *self.settings(workers, steps), "--set", f"seed={seed}", *arguments)

    def settings(self, workers, steps):
        values = {"stop.env_steps": steps, "num_envs_per_worker": 32 // max(workers, 1), "algorithm.train_batch_size": 800,
                  "algorithm.minibatch_size": 500, "algorithm.num_epochs": 2, "evaluation.episodes": 10, "learner_threads": 2,
                  "experiment.checkpoint_interval": STEPS // 2, "experiment.write_interval": 800}
        return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]

    def weights(self, name, steps=STEPS):
        return [self.hash_of("runs", name, "checkpoints", str(steps), file)
                for file in ("policies.safetensors", "optimizer.safetensors")]

    def test_same_seed_same_bytes_another_seed_others(self):
        for name, seed in (("first", 3), ("second", 3), ("other", 4)):
            self.train(name, seed=seed)
        self.assertEqual(self.weights("first"), self.weights("second"))
        self.assertNotEqual(self.weights("first")[0], self.weights("other")[0])
        self.assertEqual(self.summary("first")["evaluation"], self.summary("second")["evaluation"])

    def test_stopped_at_half_and_resumed_equals_uninterrupted(self):
        self.train("whole")
        self.train("halves", steps=STEPS // 2)
        self.troupe("train", "--resume", "halves", "--set", f"stop.env_steps={STEPS}")
        self.assertEqual(self.weights("whole"), self.weights("halves"))
        whole, halves = self.summary("whole"), self.summary("halves")
        for key in ("env_steps", "agent_steps", "updates", "episodes", "return_sum", "rows", "evaluation"):
            self.assertEqual(whole[key], halves[key], key)
        self.assertEqual([line["env_steps"] for line in self.progress("halves")],
                         [line["env_steps"] for line in self.progress("whole")])

    def test_what_mappos_authors_train_with_goes_on_where_it_stopped(self):
        popart = ("--set", "algorithm.use_value_norm=false", "--set", "algorithm.use_popart=true", "--set", "algorithm.normalize_state=true")
        state = ("--set", "algorithm.use_global_state=true", "--set", "algorithm.use_agent_specific_state=true")
        for name, tricks in (("joint", popart), ("state", (*popart, *state))):
            self.train(name, *tricks)
            self.train(name + "_halves", *tricks, steps=STEPS // 2)
            self.troupe("train", "--resume", name + "_halves", "--set", f"stop.env_steps={STEPS}")
            self.assertEqual(self.weights(name), self.weights(name + "_halves"))
        self.assertNotEqual(self.weights("joint")[0], self.weights("state")[0])

    def test_dead_agents_rows_are_the_same_whoever_samples(self):
        config = self.write("dead.yaml", """
env: {name: testing/turn_based}
multi_agent: {policy_mapping: per_agent}
algorithm: {name: mappo, train_batch_size: 120, num_epochs: 2, normalize_state: true, use_value_active_masks: false, death_masking: true}
num_envs: 4
learner_threads: 2
stop: {updates: 6}
evaluation: {episodes: 2}
""")
        runs = {}
        for name, workers, masked in (("one", 1, "false"), ("two", 2, "false"), ("masked", 1, "true")):
            self.troupe("train", config, "--workers", str(workers), "--name", name, "--set", f"algorithm.use_value_active_masks={masked}")
            runs[name] = self.weights(name, self.summary(name)["env_steps"])[0]
        self.assertEqual(runs["one"], runs["two"])
        self.assertNotEqual(runs["one"], runs["masked"])

    def test_the_number_of_workers_changes_nothing(self):
        self.train("one", workers=1)
        self.train("two", workers=2)
        self.train("none", workers=0)
        self.assertEqual(self.weights("one"), self.weights("two"))
        self.assertEqual(self.weights("one")[0], self.weights("none")[0])

    def test_agent_steps_of_agents_that_always_act_are_env_steps(self):
        by_agent = ("--set", "multi_agent.count_steps_by=agent_steps", "--set", "algorithm.train_batch_size=2400")
        self.train("env_steps")
        self.train("agent_steps", *by_agent, workers=2)
        self.train("halves", *by_agent, steps=STEPS // 2)
        self.troupe("train", "--resume", "halves", "--set", f"stop.env_steps={STEPS}")
        self.assertEqual(self.weights("env_steps"), self.weights("agent_steps"))
        self.assertEqual(self.weights("env_steps"), self.weights("halves"))

    def test_batches_of_agent_steps_are_the_same_whoever_samples(self):
        config = self.write("league.yaml", """
env: {name: testing/turn_based}
multi_agent:
  count_steps_by: agent_steps
  observation_fn: joint_observation
  policies: {a: {}, b: {algorithm: {lr: 1.0e-3, num_epochs: 1}}, c: {}, guest: {algorithm: {name: ippo}}}
  policy_mapping: {carol: guest, "*": {function: round_robin, policies: [a, b, c]}}
  policies_to_train: [c, guest, {policies: [a, b], only_against: [c]}]
algorithm: {train_batch_size: 120, num_epochs: 3}
num_envs: 4
learner_threads: 2
stop: {updates: 6}
evaluation: {episodes: 6}
""")
        runs = {}
        for name, workers in (("one", 1), ("again", 1), ("two", 2), ("none", 0)):
            self.troupe("train", config, "--workers", str(workers), "--name", name)
            summary = self.summary(name)
            self.assert_adds_up(summary)
            self.assertEqual(summary["updates"], 6)
            self.assertGreaterEqual(summary["agent_steps"], 6 * 120)
            self.assertLess(summary["agent_steps"], 6 * (120 + 4 * 3))
            runs[name] = [summary["env_steps"], summary["agent_steps"], summary["evaluation"],
                          self.weights(name, summary["env_steps"])[0]]
        for name in ("again", "two", "none"):
            self.assertEqual(runs[name], runs["one"], name)

    def test_evaluating_freezes_everything(self):
        self.train("run", "--set", "algorithm.normalize_observations=true")
        before = self.hashes_below("runs", "run")
        results = [json.loads(self.troupe("evaluate", "runs/run", "--episodes", "20", "--seed", "5", "--json").stdout.splitlines()[-1])
                   for _ in range(2)]
        self.assertEqual(self.hashes_below("runs", "run"), before)
        self.assertEqual(results[0], results[1])
        self.assertEqual(set(results[0]), {"episodes", "episodes_cut", "return_sum", "return_mean", "agents", "episode_length", "infos", "seed", "per_episode"})
        self.assertEqual(results[0]["episodes"], 20)
        self.assertEqual(sorted(results[0]["agents"]), ["agent_0", "agent_1", "agent_2"])
        for value in (results[0]["return_sum"], results[0]["return_mean"], *results[0]["agents"].values()):
            self.assertEqual(set(value), {"mean", "std"})
        self.assertEqual(results[0]["episode_length"], {"mean": 25.0})
        total = sum(agent["mean"] for agent in results[0]["agents"].values())
        self.assertAlmostEqual(total, results[0]["return_sum"]["mean"], places=6)

    def test_warm_start_takes_the_weights_alone(self):
        self.train("source")
        # Too small a step to change a weight: what plays afterwards is what was taken over.
        still = ("--set", "algorithm.lr=1e-30")
        self.train("warm", "--warm-start", "runs/source", *still, steps=800, seed=8)
        self.train("cold", *still, steps=800, seed=8)
        self.assertEqual(self.summary("warm")["env_steps"], 800)
        self.assertEqual(self.progress("warm")[0]["env_steps"], 800)

        def play(name):
            return json.loads(self.troupe("evaluate", f"runs/{name}", "--episodes", "5", "--deterministic", "--seed", "5",
                                          "--json").stdout.splitlines()[-1])
        self.assertEqual(play("warm"), play("source"))
        self.assertNotEqual(play("cold"), play("source"))

    def test_a_policy_that_does_not_train_keeps_its_weights(self):
        config = self.write("two.yaml", """
env: {name: cartpole, args: {num_agents: 2}}
multi_agent: {policy_mapping: per_agent, policies_to_train: [agent_0]}
algorithm: {name: ippo, train_batch_size: 256, minibatch_size: 128, num_epochs: 2}
num_workers: 1
stop: {env_steps: 256}
experiment: {keep_checkpoints: 4}
evaluation: {episodes: 1}
""")
        # The checkpoint at the end is always there; one in between is left out where the machine writes too slowly.
        self.troupe("train", config, "--name", "two")
        self.troupe("train", "--resume", "runs/two", "--set", "stop.env_steps=1024")
        weights = [{policy: [value for name, value in self.tensors("runs", "two", "checkpoints", str(steps)) if f"{policy}/" in name]
                    for policy in ("agent_0", "agent_1")} for steps in (256, 1024)]
        self.assertTrue(weights[0]["agent_0"] and weights[0]["agent_1"])
        self.assertEqual(weights[0]["agent_1"], weights[1]["agent_1"])
        self.assertNotEqual(weights[0]["agent_0"], weights[1]["agent_0"])

    def test_a_run_adds_up_and_can_be_verified(self):
        self.train("run", workers=2)
        self.assertFalse(os.path.exists(self.path("runs", "run", "address")), "the learner has ended")
        summary = self.summary("run")
        self.assert_adds_up(summary, 800)
        self.assertEqual(summary["rows"]["trained"], 3 * STEPS)
        self.assertEqual(summary["env_steps"], STEPS)
        last = self.progress("run")[-1]
        for key in ("env_steps", "agent_steps", "updates", "wall_clock_s", "env_steps_per_s", "return_sum", "return_mean"):
            self.assertIn(key, last)
        self.assertEqual(last["minibatch_steps"], 2 * 5)  # 2,400 rows in minibatches of 500: the remainder is one, too
        self.troupe("checkpoint", "verify", "runs/run")
        broken = self.path("runs", "run", "checkpoints", str(STEPS), "policies.safetensors")
        os.truncate(broken, os.path.getsize(broken) - 1)
        done = self.troupe("checkpoint", "verify", "runs/run", ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("damaged", done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
