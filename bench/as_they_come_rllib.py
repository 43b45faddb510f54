#!/usr/bin/env python3
"""A newcomer's first result on RLlib's own multi-agent tasks: the file of `troupe init`, unedited but for the steps, beside RLlib's PPO as it comes.

    bench/as_they_come_rllib.py ./troupe MultiAgentCartPole=300000@990 MultiAgentPendulum=250000 --python VENV/bin/python --seeds 1 2 3

The tasks are classes of ray.rllib.examples.envs.classes.multi_agent, with two agents and one policy for both; VENV has ray[rllib], torch and gymnasium with
what the tasks need. The return is the sum over the agents.

  TASK=STEPS@RETURN  the env steps until the mean of an evaluation of 20 fresh episodes, one every 4,000 env steps, is at least RETURN: "-" where none is in STEPS
  TASK=STEPS         the mean return of 50 fresh episodes after STEPS env steps

Both are said for sampled and for the likeliest actions. Troupe trains once for each where a return is to be reached, since it stops there; RLlib is judged both
ways after each iteration, of 4,000 env steps by its defaults. RLlib plays in the learner's process (num_env_runners 0, for machines with two cores); everything
else of PPOConfig is as it comes. Prints a Markdown table with the median of the seeds (of returns the mean), and each seed's results on standard error.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

MODULE = "ray.rllib.examples.envs.classes.multi_agent"
AGENTS = 2
INTERVAL = 4000
EPISODES_TO_REACH = 20
MODES = {"sampled": "false", "deterministic": "true"}  # and what evaluation.deterministic says
PEER = """
import json, logging, sys
import ray, torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.examples.envs.classes import multi_agent
from ray.rllib.utils.spaces.space_utils import unsquash_action

task, steps, seed, episodes, agents, least, changes = json.loads(sys.argv[1])
make = getattr(multi_agent, task)


def act(module, observations, space, deterministic):
    with torch.no_grad():
        inputs = module.forward_inference({"obs": torch.tensor(observations)})["action_dist_inputs"]
    chosen = module.get_inference_action_dist_cls().from_logits(inputs)
    actions = (chosen.to_deterministic() if deterministic else chosen).sample().numpy()
    return actions if hasattr(space, "n") else [unsquash_action(each, space) for each in actions]


def play(module, deterministic):
    games = [make({"num_agents": agents}) for _ in range(episodes)]
    seen = {(game, agent): value for game in games for agent, value in game.reset(seed=1000 * seed + games.index(game))[0].items()}
    total = 0.0
    while seen:
        who = list(seen)
        actions = dict(zip(who, act(module, [seen[each].tolist() for each in who], games[0].action_spaces[0], deterministic)))
        seen = {}
        for game in dict.fromkeys(game for game, _ in who):
            after, rewards, ended, cut, _ = game.step({agent: action for (owner, agent), action in actions.items() if owner is game})
            total += sum(rewards.values())
            seen.update({(game, agent): value for agent, value in after.items() if not (ended[agent] or cut[agent])})
    return float(total) / episodes


ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False, object_store_memory=1 << 30)
config = PPOConfig().environment(make, env_config={"num_agents": agents}).env_runners(num_env_runners=0).learners(num_learners=0)
config = config.multi_agent(policies={"shared"}, policy_mapping_fn=lambda agent, episode, **_: "shared").debugging(seed=seed, log_level="ERROR")
algorithm = config.training(**changes).build_algo()
done, reached = 0, set()
while done < steps and len(reached) < 2:
    done = int(algorithm.train()["num_env_steps_sampled_lifetime"])
    if least is None and done < steps:
        continue
    module = algorithm.get_module("shared")
    found = {"sampled": play(module, False), "deterministic": play(module, True)}
    reached |= {mode for mode, value in found.items() if least is not None and value >= least}
    print(json.dumps({"env_steps": done, **found}), flush=True)
"""


def run(command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **how)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def first(evaluations, least):
    return next((steps for steps, value in evaluations if value >= least), math.inf)


def train(arguments, task, steps, seed, folder, name, sets):
    config = os.path.join(folder, f"{task}.yaml")
    if not os.path.exists(config):
        args = ["--arg", f"num_agents={AGENTS}"]
        run([arguments.troupe, "init", f"python:{MODULE}:{task}", *args, "--python", arguments.python, "--output", config])
    sets = [f"stop.env_steps={steps}", f"seed={seed}", f"experiment.directory={folder}", "evaluation.at_end=false", *sets, *arguments.set]
    run([arguments.troupe, "train", config, "--name", name, *[part for value in sets for part in ("--set", value)]])
    return os.path.join(folder, name)


def troupe_reaches(arguments, task, steps, seed, folder, least):
    found = {}
    for mode, deterministic in MODES.items():
        sets = [f"evaluation.interval={INTERVAL}", f"evaluation.episodes={EPISODES_TO_REACH}", f"evaluation.deterministic={deterministic}"]
        sets += [f"evaluation.seed={1000 + seed}", f"stop.episode_return={least}"]
        with open(os.path.join(train(arguments, task, steps, seed, folder, f"{task}_{mode}_{seed}", sets), "progress.jsonl"), encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        found[mode] = first([(each["env_steps"], each["evaluation_return_sum"]) for each in records if "evaluation_return_sum" in each], least)
    return found


def troupe_ends(arguments, task, steps, seed, folder):
    done = train(arguments, task, steps, seed, folder, f"{task}_{seed}", ["experiment.checkpoint_interval=0"])
    play = [arguments.troupe, "evaluate", done, "--episodes", str(arguments.episodes), "--seed", str(1000 + seed), "--json"]
    modes = {"sampled": [], "deterministic": ["--deterministic"]}
    return {mode: json.loads(run(play + words).splitlines()[-1])["return_sum"]["mean"] for mode, words in modes.items()}


def troupe(arguments, task, steps, seed, folder, least):
    return troupe_ends(arguments, task, steps, seed, folder) if least is None else troupe_reaches(arguments, task, steps, seed, folder, least)


def rllib(arguments, task, steps, seed, _, least):
    episodes = arguments.episodes if least is None else EPISODES_TO_REACH
    wanted = json.dumps([task, steps, seed, episodes, AGENTS, least, json.loads(arguments.peer_training)])
    lines = run([arguments.python, "-c", PEER, wanted], env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}).splitlines()
    found = [json.loads(line) for line in lines if line.startswith('{"env_steps"')]
    if least is None:
        return {mode: found[-1][mode] for mode in MODES}
    return {mode: first([(each["env_steps"], each[mode]) for each in found], least) for mode in MODES}


def say(value, least):
    return f"{value:.1f}" if least is None else "-" if value == math.inf else f"{value:,.0f}"


def compare(arguments, wanted, folder):
    task, rule = wanted.rsplit("=", 1)
    steps, least = int(rule.split("@")[0]), float(rule.split("@")[1]) if "@" in rule else None
    cells = []
    peer_seeds = arguments.seeds if arguments.peer_seeds is None else arguments.peer_seeds
    for who, of, seeds in [("Troupe", troupe, arguments.seeds), ("RLlib", rllib, peer_seeds)]:
        found = []
        for seed in seeds:
            began = time.monotonic()
            found.append(of(arguments, task, steps, seed, folder, least))
            words = ", ".join(f"{mode} {say(value, least)}" for mode, value in found[-1].items())
            print(f"{task} {who} seed {seed}: {words} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
        middle = statistics.fmean if least is None else statistics.median
        cells += [say(middle(each[mode] for each in found), least) if found else "" for mode in MODES]
    return f"| {task} | {f'return after {steps:,} env steps' if least is None else f'env steps to {least:g}, of {steps:,}'} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe", type=os.path.abspath)
    parser.add_argument("tasks", nargs="+", metavar="TASK=STEPS[@RETURN]")
    parser.add_argument("--python", required=True, type=os.path.abspath)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--peer-seeds", type=int, nargs="*", help="RLlib's, where they are not the same; without a number RLlib is left out")
    parser.add_argument("--episodes", type=int, default=50, help="fresh episodes of TASK=STEPS")
    parser.add_argument("--set", action="append", default=[], help="a key of Troupe that is changed, to see what it does: algorithm.gamma=0.9 (repeat)")
    parser.add_argument("--peer-training", default="{}", help="keywords of PPOConfig.training as JSON, to see what they do")
    arguments = parser.parse_args()
    print("| task | what | Troupe, sampled | deterministic | RLlib, sampled | deterministic |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="as_they_come_") as folder:
        for wanted in arguments.tasks:
            print(compare(arguments, wanted, folder), flush=True)


if __name__ == "__main__":
    main()
