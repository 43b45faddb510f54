"""Mapping functions and policies in Python: trained against, played in evaluations, asked over the network, and killed."""

import json
import os
import signal
import subprocess
import sys

import harness

GAME = """
env:
  name: rock_paper_scissors
  python: {interpreter: PYTHON, path: PATH, step_timeout_s: 5}
algorithm: {name: ppo, train_batch_size: 500, minibatch_size: 250, num_epochs: 10, lr: 3.0e-3}
model: {actor_hidden_sizes: [32], critic_hidden_sizes: [32]}
num_workers: WORKERS
num_envs_per_worker: 10
learner_threads: 2
seed: 5
experiment: {checkpoint_interval: 1000}
evaluation: {episodes: 100}
multi_agent:
  policies: {main: {}, other: {class: "python:opponents:OPPONENT"}}
  policy_mapping: {function: "python:opponents:choose"}
stop: {env_steps: STEPS}
"""

OPPONENTS = """
import os
import signal
import time

import numpy as np

calls = 0


def choose(agent_id, episode, worker):
    return "main" if agent_id == "player_0" else next(name for name in worker.policies if name != "main")


def paper(observations, rows):
    assert observations.shape == (len(observations), 7) and len(rows.env_steps) == len(observations)
    return np.ones(len(observations), np.int64)


def mortal(observations, rows):
    global calls
    calls += 1
    if calls == 150:
        os.kill(os.getpid(), signal.SIGKILL)
    return paper(observations, rows)


def rock(observations, rows):
    return np.zeros(len(observations), np.int64)


def angry(observations, rows):
    raise RuntimeError("I do not play")


def lost(agent_id):
    return "nobody"


class Unmade:
    def __init__(self):
        raise OSError("no weights here")


def stuck(observations, rows):
    open(os.environ["TROUPE_TEST_STUCK"], "a").close()
    time.sleep(1000)
"""
OBS = ("--obs", "[0, 0, 0, 0, 0, 0, 0]")


class PythonFunctionsTest(harness.RunningTestCase):
    def game(self, opponent, steps, workers):
        self.write("opponents.py", OPPONENTS)
        text = GAME.replace("PYTHON", os.environ["TROUPE_TEST_PYTHON"]).replace("PATH", self.folder)
        return self.write(f"{opponent}.yaml", text.replace("OPPONENT", opponent).replace("STEPS", str(steps))
                          .replace("WORKERS", str(workers)))

    def test_trains_against_a_python_policy_that_a_python_function_maps(self):
        config = self.game("paper", 8000, 1)
        self.troupe("train", config, "--name", "run")
        summary = self.summary("run")
        self.assertGreater(summary["evaluation"]["agents"]["player_0"]["mean"], 5, "chance gives 0")
        self.assertEqual(summary["rows"]["trained"], 2 * 8000, "rows of both are counted")
        self.assert_adds_up(summary, 500)
        result = json.loads(self.troupe("evaluate", "runs/run", "--episodes", "20", "--json").stdout.splitlines()[-1])
        self.assertGreater(result["agents"]["player_0"]["mean"], 5)
        self.assertEqual(self.tensors_of("other"), [], "there is nothing to keep of it")

        socket = f"unix:{self.path('serve.sock')}"
        self.log = open(self.path("log"), "w+")
        self.addCleanup(self.log.close)
        refused = self.troupe("serve", "runs/run", "--listen", socket, ok=False)
        self.assertRegex(refused.stderr, "the run names python:opponents:.*, which nothing of yours permits, expected --config FILE")
        server = subprocess.Popen([self.program, "serve", "runs/run", "--config", config, "--listen", socket], cwd=self.folder, stderr=self.log)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        self.await_true(lambda: "policy server ready" in self.log_text(), "the server")
        answer = self.troupe("query", socket, "--policy", "other", "--obs", "[0, 0, 0, 0, 0, 0, 0]", "--json")
        self.assertEqual(json.loads(answer.stdout.splitlines()[-1])["actions"], [[1]])

        # Of a Python that cannot play it says what helps; `query` itself has no --python.
        bare = self.path("bare")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
        with open(config) as file:
            mine = self.write("bare.yaml", file.read().replace(os.environ["TROUPE_TEST_PYTHON"], bare))
        done = self.troupe("query", "runs/run", "--config", mine, "--policy", "other", *OBS, ok=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for words in (f"{bare}/bin/python has no numpy", "env.python.interpreter in the configuration (--python of train, learner and envs)"):
            self.assertIn(words, done.stderr)

    def tensors_of(self, policy):
        return [name for name, _ in self.tensors("runs", "run", "checkpoints", "8000") if name.startswith(f"{policy}/")]

    def ask_one_that_is_stuck(self, address, times):
        """So many `troupe query` that wait for a policy that does not answer; it has been called."""
        for _ in range(times):
            asker = subprocess.Popen([self.program, "query", address, "--policy", "stuck", *OBS, "--timeout", "300"],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(asker.wait)
            self.addCleanup(asker.kill)
        self.await_true(lambda: os.path.exists(self.path("stuck")), "the policy that is stuck")

    def assert_answers(self, address, *policies):
        for policy in policies:
            slot = ("--agent-slot", "0") if policy == "main" else ()
            answer = self.troupe("query", address, "--policy", policy, *OBS, *slot, "--timeout", "60", "--json")
            self.assertEqual(len(json.loads(answer.stdout.splitlines()[-1])["actions"]), 1, policy)

    def test_a_policy_that_is_stuck_delays_its_own_queries_alone(self):
        os.environ["TROUPE_TEST_STUCK"] = self.path("stuck")
        with open(self.game("paper", 100000000, 1)) as file:
            text = file.read()
        # Far longer than the test: nothing is answered because the stuck one was killed.
        text = text.replace("step_timeout_s: 5", "step_timeout_s: 1000")
        text = text.replace("main: {}, ", 'main: {}, stuck: {class: "python:opponents:stuck"}, ')
        text = text.replace("choose", "choose_paper")
        with open(self.path("opponents.py"), "a") as file:
            file.write('\n\ndef choose_paper(agent_id):\n    return "main" if agent_id == "player_0" else "other"\n')
        config = self.write("stuck.yaml", text)
        train = self.start(config, "--name", "run", "--set", "experiment.write_interval=500")
        self.await_env_steps(1000, train)
        with open(self.path("runs", "run", "address")) as file:
            address = file.readline().strip()
        self.ask_one_that_is_stuck(address, 20)
        env_steps = self.env_steps()
        self.assertGreaterEqual(self.status("runs/run")["env_steps"], env_steps)
        self.assert_answers(address, "main", "other")
        self.await_env_steps(env_steps + 5000, train)
        train.terminate()
        self.assertEqual(train.wait(timeout=60), 0, self.log_text())

        os.remove(self.path("stuck"))
        socket = f"unix:{self.path('serve.sock')}"
        # It waits 10 s for answers that it owes, and no longer.
        server = self.start_program("serve", "runs/run", "--config", config, "--listen", socket)
        self.await_true(lambda: "policy server ready" in self.log_text(), "the server")
        self.ask_one_that_is_stuck(socket, 20)
        self.assert_answers(socket, "main", "other")
        server.terminate()
        self.assertEqual(server.wait(timeout=60), 0, self.log_text())

    def test_a_name_that_comes_later_must_be_permitted_by_every_worker(self):
        add = ("policy", "add", "run", "new", "--class", "python:opponents:rock", "--like", "other")
        choose = ("mapping", "set", "run", '{"*": {function: "python:opponents:paper"}}')
        config = self.game("paper", 1000000000, 2)
        process = self.start(config, "--name", "run", "--set", "experiment.write_interval=500")
        self.await_env_steps(500, process)
        workers = self.workers(process)
        for command, name in ((add, "python:opponents:rock"), (choose, "python:opponents:paper")):
            done = self.troupe(*command, ok=False)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stderr, f"worker [0-9]+ .*:({workers[0]}|{workers[1]})\\) does not permit {name}, .*--allow-python {name} ")
        # Nothing has changed, and nobody has left.
        self.troupe("mapping", "set", "run", '{"*": {function: "python:opponents:choose"}}')
        self.await_env_steps(self.env_steps() + 1000, process)
        self.assertEqual(self.workers(process), workers)
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.log_text())

        process = self.start("--resume", "run", "--allow-python", "python:opponents:rock")
        self.await_env_steps(self.env_steps() + 1000, process)
        self.troupe(*add)
        self.await_env_steps(self.env_steps() + 1000, process)
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.log_text())

        # The checkpoint's policies have it now: to who resumes it a run folder is a program.
        process = self.start("--resume", "run")
        self.await_env_steps(self.env_steps() + 1000, process)
        self.assertEqual(len(self.workers(process)), 2)
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.log_text())

    def test_a_change_is_tried_before_it_is_done(self):
        # "done" was said, and every worker ended as it made what nobody played; the resume ended the same way.
        names = ("angry", "Unmade", "lost", "chose", "rock")
        config = self.game("paper", 1000000000, 1)
        process = self.start(config, "--name", "run", "--set", "experiment.write_interval=500",
                             *(word for name in names for word in ("--allow-python", f"python:opponents:{name}")))
        self.await_env_steps(500, process)
        workers = self.workers(process)
        for command, words in (
                (("policy", "add", "run", "new", "--class", "python:opponents:angry"), "RuntimeError: I do not play"),
                (("policy", "add", "run", "new", "--class", "python:opponents:Unmade"), "OSError: no weights here"),
                (("policy", "add", "run", "new", "--class", "python:opponents:chose"), "did you mean choose"),
                (("mapping", "set", "run", '{"*": {function: "python:opponents:angry"}}'), "angry"),
                (("mapping", "set", "run", '{"*": {function: "python:opponents:lost"}}'), 'got policy "nobody", expected one of')):
            done = self.troupe(*command, *(("--like", "other") if command[0] == "policy" else ()), ok=False)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(words, done.stderr)
            self.assertIn("the policies stay as they are", done.stderr)
        self.assertEqual(len(json.loads(self.troupe("policy", "ls", "run", "--json").stdout)["policies"]), 2)
        self.await_env_steps(self.env_steps() + 1000, process)
        self.assertEqual(self.workers(process), workers)
        # One that works now and is gone at the resume.
        self.troupe("policy", "add", "run", "new", "--class", "python:opponents:rock", "--like", "other")
        self.troupe("mapping", "set", "run", "{player_0: main, player_1: new}")
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.log_text())
        self.write("opponents.py", OPPONENTS.replace("def rock", "def stone"))
        env_steps = self.env_steps()
        done = self.troupe("train", "--resume", "run", ok=False)
        self.assertEqual(done.returncode, 78, done.stderr)
        for words in ('policy "new": ', "'rock' is no attribute of module opponents", "troupe mapping set runs/run MAPPING", "troupe policy remove runs/run ID"):
            self.assertIn(words, done.stderr)
        self.assertEqual(self.env_steps(), env_steps)
        done = self.troupe("policy", "remove", "run", "new", ok=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("player_1", done.stderr)
        done = self.troupe("policy", "freeze", "run", "main", ok=False)
        self.assertIn("nobody trains", done.stderr, "that needs a learner")
        # Whom nobody plays nobody makes.
        self.assertIn("checkpoints/", self.troupe("mapping", "set", "run", "{player_0: main, player_1: other}").stdout)
        process = self.start("--resume", "run")
        self.await_env_steps(env_steps + 1000, process)
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.log_text())
        self.troupe("policy", "remove", "run", "new")
        process = self.start("--resume", "run")
        self.await_env_steps(self.env_steps() + 1000, process)
        self.assertEqual(len(json.loads(self.troupe("policy", "ls", "run", "--json").stdout)["policies"]), 2)
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.log_text())
        self.assert_adds_up(self.summary("run"), 500)

    def test_a_signal_ends_the_trial_of_a_resume_in_order(self):
        fixed = ("--set", "multi_agent.policy_mapping={player_0: main, player_1: other}")
        self.troupe("train", self.game("paper", 1000, 0), "--name", "run", "--set", "evaluation.at_end=false", *fixed)
        before = self.hashes_below("runs", "run", "checkpoints")
        self.write("opponents.py", OPPONENTS + "def paper(observations, rows):\n    open('asked', 'w').close()\n    time.sleep(1000)\n")
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
            process = self.start("--resume", "run", "--set", "stop.env_steps=2000")
            self.await_true(lambda: os.path.exists(self.path("asked")), "the trial")
            process.send_signal(number)
            self.assertEqual(process.wait(20), code, self.log_text())
            self.assert_nothing_left()
            os.remove(self.path("asked"))
        self.assertEqual(self.hashes_below("runs", "run", "checkpoints"), before)
        self.write("opponents.py", OPPONENTS)
        self.troupe("train", "--resume", "run", "--set", "stop.env_steps=2000")
        self.assertEqual(self.summary("run")["env_steps"], 2000)

    def test_a_process_that_dies_costs_episodes_and_no_more(self):
        self.troupe("train", self.game("mortal", 6000, 2), "--name", "run", "--set", "evaluation.at_end=false")
        summary = self.summary("run")
        self.assertEqual(summary["env_steps"], 6000)
        self.assert_adds_up(summary, 500)

    def test_what_is_wrong_is_said_at_once(self):
        config = self.game("paper", 1000, 0)
        for key, value, text in (
            ("multi_agent.policy_mapping.function", "python:opponents:chose", "'chose' is no attribute of module opponents, did you mean choose"),
            ("multi_agent.policy_mapping.function", "python:opponents", 'got "python:opponents", expected python:MODULE:NAME'),
            ("multi_agent.policies.other.class", "python:nobody:paper", "there is no module nobody"),
            ("env.python.interpreter", "no_python", "no_python, which is not on the PATH"),
        ):
            done = self.troupe("train", config, "--name", "bad", "--set", f"{key}={value}", ok=False)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn(text, done.stderr)
        done = self.troupe("train", self.game("angry", 1000, 0), "--name", "angry", ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("RuntimeError: I do not play", done.stderr)


if __name__ == "__main__":
    harness.main()
