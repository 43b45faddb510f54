#!/usr/bin/env python3
"""How fast the main job trains in one source tree beside another, in turns: what a change costs.

    bench/pairs.py NEW OLD [--pairs 20] [--env-steps 600000] [--workers 2] [--set KEY=VALUE…] [--at-least 0.97] [--json FILE]

NEW and OLD are two checkouts that are built (./troupe build). Each pair runs bench/peers/troupe.yaml of this checkout once in each, who goes
first changing from pair to pair. A rate is env steps/s from the first line of progress.jsonl to the last. Prints the pairs, their ratios
NEW/OLD, and the mean ratio with its 95 % interval (of the mean of the logarithms, Student's t). Exit status 1 where the interval's lower
end is below --at-least.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("new")
    parser.add_argument("old")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--env-steps", type=int, default=600_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of both")
    parser.add_argument("--at-least", type=float, default=0.97)
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.pairs < 2:
        parser.error("--pairs: expected at least 2")
    builds = {"new": os.path.join(args.new, "build", "release"), "old": os.path.join(args.old, "build", "release")}
    rates = {"new": [], "old": []}
    for pair in range(args.pairs):
        for which in ("new", "old") if pair % 2 == 0 else ("old", "new"):
            rates[which].append(rate(builds[which], args.env_steps, args.workers, args.set))
        new, old = rates["new"][-1], rates["old"][-1]
        print(f"{pair + 1:2}  new {new:9,.0f}  old {old:9,.0f} env steps/s  ratio {new / old:.3f}", flush=True)
    mean, low, high = interval([new / old for new, old in zip(rates["new"], rates["old"])])
    print(f"medians: new {statistics.median(rates['new']):,.0f}, old {statistics.median(rates['old']):,.0f} env steps/s; "
          f"ratio {mean:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"pairs": args.pairs, "env_steps": args.env_steps, "rates": rates, "ratio": [mean, low, high]}, file, indent=1)
    return 0 if low >= args.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
