"""The example league: copies join, the oldest makes room, ratings are what results say, and a league that was killed goes on."""

import importlib.util
import json
import math
import os
import signal
import sys

import harness

QUICK = """
from league import League


class Quick(League):
    win_rate, min_games, max_copies, turn_updates = 0.0, 150, 2, 2
"""


class LeagueTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        self.write("quick.py", QUICK)
        with open(self.example("league/connect_four.yaml")) as file:
            self.write("run.yaml", file.read())
        settings = {"callbacks": '["python:quick:Quick"]', "env.python.interpreter": sys.executable,
                    "env.python.path": f"{self.folder}:{self.example('league')}", "algorithm.train_batch_size": 1024,
                    "model.actor_hidden_sizes": "[16]", "model.critic_hidden_sizes": "[16]", "num_workers": 1, "num_envs_per_worker": 16,
                    "evaluation.episodes": 20, "experiment.checkpoint_interval": 4096}
        self.settings = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    def league(self):
        try:
            with open(self.path("runs", "run", "league.json")) as file:
                return json.load(file)
        except FileNotFoundError:
            return {"players": []}

    def test_it_goes_on_where_it_was_killed(self):
        process = self.start("run.yaml", "--name", "run", *self.settings)
        self.await_true(lambda: len(self.league()["players"]) == 3 and len(self.league()["ratings"]) >= 4, "a third copy")
        for pid in (process.pid, self.learner(process)):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        self.await_true(lambda: not self.left_over(), "the end of every process")
        before = self.league()
        self.assertEqual((before["players"][0], len(before["players"])), ("ahead", 3))
        # More updates than calls may wait: while it still trains, the league hears of some.
        trained = max(entry["env_steps"] for entry in json.loads(self.troupe("checkpoint", "ls", "runs/run", "--json").stdout))
        done = self.troupe("train", "--resume", "runs/run", "--set", f"stop.env_steps={trained + 1024 * 90}")
        self.assertNotIn("DEGRADED", done.stdout)
        after = self.league()
        self.assertEqual(after["results"][: len(before["results"])], before["results"], "what was known is known")
        self.assertGreater(before_steps(after), before_steps(before))
        self.assertEqual(len(after["players"]), 3)
        policies = self.troupe("policy", "ls", "runs/run").stdout
        for player in after["players"]:
            self.assertIn(player, policies)
        for rating in after["ratings"].values():
            self.assertTrue(math.isfinite(rating["elo"]) and rating["error"] >= 0, rating)
        self.assertEqual(after["ratings"]["ahead"], {"elo": 0.0, "error": 0.0})
        rated = [line for line in self.progress("run") if "Custom/league/rating" in line]
        self.assertGreater(len(rated), 0)
        self.assertEqual(self.progress("run")[-1]["callback_errors"], 0)

    def test_ratings_are_what_results_say(self):
        sys.path.insert(0, os.path.join(self.source, "python"))
        spec = importlib.util.spec_from_file_location("league", self.example("league/league.py"))
        league = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(league)
        # With many games the one that is drawn beforehand counts for little: 3 to 1 is 190.8 Elo, and differences add up.
        rated = league.ratings([("a", "b", 25000, 100000), ("c", "b", 75000, 100000)])
        self.assertEqual(rated["a"], (0, 0))
        self.assertAlmostEqual(rated["b"][0], 190.85, 1)
        self.assertAlmostEqual(rated["c"][0], 381.7, 0)
        self.assertAlmostEqual(rated["b"][1], league.ELO / math.sqrt(100000 * 0.75 * 0.25), 2)  # of one comparison
        self.assertGreater(rated["c"][1], rated["b"][1])
        winner = league.ratings([("a", "b", 0, 50)])["b"]
        self.assertTrue(300 < winner[0] < 2000 and winner[1] > 100, winner)


def before_steps(league):
    """Of the copy that joined last."""
    return int(league["players"][-1].rpartition("_")[2])


if __name__ == "__main__":
    harness.main()
