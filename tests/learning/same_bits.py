#!/usr/bin/env python3
"""Do two builds train the same weights, bit for bit? Trains the small configurations below with both programs (one worker, no policy
lag, the same seed and number of threads) and compares all tensors of the last checkpoints: what a change that is to change nothing holds.

  tests/learning/same_bits.py OLD_PROGRAM NEW_PROGRAM [--only TEXT] [--seed N] [--threads N] [--keep FOLDER]
      [--old-set KEY=VALUE]... [--new-set KEY=VALUE]... [--rename 'REGEX=TEXT']... [--weights-only]

The programs are two `troupe`, each beside its own troupe-learner. A key that only one of them knows (`troupe config defaults`) is left
out for both, with a note; --old-set and --new-set say the same thing in two languages. --rename changes the names of OLD's tensors
before they are compared; --weights-only leaves out optimizer.safetensors, where its layout has changed.

Prints a table, then a line for each tensor that differs; exit status 1 where anything does, or a program did not train.
"""

import argparse
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
from typing import NamedTuple

sys.dont_write_bytecode = True

# What all cases have, unless they say otherwise.
COMMON = {
    "num_workers": 1, "device": "cpu", "algorithm.max_policy_lag": 0, "evaluation.at_end": False, "num_envs_per_worker": 16,
    "model.actor_hidden_sizes": [32, 32], "model.critic_hidden_sizes": [32, 32], "experiment.best_by": "sum",
}
# Some updates each, of what differs in code: critics, spaces, masks, turns, classes of policies, normalizers, batches, eviction.
CASES = {
    "mappo_simple_spread": {
        "env.name": "mpe/simple_spread", "env.args": {"N": 3, "max_cycles": 25}, "algorithm.name": "mappo",
        "algorithm.train_batch_size": 800, "algorithm.minibatch_size": 500, "algorithm.num_epochs": 3, "algorithm.lr": 7e-4,
        "algorithm.huber_delta": 10.0, "algorithm.common_reward": "mean", "algorithm.use_agent_id": False,
        "num_envs_per_worker": 32, "stop.env_steps": 4800},
    "ippo_cartpole_two_policies": {
        "env.name": "cartpole", "env.args": {"num_agents": 2}, "algorithm.name": "ippo", "algorithm.train_batch_size": 1024,
        "algorithm.minibatch_size": 256, "algorithm.num_epochs": 4, "algorithm.lr": {"initial": 1e-3, "final": 1e-4, "env_steps": 8192},
        "algorithm.gae_lambda": 0.9, "algorithm.use_value_norm": False,
        "multi_agent.policies": {"left": {}, "right": {"algorithm": {"lr": 3e-4, "gamma": 0.95}, "model": {"actor_hidden_sizes": [16]}}},
        "multi_agent.policy_mapping": {"agent_0": "left", "*": "right"}, "stop.env_steps": 8192},
    "continuous_actions": {
        "env.name": "mpe/simple_spread", "env.args": {"N": 2, "continuous_actions": True}, "algorithm.name": "ippo",
        "algorithm.train_batch_size": 800, "algorithm.minibatch_size": 300, "algorithm.num_epochs": 3, "algorithm.normalize_observations": True,
        "algorithm.use_agent_id": True, "action_bound_method": "tanh", "action_scaling": True, "stop.env_steps": 4000},
    "turn_based_poker": {
        "env.name": "kuhn_poker", "algorithm.name": "ppo", "algorithm.train_batch_size": 1024, "algorithm.minibatch_size": 256,
        "algorithm.num_epochs": 2, "algorithm.gamma": 1.0, "algorithm.entropy_coeff": 0.2, "algorithm.critic_lr": 2e-3,
        "multi_agent.policies": {"first": {}, "second": {}}, "multi_agent.policy_mapping": {"player_0": "first", "player_1": "second"},
        "stop.env_steps": 6144},
    "action_masks": {
        "env.name": "connect_four", "algorithm.name": "ppo", "algorithm.train_batch_size": 1024, "algorithm.minibatch_size": 256,
        "algorithm.num_epochs": 2, "algorithm.gamma": 0.9, "algorithm.use_agent_id": False, "model.activation": "relu",
        "multi_agent.policies": {
            "main": {}, "ahead": {"class": "scripted:one_move_ahead", "observation_space": "Box(0, 1, [6, 7, 2])", "action_space": "Discrete(7)"},
            "dice": {"class": "random", "observation_space": "Box(0, 1, [6, 7, 2])", "action_space": "Discrete(7)"}},
        "multi_agent.policy_mapping": {"*": {"main": 3, "ahead": 1, "dice": 1}}, "multi_agent.policies_to_train": ["main"],
        "stop.env_steps": 5120},
    "global_state_and_agent_ids": {
        "env.name": "mpe/simple_tag", "algorithm.name": "mappo", "algorithm.use_global_state": True, "algorithm.critic_agent_id": True,
        "algorithm.train_batch_size": 800, "algorithm.minibatch_size": 400, "algorithm.num_epochs": 2, "algorithm.target_kl": 0.02,
        "multi_agent.policies": {"predators": {}, "prey": {}}, "multi_agent.policy_mapping": {"adversary_*": "predators", "*": "prey"},
        "stop.env_steps": 4000},
    "policies_in_turns": {
        "env.name": "cartpole", "env.args": {"num_agents": 4}, "algorithm.name": "ippo", "algorithm.train_batch_size": 1024,
        "algorithm.minibatch_size": 64, "algorithm.num_epochs": 2, "algorithm.use_agent_id": False, "multi_agent.policy_map_capacity": 2,
        "multi_agent.policies": [f"p{i}" for i in range(6)], "multi_agent.policy_mapping": {"*": {f"p{i}": 1 for i in range(6)}},
        "stop.env_steps": 6144},
    "complete_episodes_of_agent_steps": {
        "env.name": "testing/turn_based", "algorithm.name": "mappo", "algorithm.train_batch_size": 120, "algorithm.num_epochs": 3,
        "multi_agent.policies": {"a": {}, "b": {"algorithm": {"lr": 1e-3, "num_epochs": 1}}, "c": {}, "guest": {"algorithm": {"name": "ippo"}}},
        "multi_agent.policy_mapping": {"carol": "guest", "*": {"function": "round_robin", "policies": ["a", "b", "c"]}},
        "multi_agent.policies_to_train": ["c", "guest", {"policies": ["a", "b"], "only_against": ["c"]}],
        "batch_mode": "complete_episodes", "multi_agent.count_steps_by": "agent_steps", "multi_agent.observation_fn": "joint_observation",
        "num_envs_per_worker": 4, "stop.updates": 6},
}
FILES = ("policies.safetensors", "optimizer.safetensors")
FORMATS = {"F32": "f", "F64": "d", "I32": "i", "I64": "q", "U8": "B"}
MOST_LINES = 20  # of tensors that differ, of one case


class Tensor(NamedTuple):
    dtype: str
    shape: tuple
    data: bytes


class Comparison(NamedTuple):
    tensors: int
    numbers: int
    differences: list  # in words, one a tensor

    @property
    def same(self):
        return not self.differences and self.tensors > 0


class Failed(Exception):
    """A program that did not do what it was asked."""


def read_tensors(path):
    """name -> Tensor of a file in the format of safetensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: Tensor(entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def numbers_of(tensor):
    kind = FORMATS.get(tensor.dtype)
    return struct.unpack(f"<{len(tensor.data) // struct.calcsize(kind)}{kind}", tensor.data) if kind else tuple(tensor.data)


def difference(old, new):
    """What differs between two tensors, in words; None: not a bit."""
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return f"{old.dtype}{list(old.shape)} became {new.dtype}{list(new.shape)}"
    if old.data == new.data:
        return None
    # By bits: -0.0 and 0.0 differ, a NaN equals itself.
    width = len(old.data) // max(len(numbers_of(old)), 1)
    pairs = [(i, a, b) for i, (a, b) in enumerate(zip(numbers_of(old), numbers_of(new)))
             if old.data[i * width:(i + 1) * width] != new.data[i * width:(i + 1) * width]]
    at, before, after = max(pairs, key=lambda pair: abs(pair[1] - pair[2]))
    return f"{len(pairs)} of {len(old.data) // width} numbers, most at [{at}]: {before!r} became {after!r}"


def compare(old, new):
    """Of name -> Tensor both; a tensor that only one has differs."""
    differences = []
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            differences.append(f"{name}: only OLD has it")
        elif name not in old:
            differences.append(f"{name}: only NEW has it")
        elif (words := difference(old[name], new[name])) is not None:
            differences.append(f"{name}: {words}")
    return Comparison(len(old), sum(len(numbers_of(tensor)) for tensor in old.values()), differences)


def renamed(tensors, rules):
    """The tensors under other names. `rules`: [(pattern, text)], applied one after another to each name."""
    result = {}
    for name, tensor in tensors.items():
        for pattern, text in rules:
            name = re.sub(pattern, text, name)
        if name in result:
            raise Failed(f"--rename gives two tensors of OLD the name {name}")
        result[name] = tensor
    return result


def keys_of(defaults):
    """The dotted keys in what `troupe config defaults` prints."""
    keys, path = set(), []
    for line in defaults.splitlines():
        found = re.match(r"( *)([A-Za-z_]\w*):", line)
        if found:
            path = path[:len(found[1]) // 2] + [found[2]]
            keys.add(".".join(path))
    return keys


def without_unknown(settings, *programs_keys):
    """(settings that all programs know, keys that were left out)."""
    left_out = [key for key in settings if not all(key in keys for keys in programs_keys)]
    return {key: value for key, value in settings.items() if key not in left_out}, left_out


def nested(settings):
    """{"a.b": 1} -> {"a": {"b": 1}}"""
    result = {}
    for key, value in settings.items():
        *sections, name = key.split(".")
        place = result
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return result


def run(command, **how):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **how)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def train(program, settings, overrides, folder):
    """Trains in a folder of its own; its last checkpoint."""
    os.makedirs(folder)
    with open(os.path.join(folder, "run.yaml"), "w", encoding="utf-8") as file:
        json.dump(nested(settings), file, indent=1)  # JSON is YAML
    sets = [part for override in overrides for part in ("--set", override)]
    run([program, "train", "run.yaml", "--name", "run", *sets], cwd=folder, timeout=300)
    return os.path.join(folder, "runs", "run", "checkpoints", "latest")


def tensors_of(checkpoint, files):
    """name -> Tensor of all files of a checkpoint."""
    found = {}
    for name in files:
        found.update(read_tensors(os.path.join(checkpoint, name)))
    return found


def compare_case(arguments, settings, folder):
    """Trains with both programs and compares."""
    files = FILES[:1] if arguments.weights_only else FILES
    checkpoints = [train(program, settings, overrides, os.path.join(folder, name)) for name, program, overrides in
                   (("old", arguments.old, arguments.old_set), ("new", arguments.new, arguments.new_set))]
    return compare(renamed(tensors_of(checkpoints[0], files), arguments.rename), tensors_of(checkpoints[1], files))


def rename_rule(text):
    pattern, equals, replacement = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"got {text}, expected REGEX=TEXT")
    return re.compile(pattern), replacement


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD_PROGRAM", type=os.path.abspath)
    parser.add_argument("new", metavar="NEW_PROGRAM", type=os.path.abspath)
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name has this in it")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2, help="learner_threads: sums have another order with another number of them")
    parser.add_argument("--keep", metavar="FOLDER", help="leave the runs there instead of removing them")
    parser.add_argument("--old-set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--new-set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--rename", action="append", default=[], type=rename_rule, metavar="REGEX=TEXT")
    parser.add_argument("--weights-only", action="store_true")
    return parser.parse_args(arguments)


def compare_all(arguments, folder):
    """Prints the table; how many cases are not the same."""
    keys = [keys_of(run([program, "config", "defaults"], timeout=60)) for program in (arguments.old, arguments.new)]
    details, bad, compared = [], 0, 0
    print("| case | tensors | numbers | tensors that differ |\n|---|---|---|---|", flush=True)
    for name, case in CASES.items():
        if arguments.only not in name:
            continue
        compared += 1
        settings = {**COMMON, "seed": arguments.seed, "learner_threads": arguments.threads, **case}
        settings, left_out = without_unknown(settings, *keys)
        if left_out:
            details.append(f"{name}: left out for both, since one of them does not know it: {', '.join(left_out)}")
        try:
            result = compare_case(arguments, settings, os.path.join(folder, name))
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            bad += 1
            details.append(f"{name}: {error}")
            print(f"| {name} | | | not compared |", flush=True)
            continue
        bad += not result.same
        details += [f"{name}: {words}" for words in result.differences[:MOST_LINES]]
        if len(result.differences) > MOST_LINES:
            details.append(f"{name}: and {len(result.differences) - MOST_LINES} tensors more")
        print(f"| {name} | {result.tensors} | {result.numbers} | {len(result.differences)} |", flush=True)
    print("".join(f"{line}\n" for line in details) + f"{compared - bad} passed, {bad} failed")
    return bad if compared else 1


def main():
    arguments = parse(sys.argv[1:])
    if arguments.keep:
        folder = pathlib.Path(arguments.keep).absolute()
        if folder.exists() and any(folder.iterdir()):
            sys.exit(f"--keep: {folder} is there and not empty")
        return 1 if compare_all(arguments, folder) else 0
    with tempfile.TemporaryDirectory(prefix="troupe_same_bits_") as folder:
        return 1 if compare_all(arguments, folder) else 0


if __name__ == "__main__":
    sys.exit(main())
