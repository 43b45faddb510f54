"""`troupe serve` while weights change and servers die: newer checkpoints, a learner that is followed, labels, several servers behind one client."""

import asyncio
import importlib.util
import json
import os
import signal
import socket
import sys
import threading
import time
import unittest

import harness
import networks

CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 1
num_envs_per_worker: 8
multi_agent:
  policies: [left, right]
  policy_mapping: {agent_0: left, "*": right}
algorithm: {name: ippo, train_batch_size: 400, minibatch_size: 200, num_epochs: 1, use_agent_id: true, use_value_norm: true}
model: {actor_hidden_sizes: [16, 16], activation: tanh}
stop: {env_steps: 100000000}
experiment: {write_interval: 400, checkpoint_interval: 400, keep_checkpoints: 3}
evaluation: {at_end: false}
"""
OBS = [0.25 * i - 2 for i in range(18)]
HAVE_CLIENT = all(importlib.util.find_spec(name) for name in ("grpc", "google.protobuf", "numpy"))


@unittest.skipUnless(HAVE_CLIENT, "grpcio, protobuf and numpy are not installed")
class ServeTest(harness.ServingTestCase):
    def setUp(self):
        super().setUp()
        sys.path.insert(0, os.path.join(self.source, "python"))
        import troupe.query
        self.query = troupe.query
        self.seen, self.calls = set(), 0  # of check_no_call_fails: versions, and about how many answers

    def await_true(self, condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def test_a_signal_before_the_first_weights_ends_it_at_once(self):
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
            with self.subTest(number), socket.socket(socket.AF_UNIX) as learner:
                place = self.path(f"silent{code}.sock")
                learner.bind(place)
                learner.listen()
                learner.settimeout(60)
                server = self.start("serve", "--from", f"unix:{place}", "--listen", f"unix:{self.path('serve.sock')}", name=f"serve{code}")
                connection = learner.accept()[0]  # it follows a learner that says nothing
                self.addCleanup(connection.close)
                begun = time.monotonic()
                server.send_signal(number)
                self.assertEqual(server.wait(60), code, self.log_of(f"serve{code}"))
                self.assertLess(time.monotonic() - begun, 20)  # weights would be waited for for 30 s

    def serve(self, name, *arguments):
        """-> (process, address) of a server that is ready."""
        address = f"unix:{self.path(name + '.sock')}"
        server = self.start("serve", *arguments, "--listen", address, name=name)
        self.await_true(lambda: "policy server ready" in self.log_of(name) or server.poll() is not None, "the server")
        self.assertIsNone(server.poll(), self.log_of(name))
        return server, address

    def train(self):
        """-> a learner that trains, and has a checkpoint."""
        learner = self.start("train", self.write("run.yaml", CONFIG), "--name", "run")
        self.await_true(lambda: os.path.exists(self.path("runs", "run", "checkpoints", "latest")) or learner.poll() is not None, "a checkpoint")
        self.assertIsNone(learner.poll(), self.log_of("train"))
        return learner

    def trained(self, env_steps=1200, *more):
        self.troupe("train", self.write("run.yaml", CONFIG), "--name", "run", "--set", f"stop.env_steps={env_steps}", "--workers", "0", *more)

    def check_no_call_fails(self, addresses, meanwhile):
        """Calls and streams of two clients while `meanwhile` runs: none fails, and of a stream no version goes back. -> versions seen."""
        over, failures, versions = threading.Event(), [], self.seen
        versions.clear()
        self.calls = 0

        def ask(by_stream):
            with self.query.PolicyClient(addresses) as client, client.stream() as stream:
                last = (0, 0)
                while not over.is_set():
                    try:
                        answer = (stream if by_stream else client).compute_actions("left", OBS)
                        version = (answer.learner_epoch, answer.version)
                        if by_stream and len(addresses) == 1 and version < last:
                            failures.append(f"{version} after {last}")
                        last = version
                        versions.add(version)
                        self.calls += 1
                    except self.query.QueryError as error:
                        failures.append(str(error))
        threads = [threading.Thread(target=ask, args=(by_stream,)) for by_stream in (False, True)]
        for thread in threads:
            thread.start()
        try:
            meanwhile()
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failures[:3], [])
        return versions

    def test_newer_checkpoints_are_served_as_they_come(self):
        learner = self.train()
        server, address = self.serve("serve", "run", "--reload-interval", "0.1", "--label", "start=latest")
        fixed, fixed_address = self.serve("fixed", "run", "--reload-interval", "0")
        with self.query.PolicyClient(fixed_address) as client:
            before = client.list_policies()["left"]["latest"]
        seen = self.check_no_call_fails([address], lambda: self.await_true(
            lambda: self.log_of("serve").count("newer weights ") >= 10, "ten newer checkpoints"))
        self.assertGreater(len(seen), 3)
        with self.query.PolicyClient(fixed_address) as client:
            self.assertEqual(client.list_policies()["left"]["latest"], before)
            answer = client.compute_actions("left", OBS)
            self.assertEqual((answer.learner_epoch, answer.version), before)
        self.assertNotIn("newer weights", self.log_of("fixed"))
        self.assertNotIn("not served", self.log_of("serve"))
        self.stop(learner)
        self.await_true(lambda: self.versions(address) == self.checkpointed(), "the last checkpoint")
        self.stop(server)
        self.stop(fixed)

    def versions(self, address):
        with self.query.PolicyClient(address) as client:
            return {policy: versions["latest"] for policy, versions in client.list_policies().items()}

    def checkpointed(self):
        with open(self.path("runs", "run", "checkpoints", "latest", "manifest.json")) as file:
            return {policy["id"]: tuple(policy["version"]) for policy in json.load(file)["state"]["policies"]}

    def test_a_learner_is_followed_while_it_trains_and_its_last_weights_stay(self):
        learner = self.train()
        server, address = self.serve("serve", "--from", "run")
        self.assertIn('from="', self.log_of("serve"))
        seen = self.check_no_call_fails([address], lambda: self.await_true(lambda: len(self.versions(address)) == 2 and len(self.seen) > 3, "versions that came"))
        self.assertGreater(len(seen), 3)
        # Policies that come can be asked.
        self.troupe("policy", "copy", "run", "left", "later", "--frozen")
        self.await_true(lambda: "later" in self.versions(address), "the policy that came")
        with self.query.PolicyClient(address) as client:
            self.await_true(lambda: client.list_policies()["later"]["latest"][1] > 0, "its weights")
            client.compute_actions("later", OBS)
        self.stop(learner)
        # Without a learner the last weights stay.
        self.await_true(lambda: "the learner is not followed" in self.log_of("serve"), "the loss of the learner")
        last = self.versions(address)["left"]
        with self.query.PolicyClient(address) as client:
            self.assertEqual(client.compute_actions("left", OBS).version, last[1])
            # The learner comes back, at another address of its own choice, and is followed again.
            again = self.start("train", "--resume", "runs/run", name="again")
            self.await_true(lambda: self.versions(address)["left"] > last or again.poll() is not None, "the weights of the learner that came back")
            self.assertIsNone(again.poll(), self.log_of("again"))
            answer = client.compute_actions("left", OBS)
            self.assertGreater((answer.learner_epoch, answer.version), last)
        self.stop(again)
        self.stop(server)

    def test_from_and_a_run_exclude_each_other(self):
        self.trained()
        for arguments, words in ((("--listen", "unix:a"), "expected a run, or --from"),
                                 (("run", "--from", "run", "--listen", "unix:a"), "--from"),
                                 (("--from", "run", "--listen", "unix:a"), "run"),
                                 (("--from", f"unix:{self.path('nobody.sock')}", "--listen", "unix:a"), "nobody.sock"),
                                 (("run", "--label", "x", "--listen", "unix:a"), "--label x: expected NAME=CHECKPOINT"),
                                 (("run", *(part for i in range(8) for part in ("--label", f"l{i}=latest")), "--listen", "unix:a"),
                                  "got 8 labels beside best, expected at most 7"),
                                 (("run", *(part for i in range(8) for part in ("--label", f"l{i}=latest")), "--listen", "unix:a"),
                                  "got 8 labels beside best, expected at most 7"),
                                 (("run", "--label", "latest=best", "--listen", "unix:a"), "is no label"),
                                 (("run", "--label", "x=7", "--listen", "unix:a"), 'no checkpoint "7"')):
            done = self.troupe("serve", *arguments, ok=False)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(words, done.stderr)

    def check_values(self, client, latest):
        """Values of the newest weights and of a label's beside the critic's definition; the value targets are normalized."""
        for version, folder in (("latest", "latest"), ("start", "400")):
            tensors = networks.read_policies(self.path("runs/run/checkpoints", folder))
            self.assertIn("left/value.mean", tensors)
            expected = [networks.value(tensors, "left", [scale * each for each in OBS]) for scale in (1, 0.5)]
            for _ in range(2):
                got = client.compute_actions("left", [[scale * each for each in OBS] for scale in (1, 0.5)], version=version, outputs=["value", "action"])
                for one, other in zip(got.value.tolist(), expected):
                    self.assertAlmostEqual(one, other, delta=1e-4 * max(1, abs(other)))
                self.assertEqual(got.version == latest, version == "latest")

    def test_labels_outputs_seeds_and_agents_from_python(self):
        self.trained(400)
        # The end of a run is checkpointed for certain, what comes before it where the disk has time.
        self.troupe("train", "--resume", "runs/run", "--set", "stop.env_steps=1200", "--workers", "0")
        server, address = self.serve("serve", "run", "--label", "start=400")
        with self.query.PolicyClient(address) as client:
            listed = client.list_policies()["left"]
            self.assertLess(listed["start"], listed["latest"])
            described, = client.policies(["right"])
            self.assertEqual((described.network, described.outputs), ("mlp [16, 16] tanh", ("action", "sampled_action", "log_prob", "logits", "value")))
            self.assertIn("start", described.versions)
            old = client.compute_actions("left", OBS, version="start", outputs=["logits", "log_prob"], deterministic=True)
            new = client.compute_actions("left", OBS, outputs=["logits"], deterministic=True)
            self.assertEqual(old.version, listed["start"][1])
            self.assertNotEqual(old.logits.tolist(), new.logits.tolist())
            self.assertIsNone(new.actions)
            self.assertIsNone(new.value)
            self.check_values(client, new.version)
            self.assertEqual(client.compute_actions("left", OBS, version=listed["start"][1]).version, old.version)
            answers = client.compute_agents({f"agent_{i}": OBS for i in range(3)}, seed=3)
            self.assertEqual([answers[f"agent_{i}"].policy_id for i in range(3)], ["left", "right", "right"])
            again = client.compute_agents({f"agent_{i}": OBS for i in range(3)}, seed=3)
            self.assertEqual([answers[agent].actions.tolist() for agent in answers], [again[agent].actions.tolist() for agent in again])
            for arguments, code in (({"version": "nothing"}, "NOT_FOUND"), ({"outputs": ["worth"]}, "INVALID_ARGUMENT"),
                                    ({"min_version": (9, 0)}, "UNAVAILABLE"), ({"min_version": (9, 0), "version": "start"}, "FAILED_PRECONDITION")):
                with self.assertRaises(self.query.QueryError) as raised:
                    client.compute_actions("left", OBS, **arguments)
                self.assertEqual(raised.exception.code, code, arguments)
            with self.assertRaises(self.query.QueryError) as raised:
                client.compute_agents({"agent_0": OBS, "stranger": OBS})
            self.assertIn('there is no agent "stranger" among the 3', str(raised.exception))
        self.stop(server)

    def check_states(self, address, chains):
        """Of agents that saw OBS so often, by servers of any kind: what one server makes of as many decisions."""
        import numpy
        states = [None]
        with self.query.PolicyClient(address) as client:
            for _ in range(max(decisions for decisions, _ in chains)):
                states.append(client.compute_actions("right", OBS, agent="agent_1", state_in=states[-1]).state_out)
        for decisions, state in chains:
            numpy.testing.assert_allclose(state, states[decisions], atol=1e-5)
        return len(states)

    def test_three_servers_one_killed_under_load_and_no_call_fails(self):
        self.trained(400, "--set", "model.actor_core=gru", "--set", "model.core_size=16")
        servers = [self.serve(f"serve{i}", "run", "--reload-interval", "0") for i in range(3)]
        addresses = [address for _, address in servers]
        from troupe.query_async import AsyncPolicyClient
        calls = 2000

        async def load():
            async with AsyncPolicyClient(addresses, retries=2) as client:
                asked, chains = 0, []

                async def ask(remembers):
                    nonlocal asked
                    decisions, state = 0, None
                    while asked < calls:
                        asked += 1
                        if asked == calls // 4:
                            servers[0][0].kill()
                        answer = await client.compute_actions("right", OBS, agent="agent_1", state_in=state)
                        decisions, state = (decisions + 1, answer.state_out) if remembers else (0, None)
                    if decisions:
                        chains.append((decisions, state))
                # Every other one's state travels from server to server.
                await asyncio.gather(*(ask(number % 2 == 0) for number in range(16)))
                return asked, chains
        asked, chains = asyncio.run(load())
        self.assertEqual((asked, len(chains)), (calls, 8))
        self.assertGreater(self.check_states(addresses[2], chains), calls // 32)
        # A call and a stream at a time, by two that go on; and a second server dies.
        def a_second_one_dies():
            self.await_true(lambda: self.calls > 200, "answers")
            servers[1][0].kill()
            before = self.calls
            self.await_true(lambda: self.calls > before + 400, "answers without it")
        seen = self.check_no_call_fails(addresses, a_second_one_dies)
        self.assertEqual(len(seen), 1)
        self.stop(servers[2][0])


if __name__ == "__main__":
    harness.main()
