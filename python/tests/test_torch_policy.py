"""Policy.torch_module, and what is exported with it, against the outputs of a worker's actor (lib/acting). Needs torch,
onnx and onnxruntime."""

import contextlib
import copy
import hashlib
import io
import os
import pickle
import re
import sys
import tempfile
import types
import unittest
from typing import Tuple
from unittest import mock

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, os.path.dirname(FOLDER)]

import checkpoints  # noqa: E402
from troupe import TroupeError  # noqa: E402
from troupe.networks import row_scaling  # noqa: E402
from troupe.policy import open_policies  # noqa: E402
from troupe.program import REFUSED  # noqa: E402

torch.set_num_threads(1)


class Module(torch.nn.Module):
    """A user's: remembers a sum, and reads the one-hot and the mask."""

    def __init__(self):
        super().__init__()
        self.state_size = 2
        self.body = torch.nn.Linear(5 + 3, 2)
        self.head = torch.nn.Linear(2, 4)
        self.register_buffer("scale", torch.tensor([0.5]))

    def forward(self, obs: Tensor, agent_id: Tensor, state: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        state = 0.5 * state + torch.tanh(self.body(torch.cat([obs, agent_id], 1))) * self.scale
        return self.head(state) + mask.to(torch.float32), state


class Forgetful(torch.nn.Module):
    """A user's that ignores the one-hot, and has a buffer with the name of the policy's own parameter."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(5, 2)
        self.register_buffer("log_std", torch.tensor([3.0]))

    def forward(self, obs: Tensor, agent_id: Tensor, state: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        return self.body(obs) * self.log_std, state


def forgetful_entry(policy, content):
    tensors = [{"name": name, "shape": shape, "is_buffer": name == "log_std"} for name, shape in
               (("body.weight", [2, 5]), ("body.bias", [2]), ("log_std", [1]))]
    actor = {"encoder": "torchscript", "hidden_sizes": [], "torchscript": {"sha256": hashlib.sha256(content).hexdigest(), "tensors": tensors}}
    return checkpoints.entry(policy, action="Box(-1, 1, [2])", actor=actor, agent_id_size=3)


def save_module(module, path):
    """-> the file's bytes."""
    torch.jit.script(module.eval()).save(path)
    with open(path, "rb") as file:
        return file.read()


def module_entry(policy, content, **more):
    tensors = [{"name": name, "shape": shape, "is_buffer": name == "scale"} for name, shape in
               (("body.weight", [2, 8]), ("body.bias", [2]), ("head.weight", [4, 2]), ("head.bias", [4]), ("scale", [1]))]
    actor = {"encoder": "torchscript", "hidden_sizes": [],
             "torchscript": {"sha256": hashlib.sha256(content).hexdigest(), "tensors": tensors, "state_size": 2}}
    return checkpoints.entry(policy, actor=actor, agent_id_size=3, has_action_mask=True, sequence_length=16, **more)


class TorchPolicyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = cls.scratch.name
        cls.module_path = os.path.join(cls.folder, "module.pt")
        torch.manual_seed(3)
        content = save_module(Module(), cls.module_path)
        cls.forgetful_path = os.path.join(cls.folder, "forgetful.pt")
        entries = [*checkpoints.every_kind(), checkpoints.entry("cartpole", "Box(-inf, inf, [4])", "Discrete(2)"), module_entry("module", content),
                   module_entry("module_normed", content, normalize_observations=True),
                   forgetful_entry("forgetful", save_module(Forgetful(), cls.forgetful_path))]
        cls.policies = open_policies(checkpoints.write(cls.folder, entries), 0)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def path(self, name):
        return os.path.join(self.folder, name)

    def built_in(self):
        return [policy for policy in self.policies.values() if not policy.network.is_module]

    def assert_close(self, got, expected, tolerance=1e-5):
        self.assertEqual(got.shape, expected.shape)
        # By the scale of a row, as export measures it: the numbers of the kind "wide" cancel each other.
        difference = np.max(np.abs(got - expected) / np.maximum(1, np.max(np.abs(expected), axis=-1, keepdims=True)))
        self.assertLessEqual(difference, tolerance)

    def expected(self, policy, inputs):
        """A worker's actor's outputs by name."""
        computed = policy.outputs(**inputs)
        named = policy.network.head.split(computed.outputs, policy.network.tensors.get("actor.log_std"))
        return {**named, **({"next_states": computed.states} if policy.state_size else {})}

    def test_the_numbers_are_those_of_a_workers_actor(self):
        for policy in self.built_in():
            module, network = policy.torch_module(), policy.network
            self.assertFalse(module.training)
            for seed, rows in enumerate((1, 60)):
                with self.subTest(policy.id, rows=rows), torch.no_grad():
                    inputs = network.sample_inputs(rows, seed)
                    for _ in range(3 if policy.state_size else 1):  # each with the state that the one before gave
                        outputs = module(**{name: torch.from_numpy(inputs[name]) for name in module.input_names})
                        wanted = self.expected(policy, inputs)
                        self.assertEqual(module.output_names, list(wanted))
                        for values, name in zip(outputs, module.output_names):
                            self.assert_close(values.numpy(), wanted[name])
                        if policy.state_size:
                            inputs["states"] = wanted["next_states"]

    def test_every_input_counts(self):
        """The comparison above would hold of a network that forgets one in both places."""
        for policy in self.built_in():
            inputs = policy.network.sample_inputs(6, 5)
            before = self.expected(policy, inputs)
            for name in policy.network.input_names:
                with self.subTest(policy.id, name=name):
                    changed = (inputs[name] + 1) % 3 if name == "agent_slots" else inputs[name][::-1].copy()
                    after = self.expected(policy, {**inputs, name: changed})
                    self.assertTrue(any(np.abs(after[each] - before[each]).max() > 1e-3 for each in before))

    def test_parameters_have_the_names_of_a_checkpoints_tensors(self):
        for policy in self.built_in():
            with self.subTest(policy.id):
                module, tensors = policy.torch_module(), policy.network.all_tensors()
                state = module.state_dict()
                self.assertEqual(sorted(state), sorted(tensors))
                for name, values in tensors.items():
                    np.testing.assert_array_equal(state[name].numpy(), values)
                self.assertEqual(sorted(name for name, _ in module.named_parameters()), sorted(policy.network.tensors))

    def test_distributions_of_pytorch_say_a_workers_log_probabilities(self):
        for name in ("mlp_tanh", "gaussian", "squashed", "beta"):
            policy = self.policies[name]
            inputs = policy.network.sample_inputs(20, 4)
            logp, module = policy.outputs(**inputs).logp, policy.torch_module()
            outputs = dict(zip(module.output_names, module(**{each: torch.from_numpy(inputs[each]) for each in module.input_names})))
            expected = torch.zeros(20)
            begin = 0
            for categories in policy.network.head.categories:
                expected = expected + torch.log_softmax(outputs["logits"][:, begin:begin + categories], 1).max(1).values
                begin += categories
            if "mean" in outputs:
                expected = expected + torch.distributions.Normal(outputs["mean"], outputs["log_std"].exp()).log_prob(outputs["mean"]).sum(1)
            if name == "squashed":
                expected = expected - torch.log1p(-torch.tanh(outputs["mean"].double()) ** 2).sum(1)
            if name == "beta":
                mean = outputs["alpha"] / (outputs["alpha"] + outputs["beta"])
                expected = expected + (torch.distributions.Beta(outputs["alpha"], outputs["beta"]).log_prob(mean) - np.log(2)).sum(1)
            self.assert_close(expected.detach().numpy(), logp, 1e-4)

    def test_it_trains(self):
        module = self.policies["lstm"].torch_module()
        inputs = self.policies["lstm"].network.sample_inputs(4, 1)
        logits, states = module(**{name: torch.from_numpy(values) for name, values in inputs.items()})
        (logits.square().sum() + states.square().sum()).backward()
        for name, parameter in module.named_parameters():
            self.assertGreater(parameter.grad.abs().max().item(), 0, name)

    def test_torchscript(self):
        for policy in self.built_in():
            with self.subTest(policy.id):
                done = policy.export(self.path(f"{policy.id}.pt"), "torchscript")
                self.assertEqual(done.checked_with, "torch")
                self.assertLessEqual(done.difference, 1e-5)
                extra = {"troupe.policy": "", "troupe.inputs": ""}
                module, network = torch.jit.load(done.path, _extra_files=extra), policy.network
                self.assertEqual(extra["troupe.policy"], policy.id.encode())
                inputs = network.sample_inputs(13, 9)  # another number of rows than it was traced with
                outputs = module(**{name: torch.from_numpy(inputs[name]) for name in network.input_names})
                for values, wanted in zip(outputs, self.expected(policy, inputs).values()):
                    self.assert_close(values.detach().numpy(), wanted)
                self.assertEqual(sorted(module.state_dict()), sorted(network.all_tensors()))

    def test_onnx(self):
        for policy in self.built_in():
            with self.subTest(policy.id):
                done = policy.export(self.path(f"{policy.id}.onnx"), "onnx")
                self.assertEqual(done.checked_with, "onnxruntime")
                network = policy.network
                session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
                self.assertEqual([each.name for each in session.get_inputs()], network.input_names)
                self.assertEqual([each.name for each in session.get_outputs()], network.output_names)
                for rows in (1, 13):
                    inputs = network.sample_inputs(rows, 9)
                    outputs = session.run(None, {name: inputs[name] for name in network.input_names})
                    for values, wanted in zip(outputs, self.expected(policy, inputs).values()):
                        self.assert_close(values, wanted, 1e-4)
                golden = np.load(done.golden)
                outputs = session.run(None, {name: golden[f"input.{name}"] for name in network.input_names})
                for values, name in zip(outputs, network.output_names):
                    self.assert_close(values, golden[f"output.{name}"], 1e-4)
                properties = {each.key: each.value for each in onnx.load(done.path).metadata_props}
                self.assertEqual((properties["troupe.policy"], properties["troupe.version"]), (policy.id, "4"))

    def test_a_users_network_has_the_weights_of_the_checkpoint(self):
        for name in ("module", "module_normed"):
            policy = self.policies[name]
            tensors, module = policy.network.tensors, policy.torch_module(torchscript=self.module_path)
            inputs = {each: torch.from_numpy(values) for each, values in policy.network.sample_inputs(9, 2).items()}
            own = Module()
            own.load_state_dict({each: torch.tensor(tensors["actor.buffers.scale" if each == "scale" else f"actor.{each}"]) for each in own.state_dict()})
            seen = inputs["observations"]
            if name == "module_normed":
                seen = torch.clamp((seen - torch.tensor(policy.network.mean)) / torch.tensor(policy.network.variance).clamp(1e-8).sqrt(), -10, 10).float()
            wanted = own(seen, torch.nn.functional.one_hot(inputs["agent_slots"], 3).float(), inputs["states"], inputs["action_masks"].bool())
            for got, each in zip(module(**inputs), wanted):
                self.assert_close(got.detach().numpy(), each.detach().numpy())
            for format, checked_with in (("safetensors", ""), ("torchscript", "torch"), ("onnx", "onnxruntime")):
                done = policy.export(self.path(f"{name}.{format}"), format, torchscript=self.module_path)
                self.assertEqual(done.checked_with, checked_with)

    def test_an_input_that_a_users_network_ignores_is_none_of_its_graph(self):
        policy = self.policies["forgetful"]
        done = policy.export(self.path("forgetful.onnx"), "onnx", torchscript=self.forgetful_path)
        self.assertEqual(done.checked_with, "onnxruntime")
        session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
        golden = np.load(done.golden)
        names = [each.name for each in session.get_inputs()]
        self.assertEqual((names, [name for name in golden if name.startswith("input.")]), (["observations"], ["input.observations"]))
        mean, log_std = session.run(None, {"observations": golden["input.observations"]})
        self.assert_close(mean, golden["output.mean"])
        tensors = policy.network.tensors
        x = golden["input.observations"] @ tensors["actor.body.weight"].T + tensors["actor.body.bias"]
        self.assert_close(mean, x * tensors["actor.buffers.log_std"])
        self.assert_close(log_std, np.tile(tensors["actor.log_std"], (8, 1)))
        with mock.patch("importlib.util.find_spec", return_value=None):  # the graph alone has to do
            done = policy.export(self.path("unchecked.onnx"), "onnx", torchscript=self.forgetful_path)
        self.assertEqual((done.checked_with, [name for name in np.load(done.golden) if name.startswith("input.")]), ("", ["input.observations"]))

    def test_a_module_can_be_copied_and_pickled(self):
        for policy in self.policies.values():
            own = {"forgetful": self.forgetful_path}.get(policy.id, self.module_path) if policy.network.is_module else None
            module = policy.torch_module(torchscript=own)
            copies = [copy.deepcopy(module)]
            if own is None:  # a ScriptModule has a format of its own
                copies.append(pickle.loads(pickle.dumps(module)))
            inputs = {name: torch.from_numpy(policy.network.sample_inputs(3, 8)[name]) for name in module.input_names}
            for other in copies:
                with self.subTest(policy.id), torch.no_grad():
                    other.load_state_dict(pickle.loads(pickle.dumps(module.state_dict())))
                    for got, wanted in zip(other(**inputs), module(**inputs)):
                        self.assertTrue(torch.equal(got, wanted))
                    self.assertEqual(other.input_names, module.input_names)

    def test_a_users_file_is_run_where_it_is_named_alone(self):
        policy = self.policies["module"]
        wanted = policy.network.actor["torchscript"]["sha256"]
        for make in (policy.torch_module, lambda: policy.export(self.path("none.pt"), "torchscript"), lambda: policy.export(self.path("none.safetensors"))):
            with self.assertRaisesRegex(TroupeError, f"policy module is a TorchScript module, sha256:{wanted}, .*expected torchscript=FILE") as caught:
                make()
            self.assertEqual(caught.exception.code, REFUSED)
        other = self.path("other.pt")
        with open(other, "wb") as file:
            file.write(b"another file")
        with self.assertRaisesRegex(TroupeError, f"other.pt: got a file with the SHA-256 {hashlib.sha256(b'another file').hexdigest()}, expected {wanted}"):
            policy.torch_module(torchscript=other)
        with self.assertRaisesRegex(TroupeError, "none.pt: cannot be read: No such file"):
            policy.torch_module(torchscript=self.path("none.pt"))

    def test_what_the_docs_print_runs(self):
        with open(os.path.join(FOLDER, "..", "..", "docs", "python.md")) as file:
            block, = [text for text in re.findall(r"```python\n(.*?)```", file.read(), re.S) if "import torch" in text]
        run = types.SimpleNamespace(policies=lambda: {"left": self.policies["cartpole"]})
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(block, {"troupe": types.SimpleNamespace(load=lambda name: run)})
        self.assertEqual(printed.getvalue(), "['observations'] ['logits']\n")

    def test_what_differs_from_a_workers_actor_is_not_given_away(self):
        policy = self.policies["bytes"]
        offset, scale = row_scaling(policy.network.spec)
        with mock.patch("troupe.torch_policy.row_scaling", return_value=(offset, scale * np.float32(255 / 256))):
            for make in (policy.torch_module, lambda: policy.export(self.path("differs.pt"), "torchscript")):
                with self.assertRaisesRegex(TroupeError, "policy bytes: outside of troupe it has logits that differ by .*, expected at most 0.0001"):
                    make()
        with mock.patch("troupe.export._run", side_effect=lambda module, network, inputs: {"logits": np.full((8, 4), np.nan)}):
            with self.assertRaisesRegex(TroupeError, "differ by nan"):
                policy.torch_module()
        self.assertFalse(os.path.exists(self.path("differs.pt")))

    def test_a_folder_that_is_not_there_is_named_for_each_format(self):
        for format in ("safetensors", "torchscript", "onnx"):
            with self.assertRaisesRegex(TroupeError, "none/p: cannot be written"):
                self.policies["mlp_tanh"].export(self.path(os.path.join("none", "p")), format)

    def test_a_users_network_lacks_no_weights(self):
        network = self.policies["module"].network
        tensors = dict(network.all_tensors())
        gone = next(name for name in tensors if name.endswith("weight"))
        del tensors[gone]
        with mock.patch.object(type(network), "all_tensors", return_value=tensors):
            with self.assertRaisesRegex(TroupeError, f"network {gone}, which are not the checkpoint's"):
                self.policies["module"].torch_module(torchscript=self.module_path)

    def test_inputs_that_are_missing_are_named(self):
        observations = torch.zeros(2, 5)
        for name, words in (("seen", "got no agent_slots"), ("gru", "got no states")):
            with self.assertRaisesRegex(ValueError, f"policy {name} .*{words}"):
                self.policies[name].torch_module()(observations)


if __name__ == "__main__":
    unittest.main()
