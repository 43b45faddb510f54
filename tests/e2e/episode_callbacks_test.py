"""What is called beside environments and for each batch: callbacks of episodes, observation functions, policies_to_train in Python."""

import collections
import json
import os

import harness

REFUSED = 78
ALL_OFF = ["callbacks of episodes are off at 1 worker", "callbacks of episodes are off in evaluations"]  # what is degraded

GAME = """
env: {name: "ENV", python: {interpreter: PYTHON, path: PATH, processes: 2}}
algorithm: {name: ppo, train_batch_size: 200, minibatch_size: 100, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
num_workers: WORKERS
num_envs_per_worker: 4
learner_threads: 1
seed: 5
experiment: {checkpoint_interval: 400, write_interval: 200}
evaluation: {episodes: 4, interval: 400}
stop: {env_steps: 1000}
multi_agent: MULTI
callbacks: CALLBACKS
"""

MINE = """
import os
import signal
import time

import numpy as np
from host_test_envs import Box, Counter
from troupe import Callback

updates = []


def note(text):
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{os.getpid()} {text}\\n")


def make():
    return Counter(length=5)


def observe(observation, agent, info):
    return np.array([observation[1] / 5, agent == "a"], np.float32)


observe.observation_space = Box(-1, 1, (2,))


def even(policy_id, batch):
    assert batch.rows == 400 and batch.agents == {"a": 200, "b": 200} and batch.policies == {policy_id: 400}, batch.agents
    note(f"asked {policy_id} {batch.updates} {batch.env_steps}")
    return batch.updates % 2 == 0


def never(policy_id, batch):
    if batch.updates == 0:
        time.sleep(1)  # as one that imports much in its first call
    return False


class Both(Callback):
    def on_run_start(self, ctx):
        note("run_start")

    def on_update_end(self, ctx):
        note(f"update_end {ctx.updates}")
        ctx.track("updates", ctx.updates)

    def on_run_end(self, ctx):
        note("run_end")

    def on_episode_start(self, ctx):
        ctx.kind = "evaluation_" if ctx.evaluating else ""
        ctx.name = f"{id(ctx.env)} {ctx.env.seed}"
        ctx.sum = 0
        assert {agent: row.shape for agent, row in ctx.observations.items()} == {"a": (2,), "b": (2,)} and not ctx.actions, vars(ctx)
        note(f"{ctx.kind}start {ctx.name} {sorted(ctx.policies.items())}")

    def on_episode_step(self, ctx):
        assert set(ctx.actions) == set(ctx.log_probs) == set(ctx.rewards) == {"a", "b"}, vars(ctx)
        assert all(-20 < log_prob < 0 for log_prob in ctx.log_probs.values()), vars(ctx)
        assert all(row.shape == (2,) for row in ctx.observations.values()), vars(ctx)
        ctx.sum += sum(ctx.rewards.values())
        note(f"{ctx.kind}step {ctx.name} {ctx.length}")

    def on_episode_end(self, ctx):
        assert abs(ctx.sum - sum(ctx.returns.values())) < 1e-9, vars(ctx)
        note(f"{ctx.kind}end {ctx.name} {ctx.length}")
        ctx.track("length", ctx.length)
        ctx.track("return", sum(ctx.returns.values()))


class Ends(Callback):
    def on_episode_end(self, ctx):
        note(f"{'evaluation_' if ctx.evaluating else ''}end {ctx.length} {sorted(ctx.policies.items())}")
        ctx.track("length", ctx.length)
        ctx.track("sum", sum(ctx.returns.values()))

    def on_update_end(self, ctx):
        note(f"update_end {ctx.updates}")


class Raises(Callback):
    def on_episode_end(self, ctx):
        raise ValueError("not today")


class Sums(Callback):
    def on_episode_end(self, ctx):
        ctx.track("far", 6e99)


class Dies(Callback):
    def on_episode_end(self, ctx):
        os._exit(5)


class DiesInAStep(Callback):
    def on_episode_step(self, ctx):
        os._exit(5)


class StopsItself(Callback):
    def on_episode_step(self, ctx):
        os.kill(os.getpid(), signal.SIGSTOP)
"""


class EpisodeCallbacksTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        self.write("mine.py", MINE)
        self.environment = dict(os.environ, NOTES=self.path("notes"))

    def config(self, *classes, env="python:mine:make", workers=0, multi="{}"):
        path = f"{self.folder}:{os.path.join(self.source, 'lib/envhost/testing')}"
        text = GAME.replace("ENV", env).replace("PYTHON", os.environ["TROUPE_TEST_PYTHON"]).replace("PATH", path)
        if not env.startswith("python:"):
            text = text.replace(", processes: 2", "")  # has no effect there
        names = json.dumps([f"python:mine:{name}" for name in classes])
        return self.write("run.yaml", text.replace("WORKERS", str(workers)).replace("MULTI", multi).replace("CALLBACKS", names))

    def train(self, config, name="run", ok=True):
        return self.troupe("train", config, "--name", name, ok=ok, env=self.environment)

    def notes(self):
        """[process, word, rest]"""
        with open(self.path("notes")) as file:
            return [line.split(" ", 2) for line in file.read().splitlines()]

    def test_beside_environments_in_python(self):
        multi = '{observation_fn: "python:mine:observe", policies_to_train: "python:mine:even"}'
        done = self.train(self.config("Both", workers=1, multi=multi))
        notes = self.notes()
        summary = self.summary("run")
        self.assert_adds_up(summary, batch=200)
        self.assertEqual((summary["env_steps"], summary["degraded"]), (1000, []), done.stderr)
        # Each environment's calls, and what they are called with, in their order.
        episodes = {}
        for process, word, rest in [note for note in notes if note[1] in ("start", "step", "end")]:
            env, seed, what = rest.split(" ", 2)
            episodes.setdefault((process, env, seed), []).append((word, what))
        ended = [calls for calls in episodes.values() if calls[-1][0] == "end"]
        for calls in ended:
            self.assertEqual(calls, [("start", "[('a', 'default_policy'), ('b', 'default_policy')]"),
                                     *[("step", str(length)) for length in range(1, 6)], ("end", "5")])
        self.assertGreaterEqual(len(ended), summary["episodes"])
        self.assertEqual(summary["episodes"], 200)
        # The same class beside the learner: an update ends after the episodes that it was trained on.
        learner = [process for process, word, *_ in notes if word == "run_start"]
        self.assertEqual(len(learner), 1)
        self.assertEqual([word for process, word, *_ in notes if process == learner[0]], ["run_start", *["update_end"] * 5, "run_end"])
        self.assertNotIn(learner[0], [process for process, *_ in episodes])
        self.assertEqual(len({process for process, *_ in episodes}), 2)
        # Evaluations after 400 and 800 env steps and at the end, of 4 episodes each, in processes of their own.
        evaluated = [(process, word) for process, word, *_ in notes if word.startswith("evaluation_")]
        self.assertEqual(collections.Counter(word for _, word in evaluated), {"evaluation_start": 12, "evaluation_step": 60, "evaluation_end": 12})
        self.assertFalse({process for process, _ in evaluated} & {process for process, *_ in episodes})
        ends = 0
        for process, word, *rest in notes:
            ends += word == "end"
            if word == "update_end":
                self.assertGreaterEqual(ends, 40 * int(rest[0]))
        lines = self.progress("run")
        self.assertEqual({line["Custom/length"] for line in lines if "Custom/length" in line}, {5})
        self.assertEqual([line["evaluation/Custom/length"] for line in lines if "evaluation/Custom/length" in line], [5] * 3)
        self.assertEqual(lines[-1]["callback_errors"], 0)
        self.assertTrue(all(0 <= line["Custom/return"] <= 40 for line in lines if "Custom/return" in line))
        self.assertEqual(max(line.get("Custom/updates", 0) for line in lines), 5)
        # Who trains was asked once for each batch.
        self.assertEqual([rest for _, word, rest in [note for note in notes if note[1] == "asked"]],
                         [f"default_policy {update} 200" for update in range(5)])
        self.assertEqual([line["minibatch_steps"] > 0 for line in lines][:5], [True, False, True, False, True])
        policy, = json.loads(self.troupe("policy", "ls", "runs/run", "--json").stdout)["policies"]
        self.assertIn("Box(-1, 1, [2])", json.dumps(policy))
        played = json.loads(self.troupe("evaluate", "runs/run", "--episodes", "3", "--json", env=self.environment).stdout.splitlines()[-1])
        self.assertEqual(played["episodes"], 3)
        self.assertEqual(len(self.notes()), len(notes), "`evaluate` has no callbacks")

    def test_of_environments_that_are_not_in_python(self):
        self.train(self.config("Ends", env="rock_paper_scissors"))
        notes = self.notes()
        ends = [rest for _, word, rest in notes if word == "end"]
        self.assertEqual(set(ends), {ends[0]})
        self.assertRegex(ends[0], r"^\d+ \[\('player_0', 'default_policy'\), \('player_1', 'default_policy'\)\]$")
        lines = self.progress("run")
        self.assertEqual({line["Custom/sum"] for line in lines if "Custom/sum" in line}, {0}, "what one wins the other loses")
        self.assertEqual({line["Custom/length"] for line in lines if "Custom/length" in line}, {int(ends[0].split()[0])})
        self.assertEqual([line["evaluation/Custom/sum"] for line in lines if "evaluation/Custom/sum" in line], [0] * 3)
        self.assertEqual([rest for _, word, rest in notes if word == "evaluation_end"], [ends[0]] * 12)
        self.assertGreaterEqual(len(ends), self.summary("run")["episodes"])
        seen = 0
        for _, word, rest in notes:
            seen += word == "end"
            if word == "update_end":
                self.assertGreaterEqual(seen * int(ends[0].split()[0]), 200 * int(rest) - 4 * int(ends[0].split()[0]))

    def test_one_that_raises_or_dies_costs_no_sample_and_says_so(self):
        for env, kind in (("python:mine:make", "python"), ("rock_paper_scissors", "native")):
            self.train(self.config(env=env), name=f"{kind}_plain")
            for name, words in (("Raises", "on_episode_end.*ValueError: not today"), ("Dies", "on_episode_end.*exited with 5"),
                                ("Sums", r"tracked far: the sum over \d+ episodes is [0-9.]+e\+1\d\d, expected at most 1e\+100 ")):
                with self.subTest(f"{name} {kind}"):
                    run = f"{kind}_{name}"
                    done = self.train(self.config(name, env=env, workers=1), name=run)
                    summary = self.summary(run)
                    self.assert_adds_up(summary, batch=200)
                    self.assertEqual((summary["env_steps"], summary["degraded"]), (1000, ALL_OFF))
                    self.assertEqual(self.progress(run)[-1]["callback_errors"], 1)
                    self.assertRegex(done.stderr, f"callbacks of episodes are off worker=.*{words}")
                    self.assertIn("DEGRADED: callbacks of episodes are off at 1 worker", done.stdout)
                    if (name, kind) != ("Dies", "python"):  # it takes other environments of its process along
                        self.assertEqual(self.tensors("runs", run, "checkpoints", "latest"),
                                         self.tensors("runs", f"{kind}_plain", "checkpoints", "latest"))

    def test_one_that_takes_its_process_along_ends_episodes_and_not_the_run(self):
        # The run ended by env.max_failed_share: all 20 episodes in the two processes counted as failures of the environment.
        for name in ("DiesInAStep", "StopsItself"):
            with self.subTest(name):
                config = self.config(name, workers=1)
                done = self.troupe("train", config, "--name", name, "--set", "num_envs_per_worker=20", "--set", "env.python.step_timeout_s=4",
                                   env=self.environment)
                summary = self.summary(name)
                self.assert_adds_up(summary, batch=200)
                self.assertEqual((summary["env_steps"], summary["degraded"]), (1000, ALL_OFF))
                self.assertRegex(done.stderr, "callbacks of episodes are off worker=.*on_episode_step: the process that it was called in ended")
                self.assertGreaterEqual(summary["env_errors"], 10)

    def test_a_policy_that_never_trains_stays_as_it_is(self):
        self.train(self.config(multi='{policies_to_train: "python:mine:never"}'))
        self.assert_adds_up(self.summary("run"), batch=200)
        self.assertEqual(self.summary("run")["rows"]["trained"], 2000)
        self.assertEqual({line["minibatch_steps"] for line in self.progress("run")}, {0}, "nor before the first answer")
        self.assertEqual(self.tensors("runs", "run", "checkpoints", "400"), self.tensors("runs", "run", "checkpoints", "1000"))

    def test_a_worker_runs_what_its_own_side_names(self):
        config = self.config("Ends", env="rock_paper_scissors", workers=1)
        address = "unix:" + self.path("l")
        learner = self.start_program("learner", config, "--name", "run", "--workers", "1", "--listen", address)
        self.await_true(lambda: "learner ready" in self.log_text(), "the learner")
        stranger = self.troupe("worker", "--learner", address, ok=False)
        self.assertEqual(stranger.returncode, REFUSED)
        self.assertIn("the learner asks for the callback python:mine:Ends, which this worker does not permit; to permit it start it with "
                      "--allow-python python:mine:Ends or --config FILE", stranger.stderr)
        self.assertFalse(os.path.exists(self.path("notes")))
        self.troupe("worker", "--learner", address, "--config", config, env=self.environment)
        self.assertEqual(learner.wait(60), 0, self.log_text())
        self.assertIn("end", [word for _, word, _ in self.notes()])

    def test_what_does_not_fit_is_one_error_before_the_run_begins(self):
        for config, words in (
                (dict(classes=["Both"], env="rock_paper_scissors"),
                 "callbacks: one overrides on_episode_start, which is called in the process of an environment in Python, and rock_paper_scissors is none"),
                (dict(classes=[], env="rock_paper_scissors", multi='{observation_fn: "python:mine:observe"}'),
                 "multi_agent.observation_fn: got python:mine:observe, but the environment rock_paper_scissors is not in Python"),
                (dict(classes=[], multi='{observation_fn: "python:mine:observed"}'), "observation function mine:observed: 'observed' is no attribute"),
                (dict(classes=[], multi='{policies_to_train: "python:mine:evn"}'), "policies_to_train mine:evn: 'evn' is no attribute"),
                (dict(classes=[], multi='{policies_to_train: [default_policy, {function: "python:mine:even"}]}'),
                 "got python:mine:even beside other conditions or entries, expected a function in Python alone")):
            classes = config.pop("classes")
            done = self.train(self.config(*classes, **config), ok=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)
            self.assertFalse(os.path.exists(self.path("runs", "run")))


if __name__ == "__main__":
    harness.main()
