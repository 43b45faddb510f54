"""Gymnasium's Pendulum-v1 for several agents, as RLlib's MultiAgentPendulum: each swings a pendulum of its own."""

import gymnasium


class Pendulums:
    """`config`: num_agents (2). Agents are ints; all episodes are 200 steps long."""

    def __init__(self, config):
        self.possible_agents = list(range(config.get("num_agents", 2)))
        self.envs = [gymnasium.make("Pendulum-v1") for _ in self.possible_agents]
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space

    def reset(self, *, seed=None, options=None):
        # Of each agent its own start.
        seeds = [None if seed is None else (seed * len(self.envs) + i) % 2**32 for i in self.possible_agents]
        return {i: self.envs[i].reset(seed=seeds[i])[0] for i in self.possible_agents}, {}

    def step(self, actions):
        observed, rewards, terminateds, truncateds = {}, {}, {}, {}
        for i, action in actions.items():
            observed[i], rewards[i], terminateds[i], truncateds[i], _ = self.envs[i].step(action)
        terminateds["__all__"] = False
        truncateds["__all__"] = all(truncateds.values())
        return observed, rewards, terminateds, truncateds, {}
