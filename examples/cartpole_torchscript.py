#!/usr/bin/env python3
"""Writes examples/cartpole_torchscript.pt, the actor of examples/cartpole_torchscript.yaml, with PyTorch (pip install torch).

Any torch.nn.Module with this forward does; what of PyTorch it may use is TorchScript's language. Observations come as floats, one row
each; agent_id, state and mask have a width of 0 where the policy has none of them. What it gives is what its policy's last layer
would: for two discrete actions two logits a row.
"""

import os
import sys
import zipfile
from typing import Tuple

import torch
from torch import Tensor, nn

OBSERVATION_SIZE, ACTIONS, UNITS = 4, 2, 64


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBSERVATION_SIZE, UNITS), nn.Tanh(), nn.Linear(UNITS, UNITS), nn.Tanh())
        self.head = nn.Linear(UNITS, ACTIONS)
        # Not trained, but part of it: what observations are divided by.
        self.register_buffer("scale", torch.tensor([2.4, 3.0, 0.21, 3.0]))
        nn.init.orthogonal_(self.head.weight, 0.01)
        nn.init.zeros_(self.head.bias)

    def forward(self, obs: Tensor, agent_id: Tensor, state: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        return self.head(self.body(obs / self.scale)), state


def leave_out_sources(path):
    """Takes out where the Python lay that the module was made of: a part of the file that only PyTorch's tracebacks read."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".debug_pkl")}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data)


if __name__ == "__main__":
    torch.manual_seed(1)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cartpole_torchscript.pt") if len(sys.argv) < 2 else sys.argv[1]
    torch.jit.script(Actor().eval()).save(path)
    leave_out_sources(path)
