"""crafter 1.8.3: troupe init crafter_world.py:Crafts"""

import crafter
import gymnasium
from gymnasium import spaces


class Crafts(gymnasium.Env):
    def __init__(self, size=(64, 64)):
        self.env = crafter.Env(size=tuple(size))
        self.observation_space = spaces.Box(0, 255, tuple(size) + (3,), "uint8")
        self.action_space = spaces.Discrete(self.env.action_space.n)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.env._seed, self.env._episode = seed, 0
        return self.env.reset(), {}

    def step(self, action):
        observation, reward, done, info = self.env.step(action)
        return observation, reward, info["discount"] == 0, done and info["discount"] != 0, {}
