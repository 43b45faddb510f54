"""Decisions whose outcome comes after their batch are trained on with it, and counted."""

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
algorithm: {name: ippo, train_batch_size: 512, minibatch_size: 64, num_epochs: 10, lr: 3.0e-3}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
multi_agent: {policies: [boss, worker], policy_mapping: {boss: boss, worker: worker}}
num_workers: 0
num_envs_per_worker: 8
learner_threads: 1
seed: 1
experiment: {write_interval: 512}
evaluation: {at_end: false}
stop: {env_steps: 102400}
"""


class WaitedRowsTest(harness.TroupeTestCase):
    def config(self, every):
        self.write("waits.py", ENV)
        python = os.environ["TROUPE_TEST_PYTHON"]
        return self.write("run.yaml", CONFIG.replace("EVERY", str(every)).replace("PYTHON", python).replace("PATH", self.folder))

    def test_a_boss_whose_outcomes_come_updates_later_learns(self):
        done = self.troupe("train", self.config(every=100), "--name", "run")
        summary, last = self.summary("run"), self.progress("run")[-1]
        rows = summary["rows"]
        self.assertEqual((rows["dropped"], rows["aged"], summary["degraded"]), (0, 0, []))
        self.assertNotIn("dropped", done.stdout)
        # An environment has 64 env steps in an update and the boss decides every 100: no outcome comes in time.
        self.assertEqual(rows["waited"], last["rows_waited"])
        self.assertEqual(rows["waited"], sum(line.get("policy/boss/rows", 0) for line in self.progress("run")))
        self.assertEqual(rows["waited"], last.get("rows_waited_age_1", 0) + last.get("rows_waited_age_2", 0))
        self.assertGreater(last["rows_waited_age_2"], 0, "some waited for two updates")
        self.assertGreater(summary["agents"]["boss"]["return_mean"], 3.8, "of 4, as without a wait")

    def test_some_wait_and_some_do_not(self):
        self.troupe("train", self.config(every=40), "--name", "run", "--set", "stop.env_steps=20480")
        rows = self.summary("run")["rows"]
        self.assertEqual(rows["dropped"], 0)
        boss = sum(line.get("policy/boss/rows", 0) for line in self.progress("run"))
        self.assertTrue(0 < rows["waited"] < boss, (rows, boss))


if __name__ == "__main__":
    harness.main()
