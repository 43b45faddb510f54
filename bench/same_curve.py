#!/usr/bin/env python3
"""Two environments that should be the same, learned side by side: is the difference of their curves within the noise of seeds?

    bench/same_curve.py ./troupe examples/simple_spread_mappo.yaml --other env.name=python:mpe2.simple_spread_v3 \\
        --other env.python.interpreter=VENV --set stop.env_steps=400000 --seeds 1 2 3

Trains the configuration as it is and with the changes of --other, seed by seed in turn. At each quarter of the run it compares the means over seeds of
the episode return (mean of the quarter's last lines of progress). They agree where they differ by less than three standard errors of the difference,
or by less than --tolerance of what the run learned. Prints a Markdown table; exit 1 when they differ at a quarter.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

QUARTERS = 4


def train(options, name, folder, seed, sets):
    """[mean return at the end of each quarter], wall-clock seconds"""
    sets = [*options.set, *sets, f"seed={seed}", f"experiment.directory={folder}", "evaluation.at_end=false"]
    command = [options.troupe, "train", options.config, "--name", name] + [part for value in sets for part in ("--set", value)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"same_curve: {' '.join(command)}\n{done.stderr[-3000:]}")
    with open(os.path.join(folder, name, "progress.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    lines = [line for line in lines if line.get("return_sum") is not None]
    steps = lines[-1]["env_steps"]
    ends = []
    for quarter in range(1, QUARTERS + 1):
        last, window = steps * quarter / QUARTERS, steps / QUARTERS / 4
        ends.append(statistics.mean(line["return_sum"] for line in lines if last - window <= line["env_steps"] <= last))
    return ends, lines[0]["return_sum"], lines[-1]["wall_clock_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("troupe", help="the troupe program, or ./troupe")
    parser.add_argument("config")
    parser.add_argument("--other", action="append", required=True, metavar="KEY=VALUE", help="what the other one changes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for both")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--tolerance", type=float, default=0.03, help="a difference of this share of what was learned is none")
    options = parser.parse_args()
    options.troupe = os.path.abspath(options.troupe)
    curves = {"as it is": [], "other": []}
    learned, seconds = [], {name: [] for name in curves}
    with tempfile.TemporaryDirectory(prefix="troupe_same_curve_") as folder:
        for seed in options.seeds:
            for name, sets in (("as it is", []), ("other", options.other)):
                ends, first, wall = train(options, f"{name.replace(' ', '_')}{seed}", folder, seed, sets)
                curves[name].append(ends)
                learned.append(abs(ends[-1] - first))
                seconds[name].append(wall)
    print("| quarter | as it is: mean (each seed) | other: mean (each seed) | difference | allowed |\n|---|---|---|---|---|")
    same = True
    for quarter in range(QUARTERS):
        values = {name: [ends[quarter] for ends in each] for name, each in curves.items()}
        means = {name: statistics.mean(each) for name, each in values.items()}
        error = math.sqrt(sum(statistics.variance(each) / len(each) for each in values.values() if len(each) > 1))
        allowed = max(3 * error, options.tolerance * statistics.mean(learned))
        difference = means["other"] - means["as it is"]
        same = same and abs(difference) <= allowed
        cells = [f"{means[name]:.2f} ({', '.join(f'{value:.2f}' for value in values[name])})" for name in curves]
        print(f"| {quarter + 1} | {cells[0]} | {cells[1]} | {difference:+.2f} | {allowed:.2f} |")
    print(f"\nwall clock a run: {statistics.mean(seconds['as it is']):.1f} s and {statistics.mean(seconds['other']):.1f} s")
    print("the same curve" if same else "the curves DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
