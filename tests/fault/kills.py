"""Kills processes of a run with SIGKILL and looks whether anything was lost: workers and learners at random moments, then a learner that
writes a checkpoint with every update, half of the times while one is being written.

    kills.py TROUPE SOURCE LIBRARY [--workers 60] [--learners 30] [--at-checkpoints 50] [--seed 1] [--free-running]

LIBRARY: tests/e2e/slow_disk.cc as a library to preload. It holds a checkpoint up before one of its first fsyncs: without it a busy machine, or a
disk that is memory, has written one before anybody can kill its writer.

A killed process is started again by the same command, as a container's restart policy would. At the end: every learner resumed, the lines
of progress.jsonl and their accounts are those of one run (tests/e2e/check_run.py), and the newest checkpoint is whole after every kill of
the second kind. Exit status 1 and a line a fault on stderr when not.
"""

import argparse
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from check_run import check_lines  # noqa: E402  a script beside this one's folder

NUM_WORKERS = 3
TRAIN_BATCH_SIZE = 4000  # of the example
PATIENCE_S = 60  # for a learner to be ready, or to update again
MAX_SYNCS = 6  # of a checkpoint's files, before it is held up


class Run:
    """A learner and workers as processes of their own, each started again when it is gone."""

    def __init__(self, troupe, source, library, folder, num_workers, overrides, dice, free_running):
        self.troupe, self.library, self.folder, self.dice = troupe, library, folder, dice
        self.slow = os.path.join(folder, "slow")
        self.run = os.path.join(folder, "runs", "killed")
        self.socket = f"unix:{folder}/learner.sock"
        self.free_running = free_running
        if free_running:
            overrides = [*overrides, f"algorithm.train_batch_size={TRAIN_BATCH_SIZE}", "algorithm.max_policy_lag=4"]
        example = "simple_spread_impala.yaml" if free_running else "simple_spread_mappo.yaml"
        self.learner_command = [troupe, "learner", os.path.join(source, "examples", example), "--name", "killed",
                                "--resume-or-start", "--listen", self.socket, "--set", "evaluation.at_end=false",
                                "--set", "stop.env_steps=1000000000", "--set", "experiment.write_interval=4000"]
        for override in overrides:
            self.learner_command += ["--set", override]
        self.worker_command = [troupe, "worker", "--learner", self.socket, "--connect-timeout", "60"]
        self.learner = None
        self.workers = [None] * num_workers
        self.faults = []
        self.log = open(os.path.join(folder, "log"), "w+")

    def start(self, command, **variables):
        return subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
                                env=dict(os.environ, **variables))

    def start_learner(self):
        """With a disk on which a checkpoint's fsyncs wait while the file `slow` is there, all but some of the first."""
        return self.start(self.learner_command, LD_PRELOAD=self.library, SLOW_DISK_FILE=self.slow, SLOW_DISK_PART="/.unfinished-",
                          SLOW_DISK_SYNCS=str(self.dice.randrange(MAX_SYNCS)))

    def keep_alive(self):
        if self.learner is None or self.learner.poll() is not None:
            if self.learner is not None and self.learner.returncode != -signal.SIGKILL:
                raise SystemExit(f"the learner ended with {self.learner.returncode}\n{self.tail()}")
            self.learner = self.start_learner()
        for i, worker in enumerate(self.workers):
            if worker is None or worker.poll() is not None:
                if worker is not None and worker.returncode != -signal.SIGKILL:
                    self.faults.append(f"a worker ended by itself with {worker.returncode}")
                self.workers[i] = self.start(self.worker_command)

    def tail(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-20:])

    def updates(self):
        """Updates that the last whole line of progress.jsonl tells of; -1: no line."""
        try:
            with open(os.path.join(self.run, "progress.jsonl"), "rb") as file:
                file.seek(max(0, os.path.getsize(file.name) - (64 << 10)))
                lines = [line for line in file.read().split(b"\n")[:-1] if line]
        except OSError:
            return -1
        return json.loads(lines[-1])["updates"] if lines else -1

    def await_true(self, condition):
        """Whether that came true in time; the processes are kept alive meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.keep_alive()
            if condition():
                return True
            time.sleep(0.01)
        return False

    def lives(self):
        """How many learners have been ready so far; by then progress.jsonl is cut back to the checkpoint."""
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read().count("learner ready")

    def await_successor(self, lives, checkpoint):
        """True once a learner after `lives` others has updated beyond the checkpoint of so many updates, which it began with."""
        return self.await_true(lambda: self.lives() > lives) and self.await_true(lambda: self.updates() > checkpoint)

    def checkpoint_updates(self):
        """Updates of the newest checkpoint; 0 when there is none."""
        names = [int(name) for name in os.listdir(os.path.join(self.run, "checkpoints")) if name.isdigit()]
        return max(names) // TRAIN_BATCH_SIZE if names else 0

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    def end(self):
        self.learner.send_signal(signal.SIGTERM)
        if self.learner.wait(60) != 0:
            self.faults.append(f"the last learner ended with {self.learner.returncode} after SIGTERM\n{self.tail()}")
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)  # one that was between two learners was not told
            worker.wait(60)

    def kill_all(self):
        for process in [self.learner, *self.workers]:
            if process is not None and process.poll() is None:
                self.kill(process)

    def check_lines(self):
        with open(os.path.join(self.run, "progress.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.faults += check_lines(lines, 0, TRAIN_BATCH_SIZE, self.free_running)
        return len(lines)

    def newest_is_whole(self):
        done = subprocess.run([self.troupe, "checkpoint", "verify", self.run], capture_output=True, text=True, check=False)
        return done.returncode == 0, done.stdout + done.stderr


def resumed_epochs(run):
    with open(os.path.join(run.run, "learner_epoch"), encoding="utf-8") as file:
        return int(file.read())


def kill_at_random(run, workers, learners, dice):
    """Kills spread evenly; after each of a learner its successor must train on."""
    kinds = ["worker"] * workers + ["learner"] * learners
    dice.shuffle(kinds)
    if not run.await_true(lambda: run.updates() > 0):
        raise SystemExit(f"the run does not begin\n{run.tail()}")
    resumed = 0
    slowest = 0.0
    for kind in kinds:
        until = time.monotonic() + dice.uniform(0.2, 1.2)
        while time.monotonic() < until:
            run.keep_alive()
            time.sleep(0.01)
        if kind == "worker":
            run.kill(dice.choice(run.workers))
            run.keep_alive()
            continue
        lives = run.lives()
        run.kill(run.learner)
        checkpoint = run.checkpoint_updates()
        begin = time.monotonic()
        if run.await_successor(lives, checkpoint):
            resumed += 1
        else:
            run.faults.append(f"no update within {PATIENCE_S} s after a killed learner\n{run.tail()}")
        slowest = max(slowest, time.monotonic() - begin)
    return resumed, slowest


def kill_at_checkpoints(run, times, dice):
    """Every second time while a checkpoint is being written; the newest one must be whole each time."""
    if not run.await_true(lambda: run.updates() > 0 and run.checkpoint_updates() > 0):
        raise SystemExit(f"the run does not begin\n{run.tail()}")
    whole = writing = 0
    for number in range(times):
        if number % 2 == 0:
            open(run.slow, "w", encoding="utf-8").close()
            if not run.await_true(lambda: os.path.exists(run.slow + ".waits")):
                run.faults.append(f"kill {number}: no checkpoint was begun within {PATIENCE_S} s\n{run.tail()}")
        else:
            until = time.monotonic() + dice.uniform(0.1, 0.8)
            while time.monotonic() < until:
                run.keep_alive()
                time.sleep(0.01)
        lives = run.lives()
        run.kill(run.learner)
        writing += bool(glob.glob(os.path.join(run.run, "checkpoints", ".unfinished-*")))
        for path in glob.glob(run.slow + "*"):
            os.unlink(path)
        checkpoint = run.checkpoint_updates()
        ok, text = run.newest_is_whole()
        whole += ok
        if not ok:
            run.faults.append(f"kill {number}: {text}")
        if not run.await_successor(lives, checkpoint):
            run.faults.append(f"no update within {PATIENCE_S} s after kill {number}\n{run.tail()}")
    return whole, writing


def with_run(arguments, num_workers, overrides, dice, kills):
    """Runs `kills(run)` and gives its result, the lines of progress.jsonl and the faults."""
    folder = tempfile.mkdtemp(prefix="troupe_kills_")
    run = Run(arguments.troupe, arguments.source, arguments.library, folder, num_workers, overrides, dice, arguments.free_running)
    try:
        run.keep_alive()
        result = kills(run)
        run.end()
        return result, run.check_lines(), resumed_epochs(run), run.faults
    finally:
        run.kill_all()
        run.log.close()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe", type=os.path.abspath)
    parser.add_argument("source", type=os.path.abspath)
    parser.add_argument("library", type=os.path.abspath)
    parser.add_argument("--workers", type=int, default=60)
    parser.add_argument("--learners", type=int, default=30)
    parser.add_argument("--at-checkpoints", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--free-running", action="store_true", help="IMPALA at a lag of 4 instead of the main job")
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    faults = []

    (resumed, slowest), lines, epochs, found = with_run(arguments, NUM_WORKERS, ["experiment.checkpoint_interval=20000"], dice,
                                                        lambda run: kill_at_random(run, arguments.workers, arguments.learners, dice))
    print(f"kills at random: {arguments.workers} workers, {arguments.learners} learners; {resumed} of {arguments.learners} learners resumed "
          f"and updated, slowest after {slowest:.1f} s; {lines} lines, {len(found)} faults", flush=True)
    faults += found
    if epochs < arguments.learners + 1:
        faults.append(f"learner epoch {epochs}, expected at least {arguments.learners + 1}: not every kill was one of a learner that had begun")

    (whole, writing), lines, _, found = with_run(arguments, 1, ["experiment.checkpoint_interval=4000", "num_workers=1"], dice,
                                                 lambda run: kill_at_checkpoints(run, arguments.at_checkpoints, dice))
    print(f"kills of a learner that writes a checkpoint an update: {arguments.at_checkpoints}, {writing} of them while one was unfinished; "
          f"newest whole after {whole} of {arguments.at_checkpoints}; {lines} lines, {len(found)} faults", flush=True)
    faults += found
    if writing < (arguments.at_checkpoints + 1) // 2:
        faults.append(f"{writing} kills came while a checkpoint was being written, expected every second")

    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
