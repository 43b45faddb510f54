#!/usr/bin/env python3
"""Writes examples/custom_loss.pt, the loss of examples/cartpole_custom_loss.yaml, with PyTorch (pip install torch).

Any torch.nn.Module without parameters and with this forward does; what of PyTorch it may use is TorchScript's language. `outputs` are
what the networks of the policy give for the rows of a minibatch, with gradients; `columns` has what the attribute `columns` names
(docs/configuration.md). This one is PPO's: a clipped surrogate, half the squared error of the values, and a bonus for entropy.
"""

import os
import sys
import zipfile
from typing import Dict, Tuple

import torch
from torch import Tensor, nn


class PpoLoss(nn.Module):
    def __init__(self, clip: float = 0.2, value_coeff: float = 1.0, entropy_coeff: float = 0.0):
        super().__init__()
        self.columns = ["old_logp", "advantages", "value_targets", "policy_weights", "value_weights"]
        self.clip, self.value_coeff, self.entropy_coeff = clip, value_coeff, entropy_coeff

    def mean(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Over the rows that count: those of agents that are out of the game may not."""
        return (rows * weights).sum() / weights.sum().clamp(min=1.0)

    def forward(self, outputs: Dict[str, Tensor], columns: Dict[str, Tensor]) -> Tuple[Tensor, Dict[str, Tensor]]:
        advantages, weights = columns["advantages"], columns["policy_weights"]
        ratio = (outputs["logp"] - columns["old_logp"]).exp()
        clipped = ratio.clamp(1.0 - self.clip, 1.0 + self.clip)
        surrogate = self.mean(torch.min(ratio * advantages, clipped * advantages), weights)
        entropy = self.mean(outputs["entropy"], weights)
        error = 0.5 * (outputs["critic"].squeeze(1) - columns["value_targets"]).square()
        value_loss = self.mean(error, columns["value_weights"])
        loss = self.value_coeff * value_loss - surrogate - self.entropy_coeff * entropy
        clip_fraction = self.mean(((ratio - 1.0).abs() > self.clip).float(), weights)
        return loss, {"Surrogate": surrogate, "Value error": value_loss, "Clip fraction": clip_fraction}


def leave_out_sources(path):
    """Takes out where the Python lay that the module was made of: a part of the file that only PyTorch's tracebacks read."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".debug_pkl")}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data)


if __name__ == "__main__":
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "custom_loss.pt") if len(sys.argv) < 2 else sys.argv[1]
    torch.jit.script(PpoLoss()).save(path)
    leave_out_sources(path)
