#!/usr/bin/env python3
"""Does it learn? Trains the configurations below with the seeds 1, 2 and one of the commit's own, and holds what the result does against a bar.

  tests/learning/learns.py build/release/services/cli/troupe [--seeds 1 2 3] [--only kuhn] [--long]

The commit's own seed is a new one each time, and of a hundred seeds one or two miss some bar (kuhn, a2c). Where it does, the next
two seeds decide: both have to pass. Seeds 1 and 2, and those that are named, are not tried again.

Prints a line a run and, last, 'N passed, N failed'; exit status 1 when a seed fails.
"""

import argparse
import functools
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "e2e")]

import measures  # noqa: E402  beside this file
from learning import train  # noqa: E402  the same way of training as in docs/benchmarks.md

# What a run is to reach after so many env steps. The mean of the summed return: simple_spread under random play has -80; two cartpoles 45, and 1000
# is the most there is, and of one agent 500 and 22. Without memory recall has 0.5 of 2, and two cartpoles whose velocities nobody sees 97. Catch
# has at most 2, random play -1.4.
# A2C forgets now and then what it knew: of 140 seeds 8 ended with two cartpoles below 700, so that its bar is of the checkpoint `best`, which
# was above 950 with 170 of 172 seeds. NashConv was above 0.15 with 1 of 121.
# NashConv: 0.917 where both play at random, 0 in an equilibrium. The policies of many_policies.yaml alone: 500 is the most.
# simple_reference: its words must be worth something, so that they are taken away. Threats of one move in connect four: of
# 100 the moves that take or block. The aim is 95 and is not reached: the example has 89 and 82 with seed 1, so the bars hold that it gets no worse.
# "long": minutes a seed, by --long only; no landing runs them.
BARS = (
    {"config": "examples/simple_spread_mappo.yaml", "env_steps": 1_000_000, "measure": measures.returns,
     "at_least": {"sampled": -32.0, "deterministic": -29.0}},
    {"config": "examples/cartpole_ippo.yaml", "env_steps": 300_000, "measure": measures.returns,
     "at_least": {"sampled": 800.0, "deterministic": 800.0}},
    {"config": "examples/cartpole_custom_loss.yaml", "env_steps": 300_000, "measure": measures.returns,
     "at_least": {"sampled": 800.0, "deterministic": 800.0}},
    {"config": "examples/cartpole_a2c.yaml", "env_steps": 500_000, "measure": measures.returns_of_best,
     "at_least": {"sampled": 900.0, "deterministic": 900.0}},
    {"config": "examples/cartpole_pqn.yaml", "env_steps": 300_000, "measure": measures.returns,
     "at_least": {"deterministic": 950.0}},
    {"config": "examples/simple_spread_pqn_vdn.yaml", "env_steps": 2_000_000, "measure": measures.returns, "long": True,
     "at_least": {"deterministic": -30.0}},
    {"config": "examples/cartpole_impala.yaml", "env_steps": 500_000, "measure": measures.returns,
     "at_least": {"sampled": 900.0, "deterministic": 900.0}},
    {"config": "examples/cartpole_appo.yaml", "env_steps": 500_000, "measure": measures.returns,
     "at_least": {"sampled": 900.0, "deterministic": 900.0}},
    {"config": "examples/cartpole_memory_appo.yaml", "env_steps": 1_000_000, "measure": measures.returns, "long": True,
     "at_least": {"sampled": 800.0, "deterministic": 800.0}},
    {"config": "examples/simple_spread_impala.yaml", "env_steps": 2_000_000, "measure": measures.returns, "long": True,
     "at_least": {"deterministic": -32.0}},
    {"config": "examples/cartpole_ppo_and_pqn.yaml", "env_steps": 600_000, "measure": measures.by_agent,
     "at_least": {"agent_0": 450.0, "agent_1": 450.0}},
    {"config": "examples/cartpole_ppo_and_a2c.yaml", "env_steps": 400_000, "measure": measures.by_agent,
     "at_least": {"agent_0": 400.0, "agent_1": 300.0}},
    {"config": "examples/recall_gru.yaml", "env_steps": 150_000, "measure": measures.returns, "at_least": {"sampled": 1.8, "deterministic": 1.8}},
    {"config": "examples/recall_torchscript.yaml", "env_steps": 150_000, "measure": measures.returns, "long": True,
     "at_least": {"sampled": 1.8, "deterministic": 1.8}},
    {"config": "examples/catch_cnn.yaml", "env_steps": 20_000, "measure": measures.returns, "at_least": {"sampled": 1.8, "deterministic": 1.8}},
    {"config": "examples/cartpole_memory_gru.yaml", "env_steps": 300_000, "measure": measures.returns, "long": True,
     "at_least": {"sampled": 800.0, "deterministic": 800.0}},
    {"config": "examples/kuhn_poker.yaml", "env_steps": 1_000_000, "measure": measures.nash_conv, "at_most": {"NashConv": 0.15}},
    {"config": "examples/simple_reference.yaml", "env_steps": 3_000_000, "measure": measures.words,
     "at_least": {"sampled": -32.0, "lost by shuffled words": 3.0}},
    {"config": "examples/many_policies.yaml", "env_steps": 600_000, "measure": measures.alone, "at_least": {"worst": 350.0, "of 490 and more": 16}},
    {"config": "examples/connect_four.yaml", "env_steps": 4_000_000, "measure": measures.threats, "long": True,
     "at_least": {"in random play": 80.0, "in its own games": 72.0}},
)


def seed_of_commit():
    """Another for every commit, so that a bar that only two seeds pass is found in time; None outside a repository."""
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return int(done.stdout[:7], 16) if done.returncode == 0 else None


def missed(bar, found):
    """Whether a figure lies beyond its bar."""
    return any(found[name] < floor for name, floor in bar.get("at_least", {}).items()) or any(
        found[name] > ceiling for name, ceiling in bar.get("at_most", {}).items())


def words(bar, found):
    """'sampled -29.10 (bar -32)' for each figure."""
    limits = {**bar.get("at_least", {}), **bar.get("at_most", {})}
    return ", ".join(f"{name} {found[name]:.2f} (bar {limit:g})" for name, limit in limits.items())


def misses_bar(troupe, bar, seed):
    """Whether a run with the seed misses the bar. Prints its line."""
    with tempfile.TemporaryDirectory(prefix="troupe_learns_") as folder:
        run, summary = train(troupe, str(ROOT / bar["config"]), seed, [f"stop.env_steps={bar['env_steps']}"], folder)
        found = bar["measure"](troupe, run)
    bad = missed(bar, found)
    print(f"{'MISS' if bad else 'ok  '} {bar['config']} seed {seed}: {words(bar, found)} after {summary['env_steps']} env steps, "
          f"{summary['wall_clock_s']:.1f} s", flush=True)
    return bad


def fails(misses, seed, own):
    """Whether a seed fails, by misses(seed): the commit's own seed, `own`, only with one of the next two."""
    return misses(seed) and (seed != own or any([misses(seed + 1), misses(seed + 2)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[], help="default: 1, 2 and one of the commit's own")
    parser.add_argument("--only", default="", metavar="TEXT", help="only configurations whose path has this in it")
    parser.add_argument("--long", action="store_true", help="those that take too long for a landing, instead of the others")
    arguments = parser.parse_args()
    troupe, passed, failed = os.path.abspath(arguments.troupe), 0, 0
    own = None if arguments.seeds else seed_of_commit()
    seeds = arguments.seeds or [1, 2, *([] if own is None else [own])]
    for bar in (bar for bar in BARS if arguments.only in bar["config"] and bar.get("long", False) == arguments.long):
        for seed in seeds:
            bad = fails(functools.partial(misses_bar, troupe, bar), seed, own)
            passed, failed = passed + (not bad), failed + bad
            if bad:
                print(f"FAIL {bar['config']} seed {seed}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
