#!/usr/bin/env python3
"""Does it learn? Trains the examples below with the seeds 1, 2 and one of the commit's own, and plays 500 fresh episodes with each result.

  tests/learning/learns.py build/release/services/cli/troupe [--seeds 1 2 3]

Prints a line a run and, last, 'N passed, N failed'; exit status 1 when a return lies below its bar.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from learning import learn  # noqa: E402  the same way of measuring as in docs/benchmarks.md

# What a run is to reach after so many env steps: the mean of the summed return, sampled and deterministic. simple_spread under random play: -80;
# two cartpoles: 45, and 1000 is the most there is.
BARS = (
    {"config": "examples/simple_spread_mappo.yaml", "env_steps": 1_000_000, "sampled": -32.0, "deterministic": -29.0},
    {"config": "examples/cartpole_ippo.yaml", "env_steps": 300_000, "sampled": 800.0, "deterministic": 800.0},
)


def seeds():
    """1, 2 and another for every commit, so that a bar that only two seeds pass is found in time."""
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return [1, 2] + ([int(done.stdout[:7], 16)] if done.returncode == 0 else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds())
    arguments = parser.parse_args()
    troupe, passed, failed = os.path.abspath(arguments.troupe), 0, 0
    for bar in BARS:
        for seed in arguments.seeds:
            with tempfile.TemporaryDirectory(prefix="troupe_learns_") as folder:
                sampled, deterministic, seconds, env_steps = learn(troupe, str(ROOT / bar["config"]), seed, [f"stop.env_steps={bar['env_steps']}"], folder)
            good = sampled >= bar["sampled"] and deterministic >= bar["deterministic"]
            passed, failed = passed + good, failed + (not good)
            print(f"{'ok  ' if good else 'FAIL'} {bar['config']} seed {seed}: sampled {sampled:.2f} (bar {bar['sampled']:g}), "
                  f"deterministic {deterministic:.2f} (bar {bar['deterministic']:g}) after {env_steps} env steps, {seconds:.1f} s", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
