"""The query client: its messages against protoc where that is installed, the client against a server of its own where grpcio and numpy are."""

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

from troupe import query_messages  # noqa: E402

HAVE_CLIENT = importlib.util.find_spec("grpc") is not None and importlib.util.find_spec("numpy") is not None

REQUEST = """policies {
  policy_id: "shared"
  rows: 2
  obs_dtype: DTYPE_FLOAT32
  obs: "\\000\\000\\200?\\000\\000\\000\\300"
  action_mask: "\\001\\000\\001\\001"
  agent_slots: 0
  agent_slots: 300
  agent_slots: -1
  state_in: "\\000\\000\\000?\\000\\000\\300\\277"
}
deterministic: true
"""
REPLY = """policies {
  policy_id: "shared"
  version { learner_epoch: 3 n: 1234567 }
  rows: 2
  action_dtypes: DTYPE_INT32
  action_dtypes: DTYPE_FLOAT32
  actions: "\\001\\000\\000\\000\\000\\000\\200?\\002\\000\\000\\000\\000\\000\\000\\300"
  sampled_actions: "\\001\\000\\000\\000\\000\\000\\000@\\002\\000\\000\\000\\000\\000\\200\\300"
  action_logp: -0.5
  action_logp: -1.25
  state_out: "\\000\\000\\200>\\000\\000\\200@"
}
policies { policy_id: "other" version { n: -1 } }
"""
# REPLY as protoc encodes it.
REPLY_BYTES = (b"\x0a\x4e\x0a\x06shared\x12\x06\x08\x03\x10\x87\xad\x4b\x18\x02\x22\x02\x02\x01\x2a\x10" +
               struct.pack("<ifif", 1, 1.0, 2, -2.0) + b"\x32\x10" + struct.pack("<ifif", 1, 2.0, 2, -4.0) + b"\x3a\x08" +
               struct.pack("<ff", -0.5, -1.25) + b"\x42\x08" + struct.pack("<ff", 0.25, 4.0) + b"\x0a\x14\x0a\x05other\x12\x0b\x10" + b"\xff" * 9 + b"\x01")


DESCRIPTIONS = """agent_ids: "hunter_0"
agent_ids: "hunter_1"
agent_ids: "prey"
policies {
  policy_id: "hunters"
  version { learner_epoch: 3 n: 120 }
  observation_space: "Box(-1, 1, [3], float32)"
  action_space: "Discrete(5)"
  obs_dtype: DTYPE_FLOAT32
  obs_size: 3
  mask_size: 5
  action_dtypes: DTYPE_INT32
  needs_agent_slots: true
  agent_slots: 0
  agent_slots: 1
  state_size: 64
}
policies { policy_id: "prey" observation_space: "Discrete(2)" action_space: "Discrete(2)" obs_dtype: DTYPE_UINT8 agent_slots: 2 }
"""
# DESCRIPTIONS as protoc encodes it.
DESCRIPTIONS_BYTES = (b"\n\x08hunter_0\n\x08hunter_1\n\x04prey" +
                      b"\x12G\n\x07hunters\x12\x04\x08\x03\x10x\x1a\x18Box(-1, 1, [3], float32)\"\x0bDiscrete(5)(\x010\x038\x05B\x01\x02H\x01R\x02\x00\x01X\x40" +
                      b"\x12%\n\x04prey\x1a\x0bDiscrete(2)\"\x0bDiscrete(2)(\x03R\x01\x02")


def encode(**changes):
    request = dict(policy_id="shared", rows=2, obs_dtype=query_messages.FLOAT32, obs=struct.pack("<ff", 1, -2), action_mask=b"\1\0\1\1",
                   agent_slots=[0, 300, -1], deterministic=True, state_in=struct.pack("<ff", 0.5, -1.5))
    request.update(changes)
    return query_messages.encode_request(**request)


class MessagesTest(unittest.TestCase):
    def test_reads_a_reply(self):
        first, second = query_messages.decode_reply(REPLY_BYTES)
        self.assertEqual(first, {"policy_id": "shared", "learner_epoch": 3, "version": 1234567, "rows": 2, "action_dtypes": [2, 1],
                                 "actions": struct.pack("<ifif", 1, 1.0, 2, -2.0), "sampled_actions": struct.pack("<ifif", 1, 2.0, 2, -4.0),
                                 "action_logp": [-0.5, -1.25], "state_out": struct.pack("<ff", 0.25, 4.0), "logits": b"", "mean": b"", "state_tag": 0})
        self.assertEqual((second["policy_id"], second["version"], second["action_logp"], second["state_out"]), ("other", -1, [], b""))

    def test_skips_fields_it_does_not_know(self):
        unknown = b"\x90\x03\x07" + b"\x9a\x03\x02ab" + b"\xa5\x03abcd" + b"\xa9\x03abcdefgh"  # fields 50 to 53, of every kind
        policy = b"\x0a\x01p" + unknown
        answer, = query_messages.decode_reply(unknown + b"\x0a" + bytes([len(policy)]) + policy)
        self.assertEqual(answer["policy_id"], "p")

    def test_refuses_other_bytes(self):
        for data in (b"\xff" * 20, b"\x0a\x05ab", b"\x0b", b"\x0a\x03\x0a\x01\xff", b"\x08\x01\x0a\x02\x1a\x00\x0a"):
            with self.assertRaises(ValueError, msg=data):
                query_messages.decode_reply(data)
        for size in range(1, len(REPLY_BYTES)):
            try:
                query_messages.decode_reply(REPLY_BYTES[:size])
            except ValueError:
                pass

    def test_a_number_in_a_text_s_place_is_no_size(self):
        """bytes(NUMBER) is so many zeros: a server's answer of five bytes would take gigabytes."""
        large = b"\x80\x80\x80\x80\x08"  # 2 GiB as a varint
        for field in (1, 2, 5, 6, 7, 8):
            policy = bytes([field << 3]) + large
            with self.assertRaises(ValueError, msg=field):
                query_messages.decode_reply(b"\x0a" + bytes([len(policy)]) + policy)
        for data in (b"\x08" + large, b"\x12\x06\x08" + large, b"\x12\x06\x18" + large, b"\x12\x02\x2a\x00"):
            with self.assertRaises(ValueError, msg=data):
                query_messages.decode_descriptions(data)
        policy = b"\x1a\x04abcd"  # a text where the number of rows belongs
        with self.assertRaises(ValueError):
            query_messages.decode_reply(b"\x0a" + bytes([len(policy)]) + policy)

    def test_more_than_a_server_s_limits_is_refused_as_it_comes(self):
        """Two bytes of an answer become a dict: 5 MiB of them took gigabytes."""
        with self.assertRaisesRegex(ValueError, "more than 1024 policies"):
            query_messages.decode_reply(b"\x0a\x00" * 1025)
        self.assertEqual(len(query_messages.decode_reply(b"\x0a\x00" * 1024)), 1024)
        with self.assertRaisesRegex(ValueError, "more than 1024 policies"):
            query_messages.decode_descriptions(b"\x12\x00" * 1025)
        with self.assertRaisesRegex(ValueError, "more than 1024 agents"):
            query_messages.decode_descriptions(b"\x0a\x00" * 1025)

    def test_reads_descriptions(self):
        agents, (hunters, prey) = query_messages.decode_descriptions(DESCRIPTIONS_BYTES + b"\x50\x07")  # a field it does not know
        self.assertEqual(agents, ["hunter_0", "hunter_1", "prey"])
        self.assertEqual(hunters, {"policy_id": "hunters", "learner_epoch": 3, "version": 120, "observation_space": "Box(-1, 1, [3], float32)",
                                   "action_space": "Discrete(5)", "obs_dtype": query_messages.FLOAT32, "obs_size": 3, "mask_size": 5,
                                   "action_dtypes": [2], "needs_agent_slots": True, "agent_slots": [0, 1], "state_size": 64, "network": "",
                                   "outputs": [], "logits_size": 0, "mean_size": 0, "versions": {}})
        self.assertEqual((prey["version"], prey["needs_agent_slots"], prey["agent_slots"], prey["state_size"]), (0, False, [2], 0))
        for data in (b"\xff" * 20, b"\x12\x03\x52\x01\x05", b"\x0a\x02\xff\xff", DESCRIPTIONS_BYTES[11:]):
            with self.assertRaises(ValueError, msg=data):
                query_messages.decode_descriptions(data)
        self.assertEqual(query_messages.encode_describe_request(["a", "bc"]), b"\x0a\x01a\x0a\x02bc")

    @unittest.skipUnless(shutil.which("protoc"), "protoc is not installed")
    def test_equals_protoc(self):
        def protoc(what, kind, data):
            done = subprocess.run(["protoc", f"--{what}=troupe.v1.{kind}", "-I", os.path.join(ROOT, "..", "proto"), "troupe/v1/query.proto"],
                                  input=data, capture_output=True, check=True)
            return done.stdout
        self.assertEqual(protoc("encode", "ComputeActionsRequest", REQUEST.encode()), encode())
        self.assertEqual(protoc("decode", "ComputeActionsRequest", encode()).decode(), REQUEST)
        self.assertEqual(protoc("encode", "ComputeActionsReply", REPLY.encode()), REPLY_BYTES)
        self.assertEqual(protoc("encode", "DescribePoliciesReply", DESCRIPTIONS.encode()), DESCRIPTIONS_BYTES)
        self.assertEqual(protoc("decode", "DescribePoliciesRequest", query_messages.encode_describe_request(["a"])), b'policy_ids: "a"\n')
        plain = encode(action_mask=b"", agent_slots=[], deterministic=False, state_in=b"")
        text = protoc("decode", "ComputeActionsRequest", plain).decode()
        self.assertNotIn("action_mask", text)
        self.assertNotIn("state_in", text)
        self.assertNotIn("deterministic", text)


class WithoutGrpcTest(unittest.TestCase):
    def test_says_what_is_missing_in_one_line(self):
        code = "import sys\nsys.modules['grpc'] = None\nimport troupe.query"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        last = done.stderr.strip().splitlines()[-1]
        self.assertIn("troupe.query needs numpy and grpcio", last)
        self.assertIn("pip install numpy grpcio", last)


@unittest.skipUnless(HAVE_CLIENT, "grpcio and numpy are not installed")
class ClientTest(unittest.TestCase):
    def setUp(self):
        import grpc
        from concurrent import futures
        self.requests = []
        self.reply = REPLY_BYTES[:2 + 0x4e]

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
            return DESCRIPTIONS_BYTES
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
        self.assertEqual(self.requests, [encode()])
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
        self.assertEqual(self.requests[0], query_messages.encode_request("shared", 1, query_messages.UINT8, b"\x07\x08\x09"))

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

        def encoded(policy_id, slots, rows=2):
            return query_messages.encode_request(policy_id, rows, query_messages.FLOAT32, struct.pack("<f", 1) * rows, agent_slots=slots)
        self.assertEqual(sent(None, "hunter_1"), encoded("hunters", [1, 1]))
        self.assertEqual(sent("hunters", ["hunter_1", "hunter_0"]), encoded("hunters", [1, 0]))
        self.assertEqual(sent(None, "prey"), encoded("prey", []), "it takes none")
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
        for address in ("10.0.0.1:1", "example.org:1", "127.0.0.1.example.org:1"):
            with self.assertRaises(ValueError):
                self.query.PolicyClient(address)
            self.query.PolicyClient(address, insecure_plaintext_network=True).close()
        for address in ("127.0.0.1:1", "[::1]:1", "localhost:1", "unix-abstract:x"):
            self.query.PolicyClient(address).close()


if __name__ == "__main__":
    unittest.main()
