"""Newcomers' mistakes, each met with one clear error: what, got, expected, where, hint (the table is mistakes.py)."""

import dataclasses
import os
import shutil
import subprocess
import sys

import harness
import mistakes

MOST_LINES, MOST_CHARACTERS = 3, 1000
PIECES = ("where", "what", "got", "expected", "hint")


def missing_pieces(mistake, error):
    """Which of the five pieces the error lacks. No words of it count twice."""
    missing = []
    for piece in PIECES:
        words = getattr(mistake, piece)
        assert words, (mistake.name, piece)
        if words in error:
            error = error.replace(words, "\0", 1)
        else:
            missing.append(piece)
    return missing


def error_of(mistake, done):
    said = done.stderr.strip()
    return said.splitlines()[-1] if said and mistake.begins else said


def grade(mistake, done):
    """3: all pieces in one clear error; 2: two are missing, or it is no clear one; 1: fewer; 0: no error, or none of them."""
    error = error_of(mistake, done)
    found = len(PIECES) - len(missing_pieces(mistake, error))
    if done.returncode == 0 or found == 0:
        return 0
    clear = (error.count("\n") < MOST_LINES and len(error) <= MOST_CHARACTERS and "error: " in error and "Traceback" not in error
             and done.returncode == mistake.exit_code)
    return 3 if found == len(PIECES) and clear else 2 if found >= 3 else 1


WALK = """
import numpy as np


class Box:
    low, high, shape, dtype = np.zeros(2, np.float32), np.ones(2, np.float32), (2,), np.dtype(np.float32)


class Discrete:
    n, start = 2, 0


class Walk:
    size = 2

    def __init__(self):
        self.possible_agents = ["walker"]
        self.observation_spaces, self.action_spaces = {"walker": Box()}, {"walker": Discrete()}

    def reset(self, *, seed=None, options=None):
        return {"walker": np.zeros(2, np.float32)}, {}

    def step(self, actions):
        no = {"walker": False, "__all__": False}
        return {"walker": np.zeros(self.size, np.float32)}, {"walker": 1.0}, no, {"walker": False, "__all__": True}, {}


class Wide(Walk):
    size = 3


def nobody(agent_id):
    return "nosuch"


def raises(agent_id):
    return {"runner": "main"}[agent_id]
"""


class MistakesTest(harness.RunningTestCase):
    def test_each_is_met_with_one_clear_error(self):
        self.assertGreaterEqual(len(mistakes.MISTAKES), 89)
        self.assertEqual(len({mistake.name for mistake in mistakes.MISTAKES}), len(mistakes.MISTAKES))
        self.prepare()
        grades, words = [], []
        for mistake in map(self.with_pythons, mistakes.MISTAKES):
            done = self.make(mistake)
            grades.append(grade(mistake, done))
            if grades[-1] < 3:
                error = error_of(mistake, done)
                words.append(f"{grades[-1]} {mistake.name}: lacks {missing_pieces(mistake, error)}, exit code {done.returncode}\n{error[:1500]}")
        counts = {g: grades.count(g) for g in (3, 2, 1, 0)}
        print(f"{len(grades)} mistakes by grade: {counts}", *words, sep="\n")
        self.assertGreaterEqual(counts[3], len(grades) - 4, words)
        self.assertEqual(counts[0], 0, words)
        self.assertEqual(sorted(os.listdir(self.path("runs"))), ["done", "fresh"], "what cannot begin leaves no run")

    def make(self, mistake):
        if os.path.exists(self.path("run.yaml")):
            os.unlink(self.path("run.yaml"))
        if mistake.config is not None:
            self.write("run.yaml", mistake.config)
        sets = [word for setting in mistake.sets for word in ("--set", setting)]
        name = ("--name", "begun") if mistake.begins else ()
        done = self.troupe(*mistake.command, *sets, *name, ok=False, env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
        shutil.rmtree(self.path("runs", "begun"), ignore_errors=True)
        return done

    def with_pythons(self, mistake):
        """{python} and {bare} in its texts are this interpreter and one without packages."""
        def fill(value):
            if isinstance(value, tuple):
                return tuple(map(fill, value))
            return value.replace("{python}", sys.executable).replace("{bare}", self.path("bare")) if isinstance(value, str) else value
        return dataclasses.replace(mistake, **{field.name: fill(getattr(mistake, field.name)) for field in dataclasses.fields(mistake)})

    def prepare(self):
        """A finished run, one without a checkpoint, and a program in Python."""
        run = self.write("done.yaml", mistakes.NATIVE + "num_workers: 0\nnum_envs_per_worker: 2\nalgorithm: {train_batch_size: 50, num_epochs: 1}\n"
                         "stop: {env_steps: 50}\nevaluation: {at_end: false}\n")
        self.troupe("train", run, "--name", "done")
        os.makedirs(self.path("runs", "fresh"))
        shutil.copy(self.path("runs", "done", "config.yaml"), self.path("runs", "fresh"))
        os.unlink(run)
        self.write("my_env.py", "class Env:\n    pass\n")
        self.write("walk.py", WALK)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.path("bare")], check=True)


if __name__ == "__main__":
    harness.main()
