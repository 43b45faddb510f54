"""momaland 0.2.0, item_gathering: troupe init momaland_items.py"""

import numpy as np
from momaland.envs.item_gathering import moitem_gathering_v0
from momaland.utils.parallel_wrappers import LinearizeReward


def parallel_env(**args):
    env = moitem_gathering_v0.parallel_env(**args)
    return LinearizeReward(env, {agent: np.ones(env.unwrapped.reward_space(agent).shape[0]) for agent in env.possible_agents})
