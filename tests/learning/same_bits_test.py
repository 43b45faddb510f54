"""What same_bits.py calls the same, with files of this test's own and stand-ins for the programs."""

import contextlib
import io
import json
import os
import struct
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import same_bits  # noqa: E402  beside this file
from same_bits import Tensor  # noqa: E402


def floats(*values):
    return Tensor("F32", (len(values),), struct.pack(f"<{len(values)}f", *values))


def write(path, tensors):
    header, data = {"__metadata__": {"format": "1"}}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(tensor.data)]}
        data += tensor.data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


# A `troupe` that knows some keys, and whose weights are its seed plus SHIFT.
PROGRAM = """
    #!{python}
    import json, os, struct, sys
    if sys.argv[1:] == ["config", "defaults"]:
        print("# Seed.\\nseed: 1\\n\\nenv:\\n  # Name.\\n  name: \\"\\"\\nalgorithm:\\n  {key}: 1.0\\n")
        sys.exit()
    assert sys.argv[1:5] == ["train", "run.yaml", "--name", "run"], sys.argv
    config = json.load(open("run.yaml"))
    if config["env"]["name"] == "broken":
        sys.exit("troupe: error: no such environment")
    assert set(config) <= {{"seed", "env", "algorithm"}}, config
    os.makedirs("runs/run/checkpoints/5")
    os.symlink("5", "runs/run/checkpoints/latest")
    for name in ("policies", "optimizer"):
        text = json.dumps({{"p/" + name: {{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}}}).encode()
        with open("runs/run/checkpoints/5/" + name + ".safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + struct.pack("<f", config["seed"] + {shift}))
"""


class SameBitsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troupe_same_bits_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def differences(self, old, new):
        return same_bits.compare(old, new).differences

    def test_a_file_is_read_as_it_was_written(self):
        tensors = {"a/actor.0.weight": Tensor("F32", (2, 1), struct.pack("<2f", 1.5, -2)),
                   "a/value.mean": Tensor("F64", (1,), struct.pack("<d", 0.1))}
        write(self.path("x"), tensors)
        self.assertEqual(same_bits.read_tensors(self.path("x")), tensors)

    def test_the_same_bits(self):
        result = same_bits.compare({"a": floats(1, 2), "b": floats(3)}, {"b": floats(3), "a": floats(1, 2)})
        self.assertEqual((result.tensors, result.numbers, result.differences, result.same), (2, 3, [], True))

    def test_nothing_is_not_the_same(self):
        self.assertFalse(same_bits.compare({}, {}).same)

    def test_one_bit(self):
        following = struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", 2.0))[0] + 1))[0]
        self.assertEqual(self.differences({"a": floats(1, 2)}, {"a": floats(1, following)}),
                         [f"a: 1 of 2 numbers, most at [1]: 2.0 became {following!r}"])

    def test_the_largest_difference_is_named(self):
        self.assertEqual(self.differences({"a": floats(1, 2, 3)}, {"a": floats(2, 2, 7)}), ["a: 2 of 3 numbers, most at [2]: 3.0 became 7.0"])

    def test_zeros_of_two_signs_differ_and_a_nan_equals_itself(self):
        nan = float("nan")
        self.assertEqual(self.differences({"a": floats(0.0)}, {"a": floats(-0.0)}), ["a: 1 of 1 numbers, most at [0]: 0.0 became -0.0"])
        self.assertEqual(self.differences({"a": floats(nan)}, {"a": floats(nan)}), [])
        self.assertEqual(self.differences({"a": floats(nan)}, {"a": floats(1)}), ["a: 1 of 1 numbers, most at [0]: nan became 1.0"])

    def test_shapes_dtypes_and_missing_tensors(self):
        old = {"a": floats(1, 2), "b": floats(1), "c": floats(1)}
        new = {"a": floats(1, 2)._replace(shape=(2, 1)), "b": Tensor("I32", (1,), floats(1).data), "d": floats(1)}
        self.assertEqual(self.differences(old, new),
                         ["a: F32[2] became F32[2, 1]", "b: F32[1] became I32[1]", "c: only OLD has it", "d: only NEW has it"])

    def test_names_of_old_may_be_changed(self):
        rules = [same_bits.rename_rule(r"/exp_avg$=/adam.exp_avg"), same_bits.rename_rule("^left/=main/")]
        self.assertEqual(list(same_bits.renamed({"left/exp_avg": floats(1), "right/x": floats(2)}, rules)), ["main/adam.exp_avg", "right/x"])
        with self.assertRaisesRegex(same_bits.Failed, "two tensors of OLD the name x"):
            same_bits.renamed({"a": floats(1), "b": floats(2)}, [same_bits.rename_rule("^.*$=x")])

    def test_keys_are_read_from_the_defaults(self):
        text = 'seed: 1\n# env: {name: x}\nenv:\n  # What: a thing.\n  name: ""\n\n  python:\n    path: ""\n  args: {}\nlast: none\n'
        self.assertEqual(same_bits.keys_of(text), {"seed", "env", "env.name", "env.python", "env.python.path", "env.args", "last"})

    def test_what_one_does_not_know_is_left_out(self):
        self.assertEqual(same_bits.without_unknown({"a": 1, "b.c": 2, "d": 3}, {"a", "b.c"}, {"a", "b", "b.c", "d"}), ({"a": 1, "b.c": 2}, ["d"]))
        self.assertEqual(same_bits.nested({"a": 1, "b.c": 2, "b.d.e": 3}), {"a": 1, "b": {"c": 2, "d": {"e": 3}}})

    def program(self, name, shift=0, key="lr"):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(PROGRAM).strip().format(python=sys.executable, shift=shift, key=key) + "\n")
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    def compare_programs(self, old, new, *more, env="corridor"):
        arguments = same_bits.parse([old, new, *more])
        cases = same_bits.CASES
        self.addCleanup(setattr, same_bits, "CASES", cases)
        same_bits.CASES = {"one": {"env.name": env, "algorithm.lr": 0.5}}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            bad = same_bits.compare_all(arguments, self.path("runs" + "".join(more)))
        return bad, out.getvalue()

    def test_programs_that_agree(self):
        bad, text = self.compare_programs(self.program("old"), self.program("new"))
        self.assertEqual(bad, 0, text)
        self.assertIn("| one | 2 | 2 | 0 |\n", text)
        self.assertNotIn("algorithm.lr", text)
        self.assertTrue(text.endswith("1 passed, 0 failed\n"), text)

    def test_programs_that_differ(self):
        bad, text = self.compare_programs(self.program("old"), self.program("new", shift=1))
        self.assertEqual(bad, 1, text)
        self.assertIn("one: p/policies: 1 of 1 numbers, most at [0]: 7.0 became 8.0\n", text)
        bad, text = self.compare_programs(self.path("old"), self.path("new"), "--weights-only")
        self.assertIn("| one | 1 | 1 | 1 |\n", text)

    def test_programs_with_other_keys(self):
        bad, text = self.compare_programs(self.program("old"), self.program("new", key="learning_rate"))
        self.assertEqual(bad, 0, text)
        self.assertRegex(text, r"one: left out for both, since one of them does not know it: .*algorithm\.lr")

    def test_a_program_that_fails_is_not_the_same(self):
        bad, text = self.compare_programs(self.program("old"), self.program("new"), env="broken")
        self.assertEqual(bad, 1, text)
        self.assertIn("no such environment", text)
        self.assertTrue(text.endswith("0 passed, 1 failed\n"), text)

    def test_no_case_is_no_success(self):
        self.assertEqual(self.compare_programs(self.program("old"), self.program("new"), "--only", "nothing")[0], 1)


if __name__ == "__main__":
    unittest.main()
