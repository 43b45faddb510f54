"""What the clients of troupe.query and troupe.query_async have in common: requests and answers, and which server is asked next. No network."""

import collections
import ipaddress
import operator
import random
import re
import time

import numpy
from google.protobuf import message

from troupe.v1 import common_pb2, query_pb2

COMPUTE, STREAM = "/troupe.v1.Query/ComputeActions", "/troupe.v1.Query/StreamActions"
DESCRIBE, LIST = "/troupe.v1.Query/DescribePolicies", "/troupe.v1.Query/ListPolicies"
UNARY = (COMPUTE, DESCRIBE, LIST)
MAX_MESSAGE_BYTES = 5 << 20  # as the server's limit
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", MAX_MESSAGE_BYTES)]
CODES = ("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
         "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
         "UNAUTHENTICATED")
FLOAT32, INT32, UINT8 = common_pb2.DTYPE_FLOAT32, common_pb2.DTYPE_INT32, common_pb2.DTYPE_UINT8
# Of an answer, as the server's limits. Two bytes may be a message of a hundred: parts are counted before a long answer is parsed.
MAX_POLICIES, MAX_AGENTS, MAX_NAMES, MAX_PARTS, SHORT_BYTES = 1024, 1024, 64, 2048, 1 << 16
_KINDS = {INT32: "<i4", FLOAT32: "<f4"}
DOWN_S = 1.0  # a server that was not there is not asked first for so long
BACKOFF_S = 0.05  # before the second try at a server alone; doubles

# actions: [rows, words] as the environment gets them; sampled_actions: the same before clipping or scaling; action_logp: [rows], nats, of
# sampled_actions. Words are int32 where all are discrete, float32 where all are continuous, float64 (exact for both) where they are mixed.
# learner_epoch and version tell which weights. state_out: PolicyState, [rows, state size] float32 of a policy that remembers, the state_in of the
# same agents' next decisions. logits and mean: [rows, their size] float32, where outputs named them. value: [rows] float32, what the critic says
# of the observations, in the units of rewards. None: not asked for, or there is none.
PolicyActions = collections.namedtuple("PolicyActions", "policy_id learner_epoch version actions sampled_actions action_logp state_out logits mean value",
                                       defaults=(None, None, None))

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


def is_loopback(host):
    """Whether bytes sent to `host` never leave this machine, as lib/base/loopback.h. "127.example.org" is a name that may lead anywhere."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def check_address(address, insecure_plaintext_network, credentials):
    """ValueError for what is no address, and for another machine's, where the connection is plain text and nobody said that this is meant."""
    if credentials is not None or insecure_plaintext_network or address.startswith(("unix:", "unix-abstract:")):
        return
    parts = re.fullmatch(r"(?:\[(.+)\]|([^:]+)):[0-9]+", address)
    if parts is None:
        raise ValueError(f"got the address {address!r}, expected unix:PATH, unix-abstract:NAME, HOST:PORT or [IPV6]:PORT")
    if not is_loopback(parts[1] or parts[2]):
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


def open_channel(library, address, credentials, use_http_proxy):
    """A channel of grpc or grpc.aio. Each client has its own, since grpc would share connections of equal arguments, and their backoff. The proxy
    that the environment names (http_proxy) is ignored without `use_http_proxy`: it is meant for the web."""
    options = CHANNEL_OPTIONS + [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 1000),
                                 ("grpc.enable_http_proxy", int(use_http_proxy))]
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


def _number(what, value, largest):
    """ValueError unless it is a whole number from 0 to `largest`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= largest:
        raise ValueError(f"{what} is {value!r}, expected a whole number from 0 to {largest}")
    return number


class Asked:
    """Rows for one policy: their message, and what an answer to them has to be like."""

    def __init__(self, policy_id, obs, action_mask=None, agent_slots=None, state_in=None, agent_ids=(), version=None, min_version=None):
        obs = numpy.asarray(obs)
        if obs.ndim < 2:
            obs = numpy.atleast_2d(obs)
        if obs.ndim != 2:
            raise ValueError(f"obs has shape {obs.shape}, expected [rows, size]: flatten observations first")
        as_bytes = obs.dtype == numpy.uint8
        if not as_bytes:
            obs = obs.astype("<f4", copy=False)
        tag = getattr(state_in, "tag", 0)
        state = None if state_in is None else numpy.atleast_2d(numpy.asarray(state_in, "<f4"))
        if state is not None and (state.ndim != 2 or len(state) != len(obs)):
            raise ValueError(f"state_in has shape {state.shape}, expected [{len(obs)}, state size]")
        self.rows = len(obs)
        self.state = b"" if state is None else state.tobytes()
        self.message = query_pb2.QueryRows(policy_id=policy_id or "", rows=len(obs), obs_dtype=UINT8 if as_bytes else FLOAT32, obs=obs.tobytes())
        if action_mask is not None:
            self.message.action_mask = numpy.atleast_2d(action_mask).astype(numpy.uint8).tobytes()
        if agent_slots is not None:
            self.message.agent_slots.extend(int(slot) for slot in numpy.atleast_1d(agent_slots))
        if self.state:
            self.message.state_in = self.state
            self.message.state_tag = tag
        if version is not None:
            self.message.version = str(version)
        if min_version is not None:
            epoch, number = min_version
            self.message.min_version.learner_epoch = _number("min_version's learner epoch", epoch, 2**64 - 1)
            self.message.min_version.n = _number("min_version's number", number, 2**63 - 1)
        if agent_ids:
            self.message.agent_ids.extend(agent_ids)


def encode_request(asked, deterministic=False, outputs=(), seed=None):
    """A ComputeActionsRequest, as bytes."""
    request = query_pb2.ComputeActionsRequest(policies=[each.message for each in asked], deterministic=bool(deterministic), outputs=outputs)
    if seed is not None:
        request.seed = _number("seed", seed, 2**64 - 1)
    return request.SerializeToString()


def encode_describe_request(policy_ids):
    """A DescribePoliciesRequest, as bytes."""
    return query_pb2.DescribePoliciesRequest(policy_ids=policy_ids).SerializeToString()


def ask_for_agents(observations, action_masks=None, states=None, version=None, min_version=None):
    """-> [Asked] of {agent id: observation}, in its order: the server knows who plays them."""
    masks, states = action_masks or {}, states or {}
    for what, given in (("action_masks", masks), ("states", states)):
        strangers = [agent for agent in given if agent not in observations]
        if strangers:
            raise ValueError(f"{what} has agent {strangers[0]!r}, of which there is no observation")
    return [Asked(None, obs, masks.get(agent), None, states.get(agent), [agent], version, min_version) for agent, obs in observations.items()]


def _varint(data, at):
    """-> (the number that begins at data[at], where it ends)"""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError


def _check_parts(data):
    """QueryError for a long answer of more parts than a server's limits allow. Whether it is one at all is protobuf's to say."""
    at, parts = 0, 0
    sizes = {0: None, 1: 8, 2: None, 5: 4}
    try:
        while at < len(data):
            parts += 1
            if parts > MAX_PARTS:
                raise QueryError("INTERNAL", f"the answer has more than {MAX_PARTS} parts")
            key, at = _varint(data, at)
            size = sizes[key & 7]
            if size is None:
                size, at = _varint(data, at)
                at += size if key & 7 == 2 else 0
            else:
                at += size
    except (IndexError, KeyError):
        pass


def parse(kind, data):
    """-> a message of `kind`. QueryError for bytes that are none."""
    if len(data) > SHORT_BYTES:
        _check_parts(data)
    try:
        return kind.FromString(data)
    except (message.DecodeError, UnicodeDecodeError, RecursionError):  # the latter two of protobuf in pure Python
        raise QueryError("INTERNAL", f"the answer is no {kind.DESCRIPTOR.name}") from None


def bounded(values, most, what):
    """`values`, unless an answer has more than so many of them: QueryError."""
    if len(values) > most:
        raise QueryError("INTERNAL", f"the answer has {len(values)} {what}, expected at most {most}")
    return values


def _words(data, rows, dtypes):
    """Bytes of 4-byte words -> [rows, words]; None: no bytes."""
    if len(data) != 4 * rows * len(dtypes) or any(dtype not in (INT32, FLOAT32) for dtype in dtypes):
        raise QueryError("INTERNAL", "the answer's arrays are not as long as it says")
    if len(set(dtypes)) == 1:
        return numpy.frombuffer(data, _KINDS[dtypes[0]]).reshape(rows, len(dtypes))
    columns = {dtype: numpy.frombuffer(data, kind).reshape(rows, len(dtypes)) for dtype, kind in _KINDS.items()}
    words = numpy.empty((rows, len(dtypes)), numpy.float64)
    for i, dtype in enumerate(dtypes):
        words[:, i] = columns[dtype][:, i]
    return words


def _columns(data, rows, what):
    """Bytes of float32 -> [rows, columns]; None: no bytes."""
    if not data:
        return None
    if len(data) % (4 * max(rows, 1)):
        raise QueryError("INTERNAL", f"the answer has {len(data)} bytes of {what} for {rows} rows")
    return numpy.frombuffer(data, "<f4").reshape(rows, -1)


def _state(answer, asked):
    data = answer.state_out
    if asked.state and len(data) not in (0, len(asked.state)):
        raise QueryError("INTERNAL", f"the answer has {len(data)} bytes of states for {asked.rows} rows")
    state = _columns(data, asked.rows, "states")
    if state is None:
        return None
    state = state.view(PolicyState)
    state.tag = answer.state_tag
    return state


def _actions(answer, asked, outputs):
    rows = answer.rows
    if rows != asked.rows:
        raise QueryError("INTERNAL", f"the answer is of {rows} rows, expected {asked.rows}")

    def has(output):
        return not outputs or output in outputs
    logps, values = answer.action_logp[:], answer.values[:]
    if len(logps) != (rows if has("log_prob") else 0) or len(values) != (rows if "value" in outputs else 0):
        raise QueryError("INTERNAL", "the answer's arrays are not as long as it says")
    dtypes, version = answer.action_dtypes[:], answer.version
    return PolicyActions(answer.policy_id, version.learner_epoch, version.n, _words(answer.actions, rows, dtypes) if has("action") else None,
                         _words(answer.sampled_actions, rows, dtypes) if has("sampled_action") else None,
                         numpy.array(logps, numpy.float32) if has("log_prob") else None, _state(answer, asked),
                         _columns(answer.logits, rows, "logits"), _columns(answer.mean, rows, "means"),
                         numpy.array(values, numpy.float32) if "value" in outputs else None)


def read_answer(data, asked, outputs=()):
    """-> [PolicyActions], one for each of `asked`. QueryError: what the server refused in a stream, or an answer that makes no sense."""
    reply = parse(query_pb2.ComputeActionsReply, data)
    if reply.HasField("error"):
        code = reply.error.code
        raise QueryError(CODES[code] if 0 < code < len(CODES) else "UNKNOWN", reply.error.message)
    if len(reply.policies) != len(asked):
        raise QueryError("INTERNAL", f"the answer is of {len(reply.policies)} policies, expected {len(asked)}")
    return [_actions(answer, each, outputs) for answer, each in zip(reply.policies, asked)]


def _version(version):
    return version.learner_epoch, version.n


def _versions(labelled):
    return {each.label: _version(each.version) for each in bounded(labelled, MAX_NAMES, "versions")}


def _description(policy, agents):
    slots = policy.agent_slots[:]
    if any(not 0 <= slot < len(agents) for slot in slots):
        raise QueryError("INTERNAL", "the answer names slots of agents that it does not have")
    return PolicyDescription(policy.policy_id, *_version(policy.version), policy.observation_space, policy.action_space,
                             "uint8" if policy.obs_dtype == UINT8 else "float32", policy.obs_size, policy.mask_size, policy.needs_agent_slots,
                             [agents[slot] for slot in slots], slots, policy.state_size, policy.network,
                             tuple(bounded(policy.outputs, MAX_NAMES, "outputs")), _versions(policy.versions))


def read_descriptions(data):
    """-> [PolicyDescription]. QueryError."""
    reply = parse(query_pb2.DescribePoliciesReply, data)
    agents = list(bounded(reply.agent_ids, MAX_AGENTS, "agents"))
    return [_description(policy, agents) for policy in bounded(reply.policies, MAX_POLICIES, "policies")]


def read_list(data):
    """-> {policy id: {"latest" or a label: (learner epoch, version)}}. QueryError."""
    policies = bounded(parse(query_pb2.ListPoliciesReply, data).policies, MAX_POLICIES, "policies")
    return {policy.policy_id: {"latest": _version(policy.version), **_versions(policy.versions)} for policy in policies}


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
