"""Callbacks beside the learner: when they are called, what they may decide, and what a run loses by those that fail."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from unittest import mock

import harness

GAME = """
env: {name: rock_paper_scissors, python: {interpreter: PYTHON, path: PATH}}
algorithm: {name: ppo, train_batch_size: 200, minibatch_size: 100, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
num_workers: 0
num_envs_per_worker: 10
learner_threads: 1
seed: 5
experiment: {checkpoint_interval: 1000, write_interval: 400}
evaluation: {episodes: 10, interval: 800}
stop: {env_steps: STEPS}
callbacks: CALLBACKS
"""

CALLBACKS = """
import os
import sys
import time

from troupe import Callback


def note(text):
    with open(os.environ["NOTES"], "a") as file:
        file.write(text + "\\n")


class Diary(Callback):
    def on_run_start(self, ctx):
        self.resumed = ctx.resumed
        note(f"run_start {ctx.env_steps} resumed={ctx.resumed}")

    def on_update_end(self, ctx):
        assert ctx.updates * 200 == ctx.env_steps, vars(ctx)
        assert ctx.policies["default_policy"]["episodes"] > 0 and "Loss/Policy loss" in ctx.metrics, vars(ctx)
        note(f"update_end {ctx.env_steps}")

    def on_evaluation_start(self, ctx):
        note(f"evaluation_start {ctx.env_steps}")

    def on_evaluation_end(self, ctx):
        assert ctx.error is None and ctx.result["policies"]["default_policy"]["episodes"] == 20, vars(ctx)
        assert abs(ctx.metrics["evaluation_return_mean"] - ctx.result["return_mean"]["mean"]) < 1e-6, vars(ctx)
        note(f"evaluation_end {ctx.env_steps} {ctx.result['episodes']}")

    def on_checkpoint_end(self, ctx):
        note(f"checkpoint_end {ctx.env_steps} {ctx.error} {(ctx.checkpoint / 'manifest.json').exists()}")

    def on_run_end(self, ctx):
        assert self.resumed or not (ctx.path / "summary.json").exists()
        note(f"run_end {ctx.env_steps} {ctx.reason}")


class Ended(Callback):
    def on_episode_end(self, ctx):
        note(f"episode_end {ctx.length}")


class Tracks(Callback):
    def on_update_end(self, ctx):
        ctx.track("double", 2 * ctx.env_steps)

    def on_run_end(self, ctx):
        ctx.track("last", 7)


class Decides(Callback):
    def on_update_end(self, ctx):
        if ctx.updates == 2:
            ctx.add_policy("frozen", copy_of="default_policy", trains=False)
            ctx.set_mapping({"player_0": "default_policy", "*": {"default_policy": 1, "frozen": 1}})
            note(f"saved {ctx.save().parent.name}")
            evaluation = ctx.evaluate(6, seed=3)
            note(f"evaluated {evaluation.episodes}")
            ctx.set_trainable(["default_policy", "frozen"])
            try:
                ctx.remove_policy("frozen")
            except Exception as error:
                note(f"{type(error).__name__} {error}")
            ctx.set_mapping({"*": "default_policy"})
            ctx.remove_policy("frozen")
            ctx.add_policy("next", copy_of="default_policy")
            ctx.stop("decided")

    def on_run_end(self, ctx):
        try:
            ctx.save()
        except Exception as error:
            note(f"refused {type(error).__name__}")


class Resaves(Callback):
    def on_checkpoint_end(self, ctx):
        try:
            ctx.save()
        except Exception as error:
            note(f"{type(error).__name__} {error}")


class Losses(Callback):
    def on_update_end(self, ctx):
        note(" ".join(sorted(key for key in ctx.metrics if key.endswith("Loss/Policy loss"))))


class Slow(Callback):
    def on_update_end(self, ctx):
        note(f"update_end {ctx.env_steps}")
        time.sleep(3)


class Stops(Callback):
    def on_update_end(self, ctx):
        if ctx.updates == 3:
            ctx.stop("it is good enough")


class Raises(Callback):
    def on_update_end(self, ctx):
        print("about to raise", flush=True)
        raise ValueError(f"not at {ctx.env_steps}")


class Hangs(Callback):
    def on_update_end(self, ctx):
        time.sleep(3600)


class Dies(Callback):
    def on_update_end(self, ctx):
        os._exit(5)
"""


class CallbacksTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        self.write("mine.py", CALLBACKS)
        self.environment = dict(os.environ, NOTES=self.path("notes"), PYTHONPATH=os.path.join(self.source, "python"))

    def config(self, *classes, steps=4000, module="python:mine:"):
        names = json.dumps([module + name for name in classes])
        text = GAME.replace("PYTHON", sys.executable).replace("PATH", self.folder).replace("STEPS", str(steps)).replace("CALLBACKS", names)
        return self.write("run.yaml", text)

    def train(self, *classes, name="run", steps=4000, ok=True):
        return self.troupe("train", self.config(*classes, steps=steps), "--name", name, ok=ok, env=self.environment)

    def notes(self):
        with open(self.path("notes")) as file:
            return file.read().splitlines()

    def test_calls_are_in_the_order_of_what_happened_and_none_is_missing(self):
        self.train("Diary", "Ended")
        notes = self.notes()
        # Episodes end beside their environments: each before the end of the update that is trained on it, all before the end of the run.
        ended = [index for index, note in enumerate(notes) if note.startswith("episode_end")]
        length = int(notes[ended[0]].split()[1])
        for index, (word, count, *_) in enumerate(map(str.split, notes)):
            if word == "update_end":
                before = sum(place < index for place in ended)
                self.assertGreaterEqual((before + 10) * length, int(count), "10 environments may be in the middle of an episode")
        self.assertLess(ended[-1], len(notes) - 1)
        self.assertGreaterEqual(len(ended), self.summary("run")["episodes"])
        notes = [note for note in notes if not note.startswith("episode_end")]
        self.assertEqual(notes[0], "run_start 0 resumed=False")
        self.assertEqual(notes[-1], "run_end 4000 stop.env_steps reached: 4000 of 4000")
        # Checkpoints are written beside training and the last evaluation: theirs come when they come, but before the end of the run.
        saved = [note for note in notes[:-1] if note.startswith("checkpoint_end")]
        self.assertEqual(saved[-1], "checkpoint_end 4000 None True")
        others = [note for note in notes[1:-1] if note not in saved]
        expected = []
        for env_steps in range(200, 4001, 200):
            expected.append(f"update_end {env_steps}")
            if env_steps % 800 == 0:
                expected += [f"evaluation_start {env_steps}", f"evaluation_end {env_steps} 10"]
        expected += ["evaluation_start 4000", "evaluation_end 4000 10"]  # at the end
        self.assertEqual(others, expected)
        done = self.troupe("train", "--resume", "runs/run", "--set", "stop.env_steps=4400", env=self.environment)
        self.assertIn("callbacks: python:mine:Diary", done.stderr, "a run folder is a program to who resumes it")
        resumed = [note for note in self.notes() if not note.startswith("episode_end")][len(notes):]
        self.assertEqual([resumed[0], resumed[-1]], ["run_start 4000 resumed=True", "run_end 4400 stop.env_steps reached: 4400 of 4400"])
        self.assertEqual([note for note in resumed if note.startswith("update_end")], ["update_end 4200", "update_end 4400"])

    def test_what_is_tracked_stands_in_the_lines(self):
        # Values come when the other process has been heard: on a busy machine not within ten updates.
        self.train("Tracks", steps=20000)
        lines = self.progress("run")
        self.assertEqual([line["callback_errors"] for line in lines], [0] * len(lines))
        self.assertEqual(lines[-1]["Custom/last"], 7)
        self.assertEqual(lines[-1]["env_steps"], 20000)
        values = [line["Custom/double"] for line in lines if "Custom/double" in line]
        self.assertGreaterEqual(len(values), 2)
        self.assertEqual(values, sorted(values))
        self.assertLessEqual(values[-1], 40000)

    def test_each_evaluation_stands_in_the_line_of_its_own_env_steps(self):
        """The last one was in no line, and the others came a line late; with callbacks the last line was there twice."""
        for callbacks in ((), ("Tracks",), ("Diary",)):
            with self.subTest(callbacks):
                name = "".join(callbacks) or "none"
                self.train(*callbacks, steps=2000, name=name)
                lines, summary = self.progress(name), self.summary(name)
                self.assertEqual([line["env_steps"] for line in lines], [400, 800, 1200, 1600, 2000])
                evaluated = {line["env_steps"]: line["evaluation_return_sum"] for line in lines if "evaluation_return_sum" in line}
                self.assertEqual(list(evaluated), [800, 1600, 2000])
                self.assertEqual(summary["evaluation_return_sum"], evaluated[2000])
                self.assertAlmostEqual(summary["evaluation"]["return_sum"]["mean"], evaluated[2000])
                key = "evaluation/policy/default_policy/return_mean"
                self.assertEqual(summary[key], lines[-1][key])

    def test_losses_of_each_policy(self):
        config = self.config("Losses", steps=400)
        with open(config) as file:
            config = self.write("run.yaml", file.read() + "multi_agent: {policies: [left, right]}\n")
        self.troupe("train", config, "--name", "run", env=self.environment)
        self.assertEqual(self.notes(), ["Loss/Policy loss policy/left/Loss/Policy loss policy/right/Loss/Policy loss"] * 2)
        self.assertTrue({"Loss/Policy loss", "Policy/Entropy", "Policy/KL"} <= set(self.summary("run")["losses"]))

    def test_a_callback_decides_by_the_runs_own_commands(self):
        self.train("Decides", steps=10**9)
        notes = self.notes()
        self.assertEqual(notes[:2], ["saved checkpoints", "evaluated 6"])
        self.assertIn("TroupeError", notes[2])
        self.assertIn("frozen", notes[2])
        self.assertEqual(notes[3:], ["refused TroupeError"])
        self.assertEqual((self.summary("run")["degraded"], self.summary("run")["reason"]), ([], "a callback: decided"))
        policies = self.troupe("policy", "ls", "runs/run").stdout
        self.assertIn("next", policies)
        self.assertNotIn("frozen", policies)

    def test_a_callback_ends_the_run(self):
        self.train("Stops", "Diary", steps=1000000)
        self.assertEqual(self.summary("run")["reason"], "a callback: it is good enough")
        notes = self.notes()
        self.assertEqual(notes[-1].split(" ", 2)[::2], ["run_end", "a callback: it is good enough"])
        self.assertGreaterEqual(len([note for note in notes if note.startswith("update_end")]), 3)
        self.assertIn("checkpoint_end", notes[-2])

    def test_a_checkpoint_asks_for_no_other(self):
        self.train("Resaves", steps=1000)
        notes = self.notes()
        self.assertLess(len(notes), 4)
        self.assertEqual(set(notes), {"TroupeError save in on_checkpoint_end: a checkpoint has just been written, expected it in another callback"})

    def test_a_run_that_ends_has_its_checkpoint_before_it_waits_for_callbacks(self):
        config = self.config("Slow", steps=10**9)
        with open(config) as file:
            self.write("run.yaml", file.read().replace("checkpoint_interval: 1000", f"checkpoint_interval: {10**9}"))
        with mock.patch.dict(os.environ, self.environment):
            process = self.start(config, "--name", "run")
        self.await_true(lambda: os.path.exists(self.path("notes")), "a first call")
        latest = self.path("runs", "run", "checkpoints", "latest")
        self.assertFalse(os.path.lexists(latest))
        process.send_signal(signal.SIGTERM)
        self.await_true(lambda: os.path.lexists(latest), "the checkpoint of the end")
        self.assertIsNone(process.poll())
        self.assertLess(len(self.notes()), int(os.readlink(latest)) // 200, "calls are still due")
        process.send_signal(signal.SIGINT)  # no copy of the first one: it does not wait for them
        self.assertEqual(process.wait(60), 130)
        self.assert_nothing_left()

    def test_one_that_raises_hangs_or_dies_costs_no_sample(self):
        self.train(name="plain")
        expected = self.tensors("runs", "plain", "checkpoints", "latest")
        cases = {"Raises": "20 calls of callbacks raised an exception, the last was on_update_end",
                 "Hangs": "callbacks are off: on_update_end: did not return within 30s",
                 "Dies": "callbacks are off: on_update_end: its process exited with 5"}
        for name, words in cases.items():
            with self.subTest(name):
                done = self.train(name, name=name)
                summary = self.summary(name)
                self.assert_adds_up(summary, batch=200)
                self.assertEqual((summary["env_steps"], summary["degraded"]), (4000, [words]))
                self.assertEqual(self.tensors("runs", name, "checkpoints", "latest"), expected)
                self.assertEqual(self.progress(name)[-1]["callback_errors"], 20 if name == "Raises" else 1)
                self.assertIn(f"DEGRADED: {words}", done.stdout)
                self.assertIn("on_update_end", done.stderr)
                if name == "Raises":
                    self.assertIn("ValueError: not at 200 (at ", done.stderr)
                    self.assertIn("python:mine:Raises".partition(":")[2], done.stderr)

    def test_a_run_whose_callbacks_are_off_says_so_while_it_trains(self):
        process = self.start(self.config("Dies", steps=10**9), "--name", "run")
        words = "callbacks are off: on_update_end: its process exited with 5"
        self.await_true(lambda: os.path.exists(self.path("runs", "run", "address")), "the learner")
        self.await_true(lambda: self.status("runs/run")["degraded"] == [words], "the end of callbacks")
        self.assertNotIn("troupe.callback_host", str(self.left_over().values()), "its process is gone")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)
        self.assertEqual(self.summary("run")["degraded"], [words])
        self.assert_nothing_left()

    def test_classes_that_are_none_are_one_error_before_the_run_begins(self):
        for name, words in (("Dairy", "'Dairy' is no attribute of module mine, did you mean Diary?"), ("note", "TypeError")):
            done = self.train(name, ok=False)
            self.assertEqual(done.returncode, 78)  # no restart mends it
            self.assertRegex(done.stderr, r"run\.yaml:\d+:\d+: callbacks: .*" + words.replace("?", r"\?"))
            self.assertFalse(os.path.exists(self.path("runs", "run")))
        done = self.troupe("config", "show", self.config("x", module=""), ok=False)
        self.assertRegex(done.stderr, r'run\.yaml:12:\d+: callbacks: got "x", expected python:MODULE:NAME')

    def test_python_hands_over_classes_of_modules_and_of_the_program(self):
        program = self.write("user.py", textwrap.dedent(f"""
            import troupe
            import mine

            class Own(troupe.Callback):
                def on_run_end(self, ctx):
                    with open({self.path("own")!r}, "w") as file:
                        file.write(ctx.reason)

            config = troupe.Config("run.yaml").callbacks()
            run = troupe.train(config, callbacks=[mine.Diary, Own], overrides={{"stop.env_steps": 400}}, name="run")
            print(run.state, run.config.to_dict()["callbacks"])
            run = troupe.load("run").resume(callbacks=[mine.Stops], overrides={{"stop.env_steps": 1000000}}).wait()
            print(run.state, run.summary["reason"])
            try:
                troupe.train(config, callbacks=[mine.Stops()])
            except ValueError as error:
                print(error)
        """))
        self.config()
        done = subprocess.run([sys.executable, "-B", program], cwd=self.folder, env=dict(self.environment, TROUPE_PROGRAM=self.program),
                              capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.splitlines(),
                         ["finished ['python:mine:Diary', 'python:__main__:Own (notebook)']", "stopped a callback: it is good enough",
                          "callbacks: got an object of type Stops, expected a class: the run's process makes the object"])
        with open(self.path("own")) as file:
            self.assertEqual(file.read(), "stop.env_steps reached: 400 of 400")
        self.assertEqual(self.notes()[0], "run_start 0 resumed=False")


if __name__ == "__main__":
    harness.main()
