#!/usr/bin/env python3
"""Tests of bench/zoo.py with a stand-in for troupe: what is trained, what goes on, what is written. python3 bench/test_zoo.py"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import zoo  # noqa: E402
import zoo_page  # noqa: E402
import zoo_tasks  # noqa: E402
from zoo_tasks import TASKS  # noqa: E402

# Trains by writing what is read of a run, and evaluates by who plays: the seed where all have learned, -80 where one does not; deterministic 1 more.
# NOTES has a line of JSON with the arguments of each call; HOW says what goes wrong.
STAND_IN = """#!%s
import json, os, pathlib, sys, time
with open(%r, "a") as notes:
    notes.write(json.dumps(sys.argv[1:]) + "\\n")
how = pathlib.Path(%r).read_text()
sets = dict(argument.split("=", 1) for flag, argument in zip(sys.argv, sys.argv[1:]) if flag == "--set")
if how == "fail" or (how == "fail gru" and sets.get("model.actor_core") == "gru"):
    sys.exit("troupe: error: a line before\\ntroupe: error: it is broken | here")
if how == "hang" and sys.argv[1] == "train":
    pathlib.Path(%r).with_name("pid").write_text(str(os.getpid()))
    time.sleep(1000)
if how.startswith("meet") and sys.argv[1] == "train":
    # Goes on once as many as the word says train at the same time.
    meeting = pathlib.Path(%r).with_name("meeting")
    meeting.mkdir(exist_ok=True)
    (meeting / str(os.getpid())).touch()
    until = time.monotonic() + 30
    while len(list(meeting.iterdir())) < int(how.split()[1]):
        time.sleep(0.01)
        if time.monotonic() > until:
            sys.exit("nobody else came")
if sys.argv[1] == "version":
    print(json.dumps(dict(version="0.1.0", commit=os.environ.get("STAND_IN_COMMIT", "abc1234"))))
elif sys.argv[1] == "train":
    run = pathlib.Path(sets["experiment.directory"]) / "run"
    run.mkdir()
    pathlib.Path(sys.argv[2]).read_text()
    steps = int(sets["stop.env_steps"])
    lines = [dict(env_steps=steps * i // 100, wall_clock_s=i / 10, return_sum=None if i < 3 else float(i), **{"policy/prey/return_mean": -i,
             "policy/predators/return_mean": i}) for i in range(1, 101)]
    (run / "progress.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
    (run / "summary.json").write_text(json.dumps(dict(env_steps=steps, wall_clock_s=12.34)))
    (run / "seed").write_text(sets["seed"])
else:
    value = float((pathlib.Path(sys.argv[2]) / "seed").read_text()) + ("--deterministic" in sys.argv)
    if any("=random" in argument or "dice" in argument for argument in sys.argv):
        value = -80.0
    agents = {"adversary_0": 30.0, "adversary_1": 10.0, "agent_0": value, "player_0": value, "player_1": value, "player_2": value}
    print("a word before")
    print(json.dumps(dict(return_sum=dict(mean=value), agents={agent: dict(mean=mean) for agent, mean in agents.items()})))
"""


class TasksTest(unittest.TestCase):
    def test_examples_are_there_and_names_are_unique(self):
        self.assertEqual(len({task.name for task in TASKS}), len(TASKS))
        for task in TASKS:
            self.assertNotEqual(bool(task.example), bool(task.text), f"{task.name}: an example or settings of its own, not both")
            for algorithm in zoo_tasks.ALGORITHMS:
                self.assertRegex(task.document(algorithm), r"(?m)^num_workers: \d+", task.name)
            self.assertNotIn("{name}", task.text)
            self.assertNotIn("{policies}", task.text)
            self.assertEqual(len({measure.name for measure in task.measures}), len(task.measures))

    def test_every_cell_is_trained_or_says_why_not(self):
        names = {zoo.name_of(*cell[:3]) for cell in zoo.cells()}
        for task in TASKS:
            for algorithm in zoo_tasks.ALGORITHMS:
                for network in zoo_tasks.NETWORKS:
                    self.assertNotEqual(zoo.name_of(task, algorithm, network) in names, task.why_not(algorithm, network) is not None)
            self.assertIn(f"{task.name}/ippo/mlp", names)
        for world in ("simple", "simple_adversary", "simple_crypto", "simple_push", "simple_reference", "simple_speaker_listener", "simple_spread",
                      "simple_tag", "simple_world_comm", "simple_formation", "simple_line", "collect_treasure"):
            self.assertIn(f"mpe/{world}/ippo/mlp", names)
        for name in ("mpe/simple_spread/mappo/gru", "recall/ippo/gru", "Foraging-8x8-2p-2f-coop/mappo/gru"):
            self.assertIn(name, names)
        for name in ("connect_four/ippo/gru", "kuhn_poker/mappo/mlp", "mpe/simple/mappo/mlp"):
            self.assertNotIn(name, names)

    def test_the_first_seed_of_all_comes_first_and_mlps_before_grus(self):
        order = [(seed, network) for _, _, network, seed in zoo.cells((), (1, 2))]
        self.assertEqual(sorted(order, key=lambda entry: (entry[0], zoo_tasks.NETWORKS.index(entry[1]))), order)
        self.assertEqual([zoo.key_of(*cell) for cell in zoo.cells(["mpe/simple_t*/mlp", "recall/*"], (3,))],
                         ["mpe/simple_tag/ippo/mlp/3", "mpe/simple_tag/mappo/mlp/3", "recall/ippo/mlp/3", "recall/ippo/gru/3"])

    def test_a_cells_settings_say_algorithm_network_and_length(self):
        recall = next(task for task in TASKS if task.name == "recall")
        self.assertEqual(recall.settings("ippo", "mlp"), ("algorithm.name=ippo", "stop.env_steps=150000", "model.actor_core=none", "model.critic_core=none"))
        spread = next(task for task in TASKS if task.name == "mpe/simple_spread")
        self.assertIn("model.actor_core=gru", spread.settings("mappo", "gru"))
        self.assertFalse([setting for setting in spread.settings("mappo", "mlp") if "core" in setting])
        self.assertEqual([spread.file(algorithm).name for algorithm in ("ippo", "mappo")], ["simple_spread_ippo.yaml", "simple_spread_mappo.yaml"])
        for task in TASKS:
            expected = zoo_tasks.PYTHON_ENV_STEPS if task.python else zoo_tasks.ENV_STEPS
            self.assertLessEqual(task.env_steps, expected)

    def test_workers_share_the_environments(self):
        document = "num_workers: 2\nnum_envs_per_worker: 80   # of each\n"
        self.assertEqual([zoo.spread_over(document, workers) for workers in (1, 2, 4)], [f"num_envs_per_worker={n}" for n in (160, 80, 40)])
        for text, workers, words in ((document, 3, "160 environments are not as many"), ("num_workers: 2\n", 1, "say no num_envs_per_worker")):
            with self.assertRaisesRegex(zoo.CellFailed, words):
                zoo.spread_over(text, workers)


class ReadingTest(unittest.TestCase):
    def test_a_role_is_the_mean_of_its_agents(self):
        answer = {"return_sum": {"mean": 7}, "agents": {"adversary_0": {"mean": 4}, "adversary_1": {"mean": 2}, "agent_0": {"mean": 1}}}
        self.assertEqual(zoo.measured(zoo_tasks.Measure("sum", ()), answer), 7)
        self.assertEqual(zoo.measured(zoo_tasks.Measure("adversaries", (), ("adversary_*",)), answer), 3)
        with self.assertRaisesRegex(zoo.CellFailed, "no agent is one of bob_"):
            zoo.measured(zoo_tasks.Measure("bob", (), ("bob_*",)), answer)

    def test_a_curve_is_thinned_out_and_ends_with_the_last_line(self):
        with tempfile.NamedTemporaryFile("w+") as file:
            for i in range(1, 331):
                file.write(json.dumps({"env_steps": i, "wall_clock_s": i / 10, "a": None if i == 1 else i, "b": 3 * i}) + "\n")
            file.flush()
            points = zoo.curve(file.name, ("a", "b"), points=50)
        self.assertLessEqual(len(points), 50)
        self.assertEqual(points[-1], [330, 33.0, 660])

    def test_seeds_are_joined_where_all_have_points(self):
        self.assertEqual(zoo_page.mean_curve([[[1, 1, 10], [2, 2, 20]], [[0, 0, 5], [1, 3, 30], [2, 4, 60]]]), [(1, 2, 20, 10, 30), (2, 3, 40, 20, 60)])
        self.assertEqual(zoo_page.mean_curve([[[0, 0, 1], [4, 4, 5]], [[2, 1, 10], [3, 2, 20], [6, 3, 50]]]), [(4, (4 + 7 / 3) / 2, 17.5, 5, 30)])
        self.assertEqual(zoo_page.mean_curve([[[1, 1, 10]], []]), [])
        self.assertEqual(zoo_page.mean_curve([[[1, 1, 10], [2, 1, 20]], [[3, 1, 10], [4, 2, 20]]]), [], "nowhere do both have points")

    def test_seeds_that_learn_alike_have_no_spread_whenever_their_lines_were_written(self):
        steps = ((10, 20, 40, 100), (10, 30, 35, 60, 80, 100), (20, 90, 110))
        joined = zoo_page.mean_curve([[[step, step / 10, 2 * step] for step in seed] for seed in steps])
        self.assertEqual([point[0] for point in joined], [20, 40, 100])
        for step, seconds, *values in joined:
            self.assertAlmostEqual(seconds, step / 10)
            for value in values:
                self.assertAlmostEqual(value, 2 * step)

    def test_a_picture_has_a_line_for_each_cell_that_is_done_and_each_of_its_curves(self):
        done = {"curves": {"predators": [[1, 1, 10]], "prey": [[1, 1, -10]]}}
        cells = {"mpe/simple_tag/ippo/mlp/1": done, "mpe/simple_tag/ippo/mlp/2": {"error": "it is broken"}, "mpe/simple_tag/mappo/gru/1": done}
        tag = next(task for task in TASKS if task.name == "mpe/simple_tag")
        self.assertEqual([line[:3] for line in zoo_page.lines_of(tag, cells, (1, 2))],
                         [(*cell, label) for cell in (("ippo", "mlp"), ("mappo", "gru")) for label in ("predators", "prey")])
        self.assertEqual(zoo_page.lines_of(TASKS[0], cells, (1, 2)), [])


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "docs").mkdir()
        self.troupe, self.how = self.folder / "troupe", self.folder / "how"
        self.troupe.write_text(STAND_IN % (sys.executable, str(self.folder / "notes"), *[str(self.how)] * 3))
        self.troupe.chmod(0o755)
        self.how.write_text("")
        self.drawn = []
        for patch in (mock.patch.object(zoo, "ROOT", self.folder), mock.patch.object(zoo, "RECORDED", self.folder / "zoo.json"),
                      mock.patch.object(zoo, "machine", lambda: "2 x a cpu"),
                      mock.patch.object(zoo_page, "missing", lambda: None), mock.patch.object(zoo_page, "draw", self.draw)):
            patch.start()
            self.addCleanup(patch.stop)

    def draw(self, cells, random, seeds, folder):
        self.drawn.append({key: entry["curves"] for key, entry in cells.items() if "curves" in entry})
        return []

    def zoo(self, *arguments):
        """(exit status, what it printed)"""
        out = io.StringIO()
        with mock.patch.object(sys, "argv", ["zoo.py", *map(str, arguments), "--out", str(self.folder / "out")]), contextlib.redirect_stdout(out):
            status = zoo.main()
        return status, out.getvalue()

    def calls(self):
        """The arguments of each call of troupe so far; they are forgotten."""
        path = self.folder / "notes"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        found = [call for call in found if call[0] != "version"]
        path.unlink(missing_ok=True)
        return found

    def page(self):
        return (self.folder / "docs" / "results.md").read_text()

    def line(self, name):
        """The cells of the page's first row that begins so."""
        return next(line for line in self.page().splitlines() if line.startswith(f"| {name}")).strip("| ").split(" | ")

    def test_a_cell_is_trained_measured_and_written_and_not_trained_again(self):
        status, printed = self.zoo(self.troupe, "--only", "mpe/simple_spread/mappo/gru", "--seeds", 1, 3)
        self.assertEqual(status, 0, printed)
        self.assertIn("mpe/simple_spread/mappo/gru/3: 12.3 s, sum 3.00\n", printed)
        train, *rest = self.calls()
        self.assertEqual(train[:2], ["train", str(zoo_tasks.EXAMPLES / "simple_spread_mappo.yaml")])
        for setting in ("algorithm.name=mappo", "seed=1", "stop.env_steps=1000000", "model.actor_core=gru", "evaluation.at_end=false",
                        "experiment.write_interval=10000"):
            self.assertIn(setting, train)
        self.assertNotIn("--workers", train)
        # Sampled, deterministic, random play once; then the other seed.
        self.assertEqual([call[0] for call in rest], ["evaluate"] * 3 + ["train"] + ["evaluate"] * 2)
        self.assertEqual([("--deterministic" in call, "shared=random" in call) for call in rest[:3]], [(False, False), (True, False), (False, True)])
        self.assertEqual(self.line("`mpe/simple_spread` | mappo | GRU"), [
            "`mpe/simple_spread`", "mappo", "GRU", "sum", "2.00", "1.00 to 3.00", "3.00", "-80.00", "-", "1,000,000", "12", "1, 3"])
        self.assertNotIn("`mpe/simple_spread` | ippo | MLP", self.page(), "it was not trained")
        self.assertNotIn("`mpe/simple_tag`", self.page())
        self.assertNotIn("## Games", self.page())
        self.assertNotIn("not run", self.page())
        self.assertIn("2 of ", self.page())
        self.assertIn("2 x a cpu, commit abc1234", self.page())
        points = self.drawn[-1]["mpe/simple_spread/mappo/gru/1"]["sum"]
        self.assertEqual((points[-1], points[0][2] >= 3, len(points) <= 40), ([1000000, 10.0, 100.0], True, True))
        recorded = json.loads((self.folder / "zoo.json").read_text())
        self.assertEqual(zoo_page.page(recorded), self.page(), "the page follows from what is recorded")
        # Again: nothing is left.
        self.assertEqual(self.zoo(self.troupe, "--only", "mpe/simple_spread/mappo/gru", "--seeds", 1, 3)[0], 0)
        self.assertEqual(self.calls(), [])

    def test_where_nothing_was_trained_the_pages_are_what_is_recorded(self):
        self.zoo(self.troupe, "--only", "recall/*", "--seeds", 1, 5)
        before = self.page(), (self.folder / "zoo.json").read_text()
        self.assertEqual(self.line("`recall` | ippo | GRU")[-1], "1, 5")
        (self.folder / "out" / "cells.json").unlink()
        self.assertEqual(self.zoo("--docs")[0], 0)
        self.assertEqual((self.page(), (self.folder / "zoo.json").read_text()), before)
        self.assertEqual(list(self.drawn[-1]), list(self.drawn[0]), "pictures, too")
        # A cell that is trained again takes the place of the one before, the others stay.
        with mock.patch.dict(os.environ, STAND_IN_COMMIT="def5678"):
            self.zoo(self.troupe, "--only", "recall/ippo/gru", "--seeds", 1, "--note", "beside compilers")
        self.assertIn("2 x a cpu, commit abc1234, ", self.page())
        self.assertRegex(" ".join(self.page().split()), r"2 x a cpu, commit def5678, \d{4}-\d\d-\d\d, beside compilers\. ##")
        commits = {key: entry["commit"] for key, entry in json.loads((self.folder / "zoo.json").read_text())["cells"].items()}
        self.assertEqual(commits, {"recall/ippo/gru/1": "def5678", "recall/ippo/gru/5": "abc1234", "recall/ippo/mlp/1": "abc1234", "recall/ippo/mlp/5": "abc1234"})

    def test_another_setting_is_another_cell(self):
        only = ("--only", "recall/ippo/gru", "--seeds", 1)
        self.zoo(self.troupe, *only)
        self.calls()
        document = zoo_tasks.Task.document
        with mock.patch.object(zoo_tasks.Task, "document", lambda *task: "# other words\n" + document(*task).replace("4 episodes", "four episodes")):
            self.assertRegex(self.zoo("--list", *only)[1], r"recall/ippo/gru/1 +done")
        with mock.patch.object(zoo_tasks.Task, "document", lambda *task: document(*task).replace("gamma: 1.0", "gamma: 0.9")):
            self.assertRegex(self.zoo("--list", *only)[1], r"recall/ippo/gru/1 +not run")
            self.zoo("--docs", "--seeds", 1)
            self.assertNotIn("`recall` | ippo | GRU", self.page())
            self.zoo(self.troupe, *only)
        self.assertEqual([call[0] for call in self.calls()], ["train", "evaluate", "evaluate", "evaluate"], "random play is measured again, too")

    def test_what_is_drawn_or_which_episodes_are_played_make_another_cell(self):
        only = ("--only", "recall/ippo/gru", "--seeds", 1)
        self.zoo(self.troupe, *only)
        recall = next(task for task in TASKS if task.name == "recall")
        with mock.patch.dict(recall.curves, {"sum": ("agent/agent_0/return_mean",)}):
            self.assertRegex(self.zoo("--list", *only)[1], r"recall/ippo/gru/1 +not run")
        with mock.patch.object(zoo, "EVALUATION_SEED", "2000"):
            self.assertRegex(self.zoo("--list", *only)[1], r"recall/ippo/gru/1 +not run")
        self.assertRegex(self.zoo("--list", *only)[1], r"recall/ippo/gru/1 +done")

    def test_random_play_leaves_the_page_when_settings_change(self):
        """It stood beside cells that were trained with others."""
        only = ("--only", "mpe/simple_spread/*/mlp", "--seeds", 1)
        self.zoo(self.troupe, *only)
        self.assertEqual(self.line("`mpe/simple_spread` | mappo | MLP")[7], "-80.00")
        document = zoo_tasks.Task.document
        other = mock.patch.object(zoo_tasks.Task, "document", lambda task, algorithm: document(task, algorithm) + "\nfragment: 1\n" * (algorithm == "ippo"))
        self.calls()
        with other:
            self.zoo("--docs")
            self.assertEqual(self.line("`mpe/simple_spread` | mappo | MLP")[4:8:3], ["1.00", "-"])
            self.assertEqual(json.loads((self.folder / "zoo.json").read_text())["random"], {})
            self.zoo(self.troupe, *only)
            self.assertEqual(self.line("`mpe/simple_spread` | mappo | MLP")[4:8:3], ["1.00", "-80.00"])
        self.assertEqual(sum("shared=random" in call for call in self.calls()), 1)

    def test_stale_cells_of_out_leave_good_recorded_ones_alone(self):
        self.zoo(self.troupe, "--only", "recall/ippo/*", "--seeds", 1)
        before = self.page()
        self.assertEqual((self.line("`recall` | ippo | GRU")[4], self.line("`recall` | ippo | GRU")[7]), ("1.00", "-80.00"))
        path = self.folder / "out" / "cells.json"
        out = json.loads(path.read_text())
        for entry in (*out["cells"].values(), *out["random"].values()):
            entry["settings"] = "of long ago"
        out["random"]["two_step_game"] = {"sum": 1.0}  # as it was written once
        path.write_text(json.dumps(out))
        self.zoo("--docs")
        self.assertEqual(self.page(), before)

    def test_a_failed_cell_leaves_one_that_was_measured_alone(self):
        only = ("--only", "mpe/simple_line/ippo/*", "--seeds", 1)
        self.zoo(self.troupe, *only)
        before = self.page()
        self.assertEqual(self.line("`mpe/simple_line` | ippo | GRU")[4], "1.00")
        (self.folder / "out" / "cells.json").unlink()
        self.how.write_text("fail gru")
        status, printed = self.zoo(self.troupe, *only)
        self.assertEqual(status, 1)
        self.assertIn("mpe/simple_line/ippo/gru/1: FAILED", printed)
        self.assertEqual(self.page(), before)
        self.assertRegex(self.zoo("--list", *only)[1], r"mpe/simple_line/ippo/gru/1 +failed")

    def test_cells_side_by_side_are_as_many_as_asked_for_and_random_play_is_measured_once(self):
        self.how.write_text("meet 2")
        status, printed = self.zoo(self.troupe, "--only", "mpe/simple_l*/*/mlp", "recall/ippo/*", "--seeds", 1, 2, "--jobs", 2, "--device", "cuda", "--note", "at night")
        self.assertEqual(status, 0, printed)
        calls = self.calls()
        self.assertEqual(sum(call[0] == "train" for call in calls), 8)
        for call in calls:
            if call[0] == "train":
                self.assertIn("device=cuda", call)
        self.assertEqual(sum("shared=random" in call for call in calls), 1, "for both algorithms")
        cells = json.loads((self.folder / "out" / "cells.json").read_text())["cells"]
        self.assertEqual({(entry["note"], "measures" in entry) for entry in cells.values()}, {("at night, learners on cuda, 2 cells at a time", True)})

    def test_settings_without_an_example_are_a_file(self):
        self.zoo(self.troupe, "--only", "mpe/simple_line/mappo/mlp", "--seeds", 1, "--workers", 1)
        train = self.calls()[0]
        self.assertTrue(train[1].endswith("run.yaml"), train)
        self.assertIn("num_envs_per_worker=160", train)
        self.assertEqual(train[train.index("--workers") + 1], "1")

    def test_rivals_are_measured_by_role(self):
        self.zoo(self.troupe, "--only", "mpe/simple_tag/ippo/mlp", "--seeds", 1)
        evaluations = self.calls()[1:]
        self.assertEqual(len(evaluations), 3 * 4)
        policies = [[argument for argument in call if argument.endswith("=random")] for call in evaluations]
        self.assertEqual(policies[:8:2], [[], ["prey=random"], [], ["predators=random"]])
        self.assertEqual(policies[8:], [["predators=random", "prey=random"]] * 4)
        rows = [line for line in self.page().splitlines() if line.startswith("| `mpe/simple_tag` | ippo | MLP")]
        self.assertEqual([line.split(" | ")[3] for line in rows], ["predators", "predators, others at random", "prey", "prey, others at random"])
        self.assertEqual([line.split(" | ")[4] for line in rows], ["20.00", "20.00", "1.00", "-80.00"])
        self.assertEqual(self.drawn[-1]["mpe/simple_tag/ippo/mlp/1"]["prey"][-1][2], -100)

    def test_what_fails_is_said_kept_and_tried_again(self):
        self.how.write_text("fail gru")
        only = ("--only", "mpe/simple_line/ippo/*", "--seeds", 1)
        status, printed = self.zoo(self.troupe, *only)
        self.assertEqual(status, 1)
        self.assertIn("mpe/simple_line/ippo/gru/1: FAILED: troupe train ended with 1: troupe: error: a line before | troupe: error: it is broken | here", printed)
        self.assertEqual(self.line("`mpe/simple_line` | ippo | GRU")[4], "failed: troupe train ended with 1: troupe: error: a line before / troupe: error: it is broken / here")
        self.assertEqual(self.line("`mpe/simple_line` | ippo | MLP")[4], "1.00", "the others are trained")
        self.how.write_text("")
        self.calls()
        self.assertEqual(self.zoo(self.troupe, *only)[0], 0)
        self.assertEqual(sum(call[0] == "train" for call in self.calls()), 1)
        self.assertEqual(self.line("`mpe/simple_line` | ippo | GRU")[4], "1.00")

    def test_the_time_ends_a_cell_and_leaves_it_to_the_next_time(self):
        self.zoo(self.troupe, "--only", "recall/ippo/mlp", "--seeds", 1)
        self.how.write_text("hang")
        self.calls()
        began = time.monotonic()
        status, printed = self.zoo(self.troupe, "--only", "recall/*", "--seeds", 1, "--hours", 3 / 3600)
        self.assertLess(time.monotonic() - began, 15)
        self.assertEqual([call[0] for call in self.calls()], ["train"])
        with self.assertRaises(ProcessLookupError):
            os.kill(int((self.folder / "pid").read_text()), 0)
        self.assertEqual(status, 0)
        self.assertIn("recall/ippo/gru/1: not done when the time was up\n", printed)
        self.assertEqual(self.line("`recall` | ippo | MLP")[4], "1.00")
        self.assertNotIn("`recall` | ippo | GRU", self.page())
        self.assertEqual(list(json.loads((self.folder / "out" / "cells.json").read_text())["cells"]), ["recall/ippo/mlp/1"])

    def test_python_environments_need_an_interpreter(self):
        only = ("--only", "Foraging*/mappo/mlp", "--seeds", 1)
        self.zoo(self.troupe, *only)
        self.assertEqual(self.calls(), [])
        self.assertIn("not run: needs --python", self.zoo("--list", *only)[1])
        self.zoo(self.troupe, *only, "--python", "/venv/bin/python")
        self.assertIn("env.python.interpreter=/venv/bin/python", self.calls()[0])
        row = self.line("`Foraging-8x8-2p-2f-coop` | mappo | MLP")
        self.assertEqual((row[8], row[9]), ("-", "300,000"))

    def test_a_published_number_stands_beside_the_first_measure_with_its_source(self):
        self.zoo(self.troupe, "--only", "two_step_game/mappo/mlp", "kuhn_poker/*", "--seeds", 1)
        self.assertEqual(self.line("`two_step_game` | mappo | MLP")[8], "8 (the optimum; independent Q-learning 7: arXiv 1803.11485)")
        rows = [line.split(" | ")[8] for line in self.page().splitlines() if line.startswith("| `kuhn_poker` | ippo | MLP")]
        self.assertEqual(rows, ["-1/18, both in equilibrium (Kuhn 1950)", "-", "-"])

    def test_what_makes_no_sense_says_why(self):
        self.zoo(self.troupe, "--only", "connect_four/ippo/mlp", "--seeds", 1)
        self.assertEqual(self.line("`connect_four` | mappo | all")[4], f"not applicable: {zoo_tasks.TURNS}")
        self.assertEqual(self.line("`connect_four` | ippo | GRU")[4], f"not applicable: {zoo_tasks.WHOLE}")
        self.assertEqual(self.page().count("| `connect_four` | mappo |"), 1)
        self.assertIn("connect_four/ippo/gru ", self.zoo("--list")[1])

    def test_what_is_asked_wrongly_is_refused(self):
        for arguments, words in ((("--docs", "--jobs", "0"), "expected more than 0"), ((), "expected the troupe program"), (("--list", "--only", "nobody/*"), "no cell matches nobody/*"),
                                 (("--docs", "--hours", "0"), "expected more than 0"), (("--docs", "--workers", "0"), "expected more than 0")):
            with self.subTest(words), self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                self.zoo(*arguments)
            self.assertIn(words, said.getvalue())
        with mock.patch.object(zoo_page, "missing", lambda: "python3 has no matplotlib"), self.assertRaises(SystemExit), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            self.zoo("--docs")
        self.assertIn("no matplotlib", said.getvalue())


class DocumentsTest(unittest.TestCase):
    def test_the_page_is_what_is_recorded(self):
        """Who changes a task or the page's words has to run bench/zoo.py --docs."""
        recorded = json.loads(zoo.RECORDED.read_text())
        page = (zoo.ROOT / "docs" / "results.md").read_text()
        self.assertEqual(page, zoo_page.page(recorded))
        known = {zoo.key_of(*cell): zoo.digest(*cell[:3]) for cell in zoo.cells((), recorded["seeds"])}
        for key, entry in recorded["cells"].items():
            self.assertEqual(entry["settings"], known.get(key), f"{key} was trained with other settings: train it again, or let --docs leave it out")
        for family in zoo_page.families():
            if f"images/{zoo_page.picture(family)}" in page:
                with open(zoo.ROOT / "docs" / "images" / zoo_page.picture(family), "rb") as picture:
                    self.assertEqual(picture.read(8), b"\x89PNG\r\n\x1a\n")


if __name__ == "__main__":
    unittest.main()
