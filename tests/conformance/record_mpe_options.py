#!/usr/bin/env python3
"""Records traces/mpe_options/NAME.jsonl: short episodes of mpe2's environments but simple_spread, with every option.

    python3 -m venv venv && venv/bin/pip install mpe2==1.1.1
    venv/bin/python tests/conformance/record_mpe_options.py tests/conformance/traces/mpe_options

The form is that of record_simple_spread.py (docs/environments.md describes it). Agents are driven by small policies towards what an
option does, since random play would seldom touch it. Deterministic: the same version of mpe2 gives the same bytes on the same machine.
"""
from __future__ import annotations

import argparse
import importlib
import json
import os
from typing import Any, Optional

import numpy as np

from record_simple_spread import plain, towards

# Environment -> arguments, seed, policy, env steps at most, curriculum stage.
CASES: dict[str, list[tuple[dict[str, Any], int, str, int, Optional[int]]]] = {
    "simple_v3": [
        ({}, 1, "random", 99, None),
        ({"continuous_actions": True, "max_cycles": 12}, 2, "landmarks", 99, None),
        ({"max_cycles": 1, "benchmark_data": True, "dynamic_rescaling": False, "render_mode": None}, 3, "random", 99, None),
    ],
    "simple_adversary_v3": [
        ({}, 1, "landmarks", 99, None),
        ({"N": 1, "benchmark_data": True}, 2, "random", 8, None),
        ({"N": 4, "continuous_actions": True, "benchmark_data": True}, 3, "landmarks", 10, None),
        ({"N": 3, "num_agent_neighbors": 1, "num_landmark_neighbors": 2}, 4, "random", 10, None),
        ({"N": 3, "num_agent_neighbors": 2, "max_cycles": 4}, 5, "together", 99, None),
        ({"N": 2, "num_agent_neighbors": 5, "num_landmark_neighbors": 7}, 6, "random", 5, None),
    ],
    "simple_crypto_v3": [
        ({}, 1, "random", 99, None),
        ({"benchmark_data": True, "max_cycles": 9}, 2, "random", 99, None),
        ({"benchmark_data": True, "continuous_actions": True}, 3, "random", 9, None),
        ({"continuous_actions": True}, 4, "silent", 4, None),
        ({}, 8, "random", 6, None),
    ],
    "simple_push_v3": [
        ({}, 1, "together", 99, None),
        ({"continuous_actions": True, "max_cycles": 15}, 2, "together", 99, None),
        ({"benchmark_data": True}, 5, "landmarks", 10, None),
        ({}, 6, "random", 5, None),
    ],
    "simple_reference_v3": [
        ({}, 1, "random", 99, None),
        ({"local_ratio": 0.0}, 2, "landmarks", 8, None),
        ({"local_ratio": 1.0, "max_cycles": 7}, 3, "random", 99, None),
        ({"local_ratio": 0.3, "continuous_actions": True, "benchmark_data": True}, 4, "landmarks", 10, None),
        ({"local_ratio": 1}, 7, "random", 4, None),
    ],
    "simple_speaker_listener_v4": [
        ({}, 1, "random", 99, None),
        ({"benchmark_data": True, "max_cycles": 10}, 2, "landmarks", 99, None),
        ({"benchmark_data": True, "continuous_actions": True}, 3, "landmarks", 10, None),
        ({}, 6, "random", 5, None),
    ],
    "simple_tag_v3": [
        ({}, 1, "chase", 99, None),
        ({"num_good": 2, "num_adversaries": 2, "num_obstacles": 3, "benchmark_data": True}, 2, "chase", 16, None),
        ({"num_good": 3, "num_adversaries": 0, "num_obstacles": 0}, 3, "random", 8, None),
        ({"num_good": 0, "num_adversaries": 2, "num_obstacles": 1, "benchmark_data": True}, 4, "random", 6, None),
        ({"num_good": 0, "num_adversaries": 1, "terminate_on_success": True}, 5, "random", 5, None),
        ({"continuous_actions": True, "benchmark_data": True}, 6, "chase", 16, None),
        ({"num_good": 2, "num_adversaries": 1, "num_obstacles": 0}, 7, "out", 25, None),
        ({"curriculum": True}, 8, "out", 10, None),
        ({"curriculum": True}, 8, "out", 10, 0),
        ({"curriculum": True}, 8, "out", 10, 1),
        ({"curriculum": True, "benchmark_data": True}, 8, "out", 10, 2),
        ({"terminate_on_success": True, "max_cycles": 100}, 9, "chase", 99, None),
        ({"num_good": 2, "terminate_on_success": True, "curriculum": True, "max_cycles": 8}, 10, "chase", 99, 0),
        ({"num_good": 2, "num_agent_neighbors": 2, "num_landmark_neighbors": 1}, 11, "chase", 12, None),
        ({"num_agent_neighbors": 1}, 12, "chase", 10, None),
        ({"num_good": 2, "num_adversaries": 1, "num_obstacles": 1, "num_agent_neighbors": 4, "num_landmark_neighbors": 3}, 13, "random", 5, None),
    ],
    "simple_world_comm_v3": [
        ({}, 1, "chase", 20, None),
        ({}, 2, "forest", 14, None),
        ({"num_good": 1, "num_adversaries": 2, "num_food": 3, "num_forests": 3, "benchmark_data": True}, 3, "forest", 12, None),
        ({"num_good": 2, "num_adversaries": 1, "num_obstacles": 0, "num_forests": 1}, 4, "food", 20, None),
        ({"num_good": 2, "num_adversaries": 0, "num_obstacles": 0, "num_food": 1, "num_forests": 1}, 5, "forest", 8, None),
        ({"num_good": 2, "num_adversaries": 2, "num_obstacles": 2, "num_food": 1, "num_forests": 0}, 6, "chase", 10, None),
        ({"continuous_actions": True, "benchmark_data": True, "max_cycles": 12}, 7, "chase", 99, None),
        ({"num_good": 1, "num_adversaries": 1, "num_obstacles": 0}, 8, "out", 25, None),
        ({"num_good": 2, "num_adversaries": 3, "num_forests": 4, "continuous_actions": True}, 9, "forest", 10, None),
    ],
    "simple_formation_v1": [
        ({}, 1, "together", 99, None),
        ({"N": 1, "terminate_on_success": True, "continuous_actions": True, "max_cycles": 60}, 2, "circle", 99, None),
        ({"N": 3, "terminate_on_success": True, "continuous_actions": True, "max_cycles": 80}, 3, "circle", 99, None),
        ({"N": 3, "terminate_on_success": True, "max_cycles": 6, "benchmark_data": True}, 4, "random", 99, None),
        ({"N": 9}, 5, "random", 8, None),
        ({"N": 2}, 6, "out", 25, None),
    ],
    "simple_line_v1": [
        ({}, 1, "together", 99, None),
        ({"N": 1, "terminate_on_success": True, "continuous_actions": True, "max_cycles": 60}, 2, "line", 99, None),
        ({"N": 3, "terminate_on_success": True, "continuous_actions": True, "max_cycles": 80}, 3, "line", 99, None),
        ({"N": 3, "terminate_on_success": True, "max_cycles": 6, "benchmark_data": True}, 4, "random", 99, None),
        ({"N": 8}, 5, "random", 8, None),
        ({"N": 2}, 6, "out", 25, None),
    ],
    "collect_treasure_v1": [
        ({}, 1, "treasure", 12, None),
        ({"num_collectors": 2, "num_deposits": 1, "num_treasures": 2, "max_cycles": 60}, 2, "treasure", 99, None),
        ({"num_collectors": 3, "num_deposits": 2, "num_treasures": 4, "max_cycles": 60, "benchmark_data": True}, 3, "treasure", 99, None),
        ({"num_collectors": 1, "num_deposits": 3, "num_treasures": 1, "benchmark_data": True}, 4, "treasure", 25, None),
        ({"num_collectors": 2, "num_deposits": 6, "num_treasures": 3, "continuous_actions": True}, 5, "treasure", 14, None),
        ({"num_collectors": 4, "num_deposits": 1, "num_treasures": 1}, 6, "together", 14, None),
        ({"num_collectors": 10, "num_deposits": 2, "num_treasures": 9}, 7, "together", 3, None),
    ],
}


def flat(value: Any) -> list[float]:
    """Benchmark data as numbers; None, a collector's empty hands, is -1."""
    if value is None:
        return [-1.0]
    if isinstance(value, tuple):
        return [x for item in value for x in flat(item)]
    return plain(value)


def entity(e: Any) -> dict[str, Any]:
    """What the environment starts from; colors and sizes follow from it."""
    out: dict[str, Any] = {"name": e.name, "p_pos": plain(e.state.p_pos), "p_vel": plain(e.state.p_vel)}
    for key in ("_goal_a", "_goal_b"):
        if getattr(e, key, None) is not None:
            out[key[1:]] = getattr(e, key).name
    if getattr(e, "_key", None) is not None:
        out["key"] = plain(e.key)
    for key in ("type", "alive", "holding"):
        if getattr(e, key, None) is not None:
            out[key] = getattr(e, key)
    return out


def nearest(agent: Any, others: list[Any]) -> Optional[np.ndarray]:
    """Position of the nearest of some entities."""
    if not others:
        return None
    return min(others, key=lambda o: float(np.sum((o.state.p_pos - agent.state.p_pos) ** 2))).state.p_pos


def target(policy: str, world: Any, scenario: Any, index: int) -> Optional[np.ndarray]:
    """Where the policy sends the agent; None: anywhere."""
    agent = world.agents[index]
    adversary = getattr(agent, "adversary", False)
    if policy == "together":
        return np.mean([a.state.p_pos for a in world.agents], axis=0)
    if policy == "landmarks":
        return world.landmarks[index % len(world.landmarks)].state.p_pos
    if policy == "out":
        return agent.state.p_pos + np.array([1.0, 0.2])
    if policy == "chase":
        # The good ones flee slowly: to the middle, where they are caught.
        return nearest(agent, [a for a in world.agents if not a.adversary]) if adversary else np.zeros(2)
    if policy == "food":
        return nearest(agent, world.food)
    if policy == "forest":
        # One agent stays outside.
        return world.forests[index % len(world.forests)].state.p_pos if index != 1 else np.array([1.5, 1.5])
    if policy == "circle":
        angle = 0.3 + index * 2 * np.pi / len(world.agents)
        return world.landmarks[0].state.p_pos + 0.5 * np.array([np.cos(angle), np.sin(angle)])
    if policy == "line":
        return scenario._expected_positions[index]
    if policy == "treasure":
        if not agent.collector:
            return np.mean([a.state.p_pos for a in world.agents if a.collector], axis=0)
        if agent.holding is None:
            return nearest(agent, [t for t in world.landmarks if t.alive])
        return nearest(agent, [a for a in world.agents if not a.collector and a.d_i == agent.holding])
    return None


def choose(policy: str, env: Any, raw: Any, index: int, random: np.random.Generator) -> Any:
    """An action of the agent: the policy's move, and a random word where it speaks."""
    agent = raw.world.agents[index]
    action = env.action_space(agent.name).sample()
    if policy == "silent":
        return np.zeros_like(action)
    place = target(policy, raw.world, raw.scenario, index)
    if place is None or not agent.movable or random.random() < 0.1:
        return action
    move = towards(place - agent.state.p_pos, agent.state.p_vel, raw.continuous_actions)
    if not raw.continuous_actions:
        return move + 5 * (action // 5)
    action[:5] = move
    return action


def record(name: str, args: dict[str, Any], seed: int, policy: str, limit: int, stage: Optional[int]) -> dict[str, Any]:
    """One episode."""
    env = importlib.import_module("mpe2." + name).parallel_env(**args)
    raw = env.unwrapped
    # mpe2 1.1.1 never leaves stage 0 (see record_simple_spread.py); an attribute of the class lets the stage be what was meant.
    if stage is not None:
        type(raw.scenario).curriculum_stage = stage
    obs, _ = env.reset(seed=seed)
    for i, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(seed * 1000 + i)
    random = np.random.default_rng(seed)
    world = raw.world
    trace: dict[str, Any] = {
        "env": name,
        "package": "mpe2==1.1.1",
        "args": args,
        "seed": seed,
        "agents": list(env.possible_agents),
        "world": {"agents": [entity(a) for a in world.agents], "landmarks": [entity(l) for l in world.landmarks]},
        "reset_obs": {k: plain(v) for k, v in obs.items()},
        "steps": [],
    }
    if stage is not None:
        trace["curriculum_stage"] = stage
    respawns: list[list[float]] = []
    while env.agents and len(trace["steps"]) < limit:
        actions = {a: choose(policy, env, raw, i, random) for i, a in enumerate(env.agents)}
        gone = [l for l in world.landmarks if not getattr(l, "alive", True)]
        obs, rewards, terminations, truncations, infos = env.step(actions)
        respawns += [plain(l.state.p_pos) + [l.type] for l in gone if l.alive]
        step = {
            "actions": {k: plain(v) if np.ndim(v) else int(v) for k, v in actions.items()},
            "obs": {k: plain(v) for k, v in obs.items()},
            "rewards": {k: float(v) for k, v in rewards.items()},
            "terminations": {k: bool(v) for k, v in terminations.items()},
            "truncations": {k: bool(v) for k, v in truncations.items()},
        }
        data = {k: v["benchmark_data"] for k, v in infos.items() if v.get("benchmark_data", {}) != {}}
        if data:
            step["benchmark_data"] = {k: flat(v) for k, v in data.items()}
        trace["steps"].append(step)
    if respawns:
        trace["respawns"] = respawns
    if stage is not None:
        del type(raw.scenario).curriculum_stage
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="where the files go, one an environment")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    for name, cases in CASES.items():
        with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as out:
            for case in cases:
                out.write(json.dumps(record(name, *case), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
