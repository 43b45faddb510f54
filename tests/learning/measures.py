"""What a finished run is worth: functions of (troupe, run folder) to {name of the figure: number}."""

import functools
import json
import math
import os
import random
import subprocess

import connect_four
import kuhn
import networks
import reference_game
from learning import evaluate


def newest(run):
    return os.path.join(run, "checkpoints", "latest")


def returns(troupe, run, checkpoint="latest"):
    """The mean of the summed return of 500 fresh episodes."""
    chosen = ["--checkpoint", checkpoint]
    return {"sampled": evaluate(troupe, run, 500, chosen), "deterministic": evaluate(troupe, run, 500, [*chosen, "--deterministic"])}


def returns_of_best(troupe, run):
    """As `returns`, of the checkpoint `best`: what a user takes of an algorithm that may forget again what it knew."""
    return returns(troupe, run, "best")


def nash_conv(_troupe, run):
    """Of Kuhn poker's policies `first` and `second`, by all best responses: exact, no game is played."""
    tensors = networks.read_policies(newest(run))

    def strategy(seat, policy):
        return functools.cache(
            lambda card, history: math.exp(networks.log_probabilities(tensors, policy, kuhn.observation(seat, card, history))[1]))
    return {"NashConv": kuhn.nash_conv(strategy(0, "first"), strategy(1, "second"))}


def by_agent(troupe, run):
    """The mean return of each agent in 100 fresh episodes, actions sampled."""
    command = [troupe, "evaluate", run, "--checkpoint", "latest", "--episodes", "100", "--seed", "1000", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {agent: entry["mean"] for agent, entry in json.loads(done.stdout.splitlines()[-1])["agents"].items()}


def alone(troupe, run):
    """Of the policies of many_policies.yaml: how long each balances a cartpole, in the mean of 50 episodes with one cartpole for each of them."""
    policies = sorted({name.split("/")[0] for name in networks.read_policies(newest(run))})
    mapping = ", ".join(f"agent_{i}: {policy}" for i, policy in enumerate(policies))
    command = [troupe, "evaluate", run, "--checkpoint", "latest", "--episodes", "50", "--seed", "1000", "--json",
               "--set", f"env.args.num_agents={len(policies)}", "--set", f"multi_agent.policy_mapping={{{mapping}}}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    lengths = [entry["mean"] for entry in json.loads(done.stdout.splitlines()[-1])["agents"].values()]
    return {"worst": min(lengths), "of 490 and more": sum(length >= 490 for length in lengths)}


def words(troupe, run):
    """Of simple_reference: the mean of the summed return, and how much less it is where each word is heard as another drawn anew at every step.
    What is heard is changed in the game as it is played here; as it was said it must give the environment's own return."""
    tensors = networks.read_policies(newest(run))

    def mean_return(hear, episodes=200):
        generator = random.Random(1000)

        def act(row):
            logp = networks.log_probabilities(tensors, "shared", row)
            return generator.choices(range(len(logp)), [math.exp(value) for value in logp])[0]
        return sum(reference_game.episode_return(act, lambda word: hear(word, generator), generator) for _ in range(episodes)) / episodes
    sampled = evaluate(troupe, run, 500, ["--checkpoint", "latest"])
    understood = mean_return(lambda word, _: word)
    if abs(understood - sampled) > 2:
        raise SystemExit(f"the game played here returns {understood:.2f}, the environment {sampled:.2f}: they differ")
    shuffled = mean_return(lambda _, generator: generator.randrange(reference_game.WORDS))
    return {"sampled": sampled, "lost by shuffled words": understood - shuffled}


def threats(_troupe, run, count=50):
    """Of connect four's policy `main`, playing what it holds best: of 100 positions in which the mover can make four, or the other could, how many
    moves do just that. Positions of random play, and of games that the policy plays with itself as it did in training; as many of one kind as of the
    other."""
    tensors = networks.read_policies(newest(run))
    generator = random.Random(1000)

    def log_probabilities(board):
        return networks.log_probabilities(tensors, "main", board.observation(), activation="relu")

    def best(board):
        logp = log_probabilities(board)
        return max(board.allowed(), key=lambda column: logp[column])

    def sampled(board):
        logp = log_probabilities(board)
        return generator.choices(board.allowed(), [math.exp(logp[column]) for column in board.allowed()])[0]
    found = {}
    for name, play in (("in random play", connect_four.random_play(generator)), ("in its own games", sampled)):
        positions = connect_four.positions(play, count, generator)
        found[name] = 100 * sum(best(board) in columns for board, _, columns in positions) / len(positions)
    return found
