"""What leaves a checkpoint with numpy alone: a policy's network as data, safetensors with golden rows, errors, and the command's Python half. What needs
PyTorch: test_torch_policy.py."""

import contextlib
import io
import json
import os
import struct
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, os.path.dirname(FOLDER)]

import checkpoints  # noqa: E402
from troupe import TroupeError, export, export_command  # noqa: E402
from troupe.networks import Head, read_head  # noqa: E402


def read_safetensors(path):
    """-> (name -> array, metadata)"""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    metadata = header.pop("__metadata__")
    kinds = {"F32": "<f4", "F64": "<f8"}
    begin = 0
    for entry in header.values():
        assert entry["data_offsets"][0] == begin, "the numbers have no gaps"
        begin = entry["data_offsets"][1]
    assert begin == len(data)
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(entry["shape"]) for name, entry in header.items()}, metadata


class ExportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def open(self, *entries):
        return checkpoints.open_policies(checkpoints.write(self.folder, entries))

    def test_safetensors_of_every_kind_with_golden_rows(self):
        for policy in self.open(*checkpoints.every_kind()).values():
            with self.subTest(policy.id):
                done = policy.export(self.path(f"{policy.id}.safetensors"))
                self.assertEqual((done.path, done.golden), (self.path(f"{policy.id}.safetensors"), self.path(f"{policy.id}.safetensors.golden.npz")))
                tensors, metadata = read_safetensors(done.path)
                network = policy.network
                self.assertEqual({name: values.tolist() for name, values in tensors.items()},
                                 {name: values.tolist() for name, values in network.all_tensors().items()})
                self.assertEqual("observation.mean" in tensors, network.spec["normalize_observations"])
                self.assertEqual((metadata["policy"], metadata["version"], json.loads(metadata["network"])), (policy.id, "4", network.spec))
                golden = np.load(done.golden)
                for name in network.input_names:
                    self.assertEqual(len(golden[f"input.{name}"]), export.GOLDEN_ROWS)
                self.assertEqual([name for name in golden if name.startswith("output.")], [f"output.{name}" for name in network.output_names])
                for name in golden:
                    self.assertTrue(np.all(np.isfinite(golden[name])), name)
                self.assertEqual("action_masks" in golden, network.mask_size > 0)

    def test_golden_rows_are_what_the_tensors_make_of_them(self):
        policies = self.open(checkpoints.entry("tanh"), checkpoints.entry("normed", action="Box(-1, 1, [2])", normalize_observations=True))
        for policy in policies.values():
            done = policy.export(self.path(f"{policy.id}.safetensors"))
            tensors, _ = read_safetensors(done.path)
            golden = np.load(done.golden)
            x = golden["input.observations"].astype(float)
            if "observation.mean" in tensors:
                x = np.clip((x - tensors["observation.mean"]) / np.sqrt(np.maximum(tensors["observation.variance"], 1e-8)), -10, 10)
            for layer in range(3):
                x = x @ tensors[f"actor.{layer}.weight"].T + tensors[f"actor.{layer}.bias"]
                x = np.tanh(x) if layer < 2 else x
            if policy.id == "tanh":
                np.testing.assert_allclose(golden["output.logits"], x, rtol=1e-5, atol=1e-5)
                self.assertEqual(golden["actions"][:, 0].tolist(), x.argmax(1).tolist())
                np.testing.assert_allclose(golden["logp"], x.max(1) - np.log(np.exp(x).sum(1)), rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_allclose(golden["output.mean"], x, rtol=1e-5, atol=1e-5)
                np.testing.assert_allclose(golden["output.log_std"], np.clip(np.tile(tensors["actor.log_std"], (8, 1)), -20, 5))
                np.testing.assert_allclose(golden["actions"], np.clip(x, -1, 1), rtol=1e-5, atol=1e-5)

    def test_what_the_columns_of_the_last_layer_are(self):
        entry = checkpoints.entry("mixed", action=checkpoints.MIXED, min_log_std=-2.0, max_log_std=1.0)
        head = read_head(entry)
        self.assertEqual(head, Head("gaussian", (3, 2, 2, 2), ((9, 11), (11, 14)), (), -2.0, 1.0))
        said = head.split(np.arange(28, dtype=np.float32).reshape(2, 14), np.float32([-3, 0, 0.5, 1, 2]))
        self.assertEqual({name: values[0].tolist() for name, values in said.items()},
                         {"logits": list(range(9)), "mean": [9, 10, 11, 12, 13], "log_std": [-2, 0, 0.5, 1, 1]})
        head = read_head({**entry, "free_log_std": False})
        self.assertEqual((head.first, head.second), (((9, 11), (13, 16)), ((11, 13), (16, 19))))
        said = head.split(np.arange(19, dtype=np.float32).reshape(1, 19) - 12, None)
        self.assertEqual((said["mean"].tolist(), said["log_std"].tolist()), ([[-3, -2, 1, 2, 3]], [[-1, 0, 1, 1, 1]]))
        head = read_head({**checkpoints.entry("beta", action="Box(0, 1, [1])"), "continuous": "beta"})
        said = head.split(np.float32([[0, 1e9], [-50, 2]]), None)
        self.assertEqual(head.names, ["alpha", "beta"])
        np.testing.assert_allclose(said["alpha"], [[1 + np.log(2)], [1]])
        np.testing.assert_allclose(said["beta"], [[1000001], [1 + np.log1p(np.exp(2))]], rtol=1e-6)
        with self.assertRaisesRegex(TroupeError, "policy mixed: got the distribution cauchy, expected gaussian"):
            read_head({**entry, "continuous": "cauchy"})

    def test_files_are_whole_or_not_there(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        path = self.path("p.safetensors")
        policy.export(path)
        with open(path, "rb") as file:
            before = file.read()
        for there in (path, path + export.GOLDEN_SUFFIX):
            with self.assertRaisesRegex(TroupeError, "is there already, expected no file: overwrite=True"):
                policy.export(path)
            os.remove(path if there == path else there)
        os.rename(self.path("table.json"), path)  # whatever it is
        policy.export(path, overwrite=True)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), before)
        with self.assertRaisesRegex(TroupeError, "none/p: cannot be written: No such file"):
            policy.export(self.path("none", "p"))
        with mock.patch.object(export, "_write_npz", side_effect=OSError(28, "No space left on device")):
            with self.assertRaisesRegex(TroupeError, "q.safetensors.golden.npz: cannot be written: No space left"):
                policy.export(self.path("q.safetensors"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["checkpoint", "p.safetensors", "p.safetensors.golden.npz"])

    def test_a_large_discrete_observation_takes_its_rows_alone(self):
        policy = self.open(checkpoints.entry("p", "Discrete(1048576)", actor={"hidden_sizes": [1]}))["p"]
        rows = policy.network.sample_inputs(2, 0)["observations"]
        self.assertEqual((rows.shape, rows.sum(1).tolist()), ((2, 1048576), [1, 1]))

    def test_what_is_missing_is_named(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        with mock.patch.dict(sys.modules, {"torch": None}):
            with self.assertRaisesRegex(TroupeError, r"torch_module needs the Python package torch, which .*python.* cannot import .*: pip install torch$"):
                policy.torch_module()
            for format in ("torchscript", "onnx"):
                with self.assertRaisesRegex(TroupeError, f"format {format} needs the Python package torch"):
                    policy.export(self.path("p"), format)
        with self.assertRaisesRegex(TroupeError, "got the format 'gguf', expected one of safetensors, torchscript, onnx"):
            policy.export(self.path("p"), "gguf")
        self.assertFalse(os.path.exists(self.path("p")))

    def test_policies_without_a_network_of_ours(self):
        module = {"encoder": "torchscript", "hidden_sizes": [],
                  "torchscript": {"sha256": "a" * 64, "tensors": [{"name": "weight", "shape": [2, 3], "is_buffer": False}]}}
        policies = self.open(checkpoints.entry("p"), checkpoints.entry("chance", trains=False, **{"class": "random"}), checkpoints.entry("module", actor=module))
        with self.assertRaisesRegex(TroupeError, 'policy "chance" is of class random, which has no network'):
            policies["chance"].export(self.path("p"))
        with mock.patch.object(export, "require"):
            with mock.patch.dict(sys.modules, {"troupe.torch_policy": mock.Mock(make_module=mock.Mock(side_effect=TroupeError("a program")))}):
                with self.assertRaisesRegex(TroupeError, "a program"):
                    policies["module"].export(self.path("p"))
        self.assertEqual(policies["module"].network.tensors["actor.weight"].shape, (2, 3))

    def run_main(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = export_command.main(words)
        return code, out.getvalue(), err.getvalue()

    def test_the_commands_python_half(self):
        checkpoint = checkpoints.write(self.folder, [checkpoints.entry("p"), checkpoints.entry("q")])
        path = self.path("p.safetensors")
        code, out, _ = self.run_main(checkpoint, "--policy", "p", "--output", path)
        self.assertEqual((code, out), (0, f"wrote {path} and {path}.golden.npz: policy p, version 4\n"))
        code, out, err = self.run_main(checkpoint, "--policy", "p", "--output", path)
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"^troupe: error: .*p\.safetensors is there already")
        code, out, _ = self.run_main(checkpoint, "--policy", "q", "--output", path, "--overwrite", "--json")
        self.assertEqual((code, json.loads(out)), (0, {"path": path, "golden": path + ".golden.npz", "policy_id": "q", "version": 4, "difference": 0,
                                                       "checked_with": ""}))
        for asked, words in (([], "got no --policy of 2, expected one of p, q"), (["--policy", "r"], "got r, expected one of p, q")):
            code, _, err = self.run_main(checkpoint, *asked, "--output", path)
            self.assertEqual(code, 1)
            self.assertIn(words, err)


if __name__ == "__main__":
    unittest.main()
