#!/usr/bin/env python3
"""A newcomer's first result: the file of `troupe init`, unedited but for the steps, beside Stable-Baselines3's PPO as it comes (docs/benchmarks.md).

    bench/as_they_come.py ./troupe CartPole-v1=100000 Acrobot-v1=200000 --python VENV/bin/python --seeds 1 2 3

The tasks are Gymnasium's; VENV has gymnasium with what they need, and stable-baselines3. For each task and seed both train with equal env steps, one after
the other, and play 50 fresh episodes with sampled and with their likeliest actions. Prints a Markdown table of the means over the seeds, and each seed's on
standard error.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

EPISODES = 50
PEER = """
import json, sys
import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
task, steps, seed, episodes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
model = PPO("MlpPolicy", gym.make(task), seed=seed, device="cpu")
model.learn(steps)
env = gym.make(task)
env.reset(seed=1000 + seed)
print(json.dumps([evaluate_policy(model, env, episodes, deterministic=mode, warn=False)[0] for mode in (False, True)]))
"""


def run(command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **how)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def ours(troupe, python, task, steps, seed, folder):
    """(sampled, deterministic)"""
    config = os.path.join(folder, f"{task.replace('/', '_')}_{seed}.yaml")
    run([troupe, "init", f"python:gymnasium:{task}", "--python", python, "--output", config])
    name = f"run_{os.path.basename(config)}"
    sets = [f"stop.env_steps={steps}", f"seed={seed}", f"experiment.directory={folder}", "evaluation.at_end=false", "experiment.checkpoint_interval=0"]
    run([troupe, "train", config, "--name", name, *[part for value in sets for part in ("--set", value)]])
    play = [troupe, "evaluate", os.path.join(folder, name), "--episodes", str(EPISODES), "--seed", str(1000 + seed), "--checkpoint", "latest", "--json"]
    return [json.loads(run(play + mode).splitlines()[-1])["return_sum"]["mean"] for mode in ([], ["--deterministic"])]


def peer(python, task, steps, seed):
    return json.loads(run([python, "-c", PEER, task, str(steps), str(seed), str(EPISODES)], env={**os.environ, "OMP_NUM_THREADS": "1"}).splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("tasks", nargs="+", metavar="TASK=STEPS")
    parser.add_argument("--python", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    print("| task | env steps | Troupe, sampled | deterministic | SB3, sampled | deterministic |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="as_they_come_") as folder:
        for wanted in arguments.tasks:
            task, steps = wanted.rsplit("=", 1)
            found = {"Troupe": [], "SB3": []}
            for seed in arguments.seeds:
                found["Troupe"].append(ours(os.path.abspath(arguments.troupe), arguments.python, task, int(steps), seed, folder))
                found["SB3"].append(peer(arguments.python, task, int(steps), seed))
                words = ", ".join(f"{who} {each[-1][0]:.1f} / {each[-1][1]:.1f}" for who, each in found.items())
                print(f"{task} seed {seed}: {words}", file=sys.stderr, flush=True)
            means = [statistics.fmean(each[mode] for each in found[who]) for who in found for mode in (0, 1)]
            print(f"| {task} | {int(steps):,} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |", flush=True)


if __name__ == "__main__":
    main()
