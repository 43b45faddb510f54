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
}
policies { policy_id: "other" version { n: -1 } }
"""
# REPLY as protoc encodes it.
REPLY_BYTES = (b"\x0a\x44\x0a\x06shared\x12\x06\x08\x03\x10\x87\xad\x4b\x18\x02\x22\x02\x02\x01\x2a\x10" +
               struct.pack("<ifif", 1, 1.0, 2, -2.0) + b"\x32\x10" + struct.pack("<ifif", 1, 2.0, 2, -4.0) + b"\x3a\x08" +
               struct.pack("<ff", -0.5, -1.25) + b"\x0a\x14\x0a\x05other\x12\x0b\x10" + b"\xff" * 9 + b"\x01")


def encode(**changes):
    request = dict(policy_id="shared", rows=2, obs_dtype=query_messages.FLOAT32, obs=struct.pack("<ff", 1, -2), action_mask=b"\1\0\1\1",
                   agent_slots=[0, 300, -1], deterministic=True)
    request.update(changes)
    return query_messages.encode_request(**request)


class MessagesTest(unittest.TestCase):
    def test_reads_a_reply(self):
        first, second = query_messages.decode_reply(REPLY_BYTES)
        self.assertEqual(first, {"policy_id": "shared", "learner_epoch": 3, "version": 1234567, "rows": 2, "action_dtypes": [2, 1],
                                 "actions": struct.pack("<ifif", 1, 1.0, 2, -2.0), "sampled_actions": struct.pack("<ifif", 1, 2.0, 2, -4.0),
                                 "action_logp": [-0.5, -1.25]})
        self.assertEqual((second["policy_id"], second["version"], second["action_logp"]), ("other", -1, []))

    def test_skips_fields_it_does_not_know(self):
        unknown = b"\x50\x07" + b"\x5a\x02ab" + b"\x65abcd" + b"\x69abcdefgh"  # fields 10 to 13, of every kind
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

    @unittest.skipUnless(shutil.which("protoc"), "protoc is not installed")
    def test_equals_protoc(self):
        def protoc(what, kind, data):
            done = subprocess.run(["protoc", f"--{what}=troupe.v1.{kind}", "-I", os.path.join(ROOT, "..", "proto"), "troupe/v1/query.proto"],
                                  input=data, capture_output=True, check=True)
            return done.stdout
        self.assertEqual(protoc("encode", "ComputeActionsRequest", REQUEST.encode()), encode())
        self.assertEqual(protoc("decode", "ComputeActionsRequest", encode()).decode(), REQUEST)
        self.assertEqual(protoc("encode", "ComputeActionsReply", REPLY.encode()), REPLY_BYTES)
        plain = encode(action_mask=b"", agent_slots=[], deterministic=False)
        text = protoc("decode", "ComputeActionsRequest", plain).decode()
        self.assertNotIn("action_mask", text)
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
        self.reply = REPLY_BYTES[:2 + 0x44]

        def answer(request, context):
            self.requests.append(request)
            if b"nobody" in request:
                context.abort(grpc.StatusCode.NOT_FOUND, "there is no policy \"nobody\"")
            return self.reply

        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        server = grpc.server(futures.ThreadPoolExecutor(1))
        handler = grpc.unary_unary_rpc_method_handler(answer)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("troupe.v1.Query", {"ComputeActions": handler}),))
        self.address = f"unix:{folder}/query.sock"
        server.add_insecure_port(self.address)
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())
        from troupe import query
        self.query = query
        self.client = query.PolicyClient(self.address)
        self.addCleanup(self.client.close)

    def test_asks_and_reads(self):
        answer = self.client.compute_actions("shared", [[1.0], [-2.0]], action_mask=[[1, 0], [1, 1]], agent_slots=[0, 300, -1], deterministic=True)
        self.assertEqual(self.requests, [encode()])
        self.assertEqual((answer.policy_id, answer.learner_epoch, answer.version), ("shared", 3, 1234567))
        self.assertEqual(answer.actions.tolist(), [[1, 1.0], [2, -2.0]])
        self.assertEqual(answer.sampled_actions.tolist(), [[1, 2.0], [2, -4.0]])
        self.assertEqual(answer.action_logp.tolist(), [-0.5, -1.25])

    def test_one_row_and_bytes(self):
        import numpy
        with self.assertRaises(self.query.QueryError) as raised:
            self.client.compute_actions("shared", numpy.array([7, 8, 9], numpy.uint8))
        self.assertEqual(raised.exception.code, "INTERNAL")
        self.assertEqual(self.requests[0], query_messages.encode_request("shared", 1, query_messages.UINT8, b"\x07\x08\x09"))

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
