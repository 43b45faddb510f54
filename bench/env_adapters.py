#!/usr/bin/env python3
"""What the adapters of Python environments cost: env steps a second with and without them, in turns, in one process.

    PYTHONPATH=python python3 bench/env_adapters.py [NAME...]

With: the adapter, observations flattened into float32 rows, actions rebuilt from words (what the environment host does
besides crossing to the
worker). Without: the environment's own reset and step in a loop. The medians of the rounds and of their ratios are
printed.
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


def with_adapter(adapter, steps, random):
    agents = adapter.description.agents
    observed = [SpaceCodec(agent.observation_space) for agent in agents]
    acting = [SpaceCodec(agent.action_space) for agent in agents]
    rows = [np.empty(codec.flat_size, dtype=codec.flat_dtype) for codec in observed]
    words = random.integers(agents[0].action_space["n"], size=(steps, len(agents), 1), dtype=np.int32)
    result = adapter.reset(0)
    begin = time.perf_counter()
    for step in range(steps):
        result = adapter.step([codec.unflatten_action(word) for codec, word in zip(acting, words[step])])
        for codec, value, row in zip(observed, result.observations, rows):
            if value is not None:
                codec.flatten_into(value, row)
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
        bare, adapted = [], []
        for seed in range(arguments.rounds):
            bare.append(without(env, adapter, steps, np.random.default_rng(seed)))
            adapted.append(with_adapter(adapter, steps, np.random.default_rng(seed)))
        ratio = statistics.median(a / b for a, b in zip(adapted, bare))
        extra = 1e6 * (1 / statistics.median(adapted) - 1 / statistics.median(bare))
        print(
            f"{name}: bare {statistics.median(bare):.0f} steps/s, adapted {statistics.median(adapted):.0f} "
            f"steps/s, ratio {ratio:.3f}, {extra:.1f} us a step"
        )
        adapter.close()


if __name__ == "__main__":
    main()
