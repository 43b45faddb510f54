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
from unittest import mock

ROOT = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(ROOT, ".."))

HAVE_CLIENT = all(importlib.util.find_spec(name) for name in ("grpc", "numpy", "google")) and importlib.util.find_spec("google.protobuf") is not None
if HAVE_CLIENT:
    from troupe.v1 import query_pb2


def reply(policies=1, rows=1, **more):
    """A ComputeActionsReply: of each policy one int32 word a row."""
    one = query_pb2.QueryActions(policy_id="p", rows=rows, action_dtypes=[2], actions=bytes(4 * rows), sampled_actions=bytes(4 * rows), action_logp=[-1.5] * rows,
                                 **more)
    return query_pb2.ComputeActionsReply(policies=[one] * policies).SerializeToString()


def refusal(code, words):
    """What a stream has in an answer's place."""
    reply = query_pb2.ComputeActionsReply()
    reply.error.code, reply.error.message = code, words
    return reply.SerializeToString()


def rows_of(agent, *values, **more):
    return query_pb2.QueryRows(rows=len(values), obs_dtype=1, obs=struct.pack(f"<{len(values)}f", *values), agent_ids=[agent], **more)


def listed():
    reply = query_pb2.ListPoliciesReply()
    policy = reply.policies.add(policy_id="p")
    policy.version.learner_epoch, policy.version.n = 3, 7
    best = policy.versions.add(label="best")
    best.version.learner_epoch, best.version.n = 2, 5
    return reply.SerializeToString()


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
                    "ListPolicies": grpc.unary_unary_rpc_method_handler(lambda request, context: listed())}
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


class ClientTestCase(unittest.TestCase):
    def client(self, addresses, **options):
        from troupe.query import PolicyClient
        client = PolicyClient(addresses, **options)
        self.addCleanup(client.close)
        return client


@unittest.skipUnless(HAVE_CLIENT, "grpcio, numpy and protobuf are not installed")
class OrderTest(unittest.TestCase):
    def test_one_that_was_not_there_is_asked_last_for_a_while(self):
        from troupe.query_calls import DOWN_S, Servers
        now = [100.0]
        servers = Servers(2, 1, lambda: now[0])
        servers.failed(0)
        for _ in range(4):
            self.assertEqual([server for server, _ in servers.tries()], [1, 0])
        now[0] += DOWN_S
        self.assertEqual({next(servers.tries())[0] for _ in range(2)}, {0, 1}, "in turns again")


@unittest.skipUnless(HAVE_CLIENT, "grpcio, numpy and protobuf are not installed")
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
        server = FakeServer(self, lambda request: reply(rows=2, policies=request.count(b"\x52\x01"), state_out=struct.pack("<4f", 1, 2, 3, 4),
                                                         state_tag=77, logits=bytes(8), mean=bytes(16)))
        client = self.client(server.address)
        answers = client.compute_agents({"a": [[1.0], [2.0]], "b": [[3.0], [4.0]]}, version=12, min_version=(3, 9), outputs=(), seed=5)
        self.assertEqual(list(answers), ["a", "b"])
        state = answers["b"].state_out
        self.assertEqual((state.tolist(), state.tag, state[1:].tag), ([[1, 2], [3, 4]], 77, 77))
        self.assertEqual((answers["a"].logits.shape, answers["a"].mean.shape), ((2, 1), (2, 2)))
        rows = [rows_of("a", 1, 2, version="12"), rows_of("b", 3, 4, version="12")]
        for each in rows:
            each.min_version.learner_epoch, each.min_version.n = 3, 9
        self.assertEqual(server.requests[-1], query_pb2.ComputeActionsRequest(policies=rows, seed=5).SerializeToString())
        client.compute_agents({"a": [[1.0], [2.0]]}, states={"a": state}, outputs=["action", "state_out", "log_prob", "sampled_action"])
        self.assertEqual(server.requests[-1], query_pb2.ComputeActionsRequest(
            policies=[rows_of("a", 1, 2, state_in=struct.pack("<4f", 1, 2, 3, 4), state_tag=77)],
            outputs=["action", "state_out", "log_prob", "sampled_action"]).SerializeToString())
        client.compute_agents({"a": [[1.0], [2.0]]}, seed=0)
        self.assertTrue(query_pb2.ComputeActionsRequest.FromString(server.requests[-1]).HasField("seed"), "0 is a seed")
        client.compute_agents({"a": [[1.0], [2.0]]}, states={"a": numpy.array(state)})
        self.assertNotIn(struct.pack("<Q", 77), server.requests[-1], "an array of one's own has no tag")
        self.assertEqual(client.compute_agents({}), {})
        with self.assertRaisesRegex(ValueError, "states has agent 'c', of which there is no observation"):
            client.compute_agents({"a": [1.0]}, states={"c": state})
        self.assertEqual(client.list_policies(), {"p": {"latest": (3, 7), "best": (2, 5)}})

    def test_each_agent_gets_its_own_answer(self):
        def answer(request):
            asked = query_pb2.ComputeActionsRequest.FromString(request)
            return query_pb2.ComputeActionsReply(policies=[
                query_pb2.QueryActions(policy_id="p", rows=1, action_dtypes=[2], actions=rows.obs, sampled_actions=rows.obs, action_logp=[0.0])
                for rows in asked.policies]).SerializeToString()
        answers = self.client(FakeServer(self, answer).address).compute_agents({"b": [1.0], "a": [2.0], "c": [3.0]})
        self.assertEqual({agent: struct.unpack("<f", each.actions.tobytes())[0] for agent, each in answers.items()}, {"b": 1.0, "a": 2.0, "c": 3.0})

    def test_outputs_that_were_not_asked_for_are_none(self):
        server = FakeServer(self, lambda request: query_pb2.ComputeActionsReply(
            policies=[query_pb2.QueryActions(policy_id="p", rows=1, action_dtypes=[2], actions=bytes(4))]).SerializeToString())
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


    def test_the_proxy_of_the_environment_is_ignored_unless_asked_for(self):
        from troupe.query import QueryError
        from troupe.query_async import AsyncPolicyClient
        server = FakeServer(self)
        nobody = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "grpc_proxy": "http://127.0.0.1:9"}

        async def ask(**options):
            async with AsyncPolicyClient(server.address, **options) as client:
                return await client.compute_actions("p", [[1.0]])
        with mock.patch.dict(os.environ, nobody):
            os.environ.pop("no_proxy", None)
            os.environ.pop("no_grpc_proxy", None)
            self.client(server.address).compute_actions("p", [[1.0]])
            asyncio.run(ask())
            self.assertEqual(server.calls, 2)
            for through in (lambda: self.client(server.address, retries=0, use_http_proxy=True).compute_actions("p", [[1.0]]),
                            lambda: asyncio.run(ask(retries=0, use_http_proxy=True))):
                with self.assertRaises(QueryError) as raised:
                    through()
                self.assertEqual((raised.exception.code, server.calls), ("UNAVAILABLE", 2), "nobody is at the proxy's port")


@unittest.skipUnless(HAVE_CLIENT, "grpcio, numpy and protobuf are not installed")
class StreamTest(ClientTestCase):
    def test_answers_and_refusals(self):
        from troupe.query import QueryError
        server = FakeServer(self, lambda request: refusal(5, "nobody") if b"nobody" in request else reply())
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
            return refusal(14, "no weights yet")
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


@unittest.skipUnless(HAVE_CLIENT, "grpcio, numpy and protobuf are not installed")
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
