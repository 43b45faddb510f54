#!/usr/bin/env python3
"""A step of a learn group whose loss is over tensors beside the same step in eager PyTorch, in turns, on one thread each.

    group_step.py [--bench build/release/bench/group_step_bench] [--rounds 7] [--seconds 2] [--transitions 256]

Q-learning with a target network (18-64-64-5, tanh): a forward pass of both, a backward pass, a clipped gradient, Adam, and every
100 steps a copy of the target. The tensors of a step are there: nothing is copied in PyTorch's turn.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import time

try:
    import torch
    from torch import nn
except Exception as error:  # noqa: BLE001: also what its libraries raise
    print(f"cannot import torch ({type(error).__name__}: {error}), expected a python3 that has it", file=sys.stderr)
    sys.exit(2)

OBSERVATION, ACTIONS, HIDDEN = 18, 5, 64
GAMMA, LEARNING_RATE, MAX_GRAD_NORM, TARGET_INTERVAL = 0.99, 5e-4, 10.0, 100
WARM_UP = 50


def network():
    return nn.Sequential(nn.Linear(OBSERVATION, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, ACTIONS))


class Eager:
    def __init__(self, transitions):
        torch.manual_seed(1)
        self.online, self.target = network(), network()
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=LEARNING_RATE, eps=1e-5)
        self.obs, self.next_obs = torch.randn(transitions, OBSERVATION), torch.randn(transitions, OBSERVATION)
        self.actions = torch.randint(ACTIONS, (transitions, 1))
        self.rewards = torch.randn(transitions)
        self.continues = (torch.arange(transitions) % 3 != 0).float()
        self.steps = 0

    def step(self):
        with torch.no_grad():
            targets = self.rewards + GAMMA * self.continues * self.target(self.next_obs).amax(1)
        chosen = self.online(self.obs).gather(1, self.actions).squeeze(1)
        loss = 0.5 * nn.functional.mse_loss(chosen, targets)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()
        self.steps += 1
        if self.steps % TARGET_INTERVAL == 0:
            self.target.load_state_dict(self.online.state_dict())

    def rate(self, seconds):
        for _ in range(WARM_UP):
            self.step()
        before, begin = self.steps, time.perf_counter()
        while time.perf_counter() < begin + seconds:
            self.step()
        return (self.steps - before) / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/release/bench/group_step_bench"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--transitions", type=int, default=256)
    options = parser.parse_args()
    torch.set_num_threads(1)
    eager = Eager(options.transitions)
    ours, theirs = [], []
    for _ in range(options.rounds):
        printed = subprocess.run([options.bench, str(options.seconds), str(options.transitions)], check=True, capture_output=True, text=True)
        ours.append(float(re.match(r"([\d.]+) steps/s", printed.stdout)[1]))
        theirs.append(eager.rate(options.seconds))
    ratios = sorted(a / b for a, b in zip(ours, theirs))
    print(f"a step through a group: {statistics.median(ours):,.0f} steps/s, eager PyTorch {statistics.median(theirs):,.0f} steps/s, "
          f"{statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f}), {options.transitions} transitions, one thread each")


if __name__ == "__main__":
    main()
