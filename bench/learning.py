#!/usr/bin/env python3
"""Learning, seed by seed: trains a configuration with several seeds and evaluates each result on fresh episodes (docs/benchmarks.md).

    bench/learning.py ./troupe examples/simple_spread_mappo.yaml --seeds 1 2 3 4 5 --set stop.env_steps=1000000

Prints a Markdown table: the summed return of 500 fresh episodes, sampled and deterministic, and the run's wall-clock seconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile


def evaluate(troupe, run, episodes, extra):
    command = [troupe, "evaluate", run, "--episodes", str(episodes), "--seed", "1000", "--json", *extra]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["return_sum"]["mean"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("troupe", help="the troupe program, or ./troupe")
    parser.add_argument("config")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--episodes", type=int, default=500)
    options = parser.parse_args()
    troupe = os.path.abspath(options.troupe)
    rows = []
    print("| seed | sampled | deterministic | wall-clock s | env steps |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="troupe_learning_") as folder:
        for seed in options.seeds:
            name = f"seed{seed}"
            sets = [part for value in [*options.set, f"seed={seed}", f"experiment.directory={folder}", "evaluation.at_end=false"]
                    for part in ("--set", value)]
            subprocess.run([troupe, "train", options.config, "--name", name, *sets], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=True)
            run = os.path.join(folder, name)
            with open(os.path.join(run, "summary.json")) as file:
                summary = json.load(file)
            row = (evaluate(troupe, run, options.episodes, ["--checkpoint", "latest"]),
                   evaluate(troupe, run, options.episodes, ["--checkpoint", "latest", "--deterministic"]), summary["wall_clock_s"])
            rows.append(row)
            print(f"| {seed} | {row[0]:.2f} | {row[1]:.2f} | {row[2]:.1f} | {summary['env_steps']} |", flush=True)
    worst = [min(column) for column in list(zip(*rows))[:2]]
    mean = [statistics.mean(column) for column in zip(*rows)]
    print(f"| worst | {worst[0]:.2f} | {worst[1]:.2f} | | |\n| mean | {mean[0]:.2f} | {mean[1]:.2f} | {mean[2]:.1f} | |")


if __name__ == "__main__":
    main()
