"""What a policy server answers, against the outputs of a worker's actor (lib/acting): every kind of network, space, mask and memory. What these
outputs are in PyTorch is test_torch_policy's."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, os.path.dirname(FOLDER)]

import checkpoints  # noqa: E402
from troupe.policy import open_policies  # noqa: E402

HAVE_CLIENT = all(importlib.util.find_spec(name) for name in ("grpc", "numpy", "google")) and importlib.util.find_spec("google.protobuf") is not None
DECISIONS = 3  # of policies that remember


def is_discrete(policy):
    """In a word of its actions at least."""
    return any(policy.action_space.words_are_discrete())


@unittest.skipUnless(HAVE_CLIENT, "grpcio, numpy and protobuf are not installed")
class ServiceTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        run = os.path.join(scratch.name, "run")
        os.makedirs(os.path.join(run, "checkpoints"))
        with open(os.path.join(run, "config.yaml"), "w") as file:
            file.write("seed: 1\n")
        written = checkpoints.write(scratch.name, checkpoints.every_kind())
        self.policies = open_policies(written, 0)
        os.rename(written, os.path.join(run, "checkpoints", "100"))
        self.address = f"unix:{os.path.join(scratch.name, 'sock')}"
        self.log = os.path.join(scratch.name, "log")
        with open(self.log, "w") as file:
            self.server = subprocess.Popen([os.environ["TROUPE_PROGRAM"], "serve", run, "--listen", self.address], stderr=file, stdin=subprocess.DEVNULL)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.terminate)
        deadline = time.monotonic() + 30
        while "policy server ready" not in self.said():
            self.assertIsNone(self.server.poll(), self.said())
            self.assertLess(time.monotonic(), deadline, self.said())
            time.sleep(0.02)

    def said(self):
        with open(self.log) as file:
            return file.read()

    def check(self, client, policy, rows):
        import numpy
        inputs = policy.network.sample_inputs(rows, rows)
        described, = client.policies([policy.id])
        outputs = [name for name in described.outputs if name != "mean"]  # of distributions their own mode
        for decision in range(DECISIONS if policy.state_size else 1):
            expected = policy.outputs(**inputs)
            answer = client.compute_actions(policy.id, inputs["observations"].reshape(rows, -1), inputs.get("action_masks"), inputs.get("agent_slots"),
                                            deterministic=True, state_in=inputs.get("states"), outputs=outputs)
            numpy.testing.assert_allclose(answer.action_logp, expected.logp, atol=1e-5, rtol=1e-5)
            numpy.testing.assert_allclose(answer.actions, expected.actions, atol=1e-5, rtol=1e-5)
            self.assertEqual(answer.logits is not None, is_discrete(policy))
            if answer.logits is not None:
                self.assertEqual(answer.logits.shape[1], policy.network.head.logits)
                numpy.testing.assert_allclose(answer.logits, expected.outputs[:, :answer.logits.shape[1]], atol=1e-5, rtol=1e-5)
            self.assertEqual(answer.state_out is not None, policy.state_size > 0)
            if policy.state_size:
                numpy.testing.assert_allclose(answer.state_out, expected.states, atol=1e-5, rtol=1e-5)
                inputs["states"] = numpy.array(answer.state_out)

    def test_answers_are_a_workers_actors(self):
        from troupe.query import PolicyClient
        with PolicyClient(self.address) as client:
            self.assertEqual(sorted(client.list_policies()), sorted(self.policies))
            for policy in self.policies.values():
                for rows in (1, 30):
                    with self.subTest(policy.id, rows=rows):
                        self.check(client, policy, rows)


if __name__ == "__main__":
    unittest.main()
