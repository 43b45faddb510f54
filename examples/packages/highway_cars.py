"""highway-env 1.12.1, an intersection with two cars: troupe init highway_cars.py:Cars"""

import gymnasium
import highway_env  # noqa: F401


class Cars(gymnasium.Wrapper):
    n_agents = 2

    def __init__(self):
        super().__init__(gymnasium.make("intersection-multi-agent-v0", disable_env_checker=True))
