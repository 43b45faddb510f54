#!/usr/bin/env python3
"""The learning curves of runs as a picture: return over env steps and over wall-clock time. Needs matplotlib.

    bench/plot_run.py RUN [RUN…] [--out curve.png] [--metric policy/hunter/Episode-Rewards]

RUN is a run's folder. Without --metric it is the sum over agents (`return_sum`). A line of progress.jsonl without the metric is left out.
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


def draw(curves, metric, out):
    """`curves`: {name: points}."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (by_steps, by_time) = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, constrained_layout=True)
    for name, points in curves.items():
        steps, seconds, values = zip(*points)
        by_steps.plot([s / 1e6 for s in steps], values, label=name, linewidth=1.4)
        by_time.plot(seconds, values, label=name, linewidth=1.4)
    by_steps.set_xlabel("million env steps")
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
    parser.add_argument("--metric", default="return_sum")
    args = parser.parse_args()
    try:
        curves = {pathlib.Path(run).resolve().name: read_curve(run, args.metric) for run in args.runs}
        draw(curves, args.metric, args.out)
    except ValueError as error:
        sys.exit(f"plot_run.py: {error}")
    except ImportError:
        sys.exit(f"plot_run.py: {sys.executable} has no matplotlib: {sys.executable} -m pip install matplotlib")
    print(args.out)


if __name__ == "__main__":
    main()
