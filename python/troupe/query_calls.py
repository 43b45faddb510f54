"""What the clients of troupe.query and troupe.query_async have in common: requests and answers, and which server is asked next. No network."""

import collections
import random
import re
import time

import numpy

from troupe import query_messages

COMPUTE, STREAM = "/troupe.v1.Query/ComputeActions", "/troupe.v1.Query/StreamActions"
DESCRIBE, LIST = "/troupe.v1.Query/DescribePolicies", "/troupe.v1.Query/ListPolicies"
MAX_MESSAGE_BYTES = 5 << 20  # as the server's limit
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", MAX_MESSAGE_BYTES)]
CODES = ("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
         "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
         "UNAUTHENTICATED")
DOWN_S = 1.0  # a server that was not there is not asked first for so long
BACKOFF_S = 0.05  # before the second try at a server alone; doubles

# actions: [rows, words] as the environment gets them; sampled_actions: the same before clipping or scaling; action_logp: [rows], nats, of
# sampled_actions. Words are int32 where all are discrete, float32 where all are continuous, float64 (exact for both) where they are mixed.
# learner_epoch and version tell which weights. state_out: PolicyState, [rows, state size] float32 of a policy that remembers, the state_in of the
# same agents' next decisions. logits and mean: [rows, their size] float32, where outputs named them. None: not asked for, or there is none.
PolicyActions = collections.namedtuple("PolicyActions", "policy_id learner_epoch version actions sampled_actions action_logp state_out logits mean",
                                       defaults=(None, None))

# What there is to ask. observation_space and action_space: text that troupe.envs.spaces.parse reads. obs_dtype: "uint8"
# or "float32". obs_size: elements of a flattened observation. mask_size: 0 where the policy has no action masks. agents: ids of those that may
# play it, agent_slots their places in the run's list of agents, which each row needs where needs_agent_slots. learner_epoch and version: of the
# newest weights, 0 where there are none, or none were read yet. state_size: elements of what the policy remembers of an agent, 0: nothing. network:
# of its actor, as text. outputs: what `outputs` may name. versions: {label: (learner epoch, version)} beside the newest.
PolicyDescription = collections.namedtuple("PolicyDescription", "policy_id learner_epoch version observation_space action_space obs_dtype "
                                           "obs_size mask_size needs_agent_slots agents agent_slots state_size network outputs versions",
                                           defaults=("", (), {}))


class QueryError(Exception):
    """`code`: the status, as "NOT_FOUND" (unknown policy), "INVALID_ARGUMENT" (wrong shape, dtype, mask), "UNAVAILABLE" (try again)."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


class PolicyState(numpy.ndarray):
    """What a policy remembers of agents: [rows, state size] float32. `tag` says which policy and network it is of, so that another one
    refuses it; rows of it keep the tag."""

    def __array_finalize__(self, source):
        self.tag = getattr(source, "tag", 0)


def check_address(address, insecure_plaintext_network, credentials):
    """ValueError for another machine's address, where the connection is plain text and nobody said that this is meant."""
    local = re.match(r"unix:|unix-abstract:|localhost:|127(\.\d+){3}:|\[::1\]:", address) is not None
    if not local and credentials is None and not insecure_plaintext_network:
        raise ValueError(f"address {address} is on another machine and the connection is plain text; give insecure_plaintext_network=True "
                         "on a network you trust")


def addresses_of(address, retries, insecure_plaintext_network, credentials):
    """One or more, as a list. ValueError: what clients cannot be made with."""
    addresses = [address] if isinstance(address, str) else list(address)
    if not addresses:
        raise ValueError("got no address, expected at least one")
    if retries < 0:
        raise ValueError(f"retries is {retries}, expected 0 or more")
    for each in addresses:
        check_address(each, insecure_plaintext_network, credentials)
    return addresses


def open_channel(library, address, credentials):
    """Of grpc or grpc.aio: one of its own for each client, since grpc would share connections of equal arguments, and their backoff."""
    options = CHANNEL_OPTIONS + [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 1000)]
    return library.insecure_channel(address, options) if credentials is None else library.secure_channel(address, credentials, options)


class Servers:
    """Which of several servers is asked next: in turns, those that were not there lately last. Not thread-safe, and need not be: at worst two
    calls go to one server."""

    def __init__(self, count, retries, clock=time.monotonic):
        self._down_until = [0.0] * count
        self._next = random.randrange(count)
        self._retries = retries
        self._clock = clock

    def tries(self):
        """The servers of one call, one for each try: (index, seconds to wait before)."""
        count, now = len(self._down_until), self._clock()
        first, self._next = self._next, (self._next + 1) % count
        order = sorted(((first + i) % count for i in range(count)), key=lambda server: self._down_until[server] > now)
        for attempt in range(self._retries + 1):
            around = attempt // count
            yield order[attempt % count], 0.0 if around == 0 else BACKOFF_S * 2 ** (around - 1) * (0.5 + random.random())

    def failed(self, server):
        self._down_until[server] = self._clock() + DOWN_S

    def answered(self, server):
        self._down_until[server] = 0.0


class Asked:
    """Rows for one policy: their bytes, and what an answer to them has to be like."""

    def __init__(self, policy_id, obs, action_mask=None, agent_slots=None, state_in=None, agent_ids=(), version=None, min_version=None):
        obs = numpy.atleast_2d(numpy.asarray(obs))
        if obs.ndim != 2:
            raise ValueError(f"obs has shape {obs.shape}, expected [rows, size]: flatten observations first")
        as_bytes = obs.dtype == numpy.uint8
        if not as_bytes:
            obs = obs.astype("<f4")
        mask = b"" if action_mask is None else numpy.atleast_2d(action_mask).astype(numpy.uint8).tobytes()
        slots = [] if agent_slots is None else [int(slot) for slot in numpy.atleast_1d(agent_slots)]
        tag = getattr(state_in, "tag", 0)
        state = None if state_in is None else numpy.atleast_2d(numpy.asarray(state_in, "<f4"))
        if state is not None and (state.ndim != 2 or len(state) != len(obs)):
            raise ValueError(f"state_in has shape {state.shape}, expected [{len(obs)}, state size]")
        self.rows = len(obs)
        self.state = b"" if state is None else state.tobytes()
        self.bytes = query_messages.encode_rows(policy_id, len(obs), query_messages.UINT8 if as_bytes else query_messages.FLOAT32, obs.tobytes(),
                                                mask, slots, self.state, "" if version is None else str(version), min_version, agent_ids, tag)


def ask_for_agents(observations, action_masks=None, states=None, version=None, min_version=None):
    """-> [Asked] of {agent id: observation}, in its order: the server knows who plays them."""
    masks, states = action_masks or {}, states or {}
    for what, given in (("action_masks", masks), ("states", states)):
        strangers = [agent for agent in given if agent not in observations]
        if strangers:
            raise ValueError(f"{what} has agent {strangers[0]!r}, of which there is no observation")
    return [Asked(None, obs, masks.get(agent), None, states.get(agent), [agent], version, min_version) for agent, obs in observations.items()]


def _words(data, answer):
    """Bytes of 4-byte words -> [rows, words]; None: no bytes."""
    rows, dtypes = answer["rows"], answer["action_dtypes"]
    kinds = {query_messages.INT32: "<i4", query_messages.FLOAT32: "<f4"}
    if len(data) != 4 * rows * len(dtypes) or any(dtype not in kinds for dtype in dtypes):
        raise QueryError("INTERNAL", "the answer's arrays are not as long as it says")
    if len(set(dtypes)) == 1:
        return numpy.frombuffer(data, kinds[dtypes[0]]).reshape(rows, len(dtypes))
    columns = {kind: numpy.frombuffer(data, kind).reshape(rows, len(dtypes)) for kind in kinds.values()}
    words = numpy.empty((rows, len(dtypes)), numpy.float64)
    for i, dtype in enumerate(dtypes):
        words[:, i] = columns[kinds[dtype]][:, i]
    return words


def _columns(data, rows, what):
    """Bytes of float32 -> [rows, columns]; None: no bytes."""
    if len(data) % (4 * max(rows, 1)):
        raise QueryError("INTERNAL", f"the answer has {len(data)} bytes of {what} for {rows} rows")
    return numpy.frombuffer(data, "<f4").reshape(rows, -1) if data else None


def _state(answer, asked):
    data = answer["state_out"]
    if asked.state and len(data) not in (0, len(asked.state)):
        raise QueryError("INTERNAL", f"the answer has {len(data)} bytes of states for {asked.rows} rows")
    state = _columns(data, asked.rows, "states")
    if state is None:
        return None
    state = state.view(PolicyState)
    state.tag = answer["state_tag"]
    return state


def _actions(answer, asked, outputs):
    if answer["rows"] != asked.rows:
        raise QueryError("INTERNAL", f"the answer is of {answer['rows']} rows, expected {asked.rows}")

    def has(output):
        return not outputs or output in outputs
    if len(answer["action_logp"]) != (asked.rows if has("log_prob") else 0):
        raise QueryError("INTERNAL", "the answer's arrays are not as long as it says")
    return PolicyActions(answer["policy_id"], answer["learner_epoch"], answer["version"],
                         _words(answer["actions"], answer) if has("action") else None,
                         _words(answer["sampled_actions"], answer) if has("sampled_action") else None,
                         numpy.array(answer["action_logp"], numpy.float32) if has("log_prob") else None, _state(answer, asked),
                         _columns(answer["logits"], asked.rows, "logits"), _columns(answer["mean"], asked.rows, "means"))


def read_answer(data, asked, outputs=()):
    """-> [PolicyActions], one for each of `asked`. QueryError: what the server refused in a stream, or an answer that makes no sense."""
    try:
        answers, refusal = query_messages.decode_stream_reply(data)
    except ValueError as error:
        raise QueryError("INTERNAL", str(error)) from None
    if refusal is not None:
        code, message = refusal
        raise QueryError(CODES[code] if 0 < code < len(CODES) else "UNKNOWN", message)
    if len(answers) != len(asked):
        raise QueryError("INTERNAL", f"the answer is of {len(answers)} policies, expected {len(asked)}")
    return [_actions(answer, each, outputs) for answer, each in zip(answers, asked)]


def read_descriptions(data):
    """-> [PolicyDescription]. QueryError."""
    try:
        agents, policies = query_messages.decode_descriptions(data)
    except ValueError as error:
        raise QueryError("INTERNAL", str(error)) from None
    return [PolicyDescription(policy["policy_id"], policy["learner_epoch"], policy["version"], policy["observation_space"],
                              policy["action_space"], "uint8" if policy["obs_dtype"] == query_messages.UINT8 else "float32",
                              policy["obs_size"], policy["mask_size"], policy["needs_agent_slots"],
                              [agents[slot] for slot in policy["agent_slots"]], policy["agent_slots"], policy["state_size"],
                              policy["network"], tuple(policy["outputs"]), policy["versions"])
            for policy in policies]


def read_list(data):
    """-> {policy id: {"latest" or a label: (learner epoch, version)}}. QueryError."""
    try:
        return query_messages.decode_list(data)
    except ValueError as error:
        raise QueryError("INTERNAL", str(error)) from None


def resolve(known, policy_id, agents):
    """The one policy of `known` that plays all of `agents`, or None; and those that there are."""
    fitting = [policy for policy in known if policy_id in (None, policy.policy_id) and all(agent in policy.agents for agent in agents)]
    return (fitting[0] if len(fitting) == 1 else None), fitting


def nobody_plays(known, policy_id, agents, fitting):
    """The ValueError that says why there is not one policy."""
    named = " ".join(agents)
    if fitting:
        return ValueError(f"{named} may be played by {', '.join(policy.policy_id for policy in fitting)}: give policy_id")
    players = ", ".join(f"{policy.policy_id} ({' '.join(policy.agents[:8]) or 'nobody'})" for policy in known[:8])
    return ValueError(f"no policy{'' if policy_id is None else ' ' + repr(policy_id)} plays {named}; policies and their agents: {players}")


def agents_of(agent, rows):
    """-> the agents' ids, one for all rows or one a row. ValueError for another number of them."""
    agents = [agent] if isinstance(agent, str) else list(agent)
    if len(agents) not in (1, rows):
        raise ValueError(f"agent has {len(agents)} ids, expected one for all rows, or {rows}")
    return agents


def slots_of(policy, agents, rows):
    """-> the agents' slots, one a row, where the policy needs them; else None."""
    if not policy.needs_agent_slots:
        return None
    slots = [policy.agent_slots[policy.agents.index(agent)] for agent in agents]
    return slots * rows if len(slots) == 1 else slots
