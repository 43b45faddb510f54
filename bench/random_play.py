#!/usr/bin/env python3
"""What random play gets in a Python environment, for comparing what training gets with it.

    PYTHONPATH=python python3 bench/random_play.py NAME [--args '{"max_cycles": 25}'] [--episodes 500] [--seed 1]

For discrete action spaces: every allowed action is equally likely. Prints the mean return of an episode, summed over the agents and for each, with
the standard error.
"""

import argparse
import json

import numpy as np

from troupe.env_adapters import make_adapter
from troupe.env_adapters.spaces import SpaceCodec


def random_words(codec, mask, random):
    """A row of action words: uniform over what is allowed."""
    if codec.description["type"] not in ("Discrete", "MultiDiscrete", "MultiBinary"):
        raise SystemExit(f"random_play: got the action space {codec.description}, expected Discrete, MultiDiscrete or MultiBinary")
    words = np.zeros(codec.action_words, dtype=np.int32)
    word = 0
    for begin, end in codec.mask_leaves:
        allowed = np.arange(end - begin) if mask is None else np.flatnonzero(mask[begin:end])
        words[word] = random.choice(allowed) + codec.description.get("start", 0)
        word += 1
    return words


def play(adapter, seed, random):
    """The return of each agent in one episode, and its env steps."""
    codecs = [SpaceCodec(agent.action_space) for agent in adapter.description.agents]
    returns, steps = np.zeros(len(codecs)), 0
    result = adapter.reset(seed)
    while not (result.all_terminated or result.all_truncated):
        actions = []
        for i, codec in enumerate(codecs):
            ready = result.observations[i] is not None and not result.terminated[i] and not result.truncated[i]
            actions.append(
                codec.unflatten_action(random_words(codec, result.action_masks[i], random)) if ready else None
            )
        result = adapter.step(actions)
        returns += result.rewards
        steps += 1
    return returns, steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="as after python: in a configuration")
    parser.add_argument("--args", type=json.loads, default={}, help="the environment's arguments as JSON")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    adapter = make_adapter(arguments.name, arguments.args, global_state=False)
    random = np.random.default_rng(arguments.seed)
    played = [play(adapter, int(random.integers(1 << 31)), random) for _ in range(arguments.episodes)]
    adapter.close()
    returns = np.array([r for r, _ in played])

    def shown(values):
        return f"{values.mean():.3f} +- {values.std() / np.sqrt(len(values)):.3f}"

    steps = np.mean([s for _, s in played])
    print(f"return_sum {shown(returns.sum(axis=1))}, episodes {len(played)}, env steps {steps:.1f} an episode")
    for i, agent in enumerate(adapter.description.agents):
        print(f"  {agent.id} {shown(returns[:, i])}")


if __name__ == "__main__":
    main()
