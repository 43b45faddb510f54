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


def train(troupe, config, seed, sets, folder):
    """Trains with the seed, without a final evaluation: (run folder, summary)."""
    name = f"seed{seed}"
    settings = [*sets, f"seed={seed}", f"experiment.directory={folder}", "evaluation.at_end=false"]
    done = subprocess.run([troupe, "train", config, "--name", name, *[part for value in settings for part in ("--set", value)]],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"troupe train {config} with seed {seed} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    run = os.path.join(folder, name)
    with open(os.path.join(run, "summary.json")) as file:
        return run, json.load(file)


def learn(troupe, config, seed, sets, folder, episodes=500):
    """Trains with the seed and evaluates the last checkpoint: (sampled, deterministic, wall-clock seconds, env steps)."""
    run, summary = train(troupe, config, seed, sets, folder)
    return (evaluate(troupe, run, episodes, ["--checkpoint", "latest"]),
            evaluate(troupe, run, episodes, ["--checkpoint", "latest", "--deterministic"]), summary["wall_clock_s"], summary["env_steps"])


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
            row = learn(troupe, options.config, seed, options.set, folder, options.episodes)
            rows.append(row[:3])
            print(f"| {seed} | {row[0]:.2f} | {row[1]:.2f} | {row[2]:.1f} | {row[3]} |", flush=True)
    worst = [min(column) for column in list(zip(*rows))[:2]]
    mean = [statistics.mean(column) for column in zip(*rows)]
    print(f"| worst | {worst[0]:.2f} | {worst[1]:.2f} | | |\n| mean | {mean[0]:.2f} | {mean[1]:.2f} | {mean[2]:.1f} | |")


if __name__ == "__main__":
    main()
