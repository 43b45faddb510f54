"""A league by callbacks alone: `main` learns against copies of itself, which join when it wins often enough.

Each opponent is drawn the more often the more often `main` loses to it. What the league knows stands in RUN/league.json, so that a run that was killed
goes on with it. `ratings` are of all that ever joined, in Elo with their standard errors, by Bradley and Terry's model of who beats whom.
"""

import json
import math
import os
from typing import Any, Dict, List, Tuple

import numpy as np

import troupe

ELO = 400 / math.log(10)  # of a unit of log odds


def ratings(results: List[Tuple[str, str, float, float]]) -> Dict[str, Tuple[float, float]]:
    """{id: (Elo, its standard error)}, of which the first id's is 0 and certain. `results`: (a, b, points of a, games), a draw is half a point."""
    ids = list(dict.fromkeys(name for a, b, _, _ in results for name in (a, b)))
    strength = np.zeros(len(ids))
    # As if each had drawn one game with the first: one that has only won has a rating, too.
    games = [(ids.index(a), ids.index(b), points, count) for a, b, points, count in results] + [(i, 0, 0.5, 1.0) for i in range(1, len(ids))]
    for _ in range(50):
        gradient, information = np.zeros(len(ids)), np.zeros((len(ids), len(ids)))
        for a, b, points, count in games:
            expected = 1 / (1 + math.exp(strength[b] - strength[a]))
            gradient[[a, b]] += np.array([1, -1]) * (points - count * expected)
            known = count * expected * (1 - expected)
            information[[a, b], [a, b]] += known
            information[[a, b], [b, a]] -= known
        step = np.linalg.solve(information[1:, 1:], gradient[1:])
        strength[1:] += np.clip(step, -2, 2)
        if np.abs(step).max(initial=0) < 1e-9:
            break
    errors = np.sqrt(np.concatenate([[0], np.diag(np.linalg.inv(information[1:, 1:]))]))
    return {name: (ELO * rating, ELO * error) for name, rating, error in zip(ids, strength, errors)}


class League(troupe.Callback):
    """For games of two, `player_0` and `player_1`, with rewards of 1, 0 and -1 and a policy `main`. Change the numbers in a class of your own."""

    first = ("ahead",)  # policies of the configuration that main plays from the first game on
    first_share = 0.5  # of main's games, once there are copies
    win_rate = 0.75  # at which a copy of main joins
    min_games = 400  # before that, since the last one joined
    max_copies = 8  # the oldest makes room for the next
    turn_updates = 4  # after which main plays the other side

    def on_run_start(self, ctx: troupe.callbacks.RunContext) -> None:
        self.path = ctx.path / "league.json"
        self.players: List[str] = list(self.first)
        self.results: List[Tuple[str, str, float, float]] = []  # of copies, when they were main
        self.points: Dict[str, List[float]] = {}  # main against a player since the last copy joined: [points, games]
        self.episodes, self.side = 0, 0
        if ctx.resumed and self.path.exists():
            known = json.loads(self.path.read_text())
            # A checkpoint before the last that was written knows fewer.
            self.players = [name for name in known["players"] if name in self.first or int(name.rpartition("_")[2]) <= ctx.env_steps]
            self.results = [tuple(result) for result in known["results"]]
        self.draw(ctx)

    def on_update_end(self, ctx: troupe.callbacks.UpdateContext) -> None:
        # Returns are of the last 100 episodes: of those that ended since, a part of them where they are fewer.
        new = min(1.0, (ctx.episodes - self.episodes) / 100)
        self.episodes = ctx.episodes
        for name in self.players:
            seen = ctx.policies.get(name)
            if seen and seen["mean"] is not None:
                tally = self.points.setdefault(name, [0.0, 0.0])
                tally[0] += new * seen["episodes"] * (1 - seen["mean"]) / 2
                tally[1] += new * seen["episodes"]
        games = sum(games for _, games in self.points.values())
        if games > 0:
            ctx.track("league/win_rate", sum(points for points, _ in self.points.values()) / games)
        ctx.track("league/players", len(self.players))
        try:
            if games >= self.min_games and min(self.rate(name) for name in self.players) >= self.win_rate:
                self.join(ctx)
            elif ctx.updates % self.turn_updates == 0:
                self.side = 1 - self.side
                self.draw(ctx)
        except troupe.TroupeError as refused:  # the run ends
            print(f"the league stays as it is: {refused}", flush=True)

    def rate(self, name: str) -> float:
        """How often main wins against a player, as if it had drawn two games besides."""
        points, games = self.points.get(name, (0.0, 0.0))
        return (points + 1) / (games + 2)

    def join(self, ctx: troupe.callbacks.UpdateContext) -> None:
        """A copy of main joins. It is in a checkpoint before the league knows of it, so that no end of the run leaves a player without weights."""
        name = f"main_{ctx.env_steps}"
        ctx.add_policy(name, copy_of="main", trains=False)
        self.results += [(name, player, points, games) for player, (points, games) in self.points.items() if games > 0]
        copies = [player for player in self.players if player not in self.first]
        gone = copies[: max(0, len(copies) + 1 - self.max_copies)]
        self.players = [player for player in self.players if player not in gone] + [name]
        self.points = {}
        self.draw(ctx)
        ctx.save()
        self.write()
        for player in gone:
            ctx.remove_policy(player)
        rating, error = ratings([(b, a, games - points, games) for a, b, points, games in self.results])[name]
        ctx.track("league/rating", rating)
        ctx.track("league/rating_error", error)

    def draw(self, ctx: Any) -> None:
        """Who plays main, and which side it has."""
        weights = {name: 0.05 + (1 - self.rate(name)) ** 2 for name in self.players}
        of_first = sum(weights[name] for name in self.first)
        of_copies = sum(weights.values()) - of_first
        for name in weights:
            weights[name] *= self.first_share / of_first if name in self.first else (1 - self.first_share) / of_copies
        ctx.set_mapping({f"player_{self.side}": "main", f"player_{1 - self.side}": weights})

    def write(self) -> None:
        """Whole or not at all."""
        known = {"players": self.players, "results": self.results,
                 "ratings": {name: {"elo": round(elo, 1), "error": round(error, 1)}
                             for name, (elo, error) in ratings([(b, a, games - points, games) for a, b, points, games in self.results]).items()}}
        other = self.path.with_suffix(".next")
        with open(other, "w") as file:
            json.dump(known, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(other, self.path)
