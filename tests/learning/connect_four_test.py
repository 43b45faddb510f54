"""The board that the measure of connect four plays on."""

import json
import os
import random
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import connect_four  # noqa: E402  beside this file
from connect_four import Board  # noqa: E402

with open(os.path.join(HERE, "..", "conformance", "traces", "games.json"), encoding="utf-8") as recorded:
    RECORDED = json.load(recorded)["connect_four"]


def slow_fours(board, player):
    """Every line of four places, looked at one after another."""
    found = []
    for column in board.allowed():
        pieces = dict(board.pieces)
        pieces[board.heights[column], column] = player
        lines = [[(row + i * up, start + i * right) for i in range(4)]
                 for row in range(6) for start in range(7) for up, right in ((0, 1), (1, 0), (1, 1), (-1, 1))]
        if any(all(pieces.get(place) == player for place in line) for line in lines):
            found.append(column)
    return found


class ConnectFourTest(unittest.TestCase):
    def test_fours_in_every_direction(self):
        for played, player, columns in (
                ([0, 0, 1, 1, 2, 2], 0, [3]),                            # along the lowest row
                ([1, 1, 2, 2, 3, 3], 0, [0, 4]),                         # at either end
                ([0, 6, 1, 6, 3, 5], 0, [2]),                            # into a gap
                ([2, 6, 2, 6, 2, 6], 1, [6]),                            # up
                ([0, 1, 1, 2, 2, 3, 2, 3, 3, 6], 0, [3]),                # to the right and up
                ([6, 5, 5, 4, 4, 3, 4, 3, 3, 0], 0, [3]),                # to the left and up
                ([1, 0, 6, 0, 5, 0, 0, 3, 0, 3, 0, 2], 0, []),           # the top of a column and the bottom of the next are no line
                ([], 0, [])):
            self.assertEqual(Board(played).fours(player), columns, played)

    def test_fours_are_all_there_are(self):
        """Beside a search through all lines, in games played at random."""
        generator = random.Random(1)
        met = 0
        for _ in range(40):
            board, over = Board(), False
            while not over and board.allowed():
                for player in (0, 1):
                    fours = board.fours(player)
                    met += len(fours)
                    self.assertEqual(fours, slow_fours(board, player))
                column = generator.choice(board.allowed())
                expected = column in board.fours(board.mover)
                over = board.drop(column)
                self.assertEqual(over, expected)
        self.assertGreater(met, 40)

    def test_threats(self):
        self.assertEqual(Board([0, 0, 1, 1, 2, 2]).threat(), ("take", [3]), "its own four comes before the other's")
        self.assertEqual(Board([0, 6, 1, 6, 2]).threat(), ("block", [3]))
        self.assertIsNone(Board([1, 6, 2, 6, 3]).threat(), "nothing helps against two")
        self.assertIsNone(Board([3, 3]).threat())
        self.assertEqual(Board([1, 1, 2, 2, 3, 3]).threat(), ("take", [0, 4]))

    def test_a_full_column_makes_no_four(self):
        board = Board([0, 0, 0, 0, 5, 0, 5, 0])   # the three upper ones are player 1's
        self.assertEqual(board.allowed(), [1, 2, 3, 4, 5, 6])
        self.assertFalse(board.makes_four(0, 1))

    def test_observation_is_the_environments(self):
        """docs/environments.md: rows from the top; for each place the mover's own piece, then the other's."""
        board = Board([3, 3, 0])
        planes = [["".join(str(int(value)) for value in board.observation()[plane::2][7 * row:7 * row + 7]) for row in range(6)]
                  for plane in (0, 1)]
        self.assertEqual(planes[0], ["0000000"] * 4 + ["0001000", "0000000"])
        self.assertEqual(planes[1], ["0000000"] * 5 + ["1001000"])

    def test_games_are_those_of_pettingzoo(self):
        """Its recorded ones, move by move, against which the environment is held, too; a full column's move, which is illegal, comes last."""
        compared = 0
        for game in RECORDED["games"]:
            board = Board()
            for action, row in zip(game["actions"], game["rows"]):
                self.assertEqual("".join(str(int(value)) for value in board.observation()), row)
                compared += 1
                if action in board.allowed():
                    board.drop(action)
        self.assertGreater(compared, 500)

    def test_positions_are_of_both_kinds_and_hold(self):
        generator = random.Random(2)
        found = connect_four.positions(connect_four.random_play(generator), 30, generator)
        self.assertEqual([kind for _, kind, _ in found], ["take"] * 30 + ["block"] * 30)
        for board, kind, columns in found:
            self.assertEqual(board.threat(), (kind, columns))
            player = board.mover if kind == "take" else 1 - board.mover
            self.assertEqual(slow_fours(board, player), columns)
        self.assertGreater(len({tuple(sorted(board.pieces)) for board, _, _ in found}), 50, "games of their own")


if __name__ == "__main__":
    unittest.main()
