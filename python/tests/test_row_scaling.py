"""How observation rows reach networks: the rule of lib/space/row_scaling.h in Python."""

import unittest

import numpy as np

from troupe import networks


def scaled(space, row, **more):
    """A row as networks of a policy with this space read it."""
    scaling = networks.row_scaling({"observation_space": space, **more})
    if scaling is None:
        return None
    offset, scale = scaling
    return ((np.array(row, np.float32) - offset) * scale).tolist()


class RowScalingTest(unittest.TestCase):
    bounds = {"observation_scaling": "bounds"}

    def test_bytes_are_scaled_by_their_own_bounds(self):
        self.assertEqual(scaled("Box(0, 1, [3], uint8)", [0, 1, 1], **self.bounds), [0, 1, 1])
        self.assertEqual(scaled("Box(4, 8, [2], uint8)", [5, 8], **self.bounds), [0.25, 1])
        self.assertEqual(scaled("Box([0, 0, 7], [1, 200, 7], [3], uint8)", [1, 200, 7], **self.bounds), [1, 1, 0])

    def test_leaves_are_scaled_where_they_stand(self):
        space = 'Dict{"a": Box(0, 2, [2], uint8), "b": Discrete(2), "c": Tuple(Box(-9, 9, [1]), Box(0, 255, [1], uint8))}'
        self.assertEqual(scaled(space, [1, 2, 0, 1, -7, 255], **self.bounds), [0.5, 1, 0, 1, -7, 1])
        self.assertIsNone(scaled(space, []), "encoders divide, in policies of before")

    def test_what_says_nothing_is_divided_by_255(self):
        byte = float(np.float32(1) / np.float32(255))
        for space in ("Box(0, 255, [2], uint8)", "Box(0, 1, [2], uint8)"):
            self.assertEqual(scaled(space, [0, 1]), [0, byte])
        self.assertIsNone(scaled("Box(0, 1, [2])", []))
        self.assertIsNone(scaled("Box(0, 255, [2], int32)", []))


if __name__ == "__main__":
    unittest.main()
