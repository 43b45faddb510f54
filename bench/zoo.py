#!/usr/bin/env python3
"""What Troupe learns, environment by environment: trains a table of cells (environment, algorithm, network, seed) and writes docs/results.md.

    bench/zoo.py build/release/services/cli/troupe --python VENV/bin/python [--hours 8] [--seeds 1 2 3] [--only 'mpe/*/mlp' …]
    bench/zoo.py --list                   the cells; what is done, failed, left, and what makes no sense
    bench/zoo.py --docs                   the pages from what is recorded and what --out holds, without training

A cell is named ENVIRONMENT/ALGORITHM/NETWORK, of which --only takes globs, and trained once a seed; the first seed of all
cells comes first, MLPs before GRUs. What is done stands in --out (build/zoo/cells.json) after each cell: the same command
goes on where it was stopped, and trains again only what failed or whose settings have changed. --hours is a limit: a cell
that has not ended by then is given up, and is 'not run'. --workers N has as many environments as the settings say, in N
processes; --jobs N trains N cells at a time, whose wall-clock is then that of cells side by side; --device is that of every
learner. --python is the interpreter of the Python environments (numpy, gymnasium, lbforaging, rware); without it their cells
are not run. --note is written beside the machine, as what else it did. Exit status 1 where a cell failed.

The pages are written at the end: bench/zoo.json, in which cells of --out take the place of those of before, a failed one not
that of one that was measured, docs/results.md and its pictures, which need matplotlib in the Python that runs this. What was
recorded or stands in --out with settings that have changed since is left out.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import zoo_page
from all import machine, read, write
from zoo_tasks import ALGORITHMS, NETWORKS, TASKS

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDED = ROOT / "bench" / "zoo.json"
SEEDS = (1, 2, 3)
EVALUATION_SEED = "1000"  # other episodes than those of training


class CellFailed(Exception):
    """A program ended with an error; the message has its last lines."""


class TimeIsUp(Exception):
    """The limit of --hours came while a program ran."""


class Limit:
    """When all has to end: so many seconds from now, or once somebody stops it. Of any thread."""

    def __init__(self, seconds):
        self._deadline = time.monotonic() + seconds
        self._stopped = threading.Event()

    def stop(self):
        self._stopped.set()

    def left(self):
        """Seconds; 0 where it is over."""
        return 0.0 if self._stopped.is_set() else max(0.0, self._deadline - time.monotonic())


def name_of(task, algorithm, network):
    return f"{task.name}/{algorithm}/{network}"


def cells(only=(), seeds=(1,)):
    """[(task, algorithm, network, seed)] in the order of training, of cells that make sense and whose name matches one of `only`, all without."""
    return [
        (task, algorithm, network, seed)
        for seed in seeds for network in NETWORKS for task in TASKS for algorithm in ALGORITHMS
        if task.why_not(algorithm, network) is None
        and (not only or any(fnmatch.fnmatchcase(name_of(task, algorithm, network), glob) for glob in only))
    ]


def key_of(task, algorithm, network, seed):
    return f"{name_of(task, algorithm, network)}/{seed}"


def digest_of(*parts):
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def uncommented(task, algorithm):
    return re.sub(r"\s*(?:^|(?<=\s))#.*$", "", task.document(algorithm), flags=re.M)


def digest(task, algorithm, network):
    """Of all that says what a cell trains, measures and draws, comments aside: another one is another cell."""
    measures = [list(vars(measure).values()) for measure in task.measures]
    return digest_of(uncommented(task, algorithm), task.settings(algorithm, network), measures, task.episodes, EVALUATION_SEED, task.curves)


def digest_at_random(task):
    """Of all that says what random play gets in a task, whatever cell's run measures it."""
    measures = [(measure.name, measure.at_random, measure.agents) for measure in task.measures]
    return digest_of([uncommented(task, algorithm) for algorithm in ALGORITHMS], task.sets, measures, task.episodes, EVALUATION_SEED)


def current(entries, digests):
    """Those of `entries` that were made with the settings of today, of which `digests` are."""
    return {key: entry for key, entry in entries.items() if key in digests and entry.get("settings") == digests[key]}


def spread_over(document, workers):
    """--set of num_envs_per_worker, so that so many workers have the environments that the document says."""
    found = {key: re.search(rf"^{key}: *(\d+)", document, re.M) for key in ("num_workers", "num_envs_per_worker")}
    if None in found.values():
        raise CellFailed(f"the settings say no {', '.join(key for key, value in found.items() if value is None)}; --workers needs it")
    environments = int(found["num_workers"][1]) * int(found["num_envs_per_worker"][1])
    if environments % workers != 0:
        raise CellFailed(f"--workers {workers}: {environments} environments are not as many for each")
    return f"num_envs_per_worker={environments // workers}"


def end(process):
    """First as an operator does it; `troupe train` leaves no process behind."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait(process, limit):
    """Until the program has ended; TimeIsUp, and the program is ended, where the limit comes first."""
    try:
        while process.poll() is None:
            if not limit.left():
                raise TimeIsUp
            try:
                process.wait(timeout=min(0.5, limit.left()))
            except subprocess.TimeoutExpired:
                pass
    except BaseException:
        end(process)
        raise


def call(command, limit, folder):
    """What a program prints to stdout. CellFailed, TimeIsUp."""
    with open(os.path.join(folder, "stdout"), "w+") as out, open(os.path.join(folder, "stderr"), "w+") as error:
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=error, start_new_session=True)
        wait(process, limit)
        out.seek(0)
        error.seek(0)
        printed, said = out.read(), error.read()
    if process.returncode != 0:
        lines = (said.strip() or printed.strip()).splitlines()[-3:]
        raise CellFailed(f"troupe {command[1]} ended with {process.returncode}: {' | '.join(lines)}")
    return printed


def measured(measure, answer):
    """The number of a measure in what `troupe evaluate --json` says."""
    if not measure.agents:
        return answer["return_sum"]["mean"]
    values = [entry["mean"] for agent, entry in answer["agents"].items() if any(fnmatch.fnmatchcase(agent, glob) for glob in measure.agents)]
    if not values:
        raise CellFailed(f"{measure.name}: no agent is one of {', '.join(measure.agents)}, there are {', '.join(answer['agents'])}")
    return sum(values) / len(values)


def curve(path, keys, points=40):
    """[[env steps, seconds, value]] of progress.jsonl, thinned out; lines without the keys are left out."""
    found = []
    with open(path) as lines:
        for line in map(json.loads, lines):
            values = [line[key] for key in keys if isinstance(line.get(key), (int, float))]
            if values:
                found.append([line["env_steps"], round(line["wall_clock_s"], 1), round(sum(values) / len(values), 3)])
    every = max(1, -(-len(found) // points))
    return found[::-1][::every][::-1]  # the last one always


class Zoo:
    """The cells of a folder, and how one is trained; several at a time may be."""

    def __init__(self, troupe, args):
        self._troupe, self._python, self._workers, self._device = troupe, args.python and os.path.abspath(args.python), args.workers, args.device
        learner = f"learners on {args.device}" if args.device else ""
        together = f"{args.jobs} cells at a time" if args.jobs > 1 else ""
        self._note = ", ".join(filter(None, (args.note, learner, together)))
        self._path = args.out / "cells.json"
        self._lock = threading.Lock()
        self._random_locks = collections.defaultdict(threading.Lock)  # of a task: random play is measured once
        found = read(self._path)
        self.cells, self.random = found.get("cells", {}), found.get("random", {})

    def _keep(self, entries, key, entry):
        with self._lock:
            entries[key] = entry
            write(self._path, {"cells": self.cells, "random": self.random})

    def done(self, cell):
        entry = self.cells.get(key_of(*cell), {})
        return "measures" in entry and entry["settings"] == digest(*cell[:3])

    def train(self, cell, limit):
        """Trains and measures a cell, and what random play gets there; TimeIsUp leaves no trace of it."""
        task, algorithm, network, seed = cell
        entry = {"settings": digest(task, algorithm, network), "machine": machine(), "date": time.strftime("%Y-%m-%d"), "note": self._note}
        folder = tempfile.mkdtemp(prefix="troupe_zoo_")
        try:
            entry["commit"] = json.loads(call([self._troupe, "version", "--json"], limit, folder).splitlines()[-1])["commit"]
            entry.update(self._train(task, algorithm, network, seed, folder, limit))
        except CellFailed as error:
            entry["error"] = str(error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._keep(self.cells, key_of(*cell), entry)
        return entry

    def _train(self, task, algorithm, network, seed, folder, limit):
        path = task.file(algorithm)
        document = task.document(algorithm)
        if path is None:
            path = pathlib.Path(folder) / "run.yaml"
            path.write_text(document)
        settings = [*task.settings(algorithm, network), f"seed={seed}", f"experiment.directory={folder}", "evaluation.at_end=false", "evaluation.interval=0",
                    "experiment.checkpoint_interval=0", f"experiment.write_interval={task.env_steps // 100}"]
        command = [self._troupe, "train", path, "--name", "run"]
        if self._workers is not None:
            command += ["--workers", self._workers]
            settings.append(spread_over(document, self._workers))
        if task.python:
            settings.append(f"env.python.interpreter={self._python}")
        if self._device:
            settings.append(f"device={self._device}")
        for setting in settings:
            command += ["--set", setting]
        call(command, limit, folder)
        run = pathlib.Path(folder) / "run"
        summary = json.loads((run / "summary.json").read_text())
        measures = {
            measure.name: {
                "sampled": self._evaluate(task, run, measure, measure.arguments, limit),
                "deterministic": self._evaluate(task, run, measure, (*measure.arguments, "--deterministic"), limit),
            }
            for measure in task.measures
        }
        self._measure_at_random(task, run, limit)
        return {
            "env_steps": summary["env_steps"], "wall_clock_s": round(summary["wall_clock_s"], 1), "measures": measures,
            "curves": {label: curve(run / "progress.jsonl", keys) for label, keys in task.curves.items()},
        }

    def _measure_at_random(self, task, run, limit):
        """What random play gets, by whichever run of the task is there first."""
        settings = digest_at_random(task)
        with self._lock:
            lock = self._random_locks[task.name]
        with lock:
            if not current(self.random, {task.name: settings}):
                measures = {measure.name: self._evaluate(task, run, measure, measure.at_random, limit) for measure in task.measures}
                self._keep(self.random, task.name, {"settings": settings, "measures": measures})

    def _evaluate(self, task, run, measure, arguments, limit):
        command = [self._troupe, "evaluate", run, "--checkpoint", "latest", "--episodes", task.episodes, "--seed", EVALUATION_SEED, "--json", *arguments]
        answer = json.loads(call(command, limit, run.parent).splitlines()[-1])
        return round(measured(measure, answer), 4)


def list_cells(zoo, args):
    for cell in cells(args.only, args.seeds):
        entry = zoo.cells.get(key_of(*cell), {})
        state = "done" if zoo.done(cell) else "failed" if "error" in entry else "not run"
        if cell[0].python and not args.python and state == "not run":
            state = "not run: needs --python"
        print(f"{key_of(*cell):50} {state}")
    for task in TASKS:
        for algorithm in ALGORITHMS:
            for network in NETWORKS:
                why = task.why_not(algorithm, network)
                if why is not None:
                    print(f"{name_of(task, algorithm, network):50} not applicable: {why}")


def write_pages(zoo, seeds):
    """bench/zoo.json, docs/results.md and the pictures; of the seeds asked for and of those that were recorded. What has other settings than today's is
    left out before what is new takes the place of what was recorded."""
    before = read(RECORDED)
    seeds = sorted({*SEEDS, *seeds, *before.get("seeds", [])})
    wanted = {key_of(*cell): digest(*cell[:3]) for cell in cells((), seeds)}
    kept = current(before.get("cells", {}), wanted)
    kept.update((key, entry) for key, entry in current(zoo.cells, wanted).items() if "measures" in entry or "measures" not in kept.get(key, {}))
    kept = dict(sorted(kept.items()))
    at_random = {task.name: digest_at_random(task) for task in TASKS}
    random = {**current(before.get("random", {}), at_random), **current(zoo.random, at_random)}
    record = {"seeds": seeds, "random": random, "cells": kept}
    partial = RECORDED.with_name(RECORDED.name + ".partial")
    # A line a cell.
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in kept.items())
    partial.write_text(f'{{"seeds": {json.dumps(seeds)},\n "random": {json.dumps(record["random"])},\n "cells": {{\n{lines}\n }}}}\n')
    partial.replace(RECORDED)
    (ROOT / "docs" / "results.md").write_text(zoo_page.page(record))
    for path in zoo_page.draw(kept, record["random"], seeds, ROOT / "docs" / "images"):
        print(path)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe", nargs="?", help="the troupe program, or ./troupe")
    parser.add_argument("--python", help="the interpreter of the Python environments")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "zoo")
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--only", nargs="+", default=[], metavar="GLOB", help="of ENVIRONMENT/ALGORITHM/NETWORK")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--workers", type=int, help="processes, with the environments of the settings in all")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time, default 1")
    parser.add_argument("--device", help="of the learners, as the key device; default: as the settings say")
    parser.add_argument("--note", default="", metavar="WORDS")
    parser.add_argument("--list", action="store_true", help="the cells, and train nothing")
    parser.add_argument("--docs", action="store_true", help="write the pages and train nothing")
    args = parser.parse_args()
    if args.only and not cells(args.only):
        parser.error(f"--only: no cell matches {' '.join(args.only)}; --list prints them")
    if not args.troupe and not args.list and not args.docs:
        parser.error("expected the troupe program, or --list or --docs")
    if args.hours <= 0 or args.jobs < 1 or (args.workers is not None and args.workers < 1):
        parser.error(f"--hours, --workers and --jobs: got {args.hours}, {args.workers} and {args.jobs}, expected more than 0")
    if not args.list and zoo_page.missing():
        parser.error(zoo_page.missing())
    return args


def train_one(zoo, cell, limit):
    """Whether it was trained, and failed; says what became of it."""
    if not limit.left():
        return False
    try:
        entry = zoo.train(cell, limit)
    except TimeIsUp:
        print(f"{key_of(*cell)}: not done when the time was up", flush=True)
        return False
    words = f"FAILED: {entry['error']}" if "error" in entry else f"{entry['wall_clock_s']} s, " + ", ".join(
        f"{name} {value['sampled']:.2f}" for name, value in entry["measures"].items())
    print(f"{key_of(*cell)}: {words}", flush=True)
    return "error" in entry


def train_all(zoo, args):
    """Trains what is left until the time is up; returns whether a cell failed."""
    limit = Limit(3600 * args.hours)
    left = [cell for cell in cells(args.only, args.seeds) if not zoo.done(cell) and not (cell[0].python and not args.python)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        try:
            failed = list(pool.map(lambda cell: train_one(zoo, cell, limit), left))
        finally:
            # Whatever ended this (Ctrl-C, or a cell that could not be written) ends what is still trained.
            over = not limit.left()
            limit.stop()
    if left and over:
        print(f"{args.hours} hours are over")
    return any(failed)


def main():
    args = parse_arguments()
    zoo = Zoo(args.troupe and os.path.abspath(args.troupe), args)
    if args.list:
        list_cells(zoo, args)
        return 0
    failed = False
    try:
        if not args.docs:
            failed = train_all(zoo, args)
    except KeyboardInterrupt:
        failed = True
    write_pages(zoo, args.seeds)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
