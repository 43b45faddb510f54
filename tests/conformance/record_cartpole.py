#!/usr/bin/env python3
"""Records traces/cartpole.json: steps of Gymnasium's CartPole-v1 in full precision.

    python3 -m venv venv && venv/bin/pip install gymnasium==1.4.0
    venv/bin/python tests/conformance/record_cartpole.py > tests/conformance/traces/cartpole.json

A list of episodes: {"states": [[x, x_dot, theta, theta_dot], ...], "actions": [...], "rewards": [...], "terminated": [...],
"observations": [...]}, one more state than actions; the observation is that after the step, float32. An unstable system makes the last
bit of a sine grow without bound, so a test compares one step from each recorded state, and whole episodes only while they are short.
The reset's range is recorded as the least and greatest element of many resets.
"""
import json

import gymnasium
import numpy as np


def episode(seed, policy, limit):
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=seed)
    env.action_space.seed(seed)
    raw = env.unwrapped
    out = {"states": [list(map(float, raw.state))], "actions": [], "rewards": [], "terminated": [], "truncated": [], "observations": []}
    done = False
    while not done and len(out["actions"]) < limit:
        x, x_dot, theta, theta_dot = raw.state
        if policy == "random":
            action = int(env.action_space.sample())
        elif policy == "left":
            action = 0
        else:  # holds the pole up
            action = int(theta + 0.3 * theta_dot + 0.05 * x + 0.1 * x_dot > 0)
        obs, reward, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        out["states"].append(list(map(float, raw.state)))
        out["actions"].append(action)
        out["rewards"].append(float(reward))
        out["terminated"].append(bool(terminated))
        out["truncated"].append(bool(truncated))
        out["observations"].append([float(str(v)) for v in np.asarray(obs, dtype=np.float32)])
    return out


def reset_range():
    env = gymnasium.make("CartPole-v1")
    states = np.array([env.reset(seed=s)[0] for s in range(300)])
    return [float(states.min()), float(states.max())]


print(json.dumps({"package": "gymnasium==" + gymnasium.__version__, "reset_range": reset_range(),
                  "episodes": [episode(1, "random", 99), episode(2, "left", 99), episode(3, "hold", 60)]}))
