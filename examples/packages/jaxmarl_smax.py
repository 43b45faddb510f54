"""jaxmarl 0.2.0, SMAX: troupe init jaxmarl_smax.py:Battle"""

import functools

import jax
import jaxmarl
import numpy as np
from jaxmarl.environments.smax import map_name_to_scenario


@functools.cache
def compiled(scenario):  # once for all environments of a process
    env = jaxmarl.make("HeuristicEnemySMAX", scenario=map_name_to_scenario(scenario))
    return env, jax.jit(env.step_env), jax.jit(env.reset), jax.jit(env.get_avail_actions)


class Battle:
    def __init__(self, scenario="3m"):
        self.env, self.move, self.begin, self.allowed = compiled(scenario)
        self.agents = self.possible_agents = self.env.agents
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space

    def reset(self, seed=None, options=None):
        self.key = jax.random.PRNGKey(seed or 0)
        seen, self.state = self.begin(self.key)
        return {a: seen[a] for a in self.agents}, {a: {"action_mask": mask} for a, mask in self.allowed(self.state).items()}

    def step(self, actions):
        self.key, key = jax.random.split(self.key)
        chosen = {a: np.int32(actions.get(a, 4)) for a in self.agents}  # the dead stand still
        seen, self.state, rewards, dones, _ = self.move(key, self.state, chosen)
        return {a: seen[a] for a in self.agents}, rewards, dones, {}, {a: {"action_mask": mask} for a, mask in self.allowed(self.state).items()}
