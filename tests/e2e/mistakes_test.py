"""Newcomers' mistakes, each met with one clear error: what, got, expected, where, hint (the table is mistakes.py)."""

import os
import shutil

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


def grade(mistake, done):
    """3: all pieces in one clear error; 2: two are missing, or it is no clear one; 1: fewer; 0: no error, or none of them."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    found = len(PIECES) - len(missing_pieces(mistake, done.stderr))
    if done.returncode == 0 or found == 0:
        return 0
    clear = (len(lines) <= MOST_LINES and len(done.stderr) <= MOST_CHARACTERS and "error: " in lines[-1] and "Traceback" not in done.stderr
             and done.returncode == mistake.exit_code)
    return 3 if found == len(PIECES) and clear else 2 if found >= 3 else 1


class MistakesTest(harness.RunningTestCase):
    def test_each_is_met_with_one_clear_error(self):
        self.assertGreaterEqual(len(mistakes.MISTAKES), 89)
        self.assertEqual(len({mistake.name for mistake in mistakes.MISTAKES}), len(mistakes.MISTAKES))
        self.prepare()
        grades, words = [], []
        for mistake in mistakes.MISTAKES:
            done = self.make(mistake)
            grades.append(grade(mistake, done))
            if grades[-1] < 3:
                words.append(f"{grades[-1]} {mistake.name}: lacks {missing_pieces(mistake, done.stderr)}, exit code {done.returncode}\n{done.stderr[:1500]}")
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
        return self.troupe(*mistake.command, *sets, ok=False, env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))

    def prepare(self):
        """A finished run, one without a checkpoint, and a program in Python."""
        run = self.write("done.yaml", mistakes.NATIVE + "num_workers: 0\nnum_envs_per_worker: 2\nalgorithm: {train_batch_size: 50, num_epochs: 1}\n"
                         "stop: {env_steps: 50}\nevaluation: {at_end: false}\n")
        self.troupe("train", run, "--name", "done")
        os.makedirs(self.path("runs", "fresh"))
        shutil.copy(self.path("runs", "done", "config.yaml"), self.path("runs", "fresh"))
        os.unlink(run)
        self.write("my_env.py", "class Env:\n    pass\n")


if __name__ == "__main__":
    harness.main()
