"""What small worlds teach with default settings: flags in bytes, a wide Box of actions, and pauses by discount_by.

    scaling_test.py TROUPE SOURCE

Each world is learned in some 20,000 env steps, or not at all: bars lie far from both.
"""

import json
import sys

import harness

WORLDS = '''
import numpy as np


class Box:
    def __init__(self, low, high, shape, dtype):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.low, self.high = np.full(shape, low, dtype), np.full(shape, high, dtype)


class Discrete:
    def __init__(self, n):
        self.n, self.start = n, 0


class Flags:
    """One step an episode: the action is to name the one bit that is set."""
    possible_agents = ["a", "b"]

    def observation_space(self, agent): return Box(0, 1, (8,), np.uint8)

    def action_space(self, agent): return Discrete(8)

    def reset(self, seed=None, options=None):
        self.agents = ["a", "b"]
        self.bits = dict(zip(self.agents, np.random.default_rng(seed).integers(8, size=2)))
        return {agent: np.eye(8, dtype=np.uint8)[bit] for agent, bit in self.bits.items()}, {}

    def end(self, rewards):
        self.agents = []
        seen = {agent: np.zeros(self.observation_space(agent).shape, self.observation_space(agent).dtype) for agent in rewards}
        return seen, rewards, dict.fromkeys(rewards, True), dict.fromkeys(rewards, False), {}

    def step(self, actions):
        return self.end({agent: float(action == self.bits[agent]) for agent, action in actions.items()})


class Wide(Flags):
    """One step an episode: the action is to be 700 of 1000."""

    def observation_space(self, agent): return Box(-1, 1, (2,), np.float32)

    def action_space(self, agent): return Box(0, 1000, (1,), np.float32)

    def reset(self, seed=None, options=None):
        self.agents = ["a", "b"]
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {}

    def step(self, actions):
        return self.end({agent: -float(((action[0] - 700) / 1000) ** 2) for agent, action in actions.items()})


class Pause(Flags):
    """x works for 1 at each of 40 env steps, or pauses for five and gets 3 at their end. A clock acts at all of them."""
    possible_agents = ["x", "clock"]

    def observation_space(self, agent): return Box(0, 1, (1,), np.float32)

    def action_space(self, agent): return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.time, self.back = ["x", "clock"], 0, 0
        return {agent: np.ones(1, np.float32) for agent in self.agents}, {}

    def step(self, actions):
        if "x" in actions:
            self.due = (5, 3.0) if actions["x"] == 1 else (1, 1.0)
            self.back = self.time + self.due[0]
        self.time += 1
        seen, rewards = {"clock": np.ones(1, np.float32)}, {"clock": 0.0}
        if self.time == self.back:
            seen["x"], rewards["x"] = np.ones(1, np.float32), self.due[1]
        over = self.time == 40
        if over:
            self.agents, seen = [], dict.fromkeys(self.possible_agents, np.ones(1, np.float32))
        return seen, {"x": 0.0, **rewards}, dict.fromkeys(seen, False), dict.fromkeys(seen, over), {}
'''


class ScalingTest(harness.TroupeTestCase):
    def setUp(self):
        super().setUp()
        self.write("worlds.py", WORLDS)

    def learned(self, world, env_steps, *settings):
        """Mean return by agent of an evaluation after so many env steps of training, and what was said at the start."""
        config = self.write("run.yaml", f"""
env: {{name: "python:worlds.py:{world}"}}
algorithm: {{name: ippo, train_batch_size: 512, lr: 2.0e-3, entropy_coeff: 0}}
num_workers: 0
num_envs_per_worker: 16
stop: {{env_steps: {env_steps}}}
evaluation: {{episodes: 50}}
""")
        said = self.troupe("train", config, "--name", world, "--python", sys.executable, *(f"--set={setting}" for setting in settings))
        with open(self.path("runs", world, "summary.json")) as file:
            summary = json.load(file)
        return summary, said.stdout + said.stderr

    def mean_return(self, summary):
        return summary["evaluation"]["return_sum"]["mean"]

    def test_flags_in_bytes_are_learned(self):
        summary, said = self.learned("Flags", 16384)
        self.assertGreater(self.mean_return(summary), 1.6, "of 2; chance is 0.25")
        self.assertIn("scaling observations bytes to [0, 1] by their bounds; actions discrete", said)

    def test_a_wide_box_is_learned(self):
        summary, said = self.learned("Wide", 16384)
        self.assertGreater(self.mean_return(summary), -0.4, "of 0; actions near 0 give -0.98")
        self.assertIn("scaling observations as they are; actions from [-1, 1] to their Box", said)
        checked = self.troupe("envs", "check", "python:worlds.py:Wide", "--python", sys.executable)
        self.assertIn("scaling: observations as they are; actions from [-1, 1] to their Box\n", checked.stdout)
        started = self.troupe("init", "python:worlds.py:Wide", "--python", sys.executable, "--output", "wide.yaml")
        self.assertIn("scaling: observations as they are; actions from [-1, 1] to their Box\n", started.stdout)

    def test_a_pause_pays_by_decisions_and_not_by_env_steps(self):
        by_env_step, _ = self.learned("Pause", 24576, "algorithm.gamma=0.9", "algorithm.discount_by=env_step")
        self.assertGreater(self.mean_return(by_env_step), 36, "of 40, working at each env step")


if __name__ == "__main__":
    harness.main()
