"""The messages of proto/troupe/v1/episodes.proto as bytes, and back: as troupe.query_messages, for troupe.external."""

import struct
from collections import namedtuple

from troupe.query_messages import MAX_AGENTS, _bytes, _fields, _integer, _number, _raw, _text, _varint, _varints

NONE, TERMINATED, TRUNCATED = 0, 1, 2  # troupe.v1.EpisodeEnd
_BYTES, _FIXED64, _FIXED32 = 2, 1, 5

# An agent of the world: spaces as text, has_action_mask a truth value.
WorldAgent = namedtuple("WorldAgent", "agent_id observation_space action_space has_action_mask")
# discrete, continuous: words of the action; log_prob: nats.
AgentAction = namedtuple("AgentAction", "agent_id discrete continuous log_prob")


def _message(field, value):
    """One that is there, even where it is empty."""
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _double(field, value):
    return _varint(field << 3 | _FIXED64) + struct.pack("<d", value) if value else b""


def _zigzag(number):
    return _varint(number << 1 if number >= 0 else (-number << 1) - 1)


def encode_action(agent_id, discrete, log_prob):
    """An AgentAction of discrete words. log_prob None: there is none."""
    drawn = b"" if log_prob is None else _varint(4 << 3 | _FIXED32) + struct.pack("<f", log_prob)
    return _bytes(1, agent_id.encode()) + _bytes(2, b"".join(_zigzag(int(word)) for word in discrete)) + drawn


def encode_step(agent_id, observation=b"", image=b"", action_mask=b"", reward=0.0, end=NONE, action=None):
    """An AgentStep. observation: bytes of float32, little-endian; action: what encode_action gave."""
    return (_bytes(1, agent_id.encode()) + _bytes(2, observation) + _bytes(3, image) + _bytes(4, action_mask) + _double(5, reward) +
            _number(6, end) + (b"" if action is None else _message(7, action)))


def encode_start(episode_id=""):
    """A StartEpisodeRequest."""
    return _bytes(1, episode_id.encode())


def encode_get_actions(episode_id, steps, state=b""):
    """A GetActionsRequest or LogActionsRequest. steps: what encode_step gave; state: bytes of float32."""
    return _bytes(1, episode_id.encode()) + b"".join(_message(2, step) for step in steps) + _bytes(3, state)


def encode_log_returns(episode_id, rewards):
    """A LogReturnsRequest of {agent id: reward}."""
    return _bytes(1, episode_id.encode()) + b"".join(_message(2, _bytes(1, agent.encode()) + _double(2, reward)) for agent, reward in rewards.items())


def encode_end(episode_id, end, steps, state=b""):
    """An EndEpisodeRequest."""
    return _bytes(1, episode_id.encode()) + _number(2, end) + b"".join(_message(3, step) for step in steps) + _bytes(4, state)


def _words(value):
    return [number >> 1 if number & 1 == 0 else -(number >> 1) - 1 for number in _varints(value)]


def _floats(value):
    data = _raw(value)
    if len(data) % 4:
        raise ValueError("the answer's floats are cut off")
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def _one_float(value):
    number, = _floats(value)
    return number


def _listed(data, field):
    """The fields of each message of a repeated field, at most MAX_AGENTS."""
    messages = [value for number, value in _fields(data) if number == field]
    if len(messages) > MAX_AGENTS:
        raise ValueError(f"the answer has {len(messages)} agents, expected at most {MAX_AGENTS}")
    return [dict(_fields(_raw(message))) for message in messages]


def decode_actions(data):
    """-> a list of AgentAction, of a GetActionsReply. ValueError or TypeError: the bytes are no answer."""
    return [AgentAction(_text(parts.get(1, b"")), _words(parts.get(2, b"")), _floats(parts.get(3, b"")),
                        _one_float(parts[4]) if 4 in parts else None) for parts in _listed(data, 1)]


def decode_start(data):
    """-> (episode id, list of WorldAgent, state size), of a StartEpisodeReply. ValueError or TypeError: the bytes are no answer."""
    agents = [WorldAgent(*(_text(parts.get(number, b"")) for number in (1, 2, 3)), bool(_integer(parts.get(4, 0)))) for parts in _listed(data, 2)]
    parts = dict(_fields(data))
    return _text(parts.get(1, b"")), agents, _integer(parts.get(3, 0))
