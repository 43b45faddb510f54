"""`troupe serve` and `troupe query`: a run's policies asked over the network, by a learner that trains and by a policy server, beside the same
networks computed here from the checkpoint's files."""

import importlib.util
import json
import math
import os
import random
import signal
import struct
import subprocess
import sys
import time
import unittest

import harness

# "left" plays agent_0 and never trains; "right" plays the two others and sees which one it is. Three agents with 18 observations each, five
# actions.
CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 1
num_envs_per_worker: 8
multi_agent:
  policies: [left, right]
  policy_mapping: {agent_0: left, "*": right}
  policies_to_train: [right]
algorithm: {train_batch_size: 400, minibatch_size: 200, num_epochs: 1, use_agent_id: true, normalize_observations: true}
model: {actor_hidden_sizes: [16, 16], activation: tanh}
stop: {env_steps: 100000000}
experiment: {write_interval: 400, checkpoint_interval: 4000}
evaluation: {at_end: false}
"""


def read_safetensors(path):
    """name -> (shape, numbers)"""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = {"F32": "f", "F64": "d"}[entry["dtype"]]
        raw = data[8 + size + begin:8 + size + end]
        tensors[name] = (entry["shape"], struct.unpack(f"<{len(raw) // struct.calcsize(kind)}{kind}", raw))
    return tensors


def log_probabilities(tensors, policy, obs, slot):
    """The actor by its definition: normalized observation and agent-id one-hot through tanh layers, then a softmax."""
    mean, variance = (tensors[f"{policy}/observation.{what}"][1] for what in ("mean", "variance"))
    x = [min(max((o - m) / math.sqrt(max(v, 1e-8)), -10), 10) for o, m, v in zip(obs, mean, variance)]
    if slot is not None:
        x += [1.0 if i == slot else 0.0 for i in range(3)]
    for layer in range(3):
        (rows, columns), weight = tensors[f"{policy}/actor.{layer}.weight"]
        bias = tensors[f"{policy}/actor.{layer}.bias"][1]
        assert columns == len(x)
        y = [bias[r] + sum(weight[r * columns + c] * x[c] for c in range(columns)) for r in range(rows)]
        x = [math.tanh(v) for v in y] if layer < 2 else y
    total = math.log(sum(math.exp(v) for v in x))
    return [v - total for v in x]


class QueryTest(harness.TroupeTestCase):
    def start(self, *arguments):
        log = open(self.path(f"{arguments[0]}.log"), "w+")
        self.addCleanup(log.close)
        process = subprocess.Popen([self.program, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=30), 0)

    def await_answer(self, address, process, *arguments):
        """The first answer of a server that is about to start."""
        deadline = time.monotonic() + 30
        while True:
            done = self.troupe("query", address, *arguments, "--json", ok=False)
            if done.returncode == 0:
                return json.loads(done.stdout)
            self.assertIsNone(process.poll(), done.stderr)
            self.assertLess(time.monotonic(), deadline, done.stderr)
            time.sleep(0.05)

    def ask(self, address, *arguments):
        return json.loads(self.troupe("query", address, *arguments, "--json").stdout)

    def refused(self, address, *arguments, saying):
        done = self.troupe("query", address, *arguments, ok=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("troupe: error: "), done.stderr)
        self.assertIn(saying, done.stderr)

    def assert_is_the_networks(self, answer, tensors, policy, observations, slots):
        self.assertEqual(answer["policy_id"], policy)
        for row, (obs, slot) in enumerate(zip(observations, slots)):
            expected = log_probabilities(tensors, policy, obs, slot)
            action, = answer["actions"][row]
            self.assertEqual(answer["sampled_actions"][row], [action])
            self.assertAlmostEqual(answer["action_logp"][row], expected[action], delta=1e-5)
            self.assertGreaterEqual(expected[action], max(expected) - 1e-5, "the most probable one")

    def test_learner_and_server_answer_as_the_networks_in_the_checkpoint(self):
        generator = random.Random(4)
        observations = [[round(generator.uniform(-2, 2), 4) for _ in range(18)] for _ in range(6)]
        slots = {"left": [None] * 6, "right": [0, 1, 2, 2, 1, 0]}
        left = ["--policy", "left", "--obs", json.dumps(observations), "--deterministic"]
        right = ["--policy", "right", "--obs", json.dumps(observations), "--agent-slot", "0,1,2,2,1,0", "--deterministic"]

        learner = self.start("train", self.write("run.yaml", CONFIG), "--name", "run")
        address_file = self.path("runs", "run", "address")
        deadline = time.monotonic() + 60
        while not os.path.exists(address_file):
            self.assertIsNone(learner.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        with open(address_file) as file:
            address = file.readline().strip()
        frozen = self.await_answer(address, learner, *left)
        first = self.await_answer(address, learner, *right)
        later = first
        while later["version"] < first["version"] + 3:
            self.assertLess(time.monotonic(), deadline + 60, "new weights are served while it trains")
            later = self.ask(address, *right)
        self.assertNotEqual(later["action_logp"], first["action_logp"])
        self.refused(address, "--policy", "rihgt", "--obs", "[0]", saying='did you mean "right"?')
        self.stop(learner)

        folder = self.path("runs", "run", "checkpoints", "latest")
        tensors = read_safetensors(os.path.join(folder, "policies.safetensors"))
        # The frozen policy was queried in the middle of training; its weights are those it began with.
        self.assert_is_the_networks(frozen, tensors, "left", observations, slots["left"])

        socket = self.path("serve.sock")
        server = self.start("serve", "run", "--listen", f"unix:{socket}")
        for policy, question in (("left", left), ("right", right)):
            answer = self.await_answer(f"unix:{socket}", server, *question)
            self.assert_is_the_networks(answer, tensors, policy, observations, slots[policy])
        self.assertGreaterEqual(answer["version"], later["version"])
        self.check_samples(f"unix:{socket}", tensors, observations[0])
        self.check_refusals(f"unix:{socket}", observations[0])
        self.stop(server)
        self.refused(f"unix:{socket}", "--policy", "left", "--obs", "[0]", "--timeout", "2", saying="serve.sock")

    def check_samples(self, address, tensors, obs):
        """500 samples of one observation against the probabilities of its actions."""
        probabilities = [math.exp(logp) for logp in log_probabilities(tensors, "right", obs, 1)]
        answer = self.ask(address, "--policy", "right", "--obs", json.dumps([obs] * 500), "--agent-slot", ",".join(["1"] * 500))
        actions = [action for action, in answer["actions"]]
        for action, p in enumerate(probabilities):
            self.assertAlmostEqual(actions.count(action) / 500, p, delta=5 * math.sqrt(p * (1 - p) / 500))
        for action, logp in zip(actions, answer["action_logp"]):
            self.assertAlmostEqual(logp, math.log(probabilities[action]), delta=1e-5)
        again = self.ask(address, "--policy", "right", "--obs", json.dumps([obs] * 500), "--agent-slot", ",".join(["1"] * 500))
        self.assertNotEqual(again["actions"], answer["actions"])
        text = self.troupe("query", address, "--policy", "right", "--obs", json.dumps(obs), "--agent-slot", "1", "--deterministic").stdout
        self.assertIn("policy right, weights version", text)
        self.assertIn("log-probability", text)

    def check_refusals(self, address, obs):
        good = json.dumps(obs)
        ask = ["--policy", "left"]
        self.refused(address, *ask, "--obs", "[1, 2]", saying="obs has 8 bytes, expected 72: 1 rows of 18 float32")
        self.refused(address, *ask, "--obs", "0.5", saying="--obs: got")
        self.refused(address, *ask, "--obs", "[1, \"x\"]", saying="row 0, element 1")
        self.refused(address, *ask, "--obs", good, "--action-mask", "[1, 1, 1, 1, 1]", saying="an action mask was given, expected none")
        self.refused(address, *ask, "--obs", json.dumps([0] * 18), "--obs-dtype", "uint8", saying="obs_dtype is uint8, expected float32")
        self.refused(address, *ask, "--obs", good, "--agent-slot", "0", saying="1 agent slots, expected 0")
        self.refused(address, "--policy", "right", "--obs", good, saying="0 agent slots, expected 1")
        self.refused(address, "--policy", "right", "--obs", good, "--agent-slot", "3", saying="expected 0 to 2")
        self.refused(address, "--policy", "nobody", "--obs", good, saying='there is no policy "nobody" among the 2 here')
        self.refused(address, "--policy", "../left", "--obs", good, saying="forbidden character")
        self.refused(address, "--policy", "left", "--obs", json.dumps([[0]] * 1025), saying="the query has 1025 rows, expected at most 1024")
        self.refused("10.0.0.1:1", *ask, "--obs", good, saying="--insecure-plaintext-network")

    @unittest.skipUnless(importlib.util.find_spec("grpc") and importlib.util.find_spec("numpy"), "grpcio and numpy are not installed")
    def test_python_client_gets_what_the_command_line_gets(self):
        sys.path.insert(0, os.path.join(self.source, "python"))
        from troupe.query import PolicyClient, QueryError
        self.troupe("train", self.write("run.yaml", CONFIG), "--name", "run", "--set", "stop.env_steps=400", "--workers", "0")
        address = f"unix:{self.path('serve.sock')}"
        server = self.start("serve", "run", "--listen", address)
        obs = [[0.25 * i - 2 for i in range(18)], [1 - 0.125 * i for i in range(18)]]
        expected = self.await_answer(address, server, "--policy", "right", "--obs", json.dumps(obs), "--agent-slot", "1,2", "--deterministic")
        with PolicyClient(address) as client:
            answer = client.compute_actions("right", obs, agent_slots=[1, 2], deterministic=True)
            self.assertEqual(answer.actions.tolist(), expected["actions"])
            self.assertEqual(answer.sampled_actions.tolist(), expected["sampled_actions"])
            self.assertEqual(answer.action_logp.tolist(), expected["action_logp"])
            self.assertEqual((answer.learner_epoch, answer.version), (expected["learner_epoch"], expected["version"]))
            with self.assertRaises(QueryError) as raised:
                client.compute_actions("nobody", obs)
            self.assertEqual(raised.exception.code, "NOT_FOUND")
        self.stop(server)

    def test_servers_that_cannot_start(self):
        def fails(*arguments, saying):
            done = self.troupe("serve", *arguments, ok=False)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(saying, done.stderr)
        fails("nobody", "--listen", "127.0.0.1:0", saying="there is no run")
        self.troupe("train", self.write("run.yaml", CONFIG), "--name", "run", "--set", "stop.env_steps=400", "--workers", "0")
        fails("run", "--listen", "127.0.0.1:0", "--checkpoint", "7", saying="7")
        fails("run", "--listen", "0.0.0.0:0", saying="--insecure-plaintext-network")
        fails("run", "--listen", "nonsense", saying="nonsense")
        tensors = self.path("runs", "run", "checkpoints", "400", "policies.safetensors")
        with open(tensors, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        fails("run", "--listen", "127.0.0.1:0", saying="policies.safetensors")


if __name__ == "__main__":
    harness.main()
