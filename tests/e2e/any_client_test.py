"""Clients that have nothing of Troupe but its .proto, or not even that: the examples in Go and Java, made by the commands of docs/serving.md, and server
reflection. They get the answers that `troupe query` gets."""

import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import time
import unittest

import harness

# "left" plays agent_0 with one of five actions, "right" the two others.
DISCRETE = """
env: {name: mpe/simple_spread}
num_workers: 0
num_envs_per_worker: 4
multi_agent:
  policies: [left, right]
  policy_mapping: {agent_0: left, "*": right}
algorithm: {train_batch_size: 400, minibatch_size: 200, num_epochs: 1, use_agent_id: true}
model: {actor_hidden_sizes: [16, 16], activation: tanh}
stop: {env_steps: 400}
evaluation: {at_end: false}
"""
# With actions that are floats.
CONTINUOUS = DISCRETE.replace("mpe/simple_spread}", "mpe/simple_spread, args: {continuous_actions: true}}")
OBS = [0.25 * i for i in range(18)]
AGENTS = {"left": ["agent_0"], "right": ["agent_1", "agent_2"]}

HAVE_REFLECTION = all(importlib.util.find_spec(name) for name in ("grpc", "google.protobuf", "grpc_reflection"))
# Set where compilers have been brought for these tests: what is missing then is an error.
MUST_RUN = os.environ.get("TROUPE_TEST_CLIENTS", "0") != "0"
HAVE_GO = all(map(shutil.which, ("go", "protoc-gen-go", "protoc-gen-go-grpc"))) and os.path.isdir("/usr/share/gocode/src/google.golang.org/grpc")
HAVE_JAVA = all(map(shutil.which, ("javac", "grpc_java_plugin"))) and os.path.exists("/usr/share/java/grpc-netty.jar")


class AnyClientTest(harness.ServingTestCase):
    def serve(self, config):
        """-> the TCP address of a server of a run with this configuration."""
        self.troupe("train", self.write("run.yaml", config), "--name", "run")
        server = self.start("serve", "run", "--listen", "127.0.0.1:0")
        deadline = time.monotonic() + 60 * harness.SLOWDOWN
        while "policy server ready" not in self.log_of("serve"):
            self.assertIsNone(server.poll(), self.log_of("serve"))
            self.assertLess(time.monotonic(), deadline, self.log_of("serve"))
            time.sleep(0.05)
        return re.search(r'listen="(127\.0\.0\.1:\d+)"', self.log_of("serve"))[1]

    def asked(self, address, policy):
        """What `troupe query` prints of this policy for OBS of each agent that plays it."""
        agents = AGENTS[policy]
        return json.loads(self.troupe("query", address, "--policy", policy, "--obs", json.dumps([OBS] * len(agents)),
                                      "--agent", ",".join(agents), "--deterministic", "--json").stdout)

    def lines_of(self, address):
        """What an example prints: the spaces of the policies, then the answer of a call and of a stream for each."""
        described = json.loads(self.troupe("query", address, "--json").stdout)["policies"]
        lines = [f"{policy['policy_id']}: {policy['observation_space']} -> {policy['action_space']}" for policy in described]
        for policy in sorted(AGENTS):
            answer = self.asked(address, policy)
            for kind in ("call", "stream"):
                for actions, log_prob in zip(answer["actions"], answer["action_logp"]):
                    words = [f"{word:.4f}" if isinstance(word, float) else str(word) for word in actions]
                    lines.append(f"{kind} {policy}: {' '.join(words)} log_prob {log_prob:.4f}")
        return lines

    def run_page(self, contains, address):
        """Runs the commands of the page's block with this text, installing aside. -> what they print."""
        with open(os.path.join(self.source, "docs", "serving.md")) as page:
            block, = [text for text in re.findall(r"^```sh\n(.*?)^```$", page.read(), re.S | re.M) if contains in text]
        commands = "\n".join(line for line in block.splitlines() if not line.startswith("apt-get")).replace("127.0.0.1:50061", address)
        self.assertIn(address, commands)
        folder = self.path("project")
        os.makedirs(folder, exist_ok=True)
        for name in ("proto", "examples"):
            if not os.path.lexists(os.path.join(folder, name)):
                os.symlink(os.path.join(self.source, name), os.path.join(folder, name))
        done = subprocess.run(["bash", "-e", "-c", commands], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, f"{commands}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def check_example(self, contains):
        for config in (DISCRETE, CONTINUOUS):
            with self.subTest(config):
                shutil.rmtree(self.path("runs"), ignore_errors=True)
                address = self.serve(config)
                self.assertEqual(self.run_page(contains, address).splitlines(), self.lines_of(address))

    @unittest.skipUnless(HAVE_GO or MUST_RUN, "no compiler of Go with grpc-go: TROUPE_TEST_CLIENTS=1 ./troupe test brings it")
    def test_the_example_in_go_gets_the_answers_of_troupe_query(self):
        self.check_example("go build")

    @unittest.skipUnless(HAVE_JAVA or MUST_RUN, "no compiler of Java with grpc-java: TROUPE_TEST_CLIENTS=1 ./troupe test brings it")
    def test_the_example_in_java_gets_the_answers_of_troupe_query(self):
        self.check_example("javac")

    @unittest.skipUnless(HAVE_REFLECTION, "grpcio-reflection is not installed")
    def test_a_client_without_any_file_learns_the_messages_from_the_server(self):
        import grpc
        from google.protobuf import descriptor_pool, message_factory
        from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
        address = self.serve(DISCRETE)
        with grpc.insecure_channel(address) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            self.assertEqual(sorted(database.get_services()),
                             ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection", "troupe.v1.Query"])
            pool = descriptor_pool.DescriptorPool(database)
            method = pool.FindServiceByName("troupe.v1.Query").FindMethodByName("ComputeActions")
            request_class, reply_class = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
            request = request_class(deterministic=True)
            request.policies.add(policy_id="right", rows=2, obs_dtype="DTYPE_FLOAT32", obs=2 * struct.pack("<18f", *OBS), agent_ids=AGENTS["right"])
            calls = channel.unary_unary("/troupe.v1.Query/ComputeActions", request_class.SerializeToString, reply_class.FromString)
            answer = calls(request, timeout=20).policies[0]
            expected = self.asked(address, "right")
            self.assertEqual([[int.from_bytes(answer.actions[4 * row:4 * row + 4], "little")] for row in range(2)], expected["actions"])
            for got, wanted in zip(answer.action_logp, expected["action_logp"]):
                self.assertAlmostEqual(got, wanted, delta=1e-6)
            # A stranger learns nothing of this program's other messages.
            for name in ("troupe.v1.RunConfig", "troupe.v1.Nothing", "troupe.v1.Control"):
                with self.assertRaises(KeyError):
                    pool.FindMessageTypeByName(name)
            for name in ("troupe/v1/config.proto", "troupe/v1/control.proto"):
                with self.assertRaises(KeyError):
                    pool.FindFileByName(name)
            with self.assertRaises(KeyError):
                pool.FindExtensionByNumber(request_class.DESCRIPTOR, 100)
            self.assertEqual(list(pool.FindAllExtensions(request_class.DESCRIPTOR)), [])


if __name__ == "__main__":
    harness.main()
