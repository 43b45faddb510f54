"""A multi-agent environment with dicts by agent, as RLlib has them. Ray is not needed.

Walkers enter a corridor one after another, each with a cell to reach. A step costs 0.1, and 0.5 where it ends on the
cell of somebody else; arriving gives 1, and the walker is done.
"""

import numpy as np
from gymnasium import spaces


class Corridor:
    """`config`: num_walkers (3), length (9), max_steps (40). Agents are ints; walker i enters at step i."""

    def __init__(self, config):
        self.possible_agents = list(range(config.get("num_walkers", 3)))
        self.length = config.get("length", 9)
        self.max_steps = config.get("max_steps", 40)
        # Own cell, own goal, and whether somebody is on the left or right neighbour cell.
        self.observation_space = spaces.Box(0, 1, (4,), np.float32)
        self.action_space = spaces.Discrete(3)  # left, stay, right

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.steps = 0
        self.goals = self.random.integers(self.length, size=len(self.possible_agents))
        self.cells = {}
        self.enter()
        return self.observe(self.cells), {}

    def step(self, actions):
        self.steps += 1
        rewards, terminateds = {}, {}
        for walker, action in actions.items():
            self.cells[walker] = int(np.clip(self.cells[walker] + action - 1, 0, self.length - 1))
        for walker in actions:
            cell = self.cells[walker]
            crowded = sum(other == cell for other in self.cells.values()) > 1
            terminateds[walker] = bool(cell == self.goals[walker])
            rewards[walker] = -0.1 - 0.5 * crowded + terminateds[walker]
        observed = self.observe(self.cells)
        for walker in [walker for walker, done in terminateds.items() if done]:
            del self.cells[walker]
        observed.update(self.observe(self.enter()))
        terminateds["__all__"] = not self.cells and self.steps >= len(self.possible_agents)
        truncateds = {"__all__": self.steps >= self.max_steps}
        return observed, rewards, terminateds, truncateds, {}

    def enter(self):
        """The walker whose turn it is comes in, anywhere but on its goal."""
        if self.steps >= len(self.possible_agents):
            return []
        cell = (self.goals[self.steps] + self.random.integers(1, self.length)) % self.length
        self.cells[self.steps] = int(cell)
        return [self.steps]

    def observe(self, walkers):
        taken = set(self.cells.values())
        scale = self.length - 1
        return {
            w: np.array(
                [self.cells[w] / scale, self.goals[w] / scale, self.cells[w] - 1 in taken, self.cells[w] + 1 in taken],
                np.float32,
            )
            for w in walkers
        }
