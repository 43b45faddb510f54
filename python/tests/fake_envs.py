"""Environments that play a script, one of every kind, for tests that need NumPy alone. None needs Gymnasium or
PettingZoo.
"""

import fake_spaces as fake
import numpy as np

BOX = fake.Box(-9, 9, (1,))


def obs(value):
    return np.array([value], dtype=np.float32)


class Scripted:
    """Gives what its script says: the first entry at reset, the others step by step. Notes seeds, actions and
    closes.
    """

    def __init__(self, script):
        self.script = script
        self.seeds, self.actions, self.closes, self.at = [], [], 0, 0

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self.at = 0
        return self.script[0]

    def step(self, actions):
        self.actions.append(actions)
        self.at += 1
        return self.script[self.at]

    def close(self):
        self.closes += 1


class Parallel(Scripted):
    """PettingZoo's ParallelEnv. A script entry is a step's five values; `agents` are those of it that are not done."""

    def __init__(self, script, agents=("a", "b"), space=BOX, action=None):
        super().__init__([(script[0], {})] + script[1:] if isinstance(script[0], dict) else script)
        self.possible_agents = list(agents)
        self.spaces = {agent: (space, action or fake.Discrete(3)) for agent in agents}

    @property
    def agents(self):
        done = set()
        for step in self.script[1 : self.at + 1]:
            done |= {agent for flags in step[2:4] for agent, flag in flags.items() if flag}
        return [agent for agent in self.possible_agents if agent not in done]

    def observation_space(self, agent):
        return self.spaces[agent][0]

    def action_space(self, agent):
        return self.spaces[agent][1]


class Dicts(Scripted):
    """RLlib's MultiAgentEnv: spaces as attributes."""

    def __init__(self, script, agents=("a", "b"), space=BOX, action=None):
        super().__init__(script)
        self.possible_agents = list(agents)
        self.observation_space, self.action_space = space, action or fake.Discrete(3)


class Env:
    """What Gymnasium's environments inherit from is known by its name."""


class Gym(Scripted, Env):
    def __init__(self, script, space=BOX, action=None):
        super().__init__(script)
        self.observation_space, self.action_space = space, action or fake.Discrete(3)


class Lists(Scripted):
    def __init__(self, script, agents=2, lists=False, action=None):
        super().__init__(script)
        several = list if lists else fake.Tuple
        self.observation_space, self.action_space = (
            several([BOX] * agents),
            several([action or fake.Discrete(3, 1)] * agents),
        )
        self.n_agents = agents


class Countdown:
    """PettingZoo's AECEnv. Agents take a number of 1 to 3 from a heap in turn; who takes the last gets 5, and everybody
    else -1. Taking 3 gives the next
    player 2 at once. Who takes more than there is left, ends (terminated, -3) and the others go on. `limit` turns
    truncate everybody.
    """

    info_columns = ["heap"]

    def __init__(self, heap=6, players=3, limit=None, leaves=True, mask=True):
        self.heap_at_start, self.limit, self.leaves, self.mask = heap, limit, leaves, mask
        self.possible_agents = [("player", i) for i in range(players)]
        self.seeds, self.closes = [], 0

    def observation_space(self, agent):
        return BOX

    def action_space(self, agent):
        return fake.Discrete(3, 1)

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self.heap, self.turns = self.heap_at_start, 0
        self.agents = self.possible_agents[:]
        self.terminations, self.truncations = ({agent: False for agent in self.agents} for _ in range(2))
        self.pending = {agent: 0.0 for agent in self.agents}
        self.agent_selection = self.agents[0]

    def observe(self, agent):
        return obs(self.heap)

    def last(self):
        agent = self.agent_selection
        mask = {"action_mask": [1, int(self.heap > 1), 1]} if self.mask else {}
        return (
            self.observe(agent),
            self.pending[agent],
            self.terminations[agent],
            self.truncations[agent],
            {"heap": self.heap, "text": "ignored", **mask},
        )

    def step(self, action):
        agent = self.agent_selection
        place = self.agents.index(agent)
        if self.terminations[agent] or self.truncations[agent]:
            assert action is None
            if self.leaves:
                self.agents.remove(agent)
                if self.agents:
                    self.agent_selection = self.agents[place % len(self.agents)]
            return
        self.pending[agent] = 0.0
        self.turns += 1
        following = self.agents[(place + 1) % len(self.agents)]
        if action > self.heap:
            self.terminations[agent] = True
            self.pending[agent] = -3.0
            return  # its turn goes on, so that it leaves
        self.heap -= action
        if action == 3:
            self.pending[following] += 2.0
        if self.heap == 0:
            for other in self.agents:
                self.pending[other] += 5.0 if other == agent else -1.0
                self.terminations[other] = True
        elif self.turns == self.limit:
            self.truncations = {other: True for other in self.agents}
        self.agent_selection = following

    def close(self):
        self.closes += 1


def shown(result):
    """What a result holds, with observations as numbers, for comparing."""
    return {
        "obs": [None if o is None else float(np.asarray(o).reshape(-1)[0]) for o in result.observations],
        "rewards": result.rewards[:],
        "ended": ["T" if t else "C" if c else "" for t, c in zip(result.terminated, result.truncated)],
        "all": "T" if result.all_terminated else "C" if result.all_truncated else "",
    }


def row(observations, rewards, ended, end=""):
    return {"obs": observations, "rewards": rewards, "ended": ended, "all": end}
