"""The query client: what it makes of answers, and the client against a server of its own. It needs grpcio, numpy and protobuf."""

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, ROOT)

HAVE_PROTOBUF = importlib.util.find_spec("google") is not None and importlib.util.find_spec("google.protobuf") is not None
HAVE_CLIENT = HAVE_PROTOBUF and importlib.util.find_spec("grpc") is not None and importlib.util.find_spec("numpy") is not None
if HAVE_PROTOBUF:
    from troupe.v1 import query_pb2


def reply_bytes():
    """A ComputeActionsReply of a policy with a discrete and a continuous word, two rows."""
    answer = query_pb2.QueryActions(policy_id="shared", rows=2, action_dtypes=[2, 1], actions=struct.pack("<ifif", 1, 1.0, 2, -2.0),
                                    sampled_actions=struct.pack("<ifif", 1, 2.0, 2, -4.0), action_logp=[-0.5, -1.25], state_out=struct.pack("<ff", 0.25, 4.0))
    answer.version.learner_epoch, answer.version.n = 3, 1234567
    return query_pb2.ComputeActionsReply(policies=[answer]).SerializeToString()


def descriptions():
    hunters = query_pb2.PolicyDescription(
        policy_id="hunters", observation_space="Box(-1, 1, [3], float32)", action_space="Discrete(5)", obs_dtype=1, obs_size=3, mask_size=5,
        action_dtypes=[2], needs_agent_slots=True, agent_slots=[0, 1], state_size=64)
    hunters.version.learner_epoch, hunters.version.n = 3, 120
    prey = query_pb2.PolicyDescription(policy_id="prey", observation_space="Discrete(2)", action_space="Discrete(2)", obs_dtype=3, agent_slots=[2])
    return query_pb2.DescribePoliciesReply(agent_ids=["hunter_0", "hunter_1", "prey"], policies=[hunters, prey])


def request_bytes(policy_id, rows, obs_dtype, obs, deterministic=False, **more):
    rows = query_pb2.QueryRows(policy_id=policy_id, rows=rows, obs_dtype=obs_dtype, obs=obs, **more)
    return query_pb2.ComputeActionsRequest(policies=[rows], deterministic=deterministic).SerializeToString()


def encoded():
    return request_bytes("shared", 2, 1, struct.pack("<ff", 1, -2), True, action_mask=b"\1\0\1\1", agent_slots=[0, 300, -1],
                         state_in=struct.pack("<ff", 0.5, -1.5))


@unittest.skipUnless(HAVE_CLIENT, "grpcio, numpy and protobuf are not installed")
class AnswersTest(unittest.TestCase):
    def setUp(self):
        from troupe import query_calls
        self.calls = query_calls

    def refused(self, read, *arguments):
        with self.assertRaises(self.calls.QueryError) as raised:
            read(*arguments)
        self.assertEqual(raised.exception.code, "INTERNAL", arguments)
        return str(raised.exception)

    def test_bytes_that_are_no_answer(self):
        asked = [self.calls.Asked("shared", [[1.0], [-2.0]])]
        for data in (b"\xff" * 20, b"\x0a\x05ab", b"\x0b", b"\x0a\x03\x0a\x01\xff", b"\x08\x01\x0a\x02\x1a\x00\x0a", b"\x53" * 5000,
                     b"\x53" * (1 << 17)):
            self.assertIn("the answer is", self.refused(self.calls.read_answer, data, asked))
        whole = reply_bytes()
        for size in range(len(whole)):
            self.refused(self.calls.read_answer, whole[:size], asked)
        self.assertEqual(self.calls.read_answer(whole + b"\x90\x03\x07", asked)[0].version, 1234567, "a field it does not know")
        for data in (b"\xff" * 20, b"\x0a\x02\xff\xff", descriptions().SerializeToString()[11:], b"\x12\x03\x52\x01\x05"):
            self.refused(self.calls.read_descriptions, data)
        for data in (b"\x0a\x02\x1a\xff", b"\x0a\x04\x0a\x02\xff\xff", b"\xff"):
            self.refused(self.calls.read_list, data)

    def test_more_than_a_server_s_limits(self):
        """Two bytes of an answer become a message: 5 MiB of them took gigabytes."""
        asked = [self.calls.Asked("shared", [[1.0]])]
        self.assertIn("the answer is of 1025 policies, expected 1", self.refused(self.calls.read_answer, b"\x0a\x00" * 1025, asked))
        for flood in (b"\x0a\x00", b"\x12\x00", b"\x90\x03\x07", b"\xa5\x03abcd", b"\xa9\x03abcdefgh"):
            for read in ((self.calls.read_answer, asked), (self.calls.read_descriptions,), (self.calls.read_list,)):
                self.assertIn("the answer has more than 2048 parts", self.refused(read[0], flood * (5 << 17), *read[1:]))
        self.assertIn("the answer has 1025 policies, expected at most 1024", self.refused(self.calls.read_descriptions, b"\x12\x00" * 1025))
        self.assertIn("the answer has 1025 agents, expected at most 1024", self.refused(self.calls.read_descriptions, b"\x0a\x00" * 1025))
        self.assertIn("the answer has 1025 policies, expected at most 1024", self.refused(self.calls.read_list, b"\x0a\x00" * 1025))
        for field, what in (("outputs", "outputs"), ("versions", "versions")):
            many = query_pb2.PolicyDescription(**{field: [""] * 65 if field == "outputs" else [query_pb2.LabelledVersion()] * 65})
            reply = query_pb2.DescribePoliciesReply(policies=[many]).SerializeToString()
            self.assertIn(f"the answer has 65 {what}, expected at most 64", self.refused(self.calls.read_descriptions, reply))
        largest = query_pb2.DescribePoliciesReply(agent_ids=["agent"] * 1024, policies=[query_pb2.PolicyDescription(network="x" * 100)] * 1024)
        self.assertEqual(len(self.calls.read_descriptions(largest.SerializeToString())), 1024, "as much as there may be is read")

    def test_slots_of_nobody(self):
        for slot in (3, -1):
            reply = descriptions()
            reply.policies[1].agent_slots[0] = slot
            self.assertIn("slots of agents that it does not have", self.refused(self.calls.read_descriptions, reply.SerializeToString()))

    def test_numbers_that_are_none(self):
        asked = [self.calls.Asked("shared", [[1.0]])]
        for seed in (-1, 2**64, 1.5, "1"):
            with self.assertRaisesRegex(ValueError, "seed is .*, expected a whole number from 0 to 18446744073709551615"):
                self.calls.encode_request(asked, seed=seed)
        for least in ((-1, 0), (0, -1), (0, 2**63)):
            with self.assertRaisesRegex(ValueError, "min_version's .* is .*, expected a whole number from 0 to"):
                self.calls.Asked("shared", [[1.0]], min_version=least)


class WithoutGrpcTest(unittest.TestCase):
    def test_says_what_is_missing_in_one_line(self):
        for module in ("query", "query_async"):
            for missing in ("grpc", "google.protobuf", "numpy"):
                code = f"import sys\nsys.modules['{missing}'] = None\nimport troupe.{module}"
                done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
                self.assertNotEqual(done.returncode, 0)
                last = done.stderr.strip().splitlines()[-1]
                self.assertIn(f"troupe.{module} needs numpy, grpcio and protobuf", last)
                self.assertIn("pip install numpy grpcio 'protobuf>=3.20.3'", last)


@unittest.skipUnless(HAVE_CLIENT, "grpcio, numpy and protobuf are not installed")
class ClientTest(unittest.TestCase):
    def setUp(self):
        import grpc
        from concurrent import futures
        self.requests = []
        self.reply = reply_bytes()

        def answer(request, context):
            self.requests.append(request)
            if b"nobody" in request:
                context.abort(grpc.StatusCode.NOT_FOUND, "there is no policy \"nobody\"")
            return self.reply

        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        server = grpc.server(futures.ThreadPoolExecutor(1))
        def describe(request, context):
            self.descriptions += 1
            if b"nobody" in request:
                context.abort(grpc.StatusCode.NOT_FOUND, "there is no policy \"nobody\"")
            return descriptions().SerializeToString()
        self.descriptions = 0
        handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in (("ComputeActions", answer), ("DescribePolicies", describe))}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("troupe.v1.Query", handlers),))
        self.address = f"unix:{folder}/query.sock"
        server.add_insecure_port(self.address)
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())
        from troupe import query
        self.query = query
        self.client = query.PolicyClient(self.address)
        self.addCleanup(self.client.close)

    def test_asks_and_reads(self):
        answer = self.client.compute_actions("shared", [[1.0], [-2.0]], action_mask=[[1, 0], [1, 1]], agent_slots=[0, 300, -1], deterministic=True,
                                             state_in=[[0.5], [-1.5]])
        self.assertEqual(self.requests, [encoded()])
        self.assertEqual((answer.policy_id, answer.learner_epoch, answer.version), ("shared", 3, 1234567))
        self.assertEqual(answer.actions.tolist(), [[1, 1.0], [2, -2.0]])
        self.assertEqual(answer.sampled_actions.tolist(), [[1, 2.0], [2, -4.0]])
        self.assertEqual(answer.action_logp.tolist(), [-0.5, -1.25])
        self.assertEqual(answer.state_out.tolist(), [[0.25], [4.0]])

    def test_what_a_policy_remembers(self):
        first = self.client.compute_actions("shared", [[1.0], [-2.0]])
        self.assertEqual(first.state_out.tolist(), [[0.25], [4.0]], "also where nothing was brought")
        self.client.compute_actions("shared", [[1.0], [-2.0]], state_in=first.state_out)
        self.assertIn(struct.pack("<ff", 0.25, 4.0), self.requests[-1])
        for state in ([0.5, 1.0], [[0.5]], [[[0.5]], [[0.5]]], 0.5):
            with self.assertRaisesRegex(ValueError, r"state_in has shape .*, expected \[2, state size\]"):
                self.client.compute_actions("shared", [[1.0], [-2.0]], state_in=state)
        with self.assertRaises(self.query.QueryError) as raised:
            self.client.compute_actions("shared", [[1.0], [-2.0]], state_in=[[0.5, 1.0], [2.0, 3.0]])
        self.assertEqual(raised.exception.code, "INTERNAL", "the answer's states are not as wide")
        self.reply = b"\x0a\x44" + self.reply[2:2 + 0x44]
        self.assertIsNone(self.client.compute_actions("shared", [[1.0], [-2.0]]).state_out)
        self.reply = b"\x0a\x4a" + self.reply[2:] + b"\x42\x04abcd"
        with self.assertRaises(self.query.QueryError):
            self.client.compute_actions("shared", [[1.0], [-2.0]])

    def test_one_row_and_bytes(self):
        import numpy
        with self.assertRaises(self.query.QueryError) as raised:
            self.client.compute_actions("shared", numpy.array([7, 8, 9], numpy.uint8))
        self.assertEqual(raised.exception.code, "INTERNAL")
        self.assertEqual(self.requests[0], request_bytes("shared", 1, 3, b"\x07\x08\x09"))

    def test_policies(self):
        hunters, prey = self.client.policies()
        self.assertEqual((hunters.policy_id, hunters.learner_epoch, hunters.version), ("hunters", 3, 120))
        self.assertEqual((hunters.observation_space, hunters.action_space), ("Box(-1, 1, [3], float32)", "Discrete(5)"))
        self.assertEqual((hunters.obs_dtype, hunters.obs_size, hunters.mask_size, hunters.state_size), ("float32", 3, 5, 64))
        self.assertEqual((hunters.needs_agent_slots, hunters.agents, hunters.agent_slots), (True, ["hunter_0", "hunter_1"], [0, 1]))
        self.assertEqual((prey.obs_dtype, prey.agents), ("uint8", ["prey"]))
        with self.assertRaises(self.query.QueryError) as raised:
            self.client.policies(["nobody"])
        self.assertEqual(raised.exception.code, "NOT_FOUND")

    def test_agents_instead_of_slots(self):
        def sent(policy_id, agent, rows=2):
            with self.assertRaises(self.query.QueryError):  # the reply is of another policy's rows
                self.reply = b""
                self.client.compute_actions(policy_id, [[1.0]] * rows, agent=agent)
            return self.requests[-1]

        def expected(policy_id, slots, rows=2):
            return request_bytes(policy_id, rows, 1, struct.pack("<f", 1) * rows, agent_slots=slots)
        self.assertEqual(sent(None, "hunter_1"), expected("hunters", [1, 1]))
        self.assertEqual(sent("hunters", ["hunter_1", "hunter_0"]), expected("hunters", [1, 0]))
        self.assertEqual(sent(None, "prey"), expected("prey", []), "it takes none")
        self.assertEqual(self.descriptions, 1, "asked for once")
        for policy_id, agent, words in ((None, "hunter_2", "no policy plays hunter_2; policies and their agents: hunters (hunter_0 hunter_1), prey (prey)"),
                                        ("prey", "hunter_0", "no policy 'prey' plays hunter_0"),
                                        (None, ["prey"] * 3, "agent has 3 ids, expected one for all rows, or 2"), (None, None, "neither policy_id nor agent")):
            with self.assertRaises(ValueError) as raised:
                self.client.compute_actions(policy_id, [[1.0]] * 2, agent=agent)
            self.assertIn(words, str(raised.exception))
        with self.assertRaises(ValueError):
            self.client.compute_actions("hunters", [[1.0]], agent="hunter_0", agent_slots=[0])

    def test_errors(self):
        with self.assertRaises(self.query.QueryError) as raised:
            self.client.compute_actions("nobody", [[1.0], [2.0]])
        self.assertEqual(raised.exception.code, "NOT_FOUND")
        self.assertIn("there is no policy", str(raised.exception))
        for reply in (b"\xff", b"", self.reply + self.reply, self.reply.replace(b"\x18\x02", b"\x18\x03")):
            self.reply = reply
            with self.assertRaises(self.query.QueryError, msg=reply) as raised:
                self.client.compute_actions("shared", [[1.0], [2.0]])
            self.assertEqual(raised.exception.code, "INTERNAL")
        with self.assertRaises(ValueError):
            self.client.compute_actions("shared", [[[1.0]]])

    def test_plain_text_stays_on_this_machine(self):
        for address in ("10.0.0.1:1", "example.org:1", "127.0.0.1.example.org:1", "127.evil.example:1", "127.1:1", "localhost.:1", "127.0.0.256:1",
                        "127.0.0.01:1", "[::ffff:10.0.0.1]:1", "[::]:1", "0.0.0.0:1"):
            with self.assertRaisesRegex(ValueError, "on another machine", msg=address):
                self.query.PolicyClient(address)
            self.query.PolicyClient(address, insecure_plaintext_network=True).close()
        for address in ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1", "unix-abstract:x"):
            self.query.PolicyClient(address).close()

    def test_what_is_no_address_is_not_taken_for_another_machine(self):
        for address in ("localhost", "my_run", "", ":1", "::1:80", "localhost:x", "127.0.0.1:1,evil.example:1", "localhost:1:2"):
            with self.assertRaisesRegex(ValueError, "expected unix:PATH, unix-abstract:NAME, HOST:PORT", msg=address):
                self.query.PolicyClient(address)


if __name__ == "__main__":
    unittest.main()
