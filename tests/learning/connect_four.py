"""Connect four played here: which columns make four, and positions in which the next move decides the game."""

import random

ROWS, COLUMNS = 6, 7
LINES = ((0, 1), (1, 0), (1, 1), (1, -1))


class Board:
    """Pieces by (row from the bottom, column); player 0 begins, and `mover` is who plays next."""

    def __init__(self, columns=()):
        self.pieces, self.heights, self.mover = {}, [0] * COLUMNS, 0
        for column in columns:
            self.drop(column)

    def allowed(self):
        return [column for column in range(COLUMNS) if self.heights[column] < ROWS]

    def makes_four(self, column, player):
        """Whether the player's piece, dropped into this column, makes four in a line."""
        row = self.heights[column]
        if row == ROWS:
            return False

        def run(down, right):
            length = 0
            while self.pieces.get((row + (length + 1) * down, column + (length + 1) * right)) == player:
                length += 1
            return length
        return any(1 + run(down, right) + run(-down, -right) >= 4 for down, right in LINES)

    def fours(self, player):
        return [column for column in self.allowed() if self.makes_four(column, player)]

    def drop(self, column):
        """The mover's piece; true where it makes four."""
        won = self.makes_four(column, self.mover)
        self.pieces[self.heights[column], column] = self.mover
        self.heights[column] += 1
        self.mover = 1 - self.mover
        return won

    def observation(self):
        """The mover's (docs/environments.md): rows from the top, for each place whether its own piece is there, and whether the other's is."""
        row = []
        for height in reversed(range(ROWS)):
            for column in range(COLUMNS):
                owner = self.pieces.get((height, column))
                row += [float(owner == self.mover), float(owner == 1 - self.mover)]
        return row

    def threat(self):
        """("take", columns) where the mover can make four, ("block", [column]) where the other could at exactly one place; else None: nothing
        decides the game, or nothing helps against two."""
        own, other = self.fours(self.mover), self.fours(1 - self.mover)
        if own:
            return "take", own
        return ("block", other) if len(other) == 1 else None


def positions(act, count, generator):
    """`count` threats of each kind, [(board, kind, columns)], from games in which `act(board)` moves for both: at most one of a kind a game, so
    that they are independent of each other."""
    found = {"take": [], "block": []}
    while min(len(threats) for threats in found.values()) < count:
        met = {"take": [], "block": []}
        played, over = [], False
        board = Board()
        while not over and board.allowed():
            threat = board.threat()
            if threat is not None:
                met[threat[0]].append((Board(played), *threat))
            column = act(board)
            played.append(column)
            over = board.drop(column)
        for kind, threats in met.items():
            if threats and len(found[kind]) < count:
                found[kind].append(generator.choice(threats))
    return found["take"] + found["block"]


def random_play(generator=random):
    return lambda board: generator.choice(board.allowed())
