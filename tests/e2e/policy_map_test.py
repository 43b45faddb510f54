"""A run with far more policies than its learner holds: to its end, with the weights of one that holds them all."""

import json
import os
import shutil
import signal
import subprocess
import time

import harness

POLICIES = 20
CAPACITY = 4
UPDATES = 8


class PolicyMapTest(harness.TroupeTestCase):
    def setUp(self):
        super().setUp()
        policies = ", ".join(f"p{i}: {1 + i % 3}" for i in range(POLICIES))
        self.config = self.write("many.yaml", f"""
env: {{name: cartpole, args: {{num_agents: 2}}}}
multi_agent:
  policy_mapping: {{"*": {{{policies}}}}}
  policy_states_are_swappable: true
algorithm: {{name: ippo, train_batch_size: 256, num_epochs: 2}}
model: {{actor_hidden_sizes: [16], critic_hidden_sizes: [16]}}
batch_mode: complete_episodes
num_workers: 1
num_envs_per_worker: 8
learner_threads: 2
stop: {{updates: {UPDATES}}}
experiment: {{write_interval: 1}}
evaluation: {{episodes: 2}}
""")

    def train(self, name, *settings, **keywords):
        values = [part for setting in settings for part in ("--set", setting)]
        return self.troupe("train", self.config, "--name", name, *values, **keywords)

    def weights(self, name):
        steps = self.summary(name)["env_steps"]
        return [self.hash_of("runs", name, "checkpoints", str(steps), file)
                for file in ("policies.safetensors", "optimizer.safetensors")]

    def map_of(self, line):
        return {key.split("/")[1]: value for key, value in line.items() if key.startswith("Policy map/")}

    def test_few_resident_policies_train_to_the_bits_of_all_resident(self):
        self.train("all", "multi_agent.policy_map_capacity=100")
        self.assertEqual(self.map_of(self.progress("all")[-1]), {})
        cache = self.path("fast")
        for name, settings in {
                "host": (),
                "disk": ("multi_agent.policy_map_host_budget_bytes=0",),
                "both": ("multi_agent.policy_map_host_budget_bytes=20000", f"multi_agent.policy_map_cache={cache}"),
                "apart": ("multi_agent.policy_states_are_swappable=false",)}.items():
            self.train(name, f"multi_agent.policy_map_capacity={CAPACITY}", *settings)
            self.assertEqual(self.weights(name), self.weights("all"), name)
            self.assertEqual(self.summary(name)["evaluation"], self.summary("all")["evaluation"], name)
            lines = self.progress(name)
            self.assertEqual(len(lines), UPDATES)
            for line in lines:
                counters = self.map_of(line)
                self.assertEqual(counters["Resident"], min(CAPACITY, counters["Misses"]), line)
                self.assertEqual(counters["Evictions"], counters["Misses"] - counters["Resident"], line)
                self.assertEqual((counters["Write failures"], counters["Lost"]), (0, 0), line)
            self.assertGreater(counters["Evictions"], UPDATES)
            self.assertEqual(counters["Host bytes"] == 0, name == "disk", counters)
            self.assertEqual(counters["On disk"] > 0, name in ("disk", "both"), counters)
            self.assert_adds_up(self.summary(name))
            self.assertFalse(os.path.exists(self.path("runs", name, "policy_map")), "the cache is gone with the run")
        self.assertEqual(os.listdir(cache), [], "a folder that runs share stays, and what the run made in it does not")

    def test_a_resumed_run_does_not_read_what_a_killed_one_left(self):
        few = (f"multi_agent.policy_map_capacity={CAPACITY}", "multi_agent.policy_map_host_budget_bytes=0")
        self.train("whole", *few)
        self.train("halves", *few, f"stop.updates={UPDATES // 2}")
        left = self.path("runs", "halves", "policy_map")
        os.mkdir(left)
        for slot in range(POLICIES):
            with open(os.path.join(left, f"policy_{slot}.blob"), "wb") as file:
                file.write(b"left by another life")
        self.troupe("train", "--resume", "halves", "--set", f"stop.updates={UPDATES}")
        self.assertEqual(self.map_of(self.progress("halves")[-1])["Lost"], 0)
        self.assertFalse(os.path.exists(left))
        self.assertEqual(self.summary("halves")["updates"], UPDATES)

    def start_spilling_run(self):
        """A run that spills policies to disk and checkpoints all the time, once it has done both; its cache."""
        arguments = [self.program, "train", self.config, "--name", "run"]
        for setting in (f"multi_agent.policy_map_capacity={CAPACITY}", "multi_agent.policy_map_host_budget_bytes=0",
                        "stop.updates=100000", "experiment.checkpoint_interval=256"):
            arguments += ["--set", setting]
        with open(self.path("log"), "w") as log:
            self.process = subprocess.Popen(arguments, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        cache = self.path("runs", "run", "policy_map")
        self.wait_for(lambda: os.path.lexists(self.path("runs", "run", "checkpoints", "latest"))
                      and os.path.isdir(cache) and len(os.listdir(cache)) > POLICIES // 2)
        return cache

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertIsNone(self.process.poll(), "the run goes on")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def last(self):
        """The last whole line of progress.jsonl."""
        try:
            with open(self.path("runs", "run", "progress.jsonl")) as file:
                return json.loads(file.read().rsplit("\n", 2)[-2])
        except (OSError, IndexError):
            return {"updates": 0}

    def end_run(self):
        """SIGTERM; the log."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        with open(self.path("log")) as file:
            log = file.read()
        self.assertEqual(code, 0, log)
        self.troupe("checkpoint", "verify", "runs/run")
        return log

    def test_a_cache_that_vanishes_costs_what_was_learned_since_the_checkpoint(self):
        cache = self.start_spilling_run()
        shutil.rmtree(cache, ignore_errors=True)
        self.wait_for(lambda: self.last().get("Policy map/Lost", 0) > 0)
        updates = self.last()["updates"]
        self.wait_for(lambda: self.last()["updates"] > updates + 2)
        self.assertIn("a policy's stored state is lost, an older one is used policy=p", self.end_run())

    def test_a_cache_that_cannot_be_written_costs_memory_alone(self):
        cache = self.start_spilling_run()
        # A folder that is full, read-only or no folder any more: nobody can be written, who is resident stays.
        aside = self.path("aside")
        os.rename(cache, aside)
        with open(cache, "w") as file:
            file.write("in the way")
        self.wait_for(lambda: self.last().get("Policy map/Write failures", 0) > 0)
        updates = self.last()["updates"]
        self.wait_for(lambda: self.last()["updates"] > updates + 2)
        self.assertGreater(self.last()["Policy map/Resident"], CAPACITY)
        # Room again: what stayed is written, and the map shrinks to its capacity.
        os.remove(cache)
        os.rename(aside, cache)
        self.wait_for(lambda: self.last()["Policy map/Resident"] <= CAPACITY)
        self.assertIn("they cannot be written failures=1 ", self.end_run())

    def test_a_cache_that_cannot_be_used_is_said_at_the_start(self):
        blocked = self.write("file", "in the way")
        done = self.train("blocked", f"multi_agent.policy_map_capacity={CAPACITY}",
                          f"multi_agent.policy_map_cache={blocked}", ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("multi_agent.policy_map_cache: expected a folder to write to", done.stderr)
        self.assertFalse(os.path.exists(self.path("runs", "blocked")))

    def test_different_shapes_are_not_swappable(self):
        config = self.write("two.yaml", """
env: {name: cartpole, args: {num_agents: 2}}
multi_agent:
  policies: {small: {}, large: {model: {actor_hidden_sizes: [128]}}}
  policy_mapping: {agent_0: small, "*": large}
  policy_states_are_swappable: true
""")
        done = self.troupe("train", config, "--name", "two", ok=False)
        self.assertIn('policies "small" and "large" cannot swap their states', done.stderr)


if __name__ == "__main__":
    harness.main()
