"""simple_spread of mpe2 1.1.1 for many environments at once in numpy: discrete actions, episodes that all begin and end together."""

import numpy as np

TIME_STEP, DAMPING, ACCELERATION = 0.1, 0.25, 5.0
CONTACT_FORCE, CONTACT_MARGIN, DIAMETER = 100.0, 1e-3, 0.3
MOVES = ACCELERATION * np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], float)  # none, left, right, down, up


class Spread:
    """`num_envs` environments of `num_agents` agents and as many landmarks. No thread, no automatic reset: an episode has as many steps as its
    user takes (25 in the original)."""

    num_actions = len(MOVES)

    def __init__(self, num_envs, num_agents=3, local_ratio=0.5, seed=0):
        self.num_envs, self.num_agents, self.local_ratio = num_envs, num_agents, local_ratio
        self.observation_size = 4 + 2 * num_agents + 4 * (num_agents - 1)
        self._random = np.random.default_rng(seed)
        # Of each agent the others, in order; and 1 for each pair of two different agents.
        self._others = np.array([[j for j in range(num_agents) if j != i] for i in range(num_agents)], int).reshape(num_agents, num_agents - 1)
        self._pairs = 1.0 - np.eye(num_agents)
        shape = (num_envs, num_agents, 2)
        self.positions, self.velocities, self.landmarks = np.zeros(shape), np.zeros(shape), np.zeros(shape)

    def reset(self):
        """Begins an episode in each environment -> observations [num_envs, num_agents, observation_size] float32."""
        shape = self.positions.shape
        self.positions = self._random.uniform(-1, 1, shape)
        self.landmarks = self._random.uniform(-1, 1, shape)
        self.velocities = np.zeros(shape)
        return self.observe()

    def observe(self):
        """Own velocity and position, landmarks and other agents relative to oneself, and zeros, for nobody speaks."""
        envs, agents = self.num_envs, self.num_agents
        rows = np.zeros((envs, agents, self.observation_size), np.float32)
        rows[..., 0:2] = self.velocities
        rows[..., 2:4] = self.positions
        own = self.positions[:, :, None]
        at = 4 + 2 * agents
        rows[..., 4:at] = (self.landmarks[:, None] - own).reshape(envs, agents, -1)
        rows[..., at:at + 2 * (agents - 1)] = (self.positions[:, self._others] - own).reshape(envs, agents, -1)
        return rows

    def step(self, actions):
        """[num_envs, num_agents] of 0 to 4 -> observations, and rewards [num_envs, num_agents]."""
        between = self.positions[:, :, None] - self.positions[:, None]  # [envs, agent, other, 2]
        distances = np.sqrt((between * between).sum(-1)) + (1.0 - self._pairs)
        overlap = np.logaddexp(0.0, (DIAMETER - distances) / CONTACT_MARGIN) * CONTACT_MARGIN * self._pairs
        forces = MOVES[actions] + (CONTACT_FORCE * (overlap / distances)[..., None] * between).sum(2)
        self.positions = self.positions + self.velocities * TIME_STEP
        self.velocities = self.velocities * (1.0 - DAMPING) + forces * TIME_STEP
        return self.observe(), self._rewards()

    def _rewards(self):
        to_landmarks = self.positions[:, :, None] - self.landmarks[:, None]
        uncovered = np.sqrt((to_landmarks * to_landmarks).sum(-1)).min(1).sum(-1)  # [envs]
        between = self.positions[:, :, None] - self.positions[:, None]
        touching = ((between * between).sum(-1) < DIAMETER * DIAMETER) * self._pairs
        return -(1.0 - self.local_ratio) * uncovered[:, None] - self.local_ratio * touching.sum(-1)
