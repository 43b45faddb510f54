"""Environments that observe a Dict with an action mask under a name of choice, one of each kind, for tests of
env.action_mask_key and env.state_key.
"""

import numpy as np


class Box:
    def __init__(self, shape):
        self.shape, self.dtype = shape, np.dtype(np.float32)
        self.low, self.high = np.zeros(shape, np.float32), np.ones(shape, np.float32)


class Discrete:
    def __init__(self, n):
        self.n, self.start = n, 0


class Dict:
    def __init__(self, spaces):
        self.spaces = spaces


class Masked:
    def __init__(self, keys):
        self.sizes = {"observation": 2, **{key: 3 for key in keys.split(",")}}
        self.space = Dict({key: Box((size,)) for key, size in self.sizes.items()})

    def observed(self):
        return {key: np.arange(size, dtype=np.float32).clip(0, 1) for key, size in self.sizes.items()}


class Gymnasium(Masked):
    """One agent; forbids action 0."""

    def __init__(self, keys):
        super().__init__(keys)
        self.observation_space, self.action_space = self.space, Discrete(3)

    def reset(self, seed=None, options=None):
        return self.observed(), {}

    def step(self, action):
        return self.observed(), float(action), action == 0, False, {}


class Parallel(Masked):
    """PettingZoo's ParallelEnv with the agents a and b."""

    def __init__(self, keys):
        super().__init__(keys)
        self.possible_agents = ["a", "b"]

    def observation_space(self, agent):
        return self.space

    def action_space(self, agent):
        return Discrete(3)

    def each(self, value):
        return {agent: value for agent in self.possible_agents}

    def reset(self, seed=None, options=None):
        self.agents = self.possible_agents[:]
        return self.each(self.observed()), self.each({})

    def step(self, actions):
        over = 0 in actions.values()
        if over:
            self.agents = []
        return self.each(self.observed()), self.each(1.0), self.each(over), self.each(False), self.each({})


class Dicts(Parallel):
    """RLlib's form of the same."""

    def __init__(self, keys):
        super().__init__(keys)
        self.observation_space, self.action_space = self.each(self.space), self.each(Discrete(3))

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = super().step(actions)
        return observations, rewards, {**terminated, "__all__": not self.agents}, {"__all__": False}, infos
