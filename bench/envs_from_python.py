"""Env steps a second of a native environment from Python: as arrays (NativeEnv), ParallelEnv and AECEnv, and, where it is installed and asked
for, of the original. Random actions, drawn beforehand.

  PYTHONPATH=python python3 bench/envs_from_python.py mpe/simple_spread --original mpe2.simple_spread_v3
"""

from __future__ import annotations

import argparse
import importlib
import random
import time

import troupe
from troupe.envs import native


def rate(step_episode, seconds: float) -> float:
    """Env steps a second of step_episode(), which returns how many it made."""
    step_episode()
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        steps += step_episode()
    return steps / (time.perf_counter() - begin)


def arrays(name: str):
    env = native.NativeEnv(name)
    sizes = [space.n for space in env.action_spaces]
    draws = [[random.randrange(n) for n in sizes] for _ in range(97)]
    episode = 0

    def play() -> int:
        nonlocal episode
        env.reset(0, episode=episode)
        episode += 1
        steps, words, done = 0, env.actions, env.all_done
        while not done[0] and not done[1]:
            for row, action in zip(words, draws[steps % 97]):
                row[0] = action
            env.step()
            steps += 1
        return steps

    return play


def parallel(env):
    env.reset(seed=0)
    draws = [{agent: env.action_space(agent).sample() for agent in env.possible_agents} for _ in range(97)]

    def play() -> int:
        env.reset()
        steps = 0
        while env.agents:
            actions = draws[steps % 97]
            env.step(actions if len(env.agents) == len(actions) else {agent: actions[agent] for agent in env.agents})
            steps += 1
        return steps

    return play


def aec(env):
    env.reset(seed=0)
    draws = [{agent: env.action_space(agent).sample() for agent in env.possible_agents} for _ in range(97)]

    def play() -> int:
        env.reset()
        acted = dict.fromkeys(env.possible_agents, 0)
        for agent in env.agent_iter():
            _, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                env.step(None)
            else:
                env.step(draws[acted[agent] % 97][agent])
                acted[agent] += 1
        return max(acted.values())  # who is there longest acts in every env step

    return play


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a simultaneous environment with Discrete actions and no masks")
    parser.add_argument("--original", help="a module of PettingZoo's form")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    options = parser.parse_args()
    random.seed(0)
    cases = {"arrays": arrays(options.name), "ParallelEnv": parallel(troupe.env(options.name)), "AECEnv": aec(troupe.aec_env(options.name))}
    if options.original:
        module = importlib.import_module(options.original)
        cases["original, parallel"] = parallel(module.parallel_env())
    for name, play in cases.items():
        print(f"{options.name}, {name}: {rate(play, options.seconds):,.0f} env steps/s")


if __name__ == "__main__":
    main()
