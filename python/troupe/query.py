"""Asks a learner, or a policy server (`troupe serve`), what a policy does.

    from troupe.query import PolicyClient

    with PolicyClient("127.0.0.1:50061") as client:
        answer = client.compute_actions("shared", observations, deterministic=True)
        env.step(answer.actions[0])
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
_MAX_MESSAGE_BYTES = 5 << 20  # as the server's limit

# actions: [rows, words] as the environment gets them; sampled_actions: the same before clipping or scaling; action_logp: [rows], nats, of
# sampled_actions. Words are int32 where all are discrete, float32 where all are continuous, float64 (exact for both) where they are mixed.
# learner_epoch and version tell which weights.
PolicyActions = collections.namedtuple("PolicyActions", "policy_id learner_epoch version actions sampled_actions action_logp")


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

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def compute_actions(self, policy_id, obs, action_mask=None, agent_slots=None, deterministic=False):
        """-> PolicyActions of `policy_id` for flattened observations, [rows, size] or one of [size]: uint8 for a uint8 Box, anything else is sent
        as float32. action_mask: [rows, mask size] of 0 and 1, or None: everything is allowed. agent_slots: [rows], for policies that see
        which agent they play. deterministic: the most probable action instead of a sample. QueryError."""
        obs = numpy.atleast_2d(numpy.asarray(obs))
        if obs.ndim != 2:
            raise ValueError(f"obs has shape {obs.shape}, expected [rows, size]: flatten observations first")
        as_bytes = obs.dtype == numpy.uint8
        if not as_bytes:
            obs = obs.astype("<f4")
        mask = b"" if action_mask is None else numpy.atleast_2d(action_mask).astype(numpy.uint8).tobytes()
        slots = [] if agent_slots is None else [int(slot) for slot in numpy.atleast_1d(agent_slots)]
        request = query_messages.encode_request(policy_id, len(obs), query_messages.UINT8 if as_bytes else query_messages.FLOAT32,
                                                obs.tobytes(), mask, slots, deterministic)
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
                             _words(answer["sampled_actions"], answer), numpy.array(answer["action_logp"], numpy.float32))
