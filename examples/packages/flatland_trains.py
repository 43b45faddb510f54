"""flatland-rl 4.3.0: troupe init flatland_trains.py"""

import numpy as np
from flatland.core.env_observation_builder import ObservationBuilder
from flatland.env_generation.env_generator import env_generator
from flatland.ml.pettingzoo.pettingzoo_parallel_rail_env import PettingZooParallelEnvWrapper
from gymnasium import spaces


class Sees(ObservationBuilder):
    """A train's state, where it looks, and how far its target is from each neighbouring cell."""

    def get_observation_space(self, handle=0):
        return spaces.Box(0, 1, (15,), np.float32)

    def get(self, handle=0):
        train, row = self.env.agents[handle], np.zeros(15, np.float32)
        row[min(int(train.state), 6)] = 1
        (r, c), d = train.current_configuration or train.initial_configuration
        row[7 + int(d)] = 1
        far = np.minimum(self.env.distance_map.get()[handle, r, c], 200)
        row[11:] = np.nan_to_num(far, posinf=200) / 200
        return row


def parallel_env(**args):
    return PettingZooParallelEnvWrapper(env_generator(obs_builder_object=Sees(), **args)[0])
