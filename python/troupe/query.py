"""Asks a learner, or a policy server (`troupe serve`), what a policy does.

    from troupe.query import PolicyClient

    with PolicyClient("127.0.0.1:50061") as client:
        print(client.policies())
        answer = client.compute_actions("shared", observations, deterministic=True)
        env.step(answer.actions[0])
        answer = client.compute_actions(None, observation, agent="adversary_0")  # the policy that plays it

    answer = client.compute_actions("walker", observation)  # a policy that remembers: an episode's first decision
    answer = client.compute_actions("walker", observation, state_in=answer.state_out)
"""

import collections
import re

try:
    import grpc
    import numpy
except ImportError as error:
    raise ImportError(f"troupe.query needs numpy and grpcio ({error}): python3 -m pip install numpy grpcio") from None

from troupe import query_messages

_METHOD = "/troupe.v1.Query/ComputeActions"
_DESCRIBE = "/troupe.v1.Query/DescribePolicies"
_MAX_MESSAGE_BYTES = 5 << 20  # as the server's limit

# actions: [rows, words] as the environment gets them; sampled_actions: the same before clipping or scaling; action_logp: [rows], nats, of
# sampled_actions. Words are int32 where all are discrete, float32 where all are continuous, float64 (exact for both) where they are mixed.
# learner_epoch and version tell which weights. state_out: [rows, state size] float32 of a policy that remembers, the state_in of the same agents'
# next decisions; None of one that does not.
PolicyActions = collections.namedtuple("PolicyActions", "policy_id learner_epoch version actions sampled_actions action_logp state_out")


# What there is to ask. observation_space and action_space: text that troupe.envs.spaces.parse reads. obs_dtype: "uint8"
# or "float32". obs_size: elements of a flattened observation. mask_size: 0 where the policy has no action masks. agents: ids of those that may
# play it, agent_slots their places in the run's list of agents, which each row needs where needs_agent_slots. learner_epoch and version: of the
# newest weights, 0 where there are none, or none were read yet. state_size: elements of what the policy remembers of an agent, 0: nothing.
PolicyDescription = collections.namedtuple("PolicyDescription", "policy_id learner_epoch version observation_space action_space obs_dtype "
                                           "obs_size mask_size needs_agent_slots agents agent_slots state_size")


class QueryError(Exception):
    """`code`: the status, as "NOT_FOUND" (unknown policy), "INVALID_ARGUMENT" (wrong shape, dtype, mask), "UNAVAILABLE" (try again)."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


def _is_local(address):
    return re.match(r"unix:|unix-abstract:|localhost:|127(\.\d+){3}:|\[::1\]:", address) is not None


def _words(data, answer):
    """Bytes of 4-byte words -> [rows, words]."""
    rows, dtypes = answer["rows"], answer["action_dtypes"]
    kinds = {query_messages.INT32: "<i4", query_messages.FLOAT32: "<f4"}
    if len(data) != 4 * rows * len(dtypes) or len(answer["action_logp"]) != rows or any(dtype not in kinds for dtype in dtypes):
        raise QueryError("INTERNAL", "the answer's arrays are not as long as it says")
    if len(set(dtypes)) == 1:
        return numpy.frombuffer(data, kinds[dtypes[0]]).reshape(rows, len(dtypes))
    columns = {kind: numpy.frombuffer(data, kind).reshape(rows, len(dtypes)) for kind in kinds.values()}
    words = numpy.empty((rows, len(dtypes)), numpy.float64)
    for i, dtype in enumerate(dtypes):
        words[:, i] = columns[kinds[dtype]][:, i]
    return words


def _state(data, rows, state_in):
    """Bytes of float32 -> [rows, state size], as wide as state_in where that was given; None: no bytes."""
    if len(data) % (4 * max(rows, 1)) or (state_in and len(data) != len(state_in)):
        raise QueryError("INTERNAL", f"the answer has {len(data)} bytes of states for {rows} rows")
    return numpy.frombuffer(data, "<f4").reshape(rows, -1) if data else None


class PolicyClient:
    """One connection. Thread-safe, as grpc's channels are. `timeout`: seconds for each call."""

    def __init__(self, address, timeout=10.0, insecure_plaintext_network=False):
        """`address`: unix:PATH, unix-abstract:NAME or HOST:PORT. ValueError: another machine's without insecure_plaintext_network, because
        the connection is neither encrypted nor authenticated."""
        if not _is_local(address) and not insecure_plaintext_network:
            raise ValueError(f"address {address} is on another machine and the connection is plain text; give insecure_plaintext_network=True "
                             "on a network you trust")
        self._timeout = timeout
        self._channel = grpc.insecure_channel(address, [("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                                                        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES)])
        self._call = self._channel.unary_unary(_METHOD, request_serializer=None, response_deserializer=None)
        self._describe = self._channel.unary_unary(_DESCRIBE, request_serializer=None, response_deserializer=None)
        self._known = []  # the last answer of policies()

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def policies(self, policy_ids=()):
        """-> a list of PolicyDescription: all policies, or those of `policy_ids`. QueryError."""
        try:
            reply = self._describe(query_messages.encode_describe_request(policy_ids), timeout=self._timeout)
        except grpc.RpcError as error:
            raise QueryError(error.code().name, error.details()) from None
        try:
            agents, policies = query_messages.decode_descriptions(reply)
        except ValueError as error:
            raise QueryError("INTERNAL", str(error)) from None
        return [PolicyDescription(policy["policy_id"], policy["learner_epoch"], policy["version"], policy["observation_space"],
                                  policy["action_space"], "uint8" if policy["obs_dtype"] == query_messages.UINT8 else "float32",
                                  policy["obs_size"], policy["mask_size"], policy["needs_agent_slots"],
                                  [agents[slot] for slot in policy["agent_slots"]], policy["agent_slots"], policy["state_size"])
                for policy in policies]

    def _resolve(self, policy_id, agents, rows):
        """-> (policy id, agent slots or None) for the agents' ids, one for all rows or one a row. The policies are asked for when they are not
        known, or what is known does not fit."""
        if len(agents) not in (1, rows):
            raise ValueError(f"agent has {len(agents)} ids, expected one for all rows, or {rows}")
        for fresh in (False, True):
            if fresh or not self._known:
                self._known = self.policies()
            fitting = [policy for policy in self._known if policy_id in (None, policy.policy_id) and all(agent in policy.agents for agent in agents)]
            if len(fitting) == 1:
                break
        else:
            named = " ".join(agents)
            if fitting:
                raise ValueError(f"{named} may be played by {', '.join(policy.policy_id for policy in fitting)}: give policy_id")
            players = ", ".join(f"{policy.policy_id} ({' '.join(policy.agents[:8]) or 'nobody'})" for policy in self._known[:8])
            raise ValueError(f"no policy{'' if policy_id is None else ' ' + repr(policy_id)} plays {named}; policies and their agents: {players}")
        policy = fitting[0]
        if not policy.needs_agent_slots:
            return policy.policy_id, None
        slots = [policy.agent_slots[policy.agents.index(agent)] for agent in agents]
        return policy.policy_id, slots * rows if len(slots) == 1 else slots

    def compute_actions(self, policy_id, obs, action_mask=None, agent_slots=None, deterministic=False, agent=None, state_in=None):
        """-> PolicyActions of `policy_id` for flattened observations, [rows, size] or one of [size]: uint8 for a uint8 Box, anything else is sent
        as float32. action_mask: [rows, mask size] of 0 and 1, or None: everything is allowed. agent: the id of the agent
        that plays, or one a row, for policies that see which agent they play; agent_slots: the same by place in the run's list of agents, [rows].
        policy_id None: the only policy that plays `agent`. deterministic: the most probable action instead of a sample. state_in: [rows, state
        size], state_out of the agents' decisions before, for a policy that remembers; None: each row is its agent's first. QueryError."""
        obs = numpy.atleast_2d(numpy.asarray(obs))
        if obs.ndim != 2:
            raise ValueError(f"obs has shape {obs.shape}, expected [rows, size]: flatten observations first")
        if agent is not None:
            if agent_slots is not None:
                raise ValueError("got agent and agent_slots, expected one of them")
            policy_id, agent_slots = self._resolve(policy_id, [agent] if isinstance(agent, str) else list(agent), len(obs))
        elif policy_id is None:
            raise ValueError("got neither policy_id nor agent, expected one of them")
        as_bytes = obs.dtype == numpy.uint8
        if not as_bytes:
            obs = obs.astype("<f4")
        mask = b"" if action_mask is None else numpy.atleast_2d(action_mask).astype(numpy.uint8).tobytes()
        slots = [] if agent_slots is None else [int(slot) for slot in numpy.atleast_1d(agent_slots)]
        state = None if state_in is None else numpy.atleast_2d(numpy.asarray(state_in, "<f4"))
        if state is not None and (state.ndim != 2 or len(state) != len(obs)):
            raise ValueError(f"state_in has shape {state.shape}, expected [{len(obs)}, state size]")
        state = b"" if state is None else state.tobytes()
        request = query_messages.encode_request(policy_id, len(obs), query_messages.UINT8 if as_bytes else query_messages.FLOAT32,
                                                obs.tobytes(), mask, slots, deterministic, state)
        try:
            reply = self._call(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise QueryError(error.code().name, error.details()) from None
        try:
            answer, = query_messages.decode_reply(reply)
        except ValueError as error:
            raise QueryError("INTERNAL", str(error)) from None
        if answer["rows"] != len(obs):
            raise QueryError("INTERNAL", f"the answer is of {answer['rows']} rows, expected {len(obs)}")
        return PolicyActions(answer["policy_id"], answer["learner_epoch"], answer["version"], _words(answer["actions"], answer),
                             _words(answer["sampled_actions"], answer), numpy.array(answer["action_logp"], numpy.float32),
                             _state(answer["state_out"], len(obs), state))
