"""Decisions whose outcome comes after their batch: rows are dropped, people are told which and what helps, and a run that trains nothing ends."""

import os

import harness

# Hierarchies, options, slow agents: "boss" decides every `every` env steps, "worker" in each. Both get 1 for action 1.
ENV = harness.MULTI_AGENT + '''

class Wait(MultiAgentEnv):
    possible_agents = ["boss", "worker"]

    def __init__(self, T=400, every=100):
        self.T, self.every = T, every
        self.observation_spaces = {agent: Box(0, 1, (1,)) for agent in self.possible_agents}
        self.action_spaces = {agent: Discrete(2) for agent in self.possible_agents}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {agent: np.ones(1, np.float32) for agent in self.possible_agents}, {}

    def step(self, actions):
        if "boss" in actions:
            self.last = float(actions["boss"])
        self.t += 1
        observations, rewards = {"worker": np.ones(1, np.float32)}, {"worker": float(actions["worker"])}
        if self.t % self.every == 0:
            observations["boss"], rewards["boss"] = np.ones(1, np.float32), self.last
        return observations, rewards, {"__all__": self.t >= self.T}, {"__all__": False}, {}
'''

CONFIG = """
env: {name: "python:waits:Wait", args: {every: EVERY}, python: {interpreter: PYTHON, path: PATH}}
algorithm: {name: ippo, train_batch_size: 512, minibatch_size: 256, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
multi_agent: {policies: [boss, worker], policy_mapping: {boss: boss, worker: worker}TRAINS}
num_workers: 0
num_envs_per_worker: 8
learner_threads: 1
seed: 1
experiment: {write_interval: 512}
evaluation: {at_end: false}
stop: {env_steps: 20480}
"""


class DroppedRowsTest(harness.TroupeTestCase):
    def config(self, every, trains=""):
        self.write("waits.py", ENV)
        python = os.environ["TROUPE_TEST_PYTHON"]
        text = CONFIG.replace("EVERY", str(every)).replace("PYTHON", python).replace("PATH", self.folder).replace("TRAINS", trains)
        return self.write("run.yaml", text)

    def test_a_run_ends_whose_policy_loses_all_rows(self):
        done = self.troupe("train", self.config(every=100), "--name", "run", ok=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for words in ('policy "boss" trains on nothing: all its ', " rows of 10 updates were dropped", "Set batch_mode: complete_episodes, or ",
                      "a larger algorithm.train_batch_size (512), or fewer environments (8)", "--warm-start "):
            self.assertIn(words, done.stderr)
        self.assertNotIn("max_policy_lag", done.stderr, "some of these rows are two updates too old")
        summary = self.summary("run")
        self.assertLess(summary["env_steps"], 20480)
        self.assertTrue(os.path.exists(self.path("runs", "run", "checkpoints", "latest")))
        rows = summary["rows"]
        self.assertGreaterEqual(rows["aged"], 80)
        self.assertEqual(rows["dropped"], rows["aged"])
        self.assertRegex(done.stdout, rf"{rows['dropped']} rows dropped: {rows['aged']} too old .*; boss (\d+) of \d+; 0 let go")
        last = self.progress("run")[-1]
        self.assertEqual(last["policy/boss/rows_aged"], rows["aged"])
        self.assertEqual(last["rows_aged"], rows["aged"])

    def test_the_remedy_helps(self):
        self.troupe("train", self.config(every=100), "--name", "run", "--set", "batch_mode=complete_episodes")
        self.assertEqual((self.summary("run")["rows"]["dropped"], self.summary("run")["degraded"]), (0, []))

    def test_a_policy_that_loses_some_is_named_and_the_run_goes_on(self):
        # With 64 env steps of an environment in an update, a boss that decides every 40 keeps about a third of its decisions.
        done = self.troupe("train", self.config(every=40), "--name", "run")
        words = r'policy "boss" lost \d+ of its last \d+ rows: the outcome of a decision came after the decision\'s batch. Set batch_mode'
        self.assertRegex(done.stderr, words)
        self.assertRegex(done.stdout, f"DEGRADED: {words}")
        self.assertEqual(len([line for line in done.stderr.splitlines() if "lost" in line]), 1, "said once")
        self.assertRegex(self.summary("run")["degraded"][0], words)
        self.assertEqual(self.summary("run")["env_steps"], 20480)

    def test_a_frozen_policy_may_lose_all(self):
        done = self.troupe("train", self.config(every=100, trains=", policies_to_train: [worker]"), "--name", "run")
        self.assertNotIn("lost", done.stderr)
        self.assertEqual(self.summary("run")["degraded"], [])
        self.assertGreater(self.summary("run")["rows"]["aged"], 0)


if __name__ == "__main__":
    harness.main()
