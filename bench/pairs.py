#!/usr/bin/env python3
"""How fast one source tree is beside another, in turns: what a change costs.

    bench/pairs.py NEW OLD [--pairs 20] [--env-steps 600000] [--workers 2] [--set KEY=VALUE…] [--at-least 0.97] [--json FILE]
    bench/pairs.py . . --new-set model.actor_core=gru …          one tree: what a setting costs
    bench/pairs.py NEW OLD --program rollout [--pairs 10] …      a program of bench/figures.py instead of the main job, with all of its figures

NEW and OLD are two checkouts that are built (./troupe build, and ./troupe bench for --program). Each pair runs bench/peers/troupe.yaml of
this checkout once in each, or the program, who goes first changing from pair to pair. The main job's rate is env steps/s from the first
line of progress.jsonl to the last. Prints the pairs, their ratios NEW/OLD, OLD/NEW of a figure that is to be small, and the mean ratio
with its 95 % interval (of the mean of the logarithms, Student's t). Exit status 1 where an interval's lower end is below --at-least.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

from figures import PROGRAMS

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "troupe.yaml")
# Student's t, two-sided 95 %, by degrees of freedom; the largest at hand that is not above the asked one is a little too wide.
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 11: 2.20, 14: 2.14, 19: 2.09, 29: 2.05, 59: 2.00}


def interval(ratios):
    """(mean, lower end, upper end) of ratios, at least two."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    t = T95[max(degrees for degrees in T95 if degrees <= len(logs) - 1)]
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def rate(build, env_steps, workers, sets=()):
    """Env steps a second of one run of a build folder's program; `sets`: KEY=VALUE."""
    with tempfile.TemporaryDirectory(prefix="troupe-pairs-") as folder:
        command = [os.path.join(build, "services", "cli", "troupe"), "train", CONFIG, "--workers", str(workers), "--name", "run"]
        for setting in (f"experiment.directory={folder}", f"stop.env_steps={env_steps}", *sets):
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        with open(os.path.join(folder, "run", "progress.jsonl")) as file:
            lines = [json.loads(line) for line in file]
    return (lines[-1]["env_steps"] - lines[0]["env_steps"]) / (lines[-1]["wall_clock_s"] - lines[0]["wall_clock_s"])


def program_figures(program, build, rounds):
    """What a program of a build folder prints of its figures: {what: value}."""
    places = {"build": build, "python": sys.executable, "rounds": rounds}
    command = [*(["taskset", "-c", "0"] if program.one_core else []), *(part.format(**places) for part in program.command)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {figure.what: figure.measured(done.stdout) if done.stdout else None for figure in program.figures}
    if None in found.values():
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}, without {[what for what, value in found.items() if value is None]}\n{done.stderr}")
    return found


def gain(figure, new, old):
    """Above 1 where the new one is better."""
    return old / new if figure is not None and figure.at_most is not None else new / old


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("new")
    parser.add_argument("old")
    parser.add_argument("--program", choices=[program.name for program in PROGRAMS], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=1, help="of a program in a turn, where it repeats itself")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--env-steps", type=int, default=600_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of both")
    parser.add_argument("--new-set", action="append", default=[], metavar="KEY=VALUE", help="of the main job in NEW alone: what a setting costs")
    parser.add_argument("--at-least", type=float, default=0.97)
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.pairs < 2:
        parser.error("--pairs: expected at least 2")
    builds = {"new": os.path.join(args.new, "build", "release"), "old": os.path.join(args.old, "build", "release")}
    program = next((program for program in PROGRAMS if program.name == args.program), None)
    figures = {figure.what: figure for figure in program.figures} if program else {"env steps/s": None}

    if program and (args.set or args.new_set):
        parser.error("--set and --new-set are of the main job; got --program as well")

    def measure(which):
        if program:
            return program_figures(program, builds[which], args.rounds)
        return {"env steps/s": rate(builds[which], args.env_steps, args.workers, args.set + (args.new_set if which == "new" else []))}

    turns = {"new": [], "old": []}
    for pair in range(args.pairs):
        for which in ("new", "old") if pair % 2 == 0 else ("old", "new"):
            turns[which].append(measure(which))
        for what, figure in figures.items():
            new, old = turns["new"][-1][what], turns["old"][-1][what]
            print(f"{pair + 1:2}  new {new:11,.6g}  old {old:11,.6g}  ratio {gain(figure, new, old):.3f}  {what}", flush=True)
    found = {}
    for what, figure in figures.items():
        values = {which: [turn[what] for turn in turns[which]] for which in turns}
        ratios = interval([gain(figure, new, old) for new, old in zip(values["new"], values["old"])])
        found[what] = {"values": values, "ratio": ratios}
        print(f"{what}: medians new {statistics.median(values['new']):,.6g}, old {statistics.median(values['old']):,.6g}; "
              f"ratio {ratios[0]:.3f}, 95 % interval {ratios[1]:.3f} to {ratios[2]:.3f}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"pairs": args.pairs, "program": args.program or "main job", "figures": found}, file, indent=1)
    return 0 if all(entry["ratio"][1] >= args.at_least for entry in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
