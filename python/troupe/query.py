"""Asks a learner, or policy servers (`troupe serve`), what a policy does.

    from troupe.query import PolicyClient

    with PolicyClient("127.0.0.1:50061") as client:
        print(client.policies())
        answer = client.compute_actions("shared", observations, deterministic=True)
        env.step(answer.actions[0])
        answer = client.compute_actions(None, observation, agent="adversary_0")  # the policy that plays it
        answers = client.compute_agents({"adversary_0": observation, "agent_0": another}, seed=7)

    answer = client.compute_actions("walker", observation)  # a policy that remembers: an episode's first decision
    answer = client.compute_actions("walker", observation, state_in=answer.state_out)

    with client.stream() as stream:  # the same again and again takes two thirds of the time
        answer = stream.compute_actions("shared", observation)

    PolicyClient(["host_a:50061", "host_b:50061"], retries=2)  # in turns; one that is gone costs a try

The same for asyncio: troupe.query_async.
"""

import queue
import threading
import time

try:
    import grpc
    import numpy

    from troupe import query_calls
except ImportError as error:
    raise ImportError(f"troupe.query needs numpy, grpcio and protobuf ({error}): python3 -m pip install numpy grpcio 'protobuf>=3.20.3'") from None

from troupe.query_calls import PolicyActions, PolicyDescription, PolicyState, QueryError  # noqa: F401

_GONE = ("UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED")  # what ends a stream, beside its own deadline


def _error(error):
    return QueryError(error.code().name, error.details())


class _Asker:
    """compute_actions and compute_agents over whatever carries bytes: `_exchange(request, timeout) -> reply` and `_describe(fresh)`."""

    def compute_actions(self, policy_id, obs, action_mask=None, agent_slots=None, deterministic=False, agent=None, state_in=None, version=None,
                        min_version=None, outputs=(), seed=None, timeout=None):
        """-> PolicyActions of `policy_id` for flattened observations, [rows, size] or one of [size]: uint8 for a uint8 Box, anything else is sent
        as float32. action_mask: [rows, mask size] of 0 and 1, or None: everything is allowed. agent: the id of the agent
        that plays, or one a row, for policies that see which agent they play; agent_slots: the same by place in the run's list of agents, [rows].
        policy_id None: the only policy that plays `agent`. deterministic: the most probable action instead of a sample. state_in: [rows, state
        size], state_out of the agents' decisions before, for a policy that remembers; None: each row is its agent's first. version: "latest",
        "best", another label, or a number of updates; min_version: (learner epoch, version), at least so new. outputs: by name what the answer
        has, see PolicyDescription.outputs. seed: of the samples; the same one has the same answer. timeout: seconds, of the client's. QueryError."""
        if agent is not None:
            if agent_slots is not None:
                raise ValueError("got agent and agent_slots, expected one of them")
            rows = len(numpy.atleast_2d(numpy.asarray(obs)))
            policy_id, agent_slots = self._resolve(policy_id, query_calls.agents_of(agent, rows), rows)
        elif policy_id is None:
            raise ValueError("got neither policy_id nor agent, expected one of them")
        asked = [query_calls.Asked(policy_id, obs, action_mask, agent_slots, state_in, (), version, min_version)]
        return self._ask(asked, deterministic, outputs, seed, timeout)[0]

    def compute_agents(self, observations, action_masks=None, states=None, deterministic=False, version=None, min_version=None, outputs=(), seed=None,
                       timeout=None):
        """-> {agent id: PolicyActions} for {agent id: observation}, in one request: the run's mapping says which policy plays each. action_masks
        and states (state_out of the decision before): by agent id, of those that have one. The rest as compute_actions. QueryError."""
        asked = query_calls.ask_for_agents(observations, action_masks, states, version, min_version)
        return dict(zip(observations, self._ask(asked, deterministic, outputs, seed, timeout))) if asked else {}

    def _ask(self, asked, deterministic, outputs, seed, timeout):
        request = query_calls.encode_request(asked, deterministic, outputs, seed)
        return self._exchange(request, timeout, lambda reply: query_calls.read_answer(reply, asked, outputs))

    def _resolve(self, policy_id, agents, rows):
        """-> (policy id, agent slots or None) for the agents' ids. The policies are asked for when they are not known, or what is known does not
        fit."""
        for fresh in (False, True):
            known = self._known_policies(fresh)
            policy, fitting = query_calls.resolve(known, policy_id, agents)
            if policy is not None:
                return policy.policy_id, query_calls.slots_of(policy, agents, rows)
        raise query_calls.nobody_plays(known, policy_id, agents, fitting)


class PolicyClient(_Asker):
    """A connection to each of one or more servers, which are asked in turns. Thread-safe, as grpc's channels are."""

    def __init__(self, address, timeout=10.0, insecure_plaintext_network=False, retries=2, credentials=None, metadata=(),
                 use_http_proxy=False):
        """`address`: unix:PATH, unix-abstract:NAME or HOST:PORT, or several. `timeout`: seconds for each call, its tries together. `retries`:
        tries beyond the first, where a server is not there (UNAVAILABLE); a query changes nothing, so that it may be asked again. `credentials`:
        grpc.ChannelCredentials, for a server behind TLS; `metadata`: pairs of texts that go with every call; `use_http_proxy`: connect through the
        proxy that the environment names (http_proxy), which is ignored otherwise. ValueError: no address, one of another form, or another machine's
        without insecure_plaintext_network and credentials, because the connection is neither encrypted nor authenticated."""
        addresses = query_calls.addresses_of(address, retries, insecure_plaintext_network, credentials)
        self._timeout = timeout
        self._metadata = tuple(metadata)
        self._servers = query_calls.Servers(len(addresses), retries)
        self._channels = [query_calls.open_channel(grpc, each, credentials, use_http_proxy) for each in addresses]
        # A method's callable costs more to make than to call.
        self._unary = [{method: channel.unary_unary(method) for method in query_calls.UNARY} for channel in self._channels]
        self._known = []  # the last answer of policies()

    def close(self):
        for channel in self._channels:
            channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def policies(self, policy_ids=()):
        """-> a list of PolicyDescription: all policies, or those of `policy_ids`. QueryError."""
        return self._call(query_calls.DESCRIBE, query_calls.encode_describe_request(policy_ids), None, query_calls.read_descriptions)

    def list_policies(self):
        """-> {policy id: {"latest" or a label: (learner epoch, version)}}. QueryError."""
        return self._call(query_calls.LIST, b"", None, query_calls.read_list)

    def stream(self):
        """-> a PolicyStream, for who asks again and again."""
        return PolicyStream(self)

    def _known_policies(self, fresh):
        if fresh or not self._known:
            self._known = self.policies()
        return self._known

    def _exchange(self, request, timeout, read):
        return self._call(query_calls.COMPUTE, request, timeout, read)

    def _call(self, method, request, timeout, read):
        def attempt(server, left):
            try:
                return self._unary[server][method](request, timeout=left, metadata=self._metadata)
            except grpc.RpcError as error:
                raise _error(error) from None
        return read(self._try(attempt, timeout))

    def _try(self, attempt, timeout):
        """attempt(server's index, seconds left) at one server after the other, until it does not raise UNAVAILABLE."""
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        failure = None
        for server, pause in self._servers.tries():
            left = end - time.monotonic()
            if failure is not None and left <= pause:
                break
            if pause > 0:
                time.sleep(pause)  # of 0 takes as long as a query
            try:
                reply = attempt(server, end - time.monotonic())
            except QueryError as error:
                if error.code != "UNAVAILABLE":
                    raise
                failure = error
                self._servers.failed(server)
            else:
                self._servers.answered(server)
                return reply
        raise failure


class PolicyStream(_Asker):
    """A stream of queries to one of a client's servers, an answer after each request; when that server is gone, to the next one. Asked by one
    thread at a time: others wait. Not fork-safe."""

    def __init__(self, client):
        self._client = client
        self._lock = threading.Lock()
        self._call = None
        self._requests = None
        self._deadline = None  # of the request on its way
        self._closed = False
        self._watch = None

    def close(self):
        with self._lock:
            self._closed = True
            self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _known_policies(self, fresh):
        return self._client._known_policies(fresh)

    def _end(self):
        if self._call is not None:
            self._requests.put(None)
            self._call.cancel()
        self._call = None

    def _cancel_late(self):
        """Cancels a call whose deadline has passed; a thread's, so that a request costs none."""
        while not self._closed:
            deadline, call = self._deadline, self._call
            now = time.monotonic()
            if deadline is not None and call is not None and deadline <= now:
                call.cancel()
            time.sleep(0.02 if deadline is None else min(max(deadline - now, 0.001), 0.02))

    def _exchange(self, request, timeout, read):
        with self._lock:
            if self._closed:
                raise ValueError("the stream is closed")
            if self._watch is None:
                self._watch = threading.Thread(target=self._cancel_late, name="troupe stream", daemon=True)
                self._watch.start()

            def ask(server, left):
                try:
                    return read(self._attempt(server, request, left))
                except QueryError as error:
                    if error.code == "UNAVAILABLE":
                        self._end()  # the next server may have what this one lacks
                    raise

            return self._client._try(ask, timeout)

    def _attempt(self, server, request, left):
        """On the stream that stands; else on a new one to `server`."""
        stood = self._call is not None
        if not stood:
            self._requests = queue.SimpleQueue()
            self._call = self._client._channels[server].stream_stream(query_calls.STREAM)(iter(self._requests.get, None), metadata=self._client._metadata)
        deadline = self._deadline = time.monotonic() + left
        self._requests.put(request)
        try:
            return next(self._call)
        except StopIteration:
            code, message = "UNAVAILABLE", "the server has ended the stream"
        except grpc.RpcError as error:
            code, message = error.code().name, error.details()
        finally:
            self._deadline = None
        self._end()
        if time.monotonic() >= deadline:
            raise QueryError("DEADLINE_EXCEEDED", f"no answer within {left:.3g} s")
        # A stream that stood may have ended for its own reasons: silence, a server that went down. That is no failure of the server that is asked.
        if stood and code in _GONE:
            return self._attempt(server, request, deadline - time.monotonic())
        raise QueryError(code, message)
