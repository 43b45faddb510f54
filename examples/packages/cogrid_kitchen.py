"""cogrid 0.3.2, Overcooked's kitchens: troupe init cogrid_kitchen.py:Kitchen"""

import numpy as np
from gymnasium import spaces
from cogrid.envs import registry


class Kitchen:
    def __init__(self, layout="Overcooked-CrampedRoom-V0"):
        self.env = registry.make(layout)
        self.agents = self.possible_agents = list(self.env.possible_agents)
        first, _ = self.env.reset(seed=0)
        self.observation_spaces = {a: spaces.Box(-np.inf, np.inf, np.shape(o), np.float32) for a, o in first.items()}
        self.action_spaces = self.env.action_spaces

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        observations, infos = self.env.reset(seed=seed)
        return {a: np.asarray(o, np.float32) for a, o in observations.items()}, infos

    def step(self, actions):
        observations, *rest = self.env.step(actions)
        return ({a: np.asarray(o, np.float32) for a, o in observations.items()}, *rest)

    def render(self):
        return self.env.get_full_render()
