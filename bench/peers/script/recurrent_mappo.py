#!/usr/bin/env python3
"""MAPPO with a GRU in actor and critic on simple_spread: one plain PyTorch program, as a researcher with a CPU would write it for speed.

    python3 bench/peers/script/recurrent_mappo.py [--env-steps 1000000] [--threads 1] [--seed 1] [--critic team|agent]

Needs torch and numpy. All environments are one array program. An iteration is whole episodes of all of them, so that every sequence begins with
zeros, is as long as an episode, and the values of all steps are one pass of the critic after the episodes. `--critic team` has one value an env step, from
the joint observation (the agents learn from the same reward, so this is least work); `agent` runs the critic once for every agent, as MAPPO's
authors and Troupe do. Prints a line every 25 iterations, and at the end env steps/s from the end of the first iteration on.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch
from torch import nn

from spread import Spread

SETTINGS = json.loads((pathlib.Path(__file__).resolve().parents[1] / "settings.json").read_text())
UNITS = 64
HUBER_DELTA = 10.0
VALUE_CLIP = 0.2


class Recurrent(nn.Module):
    """inputs -> linear -> tanh -> GRU -> linear -> outputs"""

    def __init__(self, inputs, outputs, gain):
        super().__init__()
        self.encoder, self.core, self.head = nn.Linear(inputs, UNITS), nn.GRU(UNITS, UNITS), nn.Linear(UNITS, outputs)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                nn.init.zeros_(parameter)
            else:
                nn.init.orthogonal_(parameter, gain if name == "head.weight" else 5 / 3 if name == "encoder.weight" else 1.0)

    def forward(self, rows):
        """[T, B, inputs], sequences from zeros -> [T, B, outputs]"""
        return self.head(self.core(torch.tanh(self.encoder(rows)))[0])

    def step(self, rows, state):
        """[B, inputs], [B, UNITS] -> [B, outputs], the new state"""
        core = self.core
        state = torch.gru_cell(torch.tanh(self.encoder(rows)), state, core.weight_ih_l0, core.weight_hh_l0, core.bias_ih_l0, core.bias_hh_l0)
        return self.head(state), state


class ReturnStatistics:
    """Running mean and deviation of returns; batches of long ago fade."""

    def __init__(self):
        self.mean, self.variance, self.count = 0.0, 1.0, 1e-4

    def add(self, values):
        delta, count = float(values.mean()) - self.mean, values.numel()
        self.count = min(self.count, 50.0 * count)
        total = self.count + count
        self.variance = (self.variance * self.count + float(values.var(unbiased=False)) * count + delta * delta * self.count * count / total) / total
        self.mean += delta * count / total
        self.count = total

    @property
    def deviation(self):
        return max(self.variance, 1e-8) ** 0.5


def advantages_of(rewards, values, gamma, gae_lambda):
    """Generalized advantage estimation (arXiv 1506.02438): rewards [T, B], values [T + 1, B], the last one of the truncated episode's end -> [T, B]"""
    deltas = rewards + gamma * values[1:] - values[:-1]
    advantages, carry = torch.empty_like(deltas), torch.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        carry = deltas[t] + gamma * gae_lambda * carry
        advantages[t] = carry
    return advantages


class Trainer:
    def __init__(self, seed=1, critic="team", settings=SETTINGS):
        torch.manual_seed(seed)
        torch.set_flush_denormal(True)
        self.settings, self.per_agent = settings, critic == "agent"
        self.agents, self.steps = settings["num_agents"], settings["max_cycles"]
        self.envs = settings["train_batch_env_steps"] // self.steps
        self.minibatches = self.envs * self.steps * self.agents // settings["minibatch_rows"]
        self.world = Spread(self.envs, self.agents, seed=seed)
        size = self.world.observation_size
        self.actor, self.critic = Recurrent(size, self.world.num_actions, 0.01), Recurrent(size * self.agents, 1, 1.0)
        self.optimizer = torch.optim.Adam([*self.actor.parameters(), *self.critic.parameters()], lr=settings["learning_rate"], eps=1e-5, fused=True)
        self.returns = ReturnStatistics()

    @torch.no_grad()
    def sample(self):
        """One episode of every environment: observations [T + 1, E, N, size], actions and their log-probabilities [T, E, N], rewards [T, E, N]"""
        rows = torch.from_numpy(self.world.reset())
        state = torch.zeros(self.envs * self.agents, UNITS)
        observations, actions, logps, rewards = [rows], [], [], []
        for _ in range(self.steps):
            outputs, state = self.actor.step(rows.view(-1, self.world.observation_size), state)
            logp = torch.log_softmax(outputs, -1)
            # The largest of log-probabilities with Gumbel noise is a sample.
            action = (logp - torch.empty_like(logp).exponential_().log_()).argmax(-1)
            shape = (self.envs, self.agents)
            logps.append(logp.gather(1, action[:, None]).view(shape))
            actions.append(action.view(shape))
            row, reward = self.world.step(actions[-1].numpy())
            rows = torch.from_numpy(row)
            observations.append(rows)
            rewards.append(torch.from_numpy(reward))
        return torch.stack(observations), torch.stack(actions), torch.stack(logps), torch.stack(rewards)

    def joint(self, observations):
        """[T, E, N, size] -> what the critic reads, [T, streams, N x size]"""
        joint = observations.flatten(2)
        return joint.repeat_interleave(self.agents, 1) if self.per_agent else joint

    def iterate(self):
        """Samples and updates once -> the mean of the summed return."""
        s = self.settings
        observations, actions, logps, rewards = self.sample()
        team = rewards.mean(-1).float()  # everybody learns from the mean of the rewards
        if self.per_agent:
            team = team.repeat_interleave(self.agents, 1)
        joint = self.joint(observations)
        with torch.no_grad():
            predicted = self.critic(joint).squeeze(-1)
        values = predicted * self.returns.deviation + self.returns.mean
        advantages = advantages_of(team, values, s["gamma"], s["gae_lambda"])
        returns = advantages + values[:-1]
        self.returns.add(returns)
        mean, deviation = self.returns.mean, self.returns.deviation
        targets, old = (returns - mean) / deviation, (values[:-1] - mean) / deviation
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        streams = self.agents if self.per_agent else 1
        # By environment: [T, E, streams of its critic …]
        batch = (observations[:-1], actions, logps, self._by_env(advantages, streams).expand(-1, -1, self.agents),
                 self._by_env(joint[:-1], streams), self._by_env(targets, streams), self._by_env(old, streams))
        for _ in range(s["num_epochs"]):
            for chosen in torch.randperm(self.envs).tensor_split(self.minibatches):
                self.minibatch_step(*(column[:, chosen].flatten(1, 2) for column in batch))
        return float(rewards.sum((0, 2)).mean())

    def _by_env(self, column, streams):
        return column.unflatten(1, (self.envs, streams))

    def minibatch_step(self, observations, actions, logps, advantages, joint, targets, old):
        """PPO's clipped loss, and of values the clipped Huber loss. Columns [T, sequences, …]; those of the critic may have fewer sequences."""
        s = self.settings
        log_probabilities = torch.log_softmax(self.actor(observations), -1)
        ratio = (log_probabilities.gather(-1, actions[..., None]).squeeze(-1) - logps).exp()
        clipped = ratio.clamp(1 - s["clip_param"], 1 + s["clip_param"])
        policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
        entropy = -(log_probabilities.exp() * log_probabilities).sum(-1).mean()
        values = self.critic(joint).squeeze(-1)
        near = old + (values - old).clamp(-VALUE_CLIP, VALUE_CLIP)
        value_loss = torch.max(*(nn.functional.huber_loss(v, targets, delta=HUBER_DELTA, reduction="none") for v in (values, near))).mean()
        self.optimizer.zero_grad()
        (policy_loss - s["entropy_coeff"] * entropy + value_loss).backward()
        for network in (self.actor, self.critic):
            nn.utils.clip_grad_norm_(network.parameters(), s["grad_clip"])
        self.optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-steps", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--critic", choices=("team", "agent"), default="team")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    trainer = Trainer(args.seed, args.critic)
    batch = SETTINGS["train_batch_env_steps"]
    iterations = args.env_steps // batch
    if iterations < 2:
        parser.error(f"--env-steps: got {args.env_steps}, expected at least {2 * batch}: the first iteration is not measured")
    returns, began = [], None
    for iteration in range(1, iterations + 1):
        returns.append(trainer.iterate())
        began = began or time.monotonic()
        if iteration % 25 == 0:
            print(f"{iteration * batch} env steps: return {np.mean(returns[-25:]):.2f}", flush=True)
    print(f"{(iterations - 1) * batch / (time.monotonic() - began):,.0f} env steps/s, {args.threads} threads, critic: {args.critic}")


if __name__ == "__main__":
    main()
