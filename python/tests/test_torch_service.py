"""What a policy server answers, against the policy's network in PyTorch. Needs torch, grpcio and protobuf."""

import os
import sys
import unittest

import numpy
import torch

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, os.path.dirname(FOLDER)]

import test_service  # noqa: E402

torch.set_num_threads(1)


class TorchServiceTest(test_service.ServiceTest):
    def test_answers_are_a_workers_actors(self):
        self.checked = set()
        super().test_answers_are_a_workers_actors()
        expected = {policy.id for policy in self.policies.values() if test_service.is_discrete(policy) or policy.state_size}
        self.assertEqual(self.checked, expected)
        self.assertGreater(len(expected), 20)

    def check(self, client, policy, rows):
        inputs, module = policy.network.sample_inputs(rows, rows), policy.torch_module()
        described, = client.policies([policy.id])
        asked = [name for name in described.outputs if name in ("logits", "state_out")]
        if not asked:
            return  # what a worker's actor makes of continuous outputs is test_torch_policy's
        for _ in range(test_service.DECISIONS if policy.state_size else 1):
            with torch.no_grad():
                computed = module(**{name: torch.from_numpy(inputs[name]) for name in module.input_names})
            expected = dict(zip(module.output_names, (values.numpy() for values in computed)))
            answer = client.compute_actions(policy.id, inputs["observations"].reshape(rows, -1), inputs.get("action_masks"), inputs.get("agent_slots"),
                                            deterministic=True, state_in=inputs.get("states"), outputs=asked)
            for name, values in (("logits", answer.logits), ("next_states", answer.state_out)):
                self.assertEqual(values is not None, name in expected, name)
                if values is not None:
                    scale = numpy.maximum(1, numpy.max(numpy.abs(expected[name]), axis=-1, keepdims=True))
                    self.assertLessEqual(numpy.max(numpy.abs(values - expected[name]) / scale), 1e-5, name)
            if policy.state_size:
                inputs["states"] = numpy.array(answer.state_out)
        self.checked.add(policy.id)


if __name__ == "__main__":
    unittest.main()
