#!/usr/bin/env python3
"""The learning curves of runs as a picture: return over env steps and over wall-clock time. Needs matplotlib.

    bench/plot_run.py RUN [RUN…] [--out curve.png] [--metric policy/hunter/return_mean]

RUN is a run's folder. Without --metric it is the sum over agents (`return_sum`) or, where agents' rewards differ, the return of each of the first six
policies. A line of progress.jsonl without the metric is left out.
"""

import argparse
import json
import pathlib
import sys


def read_curve(run, metric):
    """[(env steps, seconds, value)] of a run's progress; ValueError says what is missing."""
    path = pathlib.Path(run) / "progress.jsonl"
    if not path.is_file():
        raise ValueError(f"{run}: expected a run's folder, which holds progress.jsonl")
    points = []
    keys = set()
    with open(path) as lines:
        for line in lines:
            if not line.endswith("\n"):
                break  # the run is writing it
            record = json.loads(line)
            keys.update(key for key, value in record.items() if isinstance(value, (int, float)))
            if isinstance(record.get(metric), (int, float)):
                points.append((record["env_steps"], record["wall_clock_s"], record[metric]))
    if not points:
        raise ValueError(f"{run}: no line has the metric {metric!r}; there are {', '.join(sorted(keys)) or 'no lines yet'}")
    return points


def metrics_of(run):
    """What tells how good the run is, by its last line; `return_sum` where there is none."""
    try:
        with open(pathlib.Path(run) / "progress.jsonl") as lines:
            text = lines.read()
        last = json.loads(text[:text.rfind("\n") + 1].splitlines()[-1])
    except (OSError, IndexError):
        return ["return_sum"]
    by_policy = [key for key in last if key.startswith("policy/") and key.endswith("/return_mean")]
    return by_policy[:6] if last.get("rewards_differ") and by_policy else ["return_sum"]


def draw(curves, metric, out):
    """`curves`: {name: points}."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (by_steps, by_time) = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, constrained_layout=True)
    short = max(points[-1][0] for points in curves.values()) < 1e5
    for name, points in curves.items():
        steps, seconds, values = zip(*points)
        by_steps.plot([s / (1e3 if short else 1e6) for s in steps], values, label=name, linewidth=1.4)
        by_time.plot(seconds, values, label=name, linewidth=1.4)
    by_steps.set_xlabel("thousand env steps" if short else "million env steps")
    by_steps.set_ylabel("return, sum over agents" if metric == "return_sum" else metric)
    by_time.set_xlabel("seconds of training")
    for axis in (by_steps, by_time):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        by_time.legend(frameon=False)
    figure.savefig(out, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--out", default="curve.png")
    parser.add_argument("--metric")
    args = parser.parse_args()
    try:
        curves = {}
        for run in args.runs:
            for metric in [args.metric] if args.metric else metrics_of(run):
                of_policy = "" if args.metric or metric == "return_sum" else f", {metric.split('/')[1]}"
                curves[pathlib.Path(run).resolve().name + of_policy] = read_curve(run, metric)
        draw(curves, args.metric or ("return_sum" if metric == "return_sum" else "return of a policy"), args.out)
    except ValueError as error:
        sys.exit(f"plot_run.py: {error}")
    except ImportError:
        sys.exit(f"plot_run.py: {sys.executable} has no matplotlib: {sys.executable} -m pip install matplotlib")
    print(args.out)


if __name__ == "__main__":
    main()
