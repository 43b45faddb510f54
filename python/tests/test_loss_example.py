"""examples/custom_loss.pt is what examples/custom_loss.py writes. Needs torch."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples")
SOURCE = os.path.join(EXAMPLES, "custom_loss.py")


def code_of(path):
    """The parts of the archive that are code; others hold its name and PyTorch's version."""
    with zipfile.ZipFile(path) as archive:
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist() if "/code/" in name}


class LossExampleTest(unittest.TestCase):
    def test_the_file_is_of_the_source(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "loss.pt")
            subprocess.run([sys.executable, "-W", "ignore", SOURCE, path], check=True)
            self.assertEqual(code_of(path), code_of(os.path.join(EXAMPLES, "custom_loss.pt")))

    def test_the_file_gives_what_the_source_gives(self):
        spec = importlib.util.spec_from_file_location("custom_loss", SOURCE)
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        torch.manual_seed(1)
        outputs = {"logp": -torch.rand(6), "entropy": torch.rand(6), "critic": torch.randn(6, 1)}
        columns = {"old_logp": -torch.rand(6), "advantages": torch.randn(6), "value_targets": torch.randn(6),
                   "policy_weights": torch.tensor([1.0, 0, 1, 1, 1, 1]), "value_weights": torch.ones(6)}
        kept = torch.jit.load(os.path.join(EXAMPLES, "custom_loss.pt"))
        self.assertEqual(sorted(kept.columns), sorted(columns))
        loss, metrics = kept(outputs, columns)
        wanted, named = example.PpoLoss()(outputs, columns)
        self.assertEqual(float(loss), float(wanted))
        self.assertEqual({name: float(value) for name, value in metrics.items()}, {name: float(value) for name, value in named.items()})


if __name__ == "__main__":
    unittest.main()
