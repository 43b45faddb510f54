#!/usr/bin/env python3
"""What a decision costs in a Python process: Policy.act of one row of simple_spread, 18 numbers through two layers of 64.

  bench/act_bench.py [--calls 20000] [--repeat 5]      with a Python that has numpy; the program is found as docs/python.md says

Trains 8,000 env steps first. Prints microseconds a call, the least and the median of the repeats; the bar is 30, sampled.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import troupe  # noqa: E402  of this checkout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="troupe_act_") as folder:
        run = troupe.train(ROOT / "examples" / "simple_spread_mappo.yaml", progress=False, name="act",
                           overrides={"stop.env_steps": 8000, "evaluation.at_end": False, "experiment.directory": os.path.join(folder, "runs")})
        (policy,) = run.policies(seed=1).values()
        observation = [0.1 * i for i in range(18)]
        drawn = {policy.act(observation) for _ in range(1000)}
        assert len(drawn) > 1 and drawn <= set(range(5)), drawn
        for deterministic in (False, True):
            taken = []
            for _ in range(arguments.repeat):
                begin = time.perf_counter()
                for _ in range(arguments.calls):
                    policy.act(observation, deterministic=deterministic)
                taken.append((time.perf_counter() - begin) / arguments.calls * 1e6)
            print(f"{'deterministic' if deterministic else 'sampled':13} {min(taken):6.1f} us, median {statistics.median(taken):.1f}")


if __name__ == "__main__":
    main()
