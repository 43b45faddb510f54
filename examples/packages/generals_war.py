"""generals 1.0.0: troupe init generals_war.py:Generals --set env.max_episode_steps=200"""

import numpy as np
from generals import GridFactory
from generals.agents import AgentFactory
from generals.envs import PettingZooGenerals
from gymnasium import spaces

SEEN = ["army", "general", "city", "owned_cells", "opponent_cells", "neutral_cells", "visible_cells", "structure"]


class Generals(PettingZooGenerals):
    def __init__(self, size=8):
        self.n, self.moves = size, 4 * size * size  # and one more: to pass
        super().__init__({a: AgentFactory.make_agent("random", id=a) for a in ("red", "blue")}, GridFactory(grid_dims=(size, size)))

    def observation_space(self, agent):
        seen = spaces.Box(-np.inf, np.inf, (self.n, self.n, len(SEEN)), np.float32)
        return spaces.Dict({"observation": seen, "action_mask": spaces.MultiBinary(self.moves + 1)})

    def action_space(self, agent):
        return spaces.Discrete(self.moves + 1)

    def seen(self, observations):
        planes = {a: np.stack([np.float32(o["observation"][key]) for key in SEEN], -1) for a, o in observations.items()}
        return {a: {"observation": planes[a], "action_mask": np.append(o["action_mask"], True)} for a, o in observations.items()}

    def reset(self, seed=None, options=None):
        return self.seen(super().reset(seed, options)[0]), {}

    def step(self, actions):
        cell = lambda m: np.array(divmod(m // 4 % self.n**2, self.n))
        observations, *rest, _ = super().step({a: {"pass": m == self.moves, "cell": cell(m), "direction": m % 4, "split": 0} for a, m in actions.items()})
        return (self.seen(observations), *rest, {})
