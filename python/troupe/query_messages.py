"""The messages of proto/troupe/v1/query.proto as bytes, and back. They are few and small, so that a client needs no generated code and no
protobuf; numbers of fields and dtypes are the proto's, which never change."""

import struct

FLOAT32, INT32, UINT8 = 1, 2, 3  # troupe.v1.DType

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# The server's limits, for whoever answers in its place: two bytes of an answer become a dict or a text.
MAX_POLICIES, MAX_AGENTS, MAX_NAMES = 1024, 1024, 64


def _varint(number):
    number &= (1 << 64) - 1  # a negative int32 travels as 64 bits
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(field, value):
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _bytes(field, value):
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value if value else b""


def _fixed64(field, value):
    return _varint(field << 3 | _FIXED64) + struct.pack("<Q", value) if value else b""


def _texts(field, texts):
    return b"".join(_varint(field << 3 | _BYTES) + _varint(len(text.encode())) + text.encode() for text in texts)


def encode_rows(policy_id, rows, obs_dtype, obs, action_mask=b"", agent_slots=(), state_in=b"", version="", min_version=None, agent_ids=(), state_tag=0):
    """A QueryRows. obs, action_mask and state_in: bytes, row-major, little-endian; min_version: (learner epoch, version) or None."""
    least = b"" if min_version is None else _number(1, min_version[0]) + _number(2, min_version[1])
    return (_bytes(1, (policy_id or "").encode()) + _number(2, rows) + _number(3, obs_dtype) + _bytes(4, obs) + _bytes(5, action_mask) +
            _bytes(6, b"".join(_varint(slot) for slot in agent_slots)) + _bytes(7, state_in) + _bytes(8, version.encode()) + _bytes(9, least) +
            _texts(10, agent_ids) + _fixed64(11, state_tag))


def encode_requests(policies, deterministic=False, outputs=(), seed=None):
    """A ComputeActionsRequest of what encode_rows gave."""
    asked = b"".join(_varint(1 << 3 | _BYTES) + _varint(len(policy)) + policy for policy in policies)
    drawn = b"" if seed is None else _varint(4 << 3 | _VARINT) + _varint(seed)
    return asked + _number(2, int(deterministic)) + _texts(3, outputs) + drawn


def encode_request(policy_id, rows, obs_dtype, obs, action_mask=b"", agent_slots=(), deterministic=False, state_in=b""):
    """A ComputeActionsRequest to one policy. obs, action_mask and state_in: bytes, row-major, little-endian."""
    return encode_requests([encode_rows(policy_id, rows, obs_dtype, obs, action_mask, agent_slots, state_in)], deterministic)


def encode_describe_request(policy_ids=()):
    """A DescribePoliciesRequest."""
    return _texts(1, policy_ids)


class _Reader:
    def __init__(self, data):
        self._data = memoryview(data)
        self._at = 0

    def done(self):
        return self._at == len(self._data)

    def take(self, size):
        if size > len(self._data) - self._at:
            raise ValueError("the answer is cut off")
        self._at += size
        return self._data[self._at - size:self._at]

    def varint(self):
        number = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & (1 << 64) - 1
        raise ValueError("the answer holds a number of more than 64 bits")

    def field(self):
        """-> (number of the field, its value: int for varints, else bytes)"""
        key = self.varint()
        wire = key & 7
        if wire == _VARINT:
            return key >> 3, self.varint()
        if wire == _BYTES:
            return key >> 3, self.take(self.varint())
        if wire in (_FIXED32, _FIXED64):
            return key >> 3, self.take(4 if wire == _FIXED32 else 8)
        raise ValueError(f"the answer holds a field of unknown kind {wire}")


def _fields(data):
    reader = _Reader(data)
    while not reader.done():
        yield reader.field()


def _varints(value):
    """Of a repeated field: one, or packed."""
    if isinstance(value, int):
        return [value]
    reader, numbers = _Reader(value), []
    while not reader.done():
        numbers.append(reader.varint())
    return numbers


def _raw(value):
    """Of a field of bytes. bytes(NUMBER) would be so many zeros."""
    if isinstance(value, int):
        raise TypeError("a number in the place of bytes")
    return bytes(value)


def _text(value):
    return _raw(value).decode()


def _integer(value):
    if not isinstance(value, int):
        raise TypeError("bytes in the place of a number")
    return value


def _bounded(values, most, what):
    if len(values) > most:
        raise ValueError(f"the answer holds more than {most} {what}")


def _signed(number):
    return number - (1 << 64) if number >> 63 else number


def _decode_policy(data):
    answer = {"policy_id": "", "learner_epoch": 0, "version": 0, "rows": 0, "action_dtypes": [], "actions": b"", "sampled_actions": b"",
              "action_logp": [], "state_out": b"", "logits": b"", "mean": b"", "state_tag": 0}
    for field, value in _fields(data):
        if field == 1:
            answer["policy_id"] = _text(value)
        elif field == 2:
            answer["learner_epoch"], answer["version"] = _decode_version(value)
        elif field == 3:
            answer["rows"] = _integer(value)
        elif field == 4:
            answer["action_dtypes"] += _varints(value)
        elif field == 5:
            answer["actions"] = _raw(value)
        elif field == 6:
            answer["sampled_actions"] = _raw(value)
        elif field == 7:
            answer["action_logp"] += struct.unpack(f"<{len(value) // 4}f", value)
        elif field == 8:
            answer["state_out"] = _raw(value)
        elif field == 9:
            answer["logits"] = _raw(value)
        elif field == 10:
            answer["mean"] = _raw(value)
        elif field == 11:
            answer["state_tag"], = struct.unpack("<Q", _raw(value))
    return answer


def _decode_versions(values):
    """LabelledVersion messages -> {label: (learner epoch, version)}"""
    versions = {}
    for data in values:
        parts = dict(_fields(data))
        versions[_text(parts.get(1, b""))] = _decode_version(parts.get(2, b""))
    return versions


def _decode_version(data):
    """-> (learner epoch, version)"""
    parts = dict(_fields(data))
    return _integer(parts.get(1, 0)), _signed(_integer(parts.get(2, 0)))


def _decode_description(data):
    policy = {"policy_id": "", "learner_epoch": 0, "version": 0, "observation_space": "", "action_space": "", "obs_dtype": 0, "obs_size": 0,
              "mask_size": 0, "action_dtypes": [], "needs_agent_slots": False, "agent_slots": [], "state_size": 0, "network": "", "outputs": [],
              "logits_size": 0, "mean_size": 0, "versions": []}
    texts = {1: "policy_id", 3: "observation_space", 4: "action_space", 12: "network"}
    numbers = {5: "obs_dtype", 6: "obs_size", 7: "mask_size", 11: "state_size", 14: "logits_size", 15: "mean_size"}
    lists = {8: "action_dtypes", 10: "agent_slots"}
    for field, value in _fields(data):
        if field == 2:
            policy["learner_epoch"], policy["version"] = _decode_version(value)
        elif field in lists:
            policy[lists[field]] += _varints(value)
        elif field == 9:
            policy["needs_agent_slots"] = bool(_integer(value))
        elif field == 13:
            policy["outputs"].append(_text(value))
        elif field == 16:
            policy["versions"].append(_raw(value))
        elif field in texts:
            policy[texts[field]] = _text(value)
        elif field in numbers:
            policy[numbers[field]] = _integer(value)
        _bounded(policy["outputs"], MAX_NAMES, "outputs")
        _bounded(policy["versions"], MAX_NAMES, "versions")
    policy["versions"] = _decode_versions(policy["versions"])
    return policy


def decode_descriptions(data):
    """A DescribePoliciesReply: (the run's agent ids by slot, a dict a policy). As decode_reply."""
    agents, policies = [], []
    try:
        for field, value in _fields(data):
            if field == 1:
                agents.append(_text(value))
                _bounded(agents, MAX_AGENTS, "agents")
            elif field == 2:
                policies.append(_decode_description(value))
                _bounded(policies, MAX_POLICIES, "policies")
    except (TypeError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"the answer is no DescribePoliciesReply: {error}") from None
    if any(slot >= len(agents) for policy in policies for slot in policy["agent_slots"]):
        raise ValueError("the answer names slots of agents that it does not have")
    return agents, policies


def decode_list(data):
    """A ListPoliciesReply: {policy id: {"latest" or a label: (learner epoch, version)}}. As decode_reply."""
    policies = {}
    try:
        for field, value in _fields(data):
            if field != 1:
                continue
            parts = list(_fields(value))
            versions = [_raw(part) for number, part in parts if number == 3]
            _bounded(versions, MAX_NAMES, "versions")
            known = dict(parts)
            policies[_text(known.get(1, b""))] = {"latest": _decode_version(known.get(2, b"")), **_decode_versions(versions)}
            _bounded(policies, MAX_POLICIES, "policies")
        return policies
    except (TypeError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"the answer is no ListPoliciesReply: {error}") from None


def _decode_error(data):
    """-> (code, message)"""
    parts = dict(_fields(data))
    return _integer(parts.get(1, 0)), _text(parts.get(2, b""))


def decode_reply(data):
    """A ComputeActionsReply: a dict a policy. Unknown fields are skipped. ValueError for bytes that are none."""
    return decode_stream_reply(data)[0]


def decode_stream_reply(data):
    """The same of a stream: (a dict a policy, None or the (code, message) of a refusal)."""
    policies, refusal = [], None
    try:
        for field, value in _fields(data):
            if field == 1:
                policies.append(_decode_policy(value))
                _bounded(policies, MAX_POLICIES, "policies")
            elif field == 2:
                refusal = _decode_error(value)
        return policies, refusal
    except (TypeError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"the answer is no ComputeActionsReply: {error}") from None
