"""`troupe serve` and `troupe query`: a run's policies asked over the network, by a learner that trains and by a policy server, beside the same
networks computed here from the checkpoint's files."""

import importlib.util
import json
import math
import os
import random
import shutil
import struct
import sys
import time
import unittest

import harness
from networks import log_probabilities, read_safetensors, remembering_log_probabilities

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

# Three policies, one for each agent, all of which train; every version is checkpointed, and kept.
THREE_CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 1
num_envs_per_worker: 8
multi_agent:
  policies: [red, green, blue]
  policy_mapping: {agent_0: red, agent_1: green, agent_2: blue}
algorithm: {train_batch_size: 400, minibatch_size: 100, num_epochs: 30, lr: 0.003, normalize_observations: true}
model: {actor_hidden_sizes: [16, 16], activation: tanh}
stop: {env_steps: 100000000}
experiment: {write_interval: 400, checkpoint_interval: 400, keep_checkpoints: 100000}
evaluation: {at_end: false}
"""
# One policy that remembers.
MEMORY_CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 1
num_envs_per_worker: 8
algorithm: {train_batch_size: 400, minibatch_size: 200, num_epochs: 1, use_agent_id: false}
model: {actor_core: gru, core_size: 6, actor_hidden_sizes: [9], actor_head_hidden_sizes: [7], activation: tanh}
stop: {env_steps: 400}
evaluation: {at_end: false}
"""
HAVE_CLIENT = bool(importlib.util.find_spec("grpc") and importlib.util.find_spec("numpy"))


def versions_of(checkpoint):
    """policy id -> version of its weights"""
    with open(os.path.join(checkpoint, "manifest.json")) as file:
        return {policy["id"]: tuple(policy["version"]) for policy in json.load(file)["state"]["policies"]}


class QueryTest(harness.ServingTestCase):
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
            expected = log_probabilities(tensors, policy, obs, slot, agents=3)
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

        learner, address = self.start_learner(CONFIG, "run")
        deadline = time.monotonic() + 60
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

    def test_a_run_is_asked_by_its_name_and_by_its_agents(self):
        obs = [[0.25 * i - 2 for i in range(18)], [1 - 0.125 * i for i in range(18)]]
        question = ["--obs", json.dumps(obs), "--deterministic"]
        learner, address = self.start_learner(CONFIG, "run")
        self.await_answer("run", learner, "--agent", "agent_0", *question)
        for target in ("run", self.path("runs", "run"), address):
            self.check_descriptions(target)
            self.assertEqual(self.ask(target, "--agent", "agent_0", *question)["policy_id"], "left")
        self.refused(address, "--checkpoint", "latest", *question, saying="--checkpoint: expected a run's folder or name")
        self.stop(learner)

        folder = self.path("runs", "run", "checkpoints", "latest")
        tensors = read_safetensors(os.path.join(folder, "policies.safetensors"))
        serve_address = f"unix:{self.path('serve.sock')}"
        server = self.start("serve", "run", "--listen", serve_address)
        self.await_answer(serve_address, server, "--agent", "agent_0", *question)
        # A stopped run answers from its newest checkpoint, as `serve` does.
        for target in ("run", self.path("runs", "run"), serve_address):
            self.check_descriptions(target)
            self.assert_is_the_networks(self.ask(target, "--agent", "agent_0", *question), tensors, "left", obs, [None, None])
            self.assert_is_the_networks(self.ask(target, "--agent", "agent_2", *question), tensors, "right", obs, [2, 2])
            self.assert_is_the_networks(self.ask(target, "--policy", "right", "--agent", "agent_2,agent_1", *question), tensors, "right", obs, [2, 1])
            self.refused(target, "--policy", "right", "--agent", "agent_0", *question,
                         saying='policy "right" does not play agent_0; its agents are agent_1, agent_2')
            self.refused(target, "--agent", "agent_7", *question, saying='there is no agent "agent_7"; the nearest is "agent_0"')
            self.refused(target, *question, saying="expected --policy with one of those that there are: left, right")
            self.refused(target, "--policy", "right", *question, saying="its agents are agent_1 (slot 1), agent_2 (slot 2)")
            self.refused(target, "--policy", "rigth", *question, saying='did you mean "right"? There are: right, left')
        self.check_agents_in_python(serve_address, tensors, obs)
        self.stop(server)
        self.assertTrue(self.troupe("query", "run").stdout.startswith("as of runs/run/checkpoints/"))
        self.assertEqual(self.ask("run", "--policy", "left", "--checkpoint", "latest", *question)["policy_id"], "left")
        self.refused("run", "--policy", "left", "--checkpoint", "7", *question, saying='no checkpoint "7"')

    def check_descriptions(self, target):
        left, right = self.ask(target)["policies"]
        self.assertEqual((left["policy_id"], left["agents"], left["needs_agent_slots"]), ("left", ["agent_0"], False))
        self.assertEqual((right["policy_id"], right["agents"], right["agent_slots"]), ("right", ["agent_1", "agent_2"], [1, 2]))
        self.assertEqual((right["obs_size"], right["action_space"], right["needs_agent_slots"]), (18, "Discrete(5)", True))
        self.assertEqual([policy["policy_id"] for policy in self.ask(target, "--policy", "left")["policies"]], ["left"])
        self.assertIn("agent_1, agent_2", self.troupe("query", target).stdout)

    def check_agents_in_python(self, address, tensors, obs):
        if not HAVE_CLIENT:
            return
        sys.path.insert(0, os.path.join(self.source, "python"))
        from troupe.query import PolicyClient
        with PolicyClient(address) as client:
            self.assertEqual([policy.agents for policy in client.policies()], [["agent_0"], ["agent_1", "agent_2"]])
            answer = client.compute_actions(None, obs, agent="agent_1", deterministic=True)
            by_slot = client.compute_actions("right", obs, agent_slots=[1, 1], deterministic=True)
            self.assertEqual(answer.policy_id, "right")
            self.assertEqual(answer.action_logp.tolist(), by_slot.action_logp.tolist())

    def test_what_a_policy_remembers_is_brought_again(self):
        """Two agents over three decisions, the third of an episode that just began for one of them."""
        self.troupe("train", self.write("memory.yaml", MEMORY_CONFIG), "--name", "memory", "--workers", "0")
        policy, = self.ask("memory")["policies"]
        self.assertEqual((policy["obs_size"], policy["state_size"]), (18, 6))
        tensors = read_safetensors(self.path("runs", "memory", "checkpoints", "latest", "policies.safetensors"))
        generator = random.Random(6)
        memory, told = [[0.0] * 6] * 2, []
        for step in range(3):
            observations = [[round(generator.uniform(-2, 2), 4) for _ in range(18)] for _ in range(2)]
            if step == 2:
                memory = told = [told[0], [0.0] * 6]
            answer = self.ask("memory", "--obs", json.dumps(observations), "--deterministic", "--policy", policy["policy_id"],
                              *(["--state-in", json.dumps(told)] if told else []))
            told, expected = answer["state_out"], []
            for row, obs in enumerate(observations):
                probabilities, after = remembering_log_probabilities(tensors, policy["policy_id"], obs, memory[row])
                expected.append(after)
                self.assertAlmostEqual(answer["action_logp"][row], max(probabilities), delta=1e-5)
                for got, wanted in zip(told[row], after):
                    self.assertAlmostEqual(got, wanted, delta=1e-5)
            memory = expected
        self.refused("memory", "--policy", policy["policy_id"], "--obs", json.dumps(observations), "--state-in", "[[1], [2]]",
                     saying="state_in has 8 bytes, expected 48: 2 rows of 6 float32")

    def start_learner(self, config, name):
        """-> (process, address) of a run that trains."""
        learner = self.start("train", self.write(f"{name}.yaml", config), "--name", name)
        address_file = self.path("runs", name, "address")
        deadline = time.monotonic() + 60
        while not os.path.exists(address_file):
            self.assertIsNone(learner.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        with open(address_file) as file:
            return learner, file.readline().strip()

    def test_three_policies_asked_while_they_train(self):
        """Every answer beside the networks of the version that it names: a checkpoint's, computed here."""
        generator = random.Random(5)
        observations = [[round(generator.uniform(-2, 2), 4) for _ in range(18)] for _ in range(3)]
        policies = ("red", "green", "blue")
        learner, address = self.start_learner(THREE_CONFIG, "three")
        self.await_answer(address, learner, "--policy", "blue", "--obs", json.dumps(observations))

        def by_shell(policy):
            return self.ask(address, "--policy", policy, "--obs", json.dumps(observations), "--deterministic")
        askers = {"shell": by_shell}
        if HAVE_CLIENT:
            sys.path.insert(0, os.path.join(self.source, "python"))
            from troupe.query import PolicyClient
            client = PolicyClient(address)
            self.addCleanup(client.close)

            def by_client(policy):
                answer = client.compute_actions(policy, observations, deterministic=True)
                return {"policy_id": answer.policy_id, "learner_epoch": answer.learner_epoch, "version": answer.version,
                        "actions": answer.actions.tolist(), "sampled_actions": answer.sampled_actions.tolist(),
                        "action_logp": answer.action_logp.tolist()}
            askers["python"] = by_client
        answers = []
        deadline = time.monotonic() + 60
        newest = dict.fromkeys(policies, 0)
        while len(answers) < 60 or min(newest.values()) < answers[0][1]["version"] + 10:
            self.assertLess(time.monotonic(), deadline, newest)
            for policy in policies:
                for asker, ask in askers.items():
                    answer = ask(policy)
                    self.assertGreaterEqual(answer["version"], newest[policy], "versions only grow")
                    newest[policy] = answer["version"]
                    answers.append((asker, answer))
        self.stop(learner)

        folder = self.path("runs", "three", "checkpoints")
        checkpoints = {}  # (policy, version) -> folder
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                checkpoints.update({pair: path for pair in versions_of(path).items()})
        tensors = {}
        matched = {(asker, policy): set() for asker in askers for policy in policies}
        for asker, answer in answers:
            policy, version = answer["policy_id"], (answer["learner_epoch"], answer["version"])
            path = checkpoints.get((policy, version))
            if path is None:  # the checkpoint thread writes the newest, not every one
                continue
            if path not in tensors:
                tensors[path] = read_safetensors(os.path.join(path, "policies.safetensors"))
            self.assert_is_the_networks(answer, tensors[path], policy, observations, [None] * 3)
            matched[asker, policy].add(version)
        for pair, versions in matched.items():
            self.assertGreaterEqual(len(versions), 3, (pair, len(answers), len(checkpoints)))
        for policy in policies:
            logp = {row for _, answer in answers if answer["policy_id"] == policy for row in answer["action_logp"]}
            self.assertGreater(max(logp) - min(logp), 0.01, "it learns meanwhile")

    def test_policies_come_and_go_while_they_are_asked(self):
        """What a running training adds can be asked, what it removes cannot; the run's checkpoint is served with what it had."""
        learner, address = self.start_learner(THREE_CONFIG, "three")
        obs = [[0.25 * i - 2 for i in range(18)]]
        question = ["--obs", json.dumps(obs), "--deterministic"]
        self.await_answer(address, learner, "--policy", "red", *question)
        self.refused(address, "--policy", "crimson", *question, saying='there is no policy "crimson" among the 3 here')
        self.troupe("policy", "copy", "three", "red", "crimson", "--frozen")
        frozen = self.await_answer(address, learner, "--policy", "crimson", *question)
        self.troupe("policy", "add", "three", "white", "--like", "red")
        self.await_answer(address, learner, "--policy", "white", *question)
        self.troupe("policy", "remove", "three", "white")
        self.refused(address, "--policy", "white", *question, saying='there is no policy "white" among the 4 here')
        # Another policy under an id that is there: its weights, not those before.
        self.troupe("policy", "copy", "three", "crimson", "blue", "--replace")
        self.troupe("policy", "freeze", "three", "blue")
        deadline = time.monotonic() + 30
        while True:
            blue = self.await_answer(address, learner, "--policy", "blue", *question)
            red = self.ask(address, "--policy", "red", *question)
            if red["version"] > blue["version"] + 3:
                break
            self.assertLess(time.monotonic(), deadline)
        self.stop(learner)

        tensors = read_safetensors(self.path("runs", "three", "checkpoints", "latest", "policies.safetensors"))
        self.assert_is_the_networks(frozen, tensors, "crimson", obs, [None])
        self.assert_is_the_networks(blue, tensors, "blue", obs, [None])
        address = f"unix:{self.path('three.sock')}"
        server = self.start("serve", "three", "--listen", address)
        self.assert_is_the_networks(self.await_answer(address, server, "--policy", "crimson", *question), tensors, "crimson", obs, [None])
        for policy in ("red", "green", "blue"):
            self.assert_is_the_networks(self.ask(address, "--policy", policy, *question), tensors, policy, obs, [None])
        self.refused(address, "--policy", "white", *question, saying='there is no policy "white" among the 4 here')
        self.stop(server)

    def test_a_server_with_more_policies_than_it_holds(self):
        """Five policies, two in memory: read from the checkpoint when they are asked for; damage is the loss of one."""
        policies = [f"p{i}" for i in range(5)]
        config = THREE_CONFIG.replace("[red, green, blue]", str(policies)).replace(
            "{agent_0: red, agent_1: green, agent_2: blue}", "{agent_0: p0, agent_1: {p1: 1, p2: 1}, agent_2: {p3: 1, p4: 1}}").replace(
            "multi_agent:\n", "multi_agent:\n  policy_map_capacity: 2\n")
        self.troupe("train", self.write("five.yaml", config), "--name", "five", "--set", "stop.env_steps=400", "--workers", "0")
        folder = self.path("runs", "five", "checkpoints", "400")
        weights = os.path.join(folder, "policies.safetensors")
        tensors = read_safetensors(weights)
        address = f"unix:{self.path('five.sock')}"
        server = self.start("serve", "five", "--listen", address)
        obs = [[0.25 * i - 2 for i in range(18)]]
        question = ["--obs", json.dumps(obs), "--deterministic"]
        self.await_answer(address, server, "--policy", "p0", *question)
        for policy in policies + policies[::-1]:
            self.assert_is_the_networks(self.ask(address, "--policy", policy, *question), tensors, policy, obs, [None])
        # p1 and p0 are in memory now. One bit of p3 flips; then the run removes the checkpoint.
        with open(weights, "r+b") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            at = 8 + size + json.loads(file.read(size))["p3/actor.0.weight"]["data_offsets"][0]
            file.seek(at)
            flipped = bytes([file.read(1)[0] ^ 1])
            file.seek(at)
            file.write(flipped)
        self.refused(address, "--policy", "p3", *question, saying='the weights of policy "p3" fail their checksum')
        shutil.rmtree(folder)
        for policy in ("p2", "p4", "p0", "p1"):
            self.assert_is_the_networks(self.ask(address, "--policy", policy, *question), tensors, policy, obs, [None])
        self.refused(address, "--policy", "p3", *question, saying='the weights of policy "p3" fail their checksum')
        self.refused(address, "--policy", "p5", *question, saying='there is no policy "p5" among the 5 here, did you mean')
        self.stop(server)
        with open(self.path("serve.log")) as log:
            self.assertIn("load_failures=2", log.read())

    def check_samples(self, address, tensors, obs):
        """500 samples of one observation against the probabilities of its actions."""
        probabilities = [math.exp(logp) for logp in log_probabilities(tensors, "right", obs, 1, agents=3)]
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

    @unittest.skipUnless(HAVE_CLIENT, "grpcio and numpy are not installed")
    def test_python_client_gets_what_the_command_line_gets(self):
        sys.path.insert(0, os.path.join(self.source, "python"))
        import numpy
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
            self.check_refusals_in_python(client, QueryError, numpy.array(obs))
        self.stop(server)

    def check_refusals_in_python(self, client, error, obs):
        def refused(code, policy, observations, agent_slots=(1, 2), **arguments):
            with self.assertRaises(error) as raised:
                client.compute_actions(policy, observations, agent_slots=agent_slots, **arguments)
            self.assertEqual(raised.exception.code, code, raised.exception)
        refused("NOT_FOUND", "nobody", obs)
        refused("INVALID_ARGUMENT", "../right", obs)
        refused("INVALID_ARGUMENT", "right", obs[:, :17])
        refused("INVALID_ARGUMENT", "right", obs.astype("uint8"))
        refused("INVALID_ARGUMENT", "right", obs * float("nan"))
        refused("INVALID_ARGUMENT", "right", obs[:0], agent_slots=())
        refused("INVALID_ARGUMENT", "right", obs, action_mask=[[1] * 5] * 2)
        refused("RESOURCE_EXHAUSTED", "right", [obs[0]] * 1025, agent_slots=[0] * 1025)
        self.assertEqual(len(client.compute_actions("right", obs, agent_slots=[1, 2]).actions), 2, "it goes on")

    def test_servers_that_cannot_start(self):
        def fails(*arguments, saying, code=1):
            done = self.troupe("serve", *arguments, ok=False)
            self.assertEqual(done.returncode, code, done.stdout)
            self.assertIn(saying, done.stderr)
        fails("nobody", "--listen", "127.0.0.1:0", saying="there is no run")
        self.troupe("train", self.write("run.yaml", CONFIG), "--name", "run", "--set", "stop.env_steps=400", "--workers", "0")
        fails("run", "--listen", "127.0.0.1:0", "--checkpoint", "7", saying="7")
        fails("run", "--listen", "0.0.0.0:0", saying="--insecure-plaintext-network", code=78)
        fails("run", "--listen", "nonsense", saying="nonsense", code=78)  # no restart mends it
        tensors = self.path("runs", "run", "checkpoints", "400", "policies.safetensors")
        with open(tensors, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        fails("run", "--listen", "127.0.0.1:0", saying="is damaged: the weights of policy")


if __name__ == "__main__":
    harness.main()
