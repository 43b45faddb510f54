#!/usr/bin/env python3
"""What the adapters of Python environments cost: env steps a second with and without them, in turns, in one process.

    PYTHONPATH=python python3 bench/env_adapters.py [NAME...]

With: the adapter alone; and with observations flattened into rows and actions rebuilt from words (what the host does
besides crossing to the worker). Without: the environment's own reset and step in a loop. The medians of the rounds and
of their ratios are printed.
"""

import argparse
import statistics
import time

import numpy as np

from troupe.env_adapters import make_adapter, resolve
from troupe.env_adapters.spaces import SpaceCodec

NAMES = [
    "mpe2.simple_spread_v3",
    "lbforaging:Foraging-8x8-2p-2f-coop-v3",
    "rware:rware-tiny-2ag-v2",
    "gymnasium:CartPole-v1",
]


def with_adapter(adapter, steps, random, rows_too):
    agents = adapter.description.agents
    observed = [SpaceCodec(agent.observation_space) for agent in agents]
    acting = [SpaceCodec(agent.action_space) for agent in agents]
    rows = [np.empty(codec.flat_size, dtype=codec.flat_dtype) for codec in observed]
    words = random.integers(agents[0].action_space["n"], size=(steps, len(agents), 1), dtype=np.int32)
    chosen = [[codec.unflatten_action(word) for codec, word in zip(acting, row)] for row in words]
    result = adapter.reset(0)
    begin = time.perf_counter()
    for step in range(steps):
        if rows_too:
            result = adapter.step([codec.unflatten_action(word) for codec, word in zip(acting, words[step])])
            for codec, value, row in zip(observed, result.observations, rows):
                if value is not None:
                    codec.flatten_into(value, row)
        else:
            result = adapter.step(chosen[step])
        if result.all_terminated or result.all_truncated:
            adapter.reset(step)
    return steps / (time.perf_counter() - begin)


def without(env, adapter, steps, random):
    kind = type(adapter).__name__
    agents = adapter.description.agents
    actions = random.integers(agents[0].action_space["n"], size=(steps, len(agents))).tolist()
    keys = [agent.key for agent in agents]
    env.reset(seed=0)
    begin = time.perf_counter()
    for step in range(steps):
        if kind == "ParallelAdapter":
            env.step(dict(zip(keys, actions[step])))
            over = not env.agents
        else:
            _, _, terminated, truncated, _ = env.step(actions[step] if kind == "ListAdapter" else actions[step][0])
            over = terminated or truncated
        if over:
            env.reset(seed=step)
    return steps / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement")
    arguments = parser.parse_args()
    for name in arguments.names:
        adapter, env = make_adapter(name, {}, global_state=False), resolve.make_environment(name, {})
        steps = max(50, int(without(env, adapter, 200, np.random.default_rng(0)) * arguments.seconds))
        runs = {"bare": [], "adapter": [], "adapter and rows": []}
        for seed in range(arguments.rounds):
            runs["bare"].append(without(env, adapter, steps, np.random.default_rng(seed)))
            for rows_too, kind in ((False, "adapter"), (True, "adapter and rows")):
                runs[kind].append(with_adapter(adapter, steps, np.random.default_rng(seed), rows_too))
        for kind, rates in runs.items():
            ratio = statistics.median(rate / bare for rate, bare in zip(rates, runs["bare"]))
            print(f"{name}: {kind}: {statistics.median(rates):.0f} env steps/s, {ratio:.3f} of bare")
        adapter.close()


if __name__ == "__main__":
    main()
