"""Environments that fail are heard: a warning with the traceback, counts, and an end where most episodes fail."""

import datetime
import os
import time

import harness

ENV = harness.MULTI_AGENT + '''
import os


class Walk:
    """Two agents; an episode has ten steps. `fault` happens at step `at` of every episode, or, counted over the process,
    of all after the first `good`, or of one in `rare`.
    """

    episodes = 0

    def __init__(self, fault="", at=7, good=0, rare=0, only_one_host=False):
        self.possible_agents = ["left", "right"]
        self.observation_spaces = {agent: Box(-1, 1, (3,)) for agent in self.possible_agents}
        self.action_spaces = {agent: Discrete(2) for agent in self.possible_agents}
        self.fault, self.at, self.good, self.rare, self.episode, self.t = fault, at, good, rare, 0, 0
        if only_one_host and not is_bad_host():
            self.fault = ""

    def observe(self):
        return {agent: np.zeros(3, np.float32) for agent in self.possible_agents}

    def reset(self, *, seed=None, options=None):
        Walk.episodes += 1
        self.episode, self.t = Walk.episodes, 0
        return self.spoil(self.observe()), {}

    def step(self, actions):
        self.t += 1
        over = self.t >= 10
        rewards = {agent: 1.0 for agent in actions}
        return self.spoil(self.observe()), rewards, {"__all__": over}, {"__all__": False}, {}

    def spoil(self, observations):
        is_good = self.episode <= self.good or self.rare and self.episode % self.rare != 0
        if self.t != self.at or is_good:
            return observations
        if self.fault == "raise":
            self.wheel_comes_off()
        if self.fault == "exit":
            os._exit(3)
        if self.fault == "shape":
            observations["right"] = np.zeros(4, np.float32)
        if self.fault == "nan":
            observations["right"][1] = np.nan
        if self.fault == "outside":
            observations["right"][1] = 2.5
        return observations

    def wheel_comes_off(self):
        raise ValueError("the wheel\\x1b[31m came off")


def is_bad_host():
    """Whether this process is of the worker that came first."""
    with open(f"/proc/{os.getppid()}/cmdline", "rb") as file:
        if b"worker" not in file.read().split(b"\\0")[:2]:
            return False
    place = os.environ["TROUPE_TEST_FOLDER"] + "/bad_host"
    try:
        with open(place, "x") as file:
            file.write(str(os.getppid()))
    except FileExistsError:
        pass
    while True:
        with open(place) as file:
            text = file.read()
        if text:
            return text == str(os.getppid())


def nosuch(agent_id):
    return "nosuch"


def raises(agent_id):
    raise KeyError("nobody plays " + agent_id)
'''

RUN = """
env:
  name: python:walk_env:Walk
  args: {args}
  python: {{interpreter: "{python}", path: "{path}", processes: 1, fork_server: false}}
algorithm: {{name: ppo, train_batch_size: 80, minibatch_size: 40, num_epochs: 1}}
model: {{actor_hidden_sizes: [8], critic_hidden_sizes: [8]}}
num_workers: {workers}
num_envs_per_worker: 4
seed: 5
stop: {{env_steps: {env_steps}}}
experiment: {{write_interval: 1, checkpoint_interval: 0}}
evaluation: {{at_end: {evaluates}, episodes: 10}}
"""
NATIVE = """
env: {name: testing/faulty, args: {fault: throw, at_step: 3}}
algorithm: {name: ppo, train_batch_size: 80, minibatch_size: 40, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
num_workers: 1
num_envs_per_worker: 4
stop: {env_steps: 800}
evaluation: {at_end: false}
"""
HEADLINE = "environment failed"


class FailingEnvsTest(harness.RunningTestCase):
    def config(self, args, workers, env_steps, evaluates=False, more=""):
        self.write("walk_env.py", ENV)
        text = RUN.format(args="{" + args + "}", python=os.environ["TROUPE_TEST_PYTHON"], path=self.folder, workers=workers,
                          env_steps=env_steps, evaluates=str(evaluates).lower())
        return self.write("run.yaml", text + more)

    def train(self, *arguments, args, workers=1, env_steps=2000, evaluates=False, more=""):
        """What became of `troupe train` of a run named `run`."""
        config = self.config(args=args, workers=workers, env_steps=env_steps, evaluates=evaluates, more=more)
        done = self.troupe("train", config, "--name", "run", *arguments, ok=False,
                           env=dict(os.environ, TROUPE_TEST_FOLDER=self.folder))
        self.ended = time.time()
        return done

    def last_line(self, done):
        return done.stderr.strip().splitlines()[-1]

    def assert_ended_by_failures(self, done, cause):
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(self.last_line(done), cause)
        self.assertNotIn("Traceback", self.last_line(done))
        summary = self.summary("run")
        self.assertGreater(summary["env_errors"], 0)
        self.assertRegex(summary["reason"], cause)
        return summary

    def assert_trained(self, done, env_steps=2000):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        summary = self.summary("run")
        self.assertEqual(summary["env_steps"], env_steps)
        return summary

    def warnings(self, done):
        return [line for line in done.stderr.splitlines() if HEADLINE in line]

    def test_most_episodes_fail(self):
        done = self.train(args="fault: raise, good: 20")
        self.assert_ended_by_failures(done, r"more than env\.max_failed_share.*ValueError: the wheel.*walk_env\.py:\d+")
        self.assertEqual(len(self.warnings(done)), 1, "a kind is said once\n" + done.stderr)
        self.assertRegex(done.stderr, r"(?s)environment failed.*Traceback \(most recent call last\).*in wheel_comes_off\n.*raise ValueError")
        self.assertIn("the wheel\\x1b[31m came off", done.stderr, "no escape reaches the terminal")
        self.assertNotIn("\x1b[31m", done.stderr + done.stdout)

    def test_few_episodes_fail(self):
        done = self.train(args="fault: raise, rare: 20", env_steps=4000)
        summary = self.assert_trained(done, 4000)
        self.assertGreater(summary["env_errors"], 0)
        self.assertIn(f"{summary['env_errors']} episodes failed", done.stdout)
        self.assertEqual(len(self.warnings(done)), 1, done.stderr)
        self.assertRegex(done.stdout, r"failed episodes \d+", "the lines of progress count them, too")

    def test_without_a_limit_failures_are_only_counted(self):
        done = self.train("--set", "env.max_failed_share=1.0", args="fault: raise")
        self.assertGreater(self.assert_trained(done)["env_errors"], 100)

    def test_a_failed_evaluation_costs_no_result(self):
        done = self.train("--set", "env.max_failed_share=1.0", args="fault: raise", evaluates=True)
        summary = self.assert_trained(done)
        self.assertIsNone(summary["evaluation"])
        self.assertRegex(summary["evaluation_error"], "ValueError: the wheel")
        self.assertRegex(done.stdout, "evaluation FAILED: .*ValueError: the wheel")
        self.assertLess(done.stderr.count("in wheel_comes_off"), 5, done.stderr)
        self.assertTrue(os.path.exists(self.path("runs", "run", "checkpoints", "latest")))

    def test_a_failed_evaluation_in_between_costs_no_training(self):
        done = self.train("--set", "env.max_failed_share=1.0", "--set", "evaluation.interval=1000", args="fault: raise")
        self.assertEqual(self.assert_trained(done)["degraded"], ["the evaluation at 2000 env steps failed"])
        self.assertRegex(done.stderr, "evaluation failed env_steps=1040 .*ValueError: the wheel", "of the first update beyond 1000")

    def test_a_mapping_function_that_names_no_policy_ends_the_run_at_once(self):
        done = self.train(args="", more='multi_agent: {policies: {main: {}}, policy_mapping: {function: "python:walk_env:nosuch"}}\n')
        self.assert_ended_by_failures(done, "first episode.*nosuch")
        self.assertNotIn("another starts", done.stderr, "no worker died of it")
        self.assertLess(self.ended - self.time_of(done, "environment failed"), 5, done.stderr)

    def test_a_mapping_function_that_raises_ends_the_run_with_its_traceback(self):
        done = self.train(args="", more='multi_agent: {policies: {main: {}}, policy_mapping: {function: "python:walk_env:raises"}}\n')
        self.assert_ended_by_failures(done, "first episode.*KeyError: 'nobody plays left'")
        self.assertRegex(done.stderr, r"(?s)environment failed.*Traceback \(most recent call last\).*in raises\n.*raise KeyError")

    def time_of(self, done, words):
        """When the first line with these words was written, in seconds."""
        line = next(line for line in done.stderr.splitlines() if words in line)
        stamp = datetime.datetime.strptime(line.split()[0], "%Y-%m-%dT%H:%M:%S.%fZ")
        return stamp.replace(tzinfo=datetime.timezone.utc).timestamp()

    def test_every_first_step_raises(self):
        self.assert_ended_by_failures(self.train(args="fault: raise, at: 1", workers=2), r"first episode.*ValueError: the wheel")

    def test_processes_that_end_in_every_first_episode(self):
        self.assert_ended_by_failures(self.train(args="fault: exit, at: 1"), r"first episode.*exited with 3")

    def test_a_wrong_shape(self):
        self.assert_ended_by_failures(self.train(args="fault: shape, at: 1"), r"first episode.*right.*shape \(4,\)")

    def test_not_a_number(self):
        self.assert_ended_by_failures(self.train(args="fault: nan", workers=0), r"first episode.*agent right.*observation element 1 is nan")

    def test_the_other_host_trains_on(self):
        done = self.train(args="fault: raise, at: 3, only_one_host: true", workers=2, env_steps=8000)
        summary = self.assert_trained(done, 8000)
        self.assertGreaterEqual(summary["env_errors"], 20)
        self.assertRegex(done.stderr, r"gets no more work: worker 1\.\d+ \(\S+:\d+\), \d+ of its last \d+ episodes failed, the first: .*ValueError: the wheel")
        self.assertEqual(done.stderr.count("gets no more work"), 1, done.stderr)

    def test_status_says_who_gets_no_more_work(self):
        config = self.config("fault: raise, at: 3, only_one_host: true", workers=2, env_steps=100000000)
        os.environ["TROUPE_TEST_FOLDER"] = self.folder
        process = self.start(config, "--name", "run")
        self.await_env_steps(1, process)
        self.await_true(lambda: any(worker["gets_no_work"] for worker in self.status("run")["workers"]), "the verdict")
        bad, good = sorted(self.status("run")["workers"], key=lambda worker: not worker["gets_no_work"])
        self.assertRegex(bad["gets_no_work_reason"], r"\(\S+:\d+\), .* episodes failed, the first: .*ValueError: the wheel")
        self.assertGreaterEqual(bad["recent_failed_episodes"], 20)
        self.assertEqual((bad["num_envs"], good["num_envs"], good["gets_no_work_reason"]), (0, 8, ""))
        self.assertIn("no more work (env.max_failed_share): worker", self.troupe("status", "run").stdout)
        process.terminate()
        self.assertEqual(process.wait(60), 0, self.log_text())

    def test_a_native_environments_words(self):
        config = self.write("run.yaml", NATIVE)
        done = self.troupe("train", config, "--name", "run", ok=False)
        self.assert_ended_by_failures(done, "first episode.*testing/faulty.*step 3: .*threw a fault on order")
        self.assertRegex(done.stderr, "environment failed .*testing/faulty.*step 3: .*threw a fault on order")

    def test_observations_outside_their_space(self):
        done = self.train(args="fault: outside")
        summary = self.assert_trained(done)
        self.assertGreaterEqual(summary["env_outside_space"], 2000 // 10 - 10)
        warned = [line for line in done.stderr.splitlines() if "outside its space" in line]
        self.assertEqual(len(warned), 1, done.stderr)
        self.assertRegex(warned[0], r"agent right.*element 1 is 2\.5")
        self.assertEqual(self.progress("run")[-1]["env_outside_space"], summary["env_outside_space"])


if __name__ == "__main__":
    harness.main()
