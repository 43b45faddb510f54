"""Clients of troupe.query and troupe.query_async against servers made here: several, streams, TLS, what goes with a call. No network but loopback."""

import asyncio
import concurrent.futures
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(ROOT, ".."))

from troupe import query_messages as messages  # noqa: E402

HAVE_CLIENT = bool(importlib.util.find_spec("grpc") and importlib.util.find_spec("numpy"))


def field(number, data):
    return messages._bytes(number, data)


def reply(policies=1, policy_id="p", rows=1, version=1, state=b"", tag=0, extra=b""):
    """A ComputeActionsReply: of each policy one int32 word a row."""
    one = (field(1, policy_id.encode()) + field(2, messages._number(1, 1) + messages._number(2, version)) + messages._number(3, rows) + field(4, b"\x02") +
           field(5, bytes(4 * rows)) + field(6, bytes(4 * rows)) + field(7, struct.pack(f"<{rows}f", *[-1.5] * rows)) + field(8, state) + extra +
           messages._fixed64(11, tag))
    return field(1, one) * policies


class FakeServer:
    """Answers every request with `answer(request)`; counts them and keeps what came with them."""

    def __init__(self, test, answer=None, credentials=None):
        import grpc
        self.grpc = grpc
        self.answer = answer or (lambda request: reply())
        self.calls, self.metadata, self.requests = 0, [], []

        def unary(request, context):
            return self.take(request, context)

        def stream(requests, context):
            for request in requests:
                yield self.take(request, context)
        handlers = {"ComputeActions": grpc.unary_unary_rpc_method_handler(unary), "StreamActions": grpc.stream_stream_rpc_method_handler(stream),
                    "ListPolicies": grpc.unary_unary_rpc_method_handler(lambda request, context: LIST)}
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("troupe.v1.Query", handlers),))
        port = self.server.add_insecure_port("127.0.0.1:0") if credentials is None else self.server.add_secure_port("localhost:0", credentials)
        self.address = f"{'127.0.0.1' if credentials is None else 'localhost'}:{port}"
        self.server.start()
        test.addCleanup(self.stop)

    def take(self, request, context):
        self.calls += 1
        self.requests.append(request)
        self.metadata.append({key: value for key, value in context.invocation_metadata()})
        answer = self.answer(request)
        if isinstance(answer, tuple):
            context.abort(answer[0], answer[1])
        return answer

    def stop(self):
        self.server.stop(0).wait()


LIST = field(1, field(1, b"p") + field(2, messages._number(1, 3) + messages._number(2, 7)) +
             field(3, field(1, b"best") + field(2, messages._number(1, 2) + messages._number(2, 5))))


@unittest.skipUnless(shutil.which("protoc"), "protoc is not installed")
class BytesTest(unittest.TestCase):
    def protoc(self, what, kind, data):
        done = subprocess.run(["protoc", f"--{what}=troupe.v1.{kind}", "-I", os.path.join(ROOT, "..", "..", "proto"), "troupe/v1/query.proto"],
                              input=data, capture_output=True, check=True)
        return done.stdout

    def test_everything_that_may_be_asked(self):
        rows = messages.encode_rows(None, 1, messages.FLOAT32, b"abcd", state_in=b"efgh", version="best", min_version=(3, 120), agent_ids=["a", "bc"],
                                    state_tag=0x0102030405060708)
        text = self.protoc("decode", "ComputeActionsRequest", messages.encode_requests([rows], outputs=["action", "logits"], seed=0)).decode()
        self.assertEqual(text, 'policies {\n  rows: 1\n  obs_dtype: DTYPE_FLOAT32\n  obs: "abcd"\n  state_in: "efgh"\n  version: "best"\n  min_version {\n'
                               '    learner_epoch: 3\n    n: 120\n  }\n  agent_ids: "a"\n  agent_ids: "bc"\n  state_tag: 72623859790382856\n}\n'
                               'outputs: "action"\noutputs: "logits"\nseed: 0\n')
        plain = self.protoc("decode", "ComputeActionsRequest", messages.encode_requests([messages.encode_rows("p", 1, 1, b"abcd")])).decode()
        self.assertEqual(plain, 'policies {\n  policy_id: "p"\n  rows: 1\n  obs_dtype: DTYPE_FLOAT32\n  obs: "abcd"\n}\n', "a seed is there or not")

    def test_what_is_answered(self):
        refused = self.protoc("encode", "ComputeActionsReply", b'error { code: 5 message: "nobody" }')
        self.assertEqual(messages.decode_stream_reply(refused), ([], (5, "nobody")))
        data = self.protoc("encode", "ComputeActionsReply", b'policies { policy_id: "p" rows: 1 logits: "abcd" mean: "efgh" state_tag: 9 }')
        answer, = messages.decode_reply(data)
        self.assertEqual((answer["logits"], answer["mean"], answer["state_tag"]), (b"abcd", b"efgh", 9))
        listed = self.protoc("encode", "ListPoliciesReply", b'policies { policy_id: "p" version { learner_epoch: 3 n: 7 } '
                                                            b'versions { label: "best" version { learner_epoch: 2 n: 5 } } }')
        self.assertEqual(listed, LIST)
        self.assertEqual(messages.decode_list(listed), {"p": {"latest": (3, 7), "best": (2, 5)}})
        described = self.protoc("encode", "DescribePoliciesReply", b'policies { policy_id: "p" network: "mlp [4] tanh" outputs: "action" outputs: "mean" '
                                                                   b'mean_size: 2 versions { label: "best" version { n: 5 } } }')
        _, (policy,) = messages.decode_descriptions(described)
        self.assertEqual((policy["network"], policy["outputs"], policy["mean_size"], policy["versions"]),
                         ("mlp [4] tanh", ["action", "mean"], 2, {"best": (0, 5)}))
        for data in (b"\x0a\x02\x1a\xff", b"\x0a\x04\x0a\x02\xff\xff", b"\xff"):
            with self.assertRaises(ValueError):
                messages.decode_list(data)
        with self.assertRaises(ValueError):
            messages.decode_list(field(1, field(1, b"p") + field(3, b"") + b"\x1a\x00" * 65))


class ClientTestCase(unittest.TestCase):
    def client(self, addresses, **options):
        from troupe.query import PolicyClient
        client = PolicyClient(addresses, **options)
        self.addCleanup(client.close)
        return client


@unittest.skipUnless(HAVE_CLIENT, "grpcio and numpy are not installed")
class ServersTest(ClientTestCase):
    def test_are_asked_in_turns_and_one_that_is_gone_costs_no_call(self):
        servers = [FakeServer(self) for _ in range(3)]
        client = self.client([server.address for server in servers])
        for _ in range(30):
            client.compute_actions("p", [[1.0]])
        self.assertEqual([server.calls for server in servers], [10, 10, 10])
        servers[1].stop()
        for _ in range(30):
            client.compute_actions("p", [[1.0]])
        self.assertEqual(servers[0].calls + servers[2].calls, 50)

    def test_retries_have_a_budget_and_nothing_else_is_tried_again(self):
        from troupe.query import QueryError
        server = FakeServer(self)
        server.answer = lambda request: (server.grpc.StatusCode.UNAVAILABLE, "no weights yet")
        for retries, calls in ((0, 1), (2, 3)):
            server.calls = 0
            with self.assertRaises(QueryError) as raised:
                self.client(server.address, retries=retries).compute_actions("p", [[1.0]])
            self.assertEqual((raised.exception.code, server.calls), ("UNAVAILABLE", calls))
        for code in ("NOT_FOUND", "RESOURCE_EXHAUSTED", "INTERNAL"):
            server.calls = 0
            server.answer = lambda request: (getattr(server.grpc.StatusCode, code), "no")
            with self.assertRaises(QueryError) as raised:
                self.client(server.address).compute_actions("p", [[1.0]])
            self.assertEqual((raised.exception.code, server.calls), (code, 1))

    def test_the_deadline_is_of_all_tries_together(self):
        from troupe.query import QueryError
        server = FakeServer(self)
        server.answer = lambda request: (server.grpc.StatusCode.UNAVAILABLE, "no")
        begun = time.monotonic()
        with self.assertRaises(QueryError):
            self.client(server.address, retries=100, timeout=0.5).compute_actions("p", [[1.0]])
        self.assertLess(time.monotonic() - begun, 5)
        server.answer = lambda request: time.sleep(1) or reply()
        with self.assertRaises(QueryError) as raised:
            self.client(server.address).compute_actions("p", [[1.0]], timeout=0.2)
        self.assertEqual(raised.exception.code, "DEADLINE_EXCEEDED")

    def test_what_is_asked_beside_rows(self):
        import numpy
        server = FakeServer(self, lambda request: reply(rows=2, policies=request.count(b"\x52\x01"), state=struct.pack("<4f", 1, 2, 3, 4), tag=77,
                                                         extra=field(9, bytes(8)) + field(10, bytes(16))))
        client = self.client(server.address)
        answers = client.compute_agents({"a": [[1.0], [2.0]], "b": [[3.0], [4.0]]}, version=12, min_version=(3, 9), outputs=(), seed=5)
        self.assertEqual(list(answers), ["a", "b"])
        state = answers["b"].state_out
        self.assertEqual((state.tolist(), state.tag, state[1:].tag), ([[1, 2], [3, 4]], 77, 77))
        self.assertEqual((answers["a"].logits.shape, answers["a"].mean.shape), ((2, 1), (2, 2)))
        rows = [messages.encode_rows(None, 2, messages.FLOAT32, struct.pack("<ff", *values), version="12", min_version=(3, 9), agent_ids=[agent])
                for agent, values in (("a", (1, 2)), ("b", (3, 4)))]
        self.assertEqual(server.requests[-1], messages.encode_requests(rows, seed=5))
        client.compute_agents({"a": [[1.0], [2.0]]}, states={"a": state})
        self.assertEqual(server.requests[-1], messages.encode_requests(
            [messages.encode_rows(None, 2, messages.FLOAT32, struct.pack("<ff", 1, 2), state_in=struct.pack("<4f", 1, 2, 3, 4), agent_ids=["a"], state_tag=77)]))
        client.compute_agents({"a": [[1.0], [2.0]]}, states={"a": numpy.array(state)})
        self.assertNotIn(struct.pack("<Q", 77), server.requests[-1], "an array of one's own has no tag")
        self.assertEqual(client.compute_agents({}), {})
        with self.assertRaisesRegex(ValueError, "states has agent 'c', of which there is no observation"):
            client.compute_agents({"a": [1.0]}, states={"c": state})
        self.assertEqual(client.list_policies(), {"p": {"latest": (3, 7), "best": (2, 5)}})

    def test_outputs_that_were_not_asked_for_are_none(self):
        server = FakeServer(self, lambda request: field(1, field(1, b"p") + messages._number(3, 1) + field(4, b"\x02") + field(5, bytes(4))))
        answer = self.client(server.address).compute_actions("p", [[1.0]], outputs=["action"])
        self.assertEqual((answer.actions.tolist(), answer.sampled_actions, answer.action_logp, answer.state_out, answer.logits), ([[0]], None, None, None, None))
        from troupe.query import QueryError
        with self.assertRaises(QueryError):
            self.client(server.address).compute_actions("p", [[1.0]])

    def test_bad_arguments(self):
        for address, retries, words in (([], 2, "got no address"), ("127.0.0.1:1", -1, "retries is -1"),
                                        (["127.0.0.1:1", "10.0.0.1:1"], 2, "10.0.0.1:1 is on another machine")):
            with self.assertRaisesRegex(ValueError, words):
                self.client(address, retries=retries)

    def test_metadata_and_credentials_are_passed_through(self):
        import grpc
        plain = FakeServer(self)
        self.client(plain.address, metadata=[("authorization", "Bearer x")]).compute_actions("p", [[1.0]])
        self.assertEqual(plain.metadata[0]["authorization"], "Bearer x")
        if not shutil.which("openssl"):
            return
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        key, certificate = os.path.join(folder, "key"), os.path.join(folder, "certificate")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        with open(key, "rb") as private, open(certificate, "rb") as public:
            pair = (private.read(), public.read())
        server = FakeServer(self, credentials=grpc.ssl_server_credentials([pair]))
        trusting = grpc.ssl_channel_credentials(pair[1])
        client = self.client(server.address, credentials=trusting, metadata=[("token", "y")])
        self.assertEqual(client.compute_actions("p", [[1.0]]).actions.tolist(), [[0]])
        with client.stream() as stream:
            self.assertEqual(stream.compute_actions("p", [[1.0]]).actions.tolist(), [[0]])
        self.assertEqual([metadata["token"] for metadata in server.metadata], ["y", "y"])
        from troupe.query import QueryError
        for credentials in (None, grpc.ssl_channel_credentials()):
            with self.assertRaises(QueryError) as raised:
                self.client(server.address, credentials=credentials, retries=0).compute_actions("p", [[1.0]])
            self.assertEqual(raised.exception.code, "UNAVAILABLE")

        async def ask():
            from troupe.query_async import AsyncPolicyClient
            async with AsyncPolicyClient(server.address, credentials=trusting, metadata=[("token", "z")]) as aio:
                return await aio.compute_actions("p", [[1.0]])
        self.assertEqual(asyncio.run(ask()).actions.tolist(), [[0]])
        self.assertEqual(server.metadata[-1]["token"], "z")


@unittest.skipUnless(HAVE_CLIENT, "grpcio and numpy are not installed")
class StreamTest(ClientTestCase):
    def test_answers_and_refusals(self):
        from troupe.query import QueryError
        server = FakeServer(self, lambda request: field(2, messages._number(1, 5) + field(2, b"nobody")) if b"nobody" in request else reply())
        with self.client(server.address).stream() as stream:
            for _ in range(3):
                self.assertEqual(stream.compute_actions("p", [[1.0]]).action_logp.tolist(), [-1.5])
                with self.assertRaises(QueryError) as raised:
                    stream.compute_actions("nobody", [[1.0]])
                self.assertEqual(raised.exception.code, "NOT_FOUND")
            self.assertEqual(len({id(metadata) for metadata in server.metadata}), 6)
        with self.assertRaisesRegex(ValueError, "the stream is closed"):
            stream.compute_actions("p", [[1.0]])

    def test_goes_on_at_another_server(self):
        servers = [FakeServer(self) for _ in range(2)]
        with self.client([server.address for server in servers]).stream() as stream:
            stream.compute_actions("p", [[1.0]])
            gone = next(server for server in servers if server.calls)
            gone.stop()
            for _ in range(5):
                stream.compute_actions("p", [[1.0]])
        self.assertEqual(sum(server.calls for server in servers), 6)

    def test_a_stream_that_ends_uses_up_no_try_at_another_server(self):
        for offset in (1, 2) * 4:  # whichever comes first in the client's turns
            servers = [FakeServer(self) for _ in range(3)]
            with self.client([server.address for server in servers], retries=2).stream() as stream:
                stream.compute_actions("p", [[1.0]])
                stood = next(i for i, server in enumerate(servers) if server.calls)
                alive = (stood + offset) % 3
                for i, server in enumerate(servers):
                    if i != alive:
                        server.stop()
                stream.compute_actions("p", [[1.0]])
                self.assertEqual(servers[alive].calls, 1)

    def test_what_a_server_lacks_for_now_is_asked_of_the_next(self):
        from troupe.query import QueryError
        def lacks(request):
            return field(2, messages._number(1, 14) + field(2, b"no weights yet"))
        servers = [FakeServer(self, lacks), FakeServer(self)]
        with self.client([server.address for server in servers], retries=1).stream() as stream:
            for _ in range(6):
                self.assertEqual(stream.compute_actions("p", [[1.0]]).action_logp.tolist(), [-1.5])
        with self.client(servers[0].address, retries=1).stream() as stream:
            with self.assertRaises(QueryError) as raised:
                stream.compute_actions("p", [[1.0]])
            self.assertEqual(raised.exception.code, "UNAVAILABLE")
            self.assertIn("no weights yet", str(raised.exception))

    def test_has_deadlines_and_threads_take_turns(self):
        from troupe.query import QueryError
        server = FakeServer(self)
        with self.client(server.address).stream() as stream:
            stream.compute_actions("p", [[1.0]])
            server.answer = lambda request: time.sleep(1) or reply()
            begun = time.monotonic()
            with self.assertRaises(QueryError) as raised:
                stream.compute_actions("p", [[1.0]], timeout=0.2)
            self.assertEqual(raised.exception.code, "DEADLINE_EXCEEDED")
            self.assertLess(time.monotonic() - begun, 0.9)
            server.answer = lambda request: reply()
            answers = []
            threads = [threading.Thread(target=lambda: answers.extend(stream.compute_actions("p", [[1.0]]) for _ in range(20))) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(answers), 80)


@unittest.skipUnless(HAVE_CLIENT, "grpcio and numpy are not installed")
class AsyncTest(unittest.TestCase):
    def test_many_at_a_time_from_several_servers(self):
        from troupe.query import QueryError
        from troupe.query_async import AsyncPolicyClient
        servers = [FakeServer(self) for _ in range(3)]

        async def ask():
            async with AsyncPolicyClient([server.address for server in servers]) as client:
                answers = await asyncio.gather(*(client.compute_actions("p", [[1.0]]) for _ in range(60)))
                self.assertEqual(await client.list_policies(), {"p": {"latest": (3, 7), "best": (2, 5)}})
                servers[0].stop()
                answers += await asyncio.gather(*(client.compute_actions("p", [[1.0]]) for _ in range(60)))
                servers[1].answer = servers[2].answer = lambda request: (servers[1].grpc.StatusCode.NOT_FOUND, "nobody")
                with self.assertRaises(QueryError) as raised:
                    await client.compute_actions("nobody", [[1.0]])
                self.assertEqual(raised.exception.code, "NOT_FOUND")
                servers[1].answer = servers[2].answer = lambda request: time.sleep(1) or reply()
                with self.assertRaises(QueryError) as raised:
                    await client.compute_actions("p", [[1.0]], timeout=0.2)
                self.assertEqual(raised.exception.code, "DEADLINE_EXCEEDED")
                return answers
        self.assertEqual(len(asyncio.run(ask())), 120)
        self.assertGreater(min(server.calls for server in servers), 15)


if __name__ == "__main__":
    unittest.main()
