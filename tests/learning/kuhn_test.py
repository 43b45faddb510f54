"""The solver of Kuhn poker beside what is known of the game."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import kuhn  # noqa: E402  beside this file

# Kuhn 1950: every equilibrium of the first seat, by how often it bluffs with the lowest card (0 to 1/3), and the one of the second.
SECOND = {(0, "p"): 1 / 3, (1, "p"): 0, (2, "p"): 1, (0, "b"): 0, (1, "b"): 1 / 3, (2, "b"): 1}


def first(bluffs):
    return {(0, ""): bluffs, (1, ""): 0, (2, ""): 3 * bluffs, (0, "pb"): 0, (1, "pb"): bluffs + 1 / 3, (2, "pb"): 1}


def plays(plan):
    return lambda card, history: plan[card, history]


class KuhnTest(unittest.TestCase):
    def test_uniform_play(self):
        def uniform(_card, _history):
            return 0.5
        self.assertAlmostEqual(kuhn.nash_conv(uniform, uniform), 11 / 12)

    def test_equilibria(self):
        for bluffs in (0, 0.2, 1 / 3):
            strategies = plays(first(bluffs)), plays(SECOND)
            self.assertAlmostEqual(kuhn.nash_conv(*strategies), 0)
            self.assertAlmostEqual(kuhn.value(strategies), -1 / 18)

    def test_beside_an_equilibrium(self):
        """Whoever never calls with the middle card is bluffed by every lowest card."""
        timid = {**SECOND, (1, "b"): 0}
        self.assertGreater(kuhn.nash_conv(plays(first(0.2)), plays(timid)), 0.05)

    def test_observation_is_the_environments(self):
        """docs/environments.md: seat, card, then pass or bet of up to three actions."""
        self.assertEqual(kuhn.observation(1, 2, "b"), [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0])
        self.assertEqual(kuhn.observation(0, 0, "pb"), [1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0])


if __name__ == "__main__":
    unittest.main()
