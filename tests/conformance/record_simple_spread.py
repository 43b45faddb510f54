#!/usr/bin/env python3
"""Records traces/simple_spread_options.jsonl: short episodes of mpe2's simple_spread_v3 with every option, one a line.

    python3 -m venv venv && venv/bin/pip install mpe2==1.1.1
    venv/bin/python tests/conformance/record_simple_spread.py > tests/conformance/traces/simple_spread_options.jsonl

The form is that of ../shared/traces/record_mpe.py (docs/environments.md describes it), with two additions where they apply: the
curriculum stage at which the episode was played, and benchmark_data of every step. Agents are driven towards landmarks or each
other where random play would never touch what an option does.
"""
import argparse
import json

import numpy as np
from mpe2 import simple_spread_v3

CASES = [
    # arguments, seed, policy, steps at most, stage
    ({}, 100, "random", 99, None),
    ({"N": 1}, 1, "random", 8, None),
    ({"N": 2, "local_ratio": 0.0}, 2, "together", 12, None),
    ({"N": 3, "local_ratio": 1.0, "benchmark_data": True}, 3, "together", 14, None),
    ({"N": 5}, 1, "together", 10, None),
    ({"N": 3, "continuous_actions": True, "max_cycles": 7}, 5, "random", 99, None),
    ({"N": 2, "continuous_actions": True}, 1, "together", 14, None),
    ({"N": 4, "num_agent_neighbors": 1, "num_landmark_neighbors": 2}, 7, "random", 8, None),
    ({"N": 3, "num_agent_neighbors": 2, "num_landmark_neighbors": 1}, 1, "together", 10, None),
    ({"N": 2, "num_agent_neighbors": 10, "num_landmark_neighbors": 10}, 9, "random", 4, None),
    ({"N": 1, "num_agent_neighbors": 2}, 10, "random", 3, None),
    ({"N": 1, "terminate_on_success": True, "max_cycles": 60, "benchmark_data": True}, 11, "cover", 99, None),
    ({"N": 2, "terminate_on_success": True, "max_cycles": 80}, 12, "cover", 99, None),
    ({"N": 2, "terminate_on_success": True, "max_cycles": 5}, 13, "random", 99, None),
    ({"N": 2, "curriculum": True}, 1, "together", 12, 0),
    ({"N": 2, "curriculum": True}, 1, "together", 12, 1),
    ({"N": 2, "curriculum": True, "local_ratio": 0.25, "dynamic_rescaling": False}, 1, "together", 10, None),
]


def plain(values):
    values = np.asarray(values)
    if values.dtype == np.float32:
        # The shortest text that reads back as this float32: half as long as its digits in double precision.
        return [float(str(x)) for x in values.ravel()]
    return [float(x) for x in values.ravel()]


def entity(e):
    return {"name": e.name, "p_pos": plain(e.state.p_pos), "p_vel": plain(e.state.p_vel)}


def towards(delta, velocity, continuous):
    """The action that pushes along the larger part of what is still missing."""
    wanted = delta - 0.4 * velocity
    axis = int(abs(wanted[1]) > abs(wanted[0]))
    action = 1 + 2 * axis + int(wanted[axis] > 0)
    if abs(wanted[axis]) < 0.03:
        action = 0
    if not continuous:
        return action
    out = np.zeros(5, dtype=np.float32)
    out[action] = np.float32(min(1.0, abs(wanted[axis])))
    return out


def choose(policy, env, world, index, args, random):
    if policy == "random":
        return env.action_space(world.agents[index].name).sample()
    agent = world.agents[index]
    if policy == "cover":
        # The nearest landmark still free, in order of agents.
        free = list(world.landmarks)
        for a in world.agents[: index + 1]:
            target = min(free, key=lambda l: float(np.sum((l.state.p_pos - a.state.p_pos) ** 2)))
            free.remove(target)
        goal = target.state.p_pos
    else:  # together: to the middle, so that agents touch and push
        goal = np.mean([a.state.p_pos for a in world.agents], axis=0)
    if random.random() < 0.1:
        return env.action_space(agent.name).sample()
    return towards(goal - agent.state.p_pos, agent.state.p_vel, args.get("continuous_actions", False))


def record(args, seed, policy, limit, stage):
    env = simple_spread_v3.parallel_env(**args)
    raw = env.unwrapped
    raw = getattr(raw, "aec_env", raw).unwrapped
    # mpe2 1.1.1's BaseScenario has a property curriculum_stage whose setter does nothing, so that set_curriculum_stage and
    # advance_curriculum never leave stage 0. An attribute of the scenario's own class lets the stage be what it was meant to be.
    if stage is not None:
        type(raw.scenario).curriculum_stage = stage
    obs, _ = env.reset(seed=seed)
    for i, name in enumerate(env.possible_agents):
        env.action_space(name).seed(seed * 1000 + i)
    random = np.random.default_rng(seed)
    trace = {
        "env": "simple_spread_v3",
        "package": "mpe2==1.1.1",
        "args": args,
        "seed": seed,
        "agents": list(env.possible_agents),
        "world": {"agents": [entity(a) for a in raw.world.agents], "landmarks": [entity(l) for l in raw.world.landmarks]},
        "reset_obs": {k: plain(v) for k, v in obs.items()},
        "steps": [],
    }
    if stage is not None:
        trace["curriculum_stage"] = stage
    while env.agents and len(trace["steps"]) < limit:
        actions = {a: choose(policy, env, raw.world, i, args, random) for i, a in enumerate(env.agents)}
        obs, rewards, terminations, truncations, infos = env.step(actions)
        step = {
            "actions": {k: plain(v) if np.ndim(v) else int(v) for k, v in actions.items()},
            "obs": {k: plain(v) for k, v in obs.items()},
            "rewards": {k: float(v) for k, v in rewards.items()},
            "terminations": {k: bool(v) for k, v in terminations.items()},
            "truncations": {k: bool(v) for k, v in truncations.items()},
        }
        if args.get("benchmark_data"):
            step["benchmark_data"] = {k: plain(v["benchmark_data"]) for k, v in infos.items()}
        trace["steps"].append(step)
    if stage is not None:
        del type(raw.scenario).curriculum_stage
    return trace


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for case in CASES:
        print(json.dumps(record(*case)))


if __name__ == "__main__":
    main()
