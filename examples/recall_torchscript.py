#!/usr/bin/env python3
"""Writes recall_torchscript.pt and recall_torchscript_critic.pt, the networks of examples/recall_torchscript.yaml, with PyTorch (pip install
torch): what examples/recall_gru.yaml builds in, written as a module that remembers.

`state_size` says how many numbers it remembers of an agent. `state` is [rows, state_size], zeros at an agent's first decision of an episode, and
what forward gives back with the outputs is the `state` of that agent's next decision. A module sees one decision a row and never the time.
"""

import os
import sys
from typing import Tuple

import torch
from torch import Tensor, nn

from cartpole_torchscript import leave_out_sources

OBSERVATION_SIZE, ACTIONS, UNITS = 6, 4, 64


class Recurrent(nn.Module):
    def __init__(self, outputs: int, output_gain: float):
        super().__init__()
        self.state_size = UNITS
        self.encoder = nn.Sequential(nn.Linear(OBSERVATION_SIZE, UNITS), nn.Tanh())
        self.core = nn.GRUCell(UNITS, UNITS)  # of an nn.LSTMCell the state would be the output and the cell, side by side
        self.head = nn.Linear(UNITS, outputs)
        for name, parameter in self.named_parameters():
            if name.endswith("bias") or "bias_" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.orthogonal_(parameter, output_gain if name == "head.weight" else 5 / 3 if name.startswith("encoder") else 1.0)

    def forward(self, obs: Tensor, agent_id: Tensor, state: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        state = self.core(self.encoder(obs), state)
        return self.head(state), state


if __name__ == "__main__":
    torch.manual_seed(1)
    folder = os.path.dirname(os.path.abspath(__file__)) if len(sys.argv) < 2 else sys.argv[1]
    for name, module in (("recall_torchscript.pt", Recurrent(ACTIONS, 0.01)), ("recall_torchscript_critic.pt", Recurrent(1, 1.0))):
        torch.jit.script(module.eval()).save(os.path.join(folder, name))
        leave_out_sources(os.path.join(folder, name))
