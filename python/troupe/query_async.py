"""troupe.query for asyncio: the same calls, as coroutines.

    from troupe.query_async import AsyncPolicyClient

    async with AsyncPolicyClient(["host_a:50061", "host_b:50061"]) as client:
        answer = await client.compute_actions("shared", observations, deterministic=True)
        answers = await client.compute_agents({"agent_0": observation, "agent_1": another})
"""

import asyncio
import time

try:
    import grpc
    import grpc.aio
    import numpy

    from troupe import query_calls
except ImportError as error:
    raise ImportError(f"troupe.query_async needs numpy, grpcio and protobuf ({error}): python3 -m pip install numpy grpcio 'protobuf>=3.20.3'") from None

from troupe.query_calls import PolicyActions, PolicyDescription, PolicyState, QueryError  # noqa: F401


class AsyncPolicyClient:
    """A connection to each of one or more servers, which are asked in turns. Of one event loop: made, used and closed in it. Calls may be many at a
    time; one that is cancelled costs the server nothing that it has not begun."""

    def __init__(self, address, timeout=10.0, insecure_plaintext_network=False, retries=2, credentials=None, metadata=(),
                 use_http_proxy=False):
        """As troupe.query.PolicyClient."""
        addresses = query_calls.addresses_of(address, retries, insecure_plaintext_network, credentials)
        self._timeout = timeout
        self._metadata = tuple(metadata)
        self._servers = query_calls.Servers(len(addresses), retries)
        self._channels = [query_calls.open_channel(grpc.aio, each, credentials, use_http_proxy) for each in addresses]
        self._unary = [{method: channel.unary_unary(method) for method in query_calls.UNARY} for channel in self._channels]
        self._known = []  # the last answer of policies()

    async def close(self):
        for channel in self._channels:
            await channel.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def policies(self, policy_ids=()):
        """As PolicyClient.policies."""
        return query_calls.read_descriptions(await self._call(query_calls.DESCRIBE, query_calls.encode_describe_request(policy_ids), None))

    async def list_policies(self):
        """As PolicyClient.list_policies."""
        return query_calls.read_list(await self._call(query_calls.LIST, b"", None))

    async def compute_actions(self, policy_id, obs, action_mask=None, agent_slots=None, deterministic=False, agent=None, state_in=None, version=None,
                              min_version=None, outputs=(), seed=None, timeout=None):
        """As PolicyClient.compute_actions."""
        if agent is not None:
            if agent_slots is not None:
                raise ValueError("got agent and agent_slots, expected one of them")
            rows = len(numpy.atleast_2d(numpy.asarray(obs)))
            policy_id, agent_slots = await self._resolve(policy_id, query_calls.agents_of(agent, rows), rows)
        elif policy_id is None:
            raise ValueError("got neither policy_id nor agent, expected one of them")
        asked = [query_calls.Asked(policy_id, obs, action_mask, agent_slots, state_in, (), version, min_version)]
        return (await self._ask(asked, deterministic, outputs, seed, timeout))[0]

    async def compute_agents(self, observations, action_masks=None, states=None, deterministic=False, version=None, min_version=None, outputs=(),
                             seed=None, timeout=None):
        """As PolicyClient.compute_agents."""
        asked = query_calls.ask_for_agents(observations, action_masks, states, version, min_version)
        return dict(zip(observations, await self._ask(asked, deterministic, outputs, seed, timeout))) if asked else {}

    async def _ask(self, asked, deterministic, outputs, seed, timeout):
        request = query_calls.encode_request(asked, deterministic, outputs, seed)
        return query_calls.read_answer(await self._call(query_calls.COMPUTE, request, timeout), asked, outputs)

    async def _resolve(self, policy_id, agents, rows):
        for fresh in (False, True):
            if fresh or not self._known:
                self._known = await self.policies()
            policy, fitting = query_calls.resolve(self._known, policy_id, agents)
            if policy is not None:
                return policy.policy_id, query_calls.slots_of(policy, agents, rows)
        raise query_calls.nobody_plays(self._known, policy_id, agents, fitting)

    async def _call(self, method, request, timeout):
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        failure = None
        for server, pause in self._servers.tries():
            if failure is not None and end - time.monotonic() <= pause:
                break
            if pause > 0:
                await asyncio.sleep(pause)
            try:
                reply = await self._unary[server][method](request, timeout=end - time.monotonic(), metadata=self._metadata)
            except grpc.RpcError as error:
                failure = QueryError(error.code().name, error.details())
                if failure.code != "UNAVAILABLE":
                    raise failure from None
                self._servers.failed(server)
            else:
                self._servers.answered(server)
                return reply
        raise failure
