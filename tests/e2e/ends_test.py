"""How runs end: by time, without an update, and when they were finished before they were resumed."""

import json
import os
import signal
import time

import harness

CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 1
num_envs_per_worker: 8
algorithm: {train_batch_size: 200, minibatch_size: 100, num_epochs: 1}
stop: {env_steps: 400}
evaluation: {episodes: 4}
experiment: {write_interval: 200}
"""
# Needs numpy alone; an environment takes SETUP seconds to be made.
SLOW = """
import time

import numpy as np

class Box:
    low, high, shape, dtype = np.zeros(2, np.float32), np.ones(2, np.float32), (2,), np.dtype(np.float32)

class Discrete:
    n, start = 2, 0

class Slow:
    def __init__(self, setup):
        time.sleep(setup)
        self.possible_agents = ["walker"]
        self.observation_spaces, self.action_spaces = {"walker": Box()}, {"walker": Discrete()}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {"walker": np.zeros(2, np.float32)}, {"walker": {}}

    def step(self, actions):
        self.t += 1
        done = {"walker": self.t == 5, "__all__": self.t == 5}
        return {"walker": np.zeros(2, np.float32)}, {"walker": 1.0}, done, {"walker": False, "__all__": False}, {"walker": {}}
"""


# A task without an end; its start and its steps sleep where a file asks for that.
ENDLESS = SLOW[:SLOW.index("class Slow:")] + """
class Endless:
    def __init__(self):
        if os.path.exists("slow"):
            open("making", "w").close()
            time.sleep(45)
        self.possible_agents = ["walker"]
        self.observation_spaces, self.action_spaces = {"walker": Box()}, {"walker": Discrete()}

    def reset(self, *, seed=None, options=None):
        return {"walker": np.zeros(2, np.float32)}, {"walker": {}}

    def step(self, actions):
        if os.path.exists("stuck"):
            open("asleep", "w").close()
            time.sleep(25)
        no = {"walker": False, "__all__": False}
        return {"walker": np.zeros(2, np.float32)}, {"walker": 1.0}, no, no, {"walker": {}}
"""
ENDLESS_CONFIG = """
env: {name: "python:endless.py:Endless", python: {interpreter: PYTHON}}
num_workers: 1
num_envs_per_worker: 2
algorithm: {name: ippo, train_batch_size: 20, minibatch_size: 20, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
stop: {env_steps: 40}
"""


class EvaluationTest(harness.RunningTestCase):
    """Evaluations that do not end by themselves."""

    def setUp(self):
        super().setUp()
        self.write("endless.py", "import os\n" + ENDLESS)
        self.write("run.yaml", ENDLESS_CONFIG.replace("PYTHON", json.dumps(os.environ["TROUPE_TEST_PYTHON"])))

    def train(self, *arguments):
        return self.troupe("train", "run.yaml", "--name", "run", *arguments).stdout

    def test_a_signal_or_a_stop_ends_the_last_one_in_order(self):
        ways = {"term": (lambda process: process.send_signal(signal.SIGTERM), 0), "int": (lambda process: process.send_signal(signal.SIGINT), 130),
                "stop": (lambda _: self.troupe("stop", "stop"), 0)}
        for name, (end, code) in ways.items():
            with self.subTest(name):
                before = len(self.log_text()) if os.path.exists(self.path("log")) else 0
                process = self.start("run.yaml", "--name", name)
                self.await_true(lambda: "evaluating, 0 of 100 episodes" in self.log_text()[before:], "the evaluation")
                self.await_true(lambda: os.path.exists(self.path("runs", name, "checkpoints", "40", "manifest.json")), "the checkpoint before it")
                end(process)
                self.assertEqual(process.wait(30), code, self.log_text())
                summary = self.summary(name)
                self.assertEqual((summary["env_steps"], summary["evaluation"], summary["evaluation_error"]), (40, None, "interrupted after 0 of 100 episodes"))

    def test_a_signal_or_a_stop_ends_one_between_updates(self):
        for name, end in (("term", lambda process: process.send_signal(signal.SIGTERM)), ("stop", lambda _: self.troupe("stop", "stop"))):
            with self.subTest(name):
                before = len(self.log_text()) if os.path.exists(self.path("log")) else 0
                process = self.start("run.yaml", "--name", name, "--set", "evaluation.interval=20", "--set", "stop.env_steps=400")
                self.await_true(lambda: "evaluating, 0 of 100 episodes" in self.log_text()[before:], "the evaluation")
                end(process)
                self.assertEqual(process.wait(30), 0, self.log_text())
                self.assertIn("evaluation interrupted after 0 of 100 episodes env_steps=20", self.log_text()[before:])
                self.assertLess(self.summary(name)["env_steps"], 100)  # and no more than is under way

    def test_episodes_without_an_end_are_cut_and_said_to_be(self):
        said = self.train("--set", "evaluation.max_episode_steps=30", "--set", "evaluation.episodes=3")
        evaluation = self.summary("run")["evaluation"]
        self.assertEqual((evaluation["episodes"], evaluation["episodes_cut"], evaluation["return_sum"]["mean"]), (3, 3, 30.0))
        for text in (said, self.troupe("evaluate", "run", "--episodes", "2").stdout):
            self.assertIn("NO EPISODE ENDED: all were cut after 30 env steps (evaluation.max_episode_steps); env.max_episode_steps ends the episodes", text)

    def test_a_time_limit_ends_one_and_the_run_goes_on(self):
        said = self.train("--set", "evaluation.time_limit_s=0.5", "--set", "evaluation.interval=20")
        summary = self.summary("run")
        self.assertEqual(summary["env_steps"], 40)
        self.assertIn("evaluation.time_limit_s (500ms) is over after 0 of 100 episodes; env.max_episode_steps", summary["evaluation_error"])
        self.assertIn("evaluation FAILED", said)

    def test_evaluate_ends_at_a_signal_while_python_is_slow(self):
        self.train("--set", "evaluation.at_end=false")
        self.write("stuck", "")
        process = self.start_program("evaluate", "run")
        self.await_true(lambda: os.path.exists(self.path("asleep")), "a step")
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 143, self.log_text())
        self.assertLess(time.monotonic() - begun, 20)  # a step sleeps 25 s
        self.assertIn("the evaluation was interrupted after 0 of 100 episodes", self.log_text())

    def test_a_signal_ends_a_start_that_takes_long(self):
        self.write("slow", "")
        process = self.start_program("learner", "run.yaml", "--name", "run", "--workers", "0")
        self.await_true(lambda: os.path.exists(self.path("making")), "the environment's start")
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(90), 143, self.log_text())
        self.assertLess(time.monotonic() - begun, 30)  # it sleeps 45 s
        self.assertFalse(os.path.exists(self.path("runs", "run")))
        os.remove(self.path("slow"))
        self.train("--set", "evaluation.at_end=false")


class EndsTest(harness.RunningTestCase):
    def assert_is_as_it_was(self, before):
        """All that the run had is the same, and nothing has come but what says that it was started again."""
        after = self.hashes_below("runs", "run")
        self.assertEqual({path: after.get(path) for path in before}, before)
        came = [os.path.basename(path) for path in after if path not in before]
        self.assertEqual([name for name in came if "tfevents" in name or name.isdigit() or name.endswith("json")], [])

    def results(self):
        """Of the run's files, those that hold results."""
        return {path: value for path, value in self.hashes_below("runs", "run").items()
                if "tfevents" in path or "checkpoints" in path or path.endswith((".json", ".jsonl"))}

    def test_the_line_of_the_only_update_is_written_once(self):
        said = self.troupe("train", self.write("run.yaml", CONFIG), "--set", "stop.env_steps=200").stdout
        self.assertEqual(said.count("200/200 (100%) env steps"), 1, said)

    def test_a_finished_run_that_is_resumed_says_so_and_stays_as_it_is(self):
        config = self.write("run.yaml", CONFIG)
        self.troupe("train", config, "--name", "run")
        before = self.results()
        words = "run: nothing is left to do: stop.env_steps reached: 400 of 400; to go on raise it (--set stop.env_steps=N)\nresults in runs/run\n"
        next_commands = (f"  evaluate  {self.program} evaluate runs/run\n  video     {self.program} evaluate runs/run --video run.gif\n"
                         "  curves    tensorboard --logdir runs/run\n"
                         f"  query     {self.program} query runs/run\n  resume    {self.program} train --resume runs/run --set stop.env_steps=800\n")
        for workers in ("1", "0"):
            self.assertEqual(self.troupe("train", "--resume", "run", "--workers", workers).stdout, words + next_commands)
            self.assertEqual(self.troupe("train", config, "--name", "run", "--resume-or-start", "--workers", workers).stdout, words + next_commands)
            # In containers it stays for a moment, for workers that come late.
            self.assertEqual(self.troupe("learner", "--resume", "run", "--workers", workers, "--listen", f"unix:{self.path('run.sock')}",
                                         "--linger", "0.2").stdout, words)
        summary = json.loads(self.troupe("train", "--resume", "run", "--json").stdout.splitlines()[-1])
        self.assertEqual((summary["env_steps"], summary["evaluation"]["episodes"]), (400, 4))
        self.assert_is_as_it_was(before)
        self.troupe("train", "--resume", "run", "--set", "stop.env_steps=600")
        self.assertEqual(self.summary("run")["env_steps"], 600)

    def test_a_run_that_was_killed_before_its_last_words_is_evaluated_when_it_is_resumed(self):
        self.troupe("train", self.write("run.yaml", CONFIG), "--name", "run")
        evaluation = self.summary("run")["evaluation"]
        os.unlink(self.path("runs", "run", "summary.json"))
        for workers in ("1", "0"):
            self.troupe("train", "--resume", "run", "--workers", workers)
            self.assertEqual(self.summary("run")["evaluation"], evaluation)
            os.unlink(self.path("runs", "run", "summary.json"))

    def test_starting_workers_and_environments_takes_no_time_of_the_run(self):
        self.write("slow.py", SLOW)
        config = self.write("run.yaml", "env: {name: \"python:slow.py:Slow\", args: {setup: 3}, python: {processes: 1}}\nnum_workers: 1\nnum_envs_per_worker: 1\n"
                            "algorithm: {train_batch_size: 50, num_epochs: 1}\nstop: {wall_clock: 1}\nevaluation: {at_end: false}\n")
        done = self.troupe("train", config, "--name", "run", "--python", os.environ["TROUPE_TEST_PYTHON"])
        summary = self.summary("run")
        self.assertRegex(summary["reason"], r"^stop\.wall_clock reached: \d+ of 1 s$")
        self.assertGreater(summary["updates"], 0, done.stdout)
        self.assertGreaterEqual(summary["wall_clock_s"], 1)
        self.assertEqual(self.troupe("train", "--resume", "run").stdout.splitlines()[0].split("reached")[0],
                         "run: nothing is left to do: stop.wall_clock ")

    def test_an_end_without_an_update_says_so(self):
        config = self.write("run.yaml", CONFIG.replace("train_batch_size: 200", "train_batch_size: 4000000").replace("env_steps: 400", "wall_clock: 1") +
                            "learner: {ingest_budget_bytes: 8000000000}\n")
        done = self.troupe("train", config, "--name", "run")
        self.assertRegex(done.stdout, r"stop\.wall_clock reached: \d+ of 1 s; no update was made: [1-9]\d* env steps had arrived, a batch has 4000000\n")
        self.assertEqual(self.summary("run")["updates"], 0)


if __name__ == "__main__":
    harness.main()
