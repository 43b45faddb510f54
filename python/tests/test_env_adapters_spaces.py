"""Spaces of Python environments: descriptions, rows, actions and masks are those of lib/space, by hand and against
Gymnasium where it is installed.
"""

import importlib.util
import itertools
import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), HERE]

HAVE_NUMPY = importlib.util.find_spec("numpy") is not None
if HAVE_NUMPY:
    import fake_spaces as fake
    import numpy as np

    from troupe.env_adapters import spaces
    from troupe.env_adapters.spaces import SpaceCodec, SpaceError
    from troupe.envs import spaces as native


def flat(space, value, fill=7):
    codec = SpaceCodec(spaces.describe(space))
    out = np.full(codec.flat_size, fill, dtype=codec.flat_dtype)
    codec.flatten_into(value, out)
    return out.tolist()


def action(space, *words):
    codec = SpaceCodec(spaces.describe(space))
    row = np.empty(codec.action_words, dtype=np.int32)
    assert len(words) == codec.action_words
    for i, word in enumerate(words):
        if isinstance(word, float):
            row.view(np.float32)[i] = word
        else:
            row[i] = word
    return codec.unflatten_action(row)


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class SpacesTest(unittest.TestCase):
    def test_descriptions_are_json_and_say_the_bounds(self):
        cases = [
            (
                fake.Box(-1, 1, (3,)),
                {"type": "Box", "shape": [3], "dtype": "float32", "low": -1, "high": 1},
                "Box(-1, 1, [3])",
            ),
            (
                fake.Box(-np.inf, np.inf, (2, 2)),
                {"type": "Box", "shape": [2, 2], "dtype": "float32", "low": "-inf", "high": "inf"},
                "Box(-inf, inf, [2, 2])",
            ),
            (
                fake.Box([0, -0.5], [1, np.inf]),
                {"type": "Box", "shape": [2], "dtype": "float32", "low": [0, -0.5], "high": [1, "inf"]},
                "Box([0, -0.5], [1, inf], [2])",
            ),
            (
                fake.Box(0, 255, (4,), np.uint8),
                {"type": "Box", "shape": [4], "dtype": "uint8", "low": 0, "high": 255},
                "Box(0, 255, [4], uint8)",
            ),
            (
                fake.Box(0, 1, (2,), np.int8),
                {
                    "type": "Box",
                    "shape": [2],
                    "dtype": "int32",
                    "low": 0,
                    "high": 1,
                    "python": {"shape": [2], "dtype": "int8"},
                },
                "Box(0, 1, [2], int32)",
            ),
            (
                fake.Box(0, 1, ()),
                {
                    "type": "Box",
                    "shape": [1],
                    "dtype": "float32",
                    "low": 0,
                    "high": 1,
                    "python": {"shape": [], "dtype": "float32"},
                },
                "Box(0, 1, [1])",
            ),
            (fake.Discrete(5), {"type": "Discrete", "n": 5, "start": 0}, "Discrete(5)"),
            (fake.Discrete(3, -1), {"type": "Discrete", "n": 3, "start": -1}, "Discrete(3, -1)"),
            (
                fake.MultiDiscrete([2, 3], [1, 0]),
                {"type": "MultiDiscrete", "nvec": [2, 3], "python": {"shape": [2], "dtype": "int64", "start": [1, 0]}},
                "MultiDiscrete([2, 3])",
            ),
            (fake.MultiBinary(3), {"type": "MultiBinary", "n": 3, "python": {"shape": [3]}}, "MultiBinary(3)"),
            (
                fake.Tuple([fake.Discrete(2)]),
                {"type": "Tuple", "spaces": [{"type": "Discrete", "n": 2, "start": 0}]},
                "Tuple(Discrete(2))",
            ),
            (
                fake.Dict({"b": fake.Discrete(2), "Z": fake.Discrete(3)}),
                {
                    "type": "Dict",
                    "spaces": {
                        "Z": {"type": "Discrete", "n": 3, "start": 0},
                        "b": {"type": "Discrete", "n": 2, "start": 0},
                    },
                },
                "Dict{Z: Discrete(3), b: Discrete(2)}",
            ),
        ]
        for space, description, text in cases:
            with self.subTest(text):
                self.assertEqual(spaces.describe(space), description)
                self.assertEqual(json.loads(json.dumps(description, allow_nan=False)), description)
                self.assertEqual(spaces.to_text(description), text)

    def test_spaces_that_cannot_be(self):
        cases = [
            (fake.Text(), "a space of kind Text is not supported"),
            (fake.Dict({"a": fake.Tuple([fake.Text()])}), r"Dict\['a'\]: Tuple\[0\]: a space of kind Text"),
            (fake.Dict({}), "an empty Dict"),
            (fake.Dict({1: fake.Discrete(2)}), "Dict with the key 1 "),
            (fake.Discrete(0), "expected at least one value"),
            (fake.Discrete(2, 2**31 - 1), "32-bit"),
            (fake.MultiDiscrete([2, 0]), "each at least 1"),
            (fake.MultiBinary(0), "at least one bit"),
            (fake.Box(1, 0, (2,)), "cross"),
            (fake.Box(np.nan, 0, (2,)), "NaN"),
            (fake.Box(0, 1, (2, 0)), "dimensions of at least 1"),
            (fake.Box(0, 1, (2,), np.complex64), "dtype complex64"),
            (fake.Box(0, 1, (1 << 13, 1 << 12)), "too large"),
            (fake.Tuple([fake.Discrete(1 << 24), fake.Discrete(1)]), "too large: 16777217"),
        ]
        for space, message in cases:
            with self.subTest(message), self.assertRaisesRegex(SpaceError, message):
                spaces.describe(space)
        deep = fake.Discrete(2)
        for _ in range(33):
            deep = fake.Tuple([deep])
        with self.assertRaisesRegex(SpaceError, "nested deeper than 32 levels"):
            spaces.describe(deep)

    def test_rows(self):
        self.assertEqual(flat(fake.Box(-1, 1, (2, 2)), np.array([[1, 2], [3, 4]], np.float32)), [1, 2, 3, 4])
        self.assertEqual(flat(fake.Box(-1, 1, (2, 2)), np.array([[1, 2], [3, 4]], np.float32).T), [1, 3, 2, 4])
        self.assertEqual(flat(fake.Box(-1, 1, (2,)), [0.5, 1]), [0.5, 1])
        self.assertEqual(flat(fake.Box(-1, 1, (2,)), np.array([0.5, 1])), [0.5, 1], "float64 for float32")
        self.assertEqual(flat(fake.Box(0, 1, ()), 0.5), [0.5])
        self.assertEqual(flat(fake.Box(0, 255, (3,), np.uint8), np.array([0, 7, 255])), [0, 7, 255])
        self.assertEqual(flat(fake.Discrete(3, 5), 6), [0, 1, 0])
        self.assertEqual(flat(fake.Discrete(3), np.int64(2)), [0, 0, 1])
        self.assertEqual(flat(fake.MultiDiscrete([2, 3], [1, 0]), np.array([2, 1])), [0, 1, 0, 1, 0])
        self.assertEqual(flat(fake.MultiBinary(3), np.array([1, 0, 1], np.int8)), [1, 0, 1])
        nested = fake.Dict(
            {
                "b": fake.Tuple([fake.Discrete(2), fake.Box(0, 9, (2,))]),
                "a": fake.MultiBinary(1),
                "B": fake.Box(0, 255, (1,), np.uint8),
            }
        )
        self.assertEqual(
            flat(nested, {"a": [1], "b": (1, [4, 5]), "B": np.array([200], np.uint8)}),
            [200, 1, 0, 1, 4, 5],
            "keys by their bytes: B, a, b",
        )
        self.assertEqual(spaces.flat_dtype(spaces.describe(nested)), "float32")
        self.assertEqual(spaces.flat_dtype(spaces.describe(fake.Box(0, 255, (1,), np.uint8))), "uint8")

    def test_values_that_do_not_fit(self):
        cases = [
            (fake.Box(0, 1, (2,)), np.zeros(1, np.float32), r"shape \(1,\), expected \(2,\)"),
            (fake.Box(0, 1, (2,)), np.float32(1), r"shape \(\), expected \(2,\)"),
            (fake.Box(0, 1, (2,)), None, "dtype object, expected float32"),
            (fake.Box(0, 1, (2,)), ["a", "b"], "expected float32"),
            (fake.Box(0, 1, (2,)), [[1], [1, 2]], "expected an array of float32"),
            (fake.Box(0, 1, (2,), np.int32), np.zeros(2, np.float32), "float32, expected int32"),
            (fake.Box(0, 255, (2,), np.uint8), np.array([0.0, 1.0]), "float64, expected uint8"),
            (fake.Box(0, 255, (2,), np.uint8), np.array([0, 256]), "from 0 to 256, expected uint8"),
            (fake.Discrete(3), 3, r"got 3, expected an integer in \[0, 2\]"),
            (fake.Discrete(3, 1), 0, r"got 0, expected an integer in \[1, 3\]"),
            (fake.Discrete(3), 1.0, r"got 1.0, expected an integer"),
            (fake.MultiDiscrete([2, 3]), np.array([1, 3]), r"component 1 is 3, expected an integer in \[0, 2\]"),
            (fake.MultiDiscrete([2, 3]), np.array([1]), r"expected integers of shape \(2,\)"),
            (fake.MultiBinary(2), np.array([1, 2]), "expected zeros and ones"),
            (fake.Dict({"a": fake.Discrete(2), "b": fake.Discrete(2)}), {"a": 1}, "expected a dict with the keys a, b"),
            (fake.Dict({"a": fake.Discrete(2)}), {"a": 1, "c": 1}, "expected a dict with the keys a"),
            (fake.Dict({"a": fake.Discrete(2)}), {"a": 2}, r"\['a'\]: got 2"),
            (fake.Tuple([fake.Discrete(2)]), (1, 1), "expected a tuple of 1"),
            (fake.Tuple([fake.Discrete(2)]), 3, "got 3, expected a tuple of 1"),
        ]
        for space, value, message in cases:
            with self.subTest(message), self.assertRaisesRegex(SpaceError, message):
                flat(space, value)

    def test_actions(self):
        self.assertEqual(action(fake.Discrete(3, 5), 6), 6)
        self.assertIs(type(action(fake.Discrete(3), 2)), int)
        multi = action(fake.MultiDiscrete([2, 3], [1, 0]), 0, 2)
        self.assertEqual((multi.tolist(), multi.dtype), ([1, 2], np.int64))
        bits = action(fake.MultiBinary(2), 1, 0)
        self.assertEqual((bits.tolist(), bits.dtype), ([1, 0], np.int8))
        box = action(fake.Box(-1, 1, (1, 2), np.float64), 0.5, -0.25)
        self.assertEqual((box.tolist(), box.dtype), ([[0.5, -0.25]], np.float64))
        whole = action(fake.Box(0, 9, (2,), np.int16), 1.6, 2.0)
        self.assertEqual((whole.tolist(), whole.dtype), ([2, 2], np.int16))
        nested = action(
            fake.Dict({"b": fake.Box(0, 1, (1,)), "a": fake.Tuple([fake.Discrete(2), fake.MultiBinary(1)])}), 1, 0, 0.5
        )
        self.assertEqual(set(nested), {"a", "b"})
        self.assertEqual((nested["a"][0], nested["a"][1].tolist(), nested["b"].tolist()), (1, [0], [0.5]))
        words = np.zeros(2, dtype=np.int32)
        kept = SpaceCodec(spaces.describe(fake.Box(0, 1, (2,)))).unflatten_action(words)
        words[:] = 5
        self.assertEqual(kept.tolist(), [0, 0], "an action does not change with the row it came from")

    def test_masks(self):
        def mask(space, value):
            return SpaceCodec(spaces.describe(space)).flatten_mask(value).tolist()

        self.assertEqual(mask(fake.Discrete(3), np.array([1, 0, 1], np.int8)), [1, 0, 1])
        self.assertEqual(mask(fake.Discrete(3), np.array([True, False, True])), [1, 0, 1])
        self.assertEqual(mask(fake.Discrete(3), [1.0, 0.0, 1.0]), [1, 0, 1])
        self.assertEqual(mask(fake.MultiDiscrete([2, 3]), np.array([0, 1, 1, 1, 0])), [0, 1, 1, 1, 0])
        self.assertEqual(mask(fake.MultiDiscrete([2, 3]), ([0, 1], None)), [0, 1, 1, 1, 1])
        self.assertEqual(mask(fake.MultiDiscrete([2, 2]), ([0, 1], [1, 0])), [0, 1, 1, 0])
        self.assertEqual(mask(fake.MultiBinary(2), [1, 0, 0, 1]), [1, 0, 0, 1])
        self.assertEqual(mask(fake.MultiBinary([1, 3]), [[0, 1, 2]]), [1, 0, 0, 1, 1, 1])
        bits = fake.Tuple([fake.MultiBinary(2), fake.MultiBinary(2)])
        self.assertEqual(mask(bits, ([2, 0], [1, 2])), [1, 1, 1, 0, 0, 1, 1, 1])
        nested = fake.Dict({"move": fake.Discrete(2), "aim": fake.Tuple([fake.Box(0, 1, (3,)), fake.Discrete(2)])})
        self.assertEqual(mask(nested, {"move": [0, 1]}), [1, 1, 0, 1], "aim comes first, and has no mask")
        self.assertEqual(mask(nested, {"move": [0, 1], "aim": (None, [1, 0])}), [1, 0, 0, 1])
        self.assertEqual(mask(nested, np.array([1, 0, 0, 1])), [1, 0, 0, 1])
        self.assertEqual(SpaceCodec(spaces.describe(nested)).mask_leaves, ((0, 2), (2, 4)))
        for space, value, message in [
            (fake.Discrete(3), [1, 0], "expected 3 bytes"),
            (fake.Discrete(3), [1, 2, 0], "zeros and ones"),
            (fake.Discrete(3), np.array([256, 1, 0]), "zeros and ones"),
            (fake.Discrete(3), np.array([-1, 1, 0], np.int8), "zeros and ones"),
            (fake.Discrete(3), "abc", "expected 3 bytes"),
            (fake.MultiDiscrete([2, 3]), ([1, 0],), "or 2 arrays"),
            (fake.MultiBinary(2), [0, 1, 2, 0], "zeros and ones"),
            (fake.MultiBinary(2), [0, 3], r"expected 4 bytes, or of shape \(2,\) 0 and 1 for only this value"),
            (fake.MultiBinary([1, 2]), [0, 1], r"of shape \(1, 2\)"),
            (nested, {"moved": [0, 1]}, "key 'moved'"),
            (nested, {"aim": (None,)}, "tuple of 2"),
            (nested, {"aim": ([1], [1, 1])}, "mask for a continuous action"),
        ]:
            with self.subTest(message), self.assertRaisesRegex(SpaceError, message):
                mask(space, value)

    @unittest.skipUnless(importlib.util.find_spec("gymnasium"), "gymnasium is not installed")
    def test_masks_are_those_of_gymnasiums_sample(self):
        """Both ways: what a native environment's mask is read as, a Python environment's is written from."""
        space = native.parse("Tuple(Discrete(2, start=3), MultiDiscrete([1, 2]), MultiBinary(2), Box(0, 1, [1]))")
        gym = space.gymnasium()
        codec = SpaceCodec(spaces.describe(gym))
        rows = {mask: np.array(mask, dtype=np.uint8) for mask in itertools.product((0, 1), repeat=space.mask_size)}
        allowed = [m for m in rows if all(any(m[first:end]) for first, end in codec.mask_leaves)]
        self.assertEqual(len(allowed), 3 * 1 * 3 * 3 * 3)
        for bits in allowed:
            mask = space.mask(rows[bits])
            with self.subTest(mask=mask):
                np.testing.assert_array_equal(codec.flatten_mask(mask), rows[bits])
                words = np.zeros(space.action_words, dtype=np.int32)
                space.encode(gym.sample(mask), words, words.view(np.float32))
                categories = [words[0] - 3, words[1], words[2], words[3], words[4]]
                for (first, _), category in zip(codec.mask_leaves, categories):
                    self.assertEqual(bits[first + category], 1)

    @unittest.skipUnless(importlib.util.find_spec("gymnasium"), "gymnasium is not installed")
    def test_native_environments_spaces_are_the_same_the_other_way_round(self):
        for text in (
            "Box(-1, 1, [2, 3])",
            "Box(0, 255, [2, 2, 1], uint8)",
            "Box([0, -5], [1, 5], [2], int32)",
            "Discrete(4, -2)",
            "MultiDiscrete([3, 2])",
            "MultiBinary(3)",
            "Dict{z: Box(-1, 1, [2]), a: Tuple(Discrete(4, 2), MultiDiscrete([3, 2])), m: MultiBinary(3)}",
        ):
            space = native.parse(text)
            gym = space.gymnasium()
            gym.seed(5)
            description = spaces.describe(gym)
            codec = SpaceCodec(description)
            with self.subTest(text):
                self.assertEqual(native.parse(spaces.to_text(description)), space)
                self.assertEqual(
                    (codec.flat_size, codec.flat_dtype, codec.action_words, codec.mask_size),
                    (space.flat_size, np.dtype(space.flat_dtype).name, space.action_words, space.mask_size),
                )
                for _ in range(20):
                    value = gym.sample()
                    row = np.empty(codec.flat_size, codec.flat_dtype)
                    codec.flatten_into(value, row)
                    again = np.empty_like(row)
                    codec.flatten_into(space.unflatten(row), again)
                    np.testing.assert_array_equal(again, row)
                    words = np.zeros(space.action_words, np.int32)
                    space.encode(value, words, words.view(np.float32))
                    np.testing.assert_equal(codec.unflatten_action(words), value)

    @unittest.skipUnless(importlib.util.find_spec("gymnasium"), "gymnasium is not installed")
    def test_rows_are_gymnasiums(self):
        from gymnasium import spaces as gym

        nested = gym.Dict(
            {
                "z": gym.Box(-1, 1, (2, 3)),
                "a": gym.Tuple([gym.Discrete(4, start=2), gym.MultiDiscrete([3, 2])]),
                "m": gym.MultiBinary(3),
            }
        )
        for space in (
            gym.Box(-1, 1, (2, 3)),
            gym.Discrete(4, start=2),
            gym.MultiDiscrete([3, 2, 5]),
            gym.MultiBinary(3),
            nested,
        ):
            space.seed(3)
            codec = SpaceCodec(spaces.describe(space))
            self.assertEqual(codec.flat_size, gym.flatdim(space))
            for _ in range(20):
                value = space.sample()
                np.testing.assert_array_equal(
                    np.array(flat(space, value), np.float32),
                    np.asarray(gym.flatten(space, value), np.float32),
                    err_msg=str(space),
                )
            random = np.random.default_rng(1)
            for _ in range(20):
                words = np.zeros(codec.action_words, np.int32)
                if space is nested:  # a: Discrete, MultiDiscrete; m: three bits; z: six numbers
                    words[:] = [
                        random.integers(2, 6),
                        random.integers(3),
                        random.integers(2),
                        *random.integers(2, size=3),
                        *random.uniform(-1, 1, 6).astype(np.float32).view(np.int32),
                    ]
                    self.assertTrue(space.contains(codec.unflatten_action(words)))


if __name__ == "__main__":
    unittest.main()
