"""`troupe evaluate` that plays a run otherwise than it was trained: other opponents, mapping and environment; episodes one by one. `troupe runs`."""

import glob
import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree

import harness

# Continuous actions that a policy scales: what plays at random must give the environment's own.
CONFIG = """
env: {name: mpe/simple_tag, args: {continuous_actions: true, max_cycles: 10}}
multi_agent: {policies: {hunter: {}, prey: {}}, policy_mapping: {"adversary_*": hunter, "*": prey}}
action_scaling: true
num_workers: 0
num_envs_per_worker: 4
algorithm: {train_batch_size: 100, num_epochs: 1}
stop: {env_steps: 100}
evaluation: {at_end: false, episodes: 6}
"""


# Draws itself where it is asked for rgb_array, and notes what it was made with.
ROOM = """
import numpy as np
from gymnasium import spaces


class Room:
    possible_agents = ["walker"]

    def __init__(self, how="picture", render_mode=None):
        self.how, self.render_mode, self.agents = how, render_mode, []
        with open("made", "a") as file:
            file.write(f"{render_mode}\\n")

    def observation_space(self, agent):
        return spaces.Box(0, 5, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.step_count = ["walker"], 0
        return {"walker": np.zeros(1, np.float32)}, {"walker": {}}

    def step(self, actions):
        self.step_count += 1
        over = self.step_count == 5
        self.agents = [] if over else ["walker"]
        return {"walker": np.full(1, self.step_count, np.float32)}, {"walker": 1.0}, {"walker": over}, {"walker": False}, {"walker": {}}

    def render(self):
        if self.render_mode != "rgb_array" or self.how == "none":
            return None
        if self.how == "raises":
            raise RuntimeError("no display")
        picture = np.zeros((30, 40, 3), np.uint8)
        picture[:, : 8 * self.step_count] = (200, 40, 40)
        return picture[:, :, 0] if self.how == "gray" else picture
"""


# Says at its end whether it was won: where the walker went right more often than left.
GAME = ROOM.replace("class Room:", "class Game:\n    info_columns = ['won', 'never']").replace(
    "        self.agents, self.step_count =", "        self.went = 0\n        self.agents, self.step_count =").replace(
    "        self.step_count += 1\n", "        self.step_count += 1\n        self.went += actions['walker']\n").replace(
    '{"walker": False}, {"walker": {}}', '{"walker": False}, {"walker": {"won": self.went > 2} if over else {}}')


class EvaluateTest(harness.TroupeTestCase):
    def setUp(self):
        super().setUp()
        self.troupe("train", self.write("run.yaml", CONFIG), "--name", "run")

    def evaluate(self, *arguments):
        return json.loads(self.troupe("evaluate", "run", "--json", *arguments).stdout.splitlines()[-1])

    def refused(self, *arguments, saying):
        done = self.troupe("evaluate", "run", *arguments, ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "", "nothing was played")
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for words in saying:
            self.assertIn(words, done.stderr)

    def test_a_win_rate(self):
        """Every output has the infos of an episode, under one name."""
        self.write("game.py", GAME)
        config = self.write("game.yaml", """
            env: {name: python:game.py:Game, python: {processes: 1}}
            algorithm: {name: ippo, train_batch_size: 100, minibatch_size: 100, num_epochs: 1}
            num_workers: 0
            stop: {env_steps: 200}
            evaluation: {episodes: 8}
        """)
        self.troupe("train", config, "--name", "game", "--python", sys.executable)
        with open(self.path("runs", "game", "progress.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        self.assertTrue(all(0 <= line["env/won"] <= 1 and "env/never" not in line for line in lines), lines)
        rate = lines[-1]["evaluation/env/won"]
        with open(self.path("runs", "game", "summary.json")) as file:
            summary = json.load(file)
        self.assertEqual((summary["evaluation"]["infos"]["won"]["mean"], summary["evaluation/env/won"]), (rate, rate))
        found = json.loads(self.troupe("evaluate", "game", "--episodes", "20", "--json").stdout.splitlines()[-1])
        won = [episode["infos"]["won"] for episode in found["per_episode"]]
        self.assertEqual(found["infos"]["won"]["mean"], sum(won) / 20)
        self.assertNotIn("never", found["infos"])
        self.assertRegex(self.troupe("evaluate", "game", "--episodes", "20", "--experiment", "judged").stdout, r"\nenv/won +\d\.\d{3} ")
        with open(self.path("runs", "judged", "progress.jsonl")) as file:
            self.assertEqual([json.loads(line)["env/won"] for line in file], won)

    def test_evaluations_with_an_environment_of_their_own(self):
        longer = self.write("longer.yaml", CONFIG.replace("at_end: false", "env: {args: {max_cycles: 20}}"))
        self.troupe("train", longer, "--name", "longer")
        with open(self.path("runs", "longer", "summary.json")) as file:
            self.assertEqual(json.load(file)["evaluation"]["episode_length"]["mean"], 20)
        with open(self.path("runs", "longer", "progress.jsonl")) as file:
            self.assertEqual(json.loads(file.readline())["episode_length"], 10)
        for more, length in (((), 20), (("--set", "env.args.max_cycles=5"), 5)):
            result = json.loads(self.troupe("evaluate", "longer", "--json", *more).stdout.splitlines()[-1])
            self.assertEqual(result["episode_length"]["mean"], length, "what the command says goes before what the run says")
        self.assertEqual(json.loads(self.troupe("evaluate", "longer", "--json", "--set", "evaluation.env.max_episode_steps=3").stdout.splitlines()[-1])
                         ["episode_length"]["mean"], 3)
        for change, words in (("{args: {num_adversaries: 1}}", "got an environment with the agents .*expected those that train: "),
                              ("{args: {num_obstacles: 5}}", "was trained for the observation space"), ("{naem: x}", 'unknown key "env.naem"')):
            done = self.troupe("train", longer, "--name", "wrong", "--set", f"evaluation.env={change}", ok=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, f"evaluation.env: .*{words}")

    def test_evaluations_beside_training(self):
        self.troupe("train", self.example("cartpole_ippo.yaml"), "--name", "beside", "--set", "stop.env_steps=30000", "--set", "evaluation.interval=4000",
                    "--set", "evaluation.episodes=20", "--set", "evaluation.parallel=true", "--set", "evaluation.at_end=false", "--set", "seed=1")
        evaluated = [line for line in self.progress("beside") if "evaluation_return_sum" in line]
        self.assertGreater(len(evaluated), 1)
        for line in evaluated:
            self.assertLessEqual(line.get("evaluation_env_steps", line["env_steps"]), line["env_steps"])
        best = os.path.basename(os.path.realpath(self.path("runs", "beside", "checkpoints", "best")))
        latest = os.path.basename(os.path.realpath(self.path("runs", "beside", "checkpoints", "latest")))
        self.assertIn(int(best), [line.get("evaluation_env_steps", line["env_steps"]) for line in evaluated])
        self.assertEqual(int(latest), self.progress("beside")[-1]["env_steps"])

    def test_episodes_one_by_one(self):
        result = self.evaluate("--seed", "7")
        episodes = result["per_episode"]
        self.assertEqual((result["seed"], [e["episode"] for e in episodes]), (7, list(range(6))))
        self.assertEqual(len({e["seed"] for e in episodes}), 6)
        for episode in episodes:
            self.assertEqual(episode["length"], 10)
            returns = {agent: entry["return"] for agent, entry in episode["agents"].items()}
            self.assertAlmostEqual(sum(returns.values()), episode["return_sum"])
            self.assertAlmostEqual(episode["return_sum"] / 4, episode["return_mean"])
            self.assertEqual({agent: entry["policy"] for agent, entry in episode["agents"].items()},
                             {"adversary_0": "hunter", "adversary_1": "hunter", "adversary_2": "hunter", "agent_0": "prey"})
        mean = sum(e["return_sum"] for e in episodes) / 6
        self.assertAlmostEqual(result["return_sum"]["mean"], mean)
        self.assertEqual(self.evaluate("--seed", "7", "--set", "evaluation.num_workers=3"), result, "whatever plays them")
        self.assertNotEqual(self.evaluate("--seed", "8")["per_episode"][0]["seed"], episodes[0]["seed"])

    def gif(self, name):
        """(width, height, pictures) of a GIF."""
        with open(self.path(name), "rb") as file:
            data = file.read()
        self.assertEqual((data[:6], data[-1:]), (b"GIF89a", b";"))
        return *(int.from_bytes(data[at:at + 2], "little") for at in (6, 8)), data.count(b"\x21\xf9\x04")

    def test_an_episode_is_filmed(self):
        evaluated = self.evaluate("--seed", "7")
        sums = [episode["return_sum"] for episode in evaluated["per_episode"]]
        for which, number in (("best", sums.index(max(sums))), ("worst", sums.index(min(sums))), ("first", 0), ("4", 4)):
            said = self.troupe("evaluate", "run", "--seed", "7", "--video", f"{which}.gif", "--video-episode", which).stdout
            self.assertEqual(said.splitlines()[-1],
                             f"episode {number} ({which}) in {which}.gif: 11 pictures, summed return {sums[number]:.3f}")
        # Ten steps and the beginning; the end is there for a second, 10 pictures.
        self.assertEqual(self.gif("best.gif"), (480, 480 + 5 * 16 + 12, 20))
        before = self.hash_of("best.gif")
        self.troupe("evaluate", "run", "--seed", "7", "--video", "best.gif", "--overwrite", "--video-size", "64", "--video-fps", "2")
        self.assertEqual(self.gif("best.gif")[::2], (64, 12))
        self.assertNotEqual(self.hash_of("best.gif"), before)
        self.assertEqual(self.evaluate("--seed", "7", "--video", "quiet.gif"), evaluated, "with --json, too")

    def test_a_python_environment_is_filmed_by_what_its_render_answers(self):
        self.write("room.py", ROOM)
        path = self.write("room.yaml", "env: {name: 'python:room.py:Room'}\nalgorithm: {name: ippo, train_batch_size: 40}\nnum_workers: 0\n"
                                       "stop: {env_steps: 40}\nevaluation: {at_end: false, num_workers: 1}\n")
        self.troupe("train", path, "--name", "room", "--python", sys.executable)
        with open(self.path("made")) as file:
            self.assertEqual(set(file.read().split()), {"None"}, "nobody draws while it trains")
        said = self.troupe("evaluate", "room", "--episodes", "3", "--video", "room.gif", "--video-size", "96").stdout
        self.assertIn("room.gif: 6 pictures", said)
        self.assertEqual(self.gif("room.gif"), (96, 96 + 2 * 16 + 12, 15))
        with open(self.path("made")) as file:
            self.assertIn("rgb_array", file.read())
        for args, words in (("how: gray", "render() answered an array of shape [30, 40] and type uint8, expected one of [height, width, 3] bytes"),
                            ("how: raises", "render: RuntimeError: no display"), ("how: none", "render() answered None")):
            done = self.troupe("evaluate", "room", "--set", f"env.args={{{args}}}", "--video", "bad.gif", ok=False)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "", "before anything is played")
            self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("bad.gif")], [])

    def test_a_png_is_eight_moments(self):
        self.troupe("evaluate", "run", "--video", "a.png", "--video-size", "64")
        with open(self.path("a.png"), "rb") as file:
            head = file.read(24)
        self.assertEqual((head[:8], int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")),
                         (b"\x89PNG\r\n\x1a\n", 4 * 64, 2 * (64 + 5 * 16 + 12)))

    def test_evaluations_are_filmed_while_a_run_trains(self):
        said = self.troupe("train", "run.yaml", "--name", "filmed", "--set", "stop.env_steps=300", "--set", "evaluation.interval=100", "--set",
                           "evaluation.at_end=true", "--set", "evaluation.video_interval=1")
        self.assertNotIn("degraded", said.stdout + said.stderr)
        films = sorted(os.listdir(self.path("runs", "filmed", "videos")), key=lambda name: int(name[:-len(".gif")]))
        self.assertEqual(films[-1], "300.gif", "the last one is filmed; others may be left out while one is made")
        self.assertEqual(self.gif(os.path.join("runs", "filmed", "videos", films[0])), (280, 280 + 5 * 16 + 12, 20))
        (events,) = glob.glob(self.path("runs", "filmed", "events.out.tfevents.*"))
        with open(events, "rb") as file, open(self.path("runs", "filmed", "videos", films[-1]), "rb") as film:
            events, film = file.read(), film.read()
        self.assertIn(b"Videos_Test", events)
        self.assertIn(film, events)

    def test_watching_writes_pictures_as_text_where_there_is_no_terminal(self):
        said = self.troupe("watch", "run", "--seed", "7").stdout
        self.assertEqual(said.count("weights of 100 env steps  episode 0  step "), 11)
        self.assertIn("episode 0  step 10  the end\nadversary_0  hunter  return", said)
        for mark in "xo0":
            self.assertRegex(said, f"(?m)^ *[xo0 ]*{mark}")
        self.assertTrue(said.isascii() and "\x1b" not in said)
        self.assertEqual(self.troupe("watch", "run", "--seed", "7", "--episodes", "2").stdout[:len(said)], said)
        with subprocess.Popen([self.program, "watch", "run", "--episodes", "1000000"], stdout=subprocess.PIPE, cwd=self.folder) as watching:
            self.assertTrue(watching.stdout.readline())
            watching.send_signal(signal.SIGINT)
            self.assertTrue(watching.stdout.read().endswith(b"\n"), "no half picture")
            self.assertEqual(watching.wait(30), 130)

    def test_runs_beside_each_other(self):
        (run,) = (each for each in json.loads(self.troupe("runs", "ls", "--json").stdout) if each["name"] == "run")
        self.assertEqual((run["state"], run["env"], run["algorithm"], run["env_steps"], run["problems"]), ("finished", "mpe/simple_tag", "mappo", 100, []))
        shown = self.troupe("runs", "show", "run").stdout
        for words in ("finished: stop.env_steps reached: 100 of 100", "algorithm.train_batch_size", "100 (latest)"):
            self.assertIn(words, shown)
        self.troupe("train", "run.yaml", "--name", "second", "--set", "seed=2")
        compared = json.loads(self.troupe("runs", "compare", "--json").stdout)
        self.assertEqual([(group["metric"], group["runs"]) for group in compared["groups"]],
                         [(f"policy/{policy}/return_mean", ["run", "second"]) for policy in ("hunter", "prey")])
        for group in compared["groups"]:
            self.assertAlmostEqual(group["mean"], sum(group["values"]) / 2)
            self.assertTrue(group["low"] <= min(group["values"]) <= max(group["values"]) <= group["high"])
        plot = ("runs", "plot", "--output", "curves.svg", "--python", sys.executable)
        self.assertEqual(self.troupe(*plot).stdout, "wrote curves.svg\n")
        with open(self.path("curves.svg")) as file:
            self.assertIn("<svg", file.read())
        self.assertEqual(self.troupe(*plot, ok=False).returncode, 78, "it is there")
        before = self.hash_of("curves.svg")
        drawn = json.loads(self.troupe(*plot, "--overwrite", "--each", "--x", "wall_clock_s", "--metric", "return_sum", "--json").stdout)
        self.assertEqual(drawn, {"path": "curves.svg", "series": ["run", "second"]})
        self.assertNotEqual(self.hash_of("curves.svg"), before)
        os.rename(self.path("runs", "run", "checkpoints"), self.path("elsewhere"))
        self.write("runs/run/checkpoints", "")
        (problem,) = json.loads(self.troupe("runs", "show", "run", "--json").stdout)["problems"]
        self.assertRegex(problem, "^checkpoints: .*Not a directory")
        self.assertIn(problem, self.troupe("runs", "show", "run").stderr)

    def test_a_long_episode_has_a_picture_every_second_step(self):
        said = self.troupe("evaluate", "run", "--episodes", "1", "--set", "env.args.max_cycles=1001", "--video", "long.gif", "--video-size", "64").stdout
        self.assertIn("long.gif: 502 pictures", said, "steps 0, 2, 4, ..., 1000, and the last")

    def test_to_overwrite_a_video_touches_nothing_beside_it(self):
        os.mkdir(self.path("a.gif.new"))
        self.write("a.gif.new/mine", "mine")
        self.troupe("evaluate", "run", "--video", "a.gif")
        self.troupe("evaluate", "run", "--video", "a.gif", "--overwrite")
        self.assertEqual(sorted(name for name in os.listdir(self.folder) if name.startswith("a.gif")), ["a.gif", "a.gif.new"])
        self.assertTrue(os.path.exists(self.path("a.gif.new", "mine")))

    def test_a_video_that_cannot_be_is_refused_before_anything_is_played(self):
        self.refused("--video", "a.avi", saying=["a.avi", ".gif, .mp4 or .png"])
        self.refused("--video", "a.gif", "--video-episode", "bets", saying=["bets", "best, worst, first"])
        self.refused("--video", "a.gif", "--video-episode", "6", saying=["6", "from 0 to 5"])
        self.refused("--video", "nowhere/a.gif", saying=["nowhere", "can be written"])
        os.mkdir(self.path("folder.gif"))
        self.refused("--video", "folder.gif", "--overwrite", saying=["folder.gif", "no regular file"])
        with open(self.path("there.gif"), "w") as file:
            file.write("mine")
        self.refused("--video", "there.gif", saying=["there.gif", "--overwrite"])
        with open(self.path("there.gif")) as file:
            self.assertEqual(file.read(), "mine")
        self.troupe("train", self.write("kuhn.yaml", CONFIG.replace("mpe/simple_tag, args: {continuous_actions: true, max_cycles: 10}", "kuhn_poker")
                                        .replace("adversary_*", "player_0").replace("action_scaling: true\n", "")), "--name", "kuhn")
        done = self.troupe("evaluate", "kuhn", "--video", "a.gif", ok=False)
        self.assertIn("kuhn_poker has no picture of itself", done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("a.gif")], [])

    def test_another_class_mapping_and_environment(self):
        def policies(result):
            return {agent: entry["policy"] for agent, entry in result["per_episode"][0]["agents"].items()}
        trained = self.evaluate()
        at_random = self.evaluate("--policy", "prey=random")
        self.assertEqual(policies(at_random), policies(trained))
        self.assertNotEqual(at_random["agents"]["agent_0"], trained["agents"]["agent_0"])
        # The environment's own actions, as in a run whose prey is random: neither scaled nor clipped once more.
        self.troupe("train", "run.yaml", "--name", "random", "--set", "multi_agent.policies.prey.class=random", "--set", "stop.env_steps=100")
        everybody = ("--policy", "hunter=random", "--episodes", "6")
        begun = json.loads(self.troupe("evaluate", "random", "--json", *everybody).stdout.splitlines()[-1])
        self.assertEqual(self.evaluate(*everybody, "--policy", "prey=random"), begun)
        longer = self.evaluate("--set", "env.args.max_cycles=15")
        self.assertEqual({e["length"] for e in longer["per_episode"]}, {15})
        self.assertEqual(policies(self.evaluate("--policy", "prey=checkpoint:runs/run#prey")), policies(trained))
        self.assertEqual(self.evaluate("--policy", "prey=checkpoint:runs/run#prey")["per_episode"], trained["per_episode"])

    def test_what_may_not_change_is_said(self):
        self.refused("--set", "algorithm.gamma=0.5", saying=["--set algorithm.gamma=0.5: algorithm.gamma: got 0.5", "0.99",
                                                             "an evaluation may change env, evaluation and multi_agent.policy_mapping"])
        self.refused("--policy", "prye=random", saying=["--policy prye=random", 'there is no policy "prye"', 'the nearest is "prey"'])
        self.refused("--policy", "prey=randm", saying=['got "randm"', 'the nearest is "random"'])
        self.refused("--policy", "prey", saying=["expected ID=CLASS"])
        self.refused("--set", "multi_agent.policy_mapping={\"*\": hunter}",
                     saying=["--set multi_agent.policy_mapping", 'policy "hunter" was trained for the observation space', 'agent "agent_0"'])
        self.refused("--set", "multi_agent.policy_mapping={\"*\": wolf}", saying=["wolf"])
        self.refused("--set", "env.args.num_adversaries=2", saying=["--set env.args.num_adversaries=2", "was trained for"])
        self.assertEqual(os.listdir(self.path("runs")), ["run"], "an evaluation writes nothing")

    def test_an_experiment_of_its_own(self):
        before = self.hashes_below("runs", "run")
        told = self.troupe("evaluate", "run", "--policy", "prey=random", "--set", "env.args.max_cycles=5", "--experiment", "weak_prey").stdout
        self.assertIn("results in runs/weak_prey", told)
        self.assertEqual(self.hashes_below("runs", "run"), before)
        summary = self.summary("weak_prey")
        self.assertEqual((summary["run"], summary["policies"], summary["set"]), ("weak_prey", ["prey=random"], ["env.args.max_cycles=5"]))
        self.assertEqual(summary["evaluation"]["episodes"], 6)
        lines = self.progress("weak_prey")
        self.assertEqual([(line["episode"], line["episode_length"], line["env_steps"]) for line in lines], [(i, 5, 5 * (i + 1)) for i in range(6)])
        self.assertEqual(lines[0]["agent/agent_0/policy"], "prey")
        self.assertAlmostEqual(sum(line["return_sum"] for line in lines) / 6, summary["evaluation"]["return_sum"]["mean"])
        with open(glob.glob(self.path("runs", "weak_prey", "events.out.tfevents.*"))[0], "rb") as file:
            events = file.read()
        for tag in (b"Test-Results/Episode-Rewards/Mean-Score", b"Test-Results/Episode-Rewards/Std-Score", b"Test-Results/agent_0/Episode-Rewards"):
            self.assertIn(tag, events)
        self.assertEqual(os.stat(self.path("runs", "weak_prey", "config.yaml")).st_mode & 0o777, 0o600)
        self.refused("--experiment", "weak_prey", saying=['"runs/weak_prey" is there', "choose another name"])
        self.refused("--experiment", "../weak", saying=["--experiment", "without"])


class RunsTest(harness.TroupeTestCase):
    """`troupe runs` of folders that nobody trained: their files are what the test has written."""

    def make(self, name, config, *lines):
        os.makedirs(self.path("runs", name))
        self.write(os.path.join("runs", name, "config.yaml"), config)
        self.write(os.path.join("runs", name, "progress.jsonl"), "".join(json.dumps(line) + "\n" for line in lines))

    def make_seed(self, name, seed, *env_steps):
        self.make(name, f"seed: {seed}\nenv: {{name: cartpole}}\n", *({"env_steps": at, "return_sum": seed} for at in env_steps))

    def test_no_control_character_of_a_run_reaches_a_terminal_or_a_picture(self):
        lines = [{"env_steps": at, "return_sum": at, "Custom/\x1b[2J": at} for at in (10, 20)]
        self.make("a\x1b[2J", 'env: {name: "b\\x1b[2J"}\n', *lines)
        self.make("c", "env: {name: cartpole}\n", *lines)
        self.make("broken\x1b[2J", "[")
        os.mkdir(self.path("runs", "other\x1b[2J"))
        plot = ("plot", "--output", "a.svg", "--overwrite", "--python", sys.executable)
        both = ("a\x1b[2J", "c")
        for words, ok in ((("ls",), True), (("ls", "--json"), True), (("show", both[0]), True), (("show", both[0], "--json"), True), (("show", "broken\x1b[2J"), True),
                          (("compare",), True), (("compare", "--json"), True), (("compare", "--at", "30"), False), (("compare", both[0], both[0]), True),
                          (("compare", *both, "--metric", "Custom/\x1b[3J"), False), ((*plot,), True), ((*plot, "--json"), True), ((*plot, "--each"), True),
                          ((*plot, *both, "--metric", "Custom/\x1b[2J"), True)):
            done = self.troupe("runs", *words, ok=False)
            self.assertEqual(done.returncode == 0, ok, (words, done.stderr))
            self.assertEqual([each for each in done.stdout + done.stderr if each < " " and each != "\n"], [], (words, done))
            self.assertRegex(done.stdout + done.stderr, r"\\x1b\[|\\u001b\[" if words[0] != "plot" else "wrote a.svg|\"a.svg\"", words)
            if words[0] == "plot":
                xml.etree.ElementTree.parse(self.path("a.svg"))
                with open(self.path("a.svg")) as file:
                    self.assertIn("\\x1b[2J", file.read(), words)

    def test_a_run_counts_once_and_seeds_that_are_alike_are_said(self):
        for name, seed in (("run_1", 1), ("run_2", 2), ("run_3", 2)):
            self.make_seed(name, seed, 10, 20)
        os.symlink("run_3", self.path("runs", "latest"))
        for words in ((), ("latest", "run_1", "run_2", "run_3", "runs/run_3/")):
            done = self.troupe("runs", "compare", "--json", *words)
            (group,) = json.loads(done.stdout)["groups"]
            self.assertEqual((group["runs"], group["values"]), (["run_1", "run_2", "run_3"], [1, 2, 2]))
            self.assertIn('troupe: left out: latest: the folder of "run_3", which counts once\n', done.stderr)
            self.assertEqual(done.stderr.count('left out: run_3: the folder of "run_3", which counts once'), len(words) and 1)
            self.assertIn("troupe: run_2, run_3: runs of one seed, 2, expected a seed each", done.stderr)
        self.assertEqual(self.troupe("runs", "compare", "run_1", "run_2").stderr, "")

    def test_where_a_comparison_is_made_is_said(self):
        self.make_seed("short", 1, 10, 20)
        self.make_seed("long", 2, 10, 40)
        for words, said in (((), "at 20 env steps, which all runs that are compared have"), (("--at", "15"), "at 15 env steps, which all runs that are compared have"),
                            (("--at", "30"), "at 30 env steps; runs without a value there are left out")):
            done = self.troupe("runs", "compare", *words)
            self.assertEqual(done.stdout.splitlines()[0], said)
        self.assertIn("left out: short: no return_sum at 30 env steps, there are 10 to 20", done.stderr)

    def test_what_is_not_listed_is_said_by_all(self):
        os.makedirs(self.path("runs"))
        for number in range(20_001):
            os.mknod(self.path("runs", str(number)))
        for words in (("ls",), ("ls", "--json"), ("compare",), ("plot", "--output", "a.svg")):
            done = self.troupe("runs", *words, ok=False)
            self.assertIn("troupe: left out: runs: what comes after the folder's first 20000 entries\n", done.stderr, words)
            self.assertEqual(done.returncode, 0 if words[0] == "ls" else 1, done.stderr)


if __name__ == "__main__":
    harness.main()
