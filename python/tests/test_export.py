"""What leaves a checkpoint with numpy alone: a policy's network as data, safetensors with golden rows, errors, and the
command's Python half. What needs PyTorch: test_torch_policy.py."""

import contextlib
import errno
import io
import json
import os
import re
import secrets
import stat
import struct
import sys
import tempfile
import types
import unittest
from unittest import mock

import numpy as np

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, os.path.dirname(FOLDER)]

import checkpoints  # noqa: E402
from troupe import TroupeError, export, export_command  # noqa: E402
from troupe.networks import Head, read_head  # noqa: E402
from troupe.policy import open_policies  # noqa: E402
from troupe.program import REFUSED, USAGE  # noqa: E402


def read_safetensors(path):
    """-> (name -> array, metadata)"""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    kinds = {"F32": "<f4", "F64": "<f8"}
    metadata = header.pop("__metadata__")
    begin = 0
    for entry in header.values():
        assert entry["data_offsets"][0] == begin, "the numbers have no gaps"
        assert begin % np.dtype(kinds[entry["dtype"]]).itemsize == 0, "a tensor can be read where it lies"
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
        return open_policies(checkpoints.write(self.folder, entries), 0)

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
        named = head.split(np.arange(28, dtype=np.float32).reshape(2, 14), np.float32([-3, 0, 0.5, 1, 2]))
        self.assertEqual({name: values[0].tolist() for name, values in named.items()},
                         {"logits": list(range(9)), "mean": [9, 10, 11, 12, 13], "log_std": [-2, 0, 0.5, 1, 1]})
        head = read_head({**entry, "free_log_std": False})
        self.assertEqual((head.first, head.second), (((9, 11), (13, 16)), ((11, 13), (16, 19))))
        named = head.split(np.arange(19, dtype=np.float32).reshape(1, 19) - 12, None)
        self.assertEqual((named["mean"].tolist(), named["log_std"].tolist()), ([[-3, -2, 1, 2, 3]], [[-1, 0, 1, 1, 1]]))
        head = read_head({**checkpoints.entry("beta", action="Box(0, 1, [1])"), "continuous": "beta"})
        named = head.split(np.float32([[0, 1e9], [-50, 2]]), None)
        self.assertEqual(head.names, ["alpha", "beta"])
        np.testing.assert_allclose(named["alpha"], [[1 + np.log(2)], [1]])
        np.testing.assert_allclose(named["beta"], [[1000001], [1 + np.log1p(np.exp(2))]], rtol=1e-6)
        with self.assertRaisesRegex(TroupeError, "policy mixed: got the distribution cauchy, expected gaussian"):
            read_head({**entry, "continuous": "cauchy"})

    def test_files_are_whole_or_not_there(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        path = self.path("p.safetensors")
        policy.export(path)
        with open(path, "rb") as file:
            before = file.read()
        for there in (path, path + export.GOLDEN_SUFFIX):
            with self.assertRaisesRegex(TroupeError, "is there already, expected no file: overwrite=True") as caught:
                policy.export(path)
            self.assertEqual(caught.exception.code, REFUSED)
            os.remove(there)
        os.rename(self.path("table.json"), path)  # whatever it is
        policy.export(path, overwrite=True)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), before)
        with self.assertRaisesRegex(TroupeError, "none/p: cannot be written: No such file"):
            policy.export(self.path("none", "p"), "safetensors")
        with mock.patch.object(export, "_write_npz", side_effect=OSError(28, "No space left on device")):
            with self.assertRaisesRegex(TroupeError, "q.safetensors.golden.npz: cannot be written: No space left"):
                policy.export(self.path("q.safetensors"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["checkpoint", "p.safetensors", "p.safetensors.golden.npz"])

    def files(self):
        return sorted(set(os.listdir(self.folder)) - {"checkpoint", "table.json"})

    def test_where_the_second_file_cannot_be_placed_the_first_is_not(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        for name, overwrite in (("link", False), ("replace", True)):
            place = getattr(os, name)

            def fail(source, target, place=place):
                if target.endswith(export.GOLDEN_SUFFIX):
                    raise OSError(5, "Input/output error")
                place(source, target)

            with mock.patch.object(os, name, fail):
                with self.assertRaisesRegex(TroupeError, "p.golden.npz: cannot be written: Input/output error"):
                    policy.export(self.path("p"), "safetensors", overwrite=overwrite)
            self.assertEqual(self.files(), [])

    def test_what_was_to_be_overwritten_is_back_where_the_second_file_cannot_be_placed(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        for name in ("p", "p.golden.npz"):
            with open(self.path(name), "w") as file:
                file.write(f"the old {name}")
        replace = os.replace

        def fail(source, target):
            if target.endswith(export.GOLDEN_SUFFIX):
                raise OSError(5, "Input/output error")
            replace(source, target)

        with mock.patch.object(os, "replace", fail):
            with self.assertRaisesRegex(TroupeError, "p.golden.npz: cannot be written: Input/output error"):
                policy.export(self.path("p"), "safetensors", overwrite=True)
        self.assertEqual(self.files(), ["p", "p.golden.npz"])
        for name in self.files():
            with open(self.path(name)) as file:
                self.assertEqual(file.read(), f"the old {name}")
        policy.export(self.path("p"), "safetensors", overwrite=True)
        self.assertEqual(self.files(), ["p", "p.golden.npz"])

    def test_a_file_that_appears_meanwhile_stays(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        for appears in ("p", "p.golden.npz"):
            def sync(_, appears=appears):
                with open(self.path(appears), "w") as file:
                    file.write("another's")

            with mock.patch.object(export, "_sync", sync):
                with self.assertRaisesRegex(TroupeError, f"{appears} has appeared meanwhile, expected no file: overwrite=True") as caught:
                    policy.export(self.path("p"), "safetensors")
            self.assertEqual((caught.exception.code, self.files()), (REFUSED, [appears]))
            with open(self.path(appears)) as file:
                self.assertEqual(file.read(), "another's")
            os.remove(self.path(appears))

    def test_a_file_system_without_hard_links_is_named(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        for number in (errno.EPERM, errno.EOPNOTSUPP):
            with mock.patch.object(os, "link", side_effect=OSError(number, os.strerror(number))):
                with self.assertRaisesRegex(TroupeError, r"p: cannot be written: its file system has no hard links .*, expected some, or overwrite=True"):
                    policy.export(self.path("p"), "safetensors")
                self.assertEqual(self.files(), [])
                policy.export(self.path("p"), "safetensors", overwrite=True)
            os.remove(self.path("p"))
            os.remove(self.path("p.golden.npz"))

    def test_what_is_no_regular_file_is_refused_before_work_begins(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        made = {"a folder": os.mkdir, "a link": lambda path: os.symlink("/nowhere", path), "no regular file": os.mkfifo}
        for target in ("p", "p.golden.npz"):
            for kind, make in made.items():
                make(self.path(target))
                with mock.patch.object(export, "_golden", side_effect=AssertionError("work has begun")):
                    with self.assertRaisesRegex(TroupeError, f"{target} is {kind}, expected a regular file or none") as caught:
                        policy.export(self.path("p"), "safetensors", overwrite=True)
                self.assertEqual((caught.exception.code, self.files()), (REFUSED, [target]))
                (os.rmdir if kind == "a folder" else os.remove)(self.path(target))

    def test_files_have_the_permissions_that_the_umask_leaves(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        for _ in range(2):
            done = policy.export(self.path("p"), "safetensors", overwrite=True)
            self.assertEqual([stat.S_IMODE(os.stat(path).st_mode) for path in (done.path, done.golden)], [0o640, 0o640])

    def test_a_temporary_is_no_file_of_anybody_elses(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        with mock.patch.object(secrets, "token_hex", side_effect=["guessed"]):
            os.symlink(self.path("theirs"), self.path(".guessed.part"))
            with self.assertRaisesRegex(TroupeError, "p: cannot be written: File exists"):
                policy.export(self.path("p"), "safetensors")
        self.assertEqual(self.files(), [".guessed.part"])

    def test_what_is_too_large_for_onnx_is_said_before_it_is_written(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        size = sum(values.nbytes for values in policy.network.tensors.values())
        self.assertEqual(export.MAX_ONNX_BYTES, 2 ** 31 - 2 ** 20)
        words = f"policy p: got tensors of {size} bytes, expected at most {size - 1}, which an ONNX file can hold"
        with mock.patch.object(export, "MAX_ONNX_BYTES", size - 1), self.assertRaisesRegex(TroupeError, words):
            policy.export(self.path("p"), "onnx")
        with mock.patch.object(export, "MAX_ONNX_BYTES", size), mock.patch.dict(sys.modules, {"torch": None}):
            with self.assertRaisesRegex(TroupeError, "format onnx needs"):
                policy.export(self.path("p"), "onnx")
        with mock.patch.object(export, "MAX_ONNX_BYTES", 0):
            policy.export(self.path("p"), "safetensors")

    def test_weights_that_a_worker_refuses_do_not_leave(self):
        entries = [checkpoints.entry(name, normalize_observations=True) for name in ("good", "bad")]
        policies = open_policies(checkpoints.write(self.folder, entries, damaged="bad"), 0)
        with self.assertRaisesRegex(TroupeError, r'policy "bad": observation_mean\[0\] is not finite'):
            policies["bad"].export(self.path("p"), "safetensors")
        self.assertEqual(self.files(), [])
        policies["good"].export(self.path("p"), "safetensors")

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
                with self.assertRaisesRegex(TroupeError, f"format {format} needs the Python package torch") as caught:
                    policy.export(self.path("p"), format)
                self.assertEqual(caught.exception.code, REFUSED)
        with self.assertRaisesRegex(TroupeError, "got the format 'gguf', expected one of safetensors, torchscript, onnx") as caught:
            policy.export(self.path("p"), "gguf")
        self.assertEqual(caught.exception.code, USAGE)
        self.assertFalse(os.path.exists(self.path("p")))

    # "a.onnx" without a format was written as safetensors.
    def test_the_format_follows_the_ending(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        self.assertEqual(read_safetensors(policy.export(self.path("a.safetensors")).path)[1]["policy"], "p")
        with mock.patch.dict(sys.modules, {"torch": None}):
            for name, format in (("a.onnx", "onnx"), ("a.pt", "torchscript")):
                with self.assertRaisesRegex(TroupeError, f"format {format} needs the Python package torch"):
                    policy.export(self.path(name))
        endings = r"expected one of \.safetensors \(safetensors\), \.pt \(torchscript\), \.onnx \(onnx\), or a format \(--format\)$"
        for name, got in (("a", "no ending"), ("a.bin", r"the ending \.bin"), ("a.ONNX", r"the ending \.ONNX"), (".onnx", "no ending")):
            with self.assertRaisesRegex(TroupeError, f"{name}: got {got}, {endings}") as caught:
                policy.export(self.path(name))
            self.assertEqual(caught.exception.code, USAGE)
        words = r"a\.onnx: got the format safetensors for a file of onnx, expected the ending \.safetensors, or no format: it follows the ending"
        with self.assertRaisesRegex(TroupeError, words) as caught:
            policy.export(self.path("a.onnx"), "safetensors")
        self.assertEqual(caught.exception.code, USAGE)
        self.assertEqual(self.files(), ["a.safetensors", "a.safetensors.golden.npz"])
        # An ending that says nothing leaves the choice to the format.
        self.assertEqual(read_safetensors(policy.export(self.path("a.bin"), "safetensors").path)[1]["policy"], "p")

    def test_an_old_pytorch_is_named(self):
        policy = self.open(checkpoints.entry("p"))["p"]
        for version, ending in (("1.13.0", ".onnx"), ("2.4.1+cpu", ".pt")):
            with mock.patch.dict(sys.modules, {"torch": types.SimpleNamespace(__version__=version)}):
                words = re.escape(f"needs PyTorch 2.5 or newer, got {version} of {sys.executable}: pip install --upgrade torch")
                with self.assertRaisesRegex(TroupeError, words) as caught:
                    policy.export(self.path("a" + ending))
                self.assertEqual(caught.exception.code, REFUSED)
        for version in ("2.5.0", "2.11.0+cu126", "10.0", "a build of mine"):
            with mock.patch.dict(sys.modules, {"torch": types.SimpleNamespace(__version__=version), "onnx": None}):
                with self.assertRaisesRegex(TroupeError, "format onnx needs the Python package onnx"):
                    policy.export(self.path("a.onnx"))
        self.assertEqual(self.files(), [])

    def test_policies_without_a_network_of_ours(self):
        module = {"encoder": "torchscript", "hidden_sizes": [],
                  "torchscript": {"sha256": "a" * 64, "tensors": [{"name": "weight", "shape": [2, 3], "is_buffer": False}]}}
        policies = self.open(checkpoints.entry("p"), checkpoints.entry("chance", trains=False, **{"class": "random"}), checkpoints.entry("module", actor=module))
        with self.assertRaisesRegex(TroupeError, 'policy "chance" is of class random, which has no network'):
            policies["chance"].export(self.path("p"), "safetensors")
        with mock.patch.object(export, "require"):
            with mock.patch.dict(sys.modules, {"troupe.torch_policy": mock.Mock(make_module=mock.Mock(side_effect=TroupeError("a program")))}):
                with self.assertRaisesRegex(TroupeError, "a program"):
                    policies["module"].export(self.path("p"), "safetensors")
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
        code, out, err = self.run_main(checkpoint, "--policy", "p", "--output", self.path("p.onx"))
        self.assertEqual((code, out), (USAGE, ""))
        self.assertRegex(err, r"^troupe: error: .*p\.onx: got the ending \.onx, expected one of \.safetensors")
        code, out, err = self.run_main(checkpoint, "--policy", "p", "--output", path)
        self.assertEqual((code, out), (REFUSED, ""))
        self.assertRegex(err, r"^troupe: error: .*p\.safetensors is there already")
        code, out, _ = self.run_main(checkpoint, "--policy", "q", "--output", path, "--overwrite", "--json")
        self.assertEqual((code, json.loads(out)), (0, {"path": path, "golden": path + ".golden.npz", "policy_id": "q", "version": 4, "difference": 0,
                                                       "checked_with": ""}))
        for asked, wanted, words in (([], USAGE, "got no --policy of 2, expected one of p, q"), (["--policy", "r"], 1, "got r, expected one of p, q")):
            code, _, err = self.run_main(checkpoint, *asked, "--output", path)
            self.assertEqual(code, wanted)
            self.assertIn(words, err)


if __name__ == "__main__":
    unittest.main()
