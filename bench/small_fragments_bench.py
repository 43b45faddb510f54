#!/usr/bin/env python3
"""What a fragment costs however little is in it, with its grant and the weights for the next: CPU time of learner and workers (docs/benchmarks.md).

    bench/small_fragments_bench.py build/release [--workers 64] [--updates 400] [--repetitions 5]

The same iterations are sampled by two workers and by many: as many environments, env steps and rows, 2 fragments an update or --workers of
them. A run of 100 updates is taken off one of 100 + --updates, so that starts and ends do not count; what is left differs by the fragments
alone (and by what an idle worker costs meanwhile). Prints CPU ms a fragment, as the median with minimum and maximum.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIG = os.path.join(ROOT, "examples", "cartpole_ippo.yaml")
STEPS = 8  # of an environment in an update
FEW = 2


def cpu_s(build, workers, environments, updates):
    """Of all processes of a run, from the first to the last."""
    batch = environments * STEPS
    sets = {"env.args.num_agents": 1, "algorithm.train_batch_size": batch, "algorithm.minibatch_size": batch, "algorithm.num_epochs": 1,
            "num_envs_per_worker": environments // workers, "stop.env_steps": batch * updates, "evaluation.at_end": "false",
            "model.actor_hidden_sizes": "[16]", "model.critic_hidden_sizes": "[16]", "experiment.checkpoint_interval": 0}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="troupe-small-") as folder:
        command = [os.path.join(build, "services", "cli", "troupe"), "train", CONFIG, "--workers", str(workers), "--name", "run",
                   "--set", f"experiment.directory={folder}", *[part for key, value in sets.items() for part in ("--set", f"{key}={value}")]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--repetitions", type=int, default=5)
    args = parser.parse_args()
    if args.workers <= FEW or args.workers % FEW != 0:
        parser.error(f"--workers: got {args.workers}, expected an even number above {FEW}")
    each = []
    for _ in range(args.repetitions):
        spent = {}
        for workers in (FEW, args.workers):
            short, long = (cpu_s(args.build, workers, args.workers, updates) for updates in (100, 100 + args.updates))
            spent[workers] = (long - short) / args.updates
        each.append(1000 * (spent[args.workers] - spent[FEW]) / (args.workers - FEW))
        print(f"{FEW} workers {1000 * spent[FEW]:.2f} ms, {args.workers} workers {1000 * spent[args.workers]:.2f} ms of CPU an update", flush=True)
    print(f"a small fragment, CPU of learner and worker  median {statistics.median(each):.3f} ms  ({min(each):.3f} to {max(each):.3f})")


if __name__ == "__main__":
    main()
