"""overcooked 0.2.1: troupe init overcooked_chefs.py:Chefs"""

import numpy as np
from gymnasium import spaces
from overcooked import Overcooked


class Chefs:
    def __init__(self, layout="cramped_room", horizon=400):
        self.env = Overcooked.from_layout(layout, horizon=horizon)
        step = self.env._oenv.step
        self.env._oenv.step = lambda action, display_phi: step(action)  # the potential of their rewards fails without an empty pot
        self.agents = self.possible_agents = [f"chef_{i}" for i in range(self.env.n_agents)]

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, self.env.observation_shape, np.float32)

    def action_space(self, agent):
        return spaces.Discrete(self.env.n_actions)

    def each(self, values):
        return dict(zip(self.possible_agents, values))

    def reset(self, seed=None, options=None):
        first, _ = self.env.reset(seed=seed)
        return self.each(first.data), self.each({"action_mask": m.astype(np.int8)} for m in first.available_actions)

    def step(self, actions):
        step = self.env.step([actions[a] for a in self.possible_agents])
        n = self.env.n_agents
        infos = self.each({"action_mask": m.astype(np.int8)} for m in step.obs.available_actions)
        return self.each(step.obs.data), self.each([step.reward] * n), self.each([step.done] * n), self.each([step.truncated] * n), infos
