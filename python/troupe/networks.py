"""A policy's network as a checkpoint has it: its tensors by name, its inputs, and the columns of its last layer. Needs
numpy."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from troupe import acting
from troupe.envs import spaces
from troupe.program import TroupeError

Array = NDArray[Any]
# The largest output that makes alpha or beta of a Beta (policy::kMaxBetaOutput).
MAX_BETA_OUTPUT = 1e6
# Bounds of log standard deviations where the table names none (policy::kMinLogStd, kMaxLogStd).
_MIN_LOG_STD, _MAX_LOG_STD = -20.0, 5.0


class ActorOutputs(NamedTuple):
    """What an actor computes of rows. outputs: its last layer, [rows, outputs]; states: of one that remembers, after
    the decision; actions: the deterministic ones [rows, words], in their space; logp: theirs, [rows], nats."""

    outputs: Array
    states: Array
    actions: Array
    logp: Array


@dataclasses.dataclass(frozen=True)
class Head:
    """What the columns of the actor's last layer are. Columns are [begin, end).

    logits: columns of all logits, one discrete part of the action after another; categories: of each part. first and
    second: of each continuous part the columns of its means (of a Beta: what makes alpha), and of its log standard
    deviations (what makes beta); second is empty where these are a parameter, log_std.
    """

    distribution: str  # gaussian, squashed_gaussian or beta
    categories: Tuple[int, ...]
    first: Tuple[Tuple[int, int], ...]
    second: Tuple[Tuple[int, int], ...]
    min_log_std: float
    max_log_std: float

    @property
    def logits(self) -> int:
        """Columns, from 0 on."""
        return sum(self.categories)

    @property
    def names(self) -> List[str]:
        """Of what the network gives, in its order."""
        continuous = ["alpha", "beta"] if self.distribution == "beta" else ["mean", "log_std"]
        return (["logits"] if self.categories else []) + (continuous if self.first else [])

    def split(self, outputs: Array, log_std: Optional[Array]) -> Dict[str, Array]:
        """The distribution's parameters by name, of the last layer [rows, columns]; log_std: the parameter, where there
        is one."""
        parameters = {"logits": outputs[:, : self.logits]} if self.categories else {}
        if not self.first:
            return parameters
        first = np.concatenate([outputs[:, begin:end] for begin, end in self.first], 1)
        second = np.concatenate([outputs[:, begin:end] for begin, end in self.second], 1) if self.second else np.broadcast_to(log_std, first.shape)
        if self.distribution == "beta":
            first, second = (1 + np.logaddexp(0, np.minimum(each, MAX_BETA_OUTPUT)) for each in (first, second))
        else:
            second = np.clip(second, self.min_log_std, self.max_log_std)
        names = self.names[-2:]
        return {**parameters, names[0]: first.astype(np.float32), names[1]: second.astype(np.float32)}


@dataclasses.dataclass(frozen=True)
class Network:
    """spec: the policy's entry of the manifest's policy_table (docs/checkpoints.md). tensors: those of the actor by
    name, float32; mean and variance: float64 [obs_size], of the observation, None where it is not normalized. outputs:
    columns of the last layer."""

    policy: str
    version: int
    spec: Dict[str, Any]
    observation_space: spaces.Space
    observation_dtype: type
    observation_size: int
    state_size: int
    mask_size: int
    agent_slots: Tuple[int, ...]  # that the policy may play
    outputs: int
    head: Head
    tensors: Dict[str, Array]
    mean: Optional[Array]
    variance: Optional[Array]

    @property
    def actor(self) -> Dict[str, Any]:
        """The acting network of the table."""
        actor: Dict[str, Any] = self.spec["actor"]
        return actor

    @property
    def agent_id_size(self) -> int:
        """Of the one-hot that it reads; 0: none."""
        return int(self.spec["agent_id_size"])

    @property
    def is_module(self) -> bool:
        """Whether it is a TorchScript file of a user's."""
        return self.actor["encoder"] == "torchscript"

    @property
    def input_names(self) -> List[str]:
        """Of what the network reads, in its order. A built-in one does not read masks."""
        read = {"agent_slots": self.agent_id_size, "states": self.state_size, "action_masks": self.mask_size if self.is_module else 0}
        return ["observations", *(name for name, size in read.items() if size)]

    @property
    def output_names(self) -> List[str]:
        """Of what it gives."""
        return self.head.names + (["next_states"] if self.state_size else [])

    def all_tensors(self) -> Dict[str, Array]:
        """Those of the actor, and the moments, as checkpoints name them without the policy's id."""
        moments = {} if self.mean is None else {"observation.mean": self.mean, "observation.variance": self.variance}
        return {**self.tensors, **moments}  # type: ignore[dict-item]

    def text(self) -> str:
        """The spec as JSON."""
        return json.dumps(self.spec, sort_keys=True)

    def sample_inputs(self, rows: int, seed: int) -> Dict[str, Array]:
        """Random ones by name, and action_masks where the policy has some."""
        random = np.random.default_rng(seed)
        inputs: Dict[str, Array] = {"observations": _rows(self.observation_space, rows, random).astype(self.observation_dtype)}
        if self.agent_id_size:
            slots = self.agent_slots or range(self.agent_id_size)
            inputs["agent_slots"] = np.array([slots[row % len(slots)] for row in range(rows)], np.int64)
        if self.state_size:
            inputs["states"] = random.uniform(-1, 1, (rows, self.state_size)).astype(np.float32)
        if self.mask_size:
            masks = random.integers(0, 2, (rows, self.mask_size)).astype(np.uint8)
            begin = 0
            for categories in self.head.categories:  # one is allowed at least
                masks[np.arange(rows), begin + random.integers(0, categories, rows)] = 1
                begin += categories
            inputs["action_masks"] = masks
        return inputs


def read_network(checkpoint: acting.Checkpoint, place: int) -> Network:
    """Of a checkpoint's policy, whose weights are verified. TroupeError for one without networks."""
    described = checkpoint.description["policies"][place]
    network = checkpoint.network(place)
    spec = network["spec"]
    size = described["obs_size"] if spec["normalize_observations"] else 0
    parameters, moments = checkpoint.weights(place, network["parameters"], 2 * size)
    flat = np.frombuffer(parameters, np.float32)
    tensors = {tensor["name"]: flat[tensor["offset"]:][:int(np.prod(tensor["shape"]))].reshape(tensor["shape"]) for tensor in network["tensors"]}
    mean, variance = np.frombuffer(moments, np.float64).reshape(2, size) if moments is not None else (None, None)
    head = read_head(spec)
    columns = head.logits + sum(end - begin for begin, end in (*head.first, *head.second))
    if columns != network["outputs"]:
        raise TroupeError(f"policy {described['id']}: the actor has {network['outputs']} outputs, expected {columns}: library and Python package are of "
                          "different Troupes")
    return Network(
        policy=described["id"], version=described["version"], spec=spec, observation_space=spaces.parse(described["observation_space"]),
        observation_dtype=np.uint8 if described["obs_dtype"] == "uint8" else np.float32, observation_size=described["obs_size"],
        state_size=described["state_size"], mask_size=described["mask_size"], agent_slots=tuple(described["agents"]), outputs=network["outputs"], head=head,
        tensors=tensors, mean=mean, variance=variance)


def read_head(spec: Dict[str, Any]) -> Head:
    """Of an entry of a policy_table. TroupeError for a distribution that this package does not know."""
    distribution = spec.get("continuous", "gaussian")
    if distribution not in ("gaussian", "squashed_gaussian", "beta"):
        raise TroupeError(f"policy {spec['id']}: got the distribution {distribution}, expected gaussian, squashed_gaussian or beta")
    parts = list(_action_parts(spaces.parse(spec["action_space"])))
    categories = tuple(size for discrete, size in parts if discrete)
    column = sum(categories)
    first, second = [], []
    for discrete, size in parts:
        if discrete:
            continue
        first.append((column, column + size))
        column += size
        if distribution == "beta" or not spec.get("free_log_std", True):
            second.append((column, column + size))
            column += size
    return Head(distribution, categories, tuple(first), tuple(second), spec.get("min_log_std", _MIN_LOG_STD), spec.get("max_log_std", _MAX_LOG_STD))


def row_scaling(spec: Dict[str, Any]) -> Optional[Tuple[Array, Array]]:
    """How the elements of a flattened observation row reach the networks of an entry of a policy_table: (offset, scale),
    float32 [obs_size] each, of (row - offset) * scale. None: rows stay as they are.

    A number of a uint8 Box is scaled to [0, 1] by its own bounds, wherever the Box stands (lib/space/row_scaling.h).
    Policies of before that rule, which have no "observation_scaling", divide the bytes of an observation that is one
    Box by 255."""
    space = spaces.parse(spec["observation_space"])
    bounded = "observation_scaling" in spec
    if not bounded and space.flat_dtype is not np.uint8:
        return None
    offsets, scales = [], []
    for leaf in observation_leaves(space):
        low, high = np.zeros(leaf.flat_size, np.float32), np.ones(leaf.flat_size, np.float32)
        if leaf.kind == "Box" and leaf.dtype == "uint8":
            bounds = (leaf.low, leaf.high) if bounded else (0, 255)
            low, high = (np.broadcast_to(np.asarray(bound, np.float32).reshape(-1), leaf.flat_size) for bound in bounds)
        offsets.append(low)
        scales.append(np.float32(1) / np.where(high == low, np.float32(1), high - low))
    return np.concatenate(offsets), np.concatenate(scales)


def observation_leaves(space: spaces.Space) -> Iterator[spaces.Space]:
    """What is neither Dict nor Tuple, in the order of rows."""
    if space.kind not in ("Dict", "Tuple"):
        yield space
    for child in space.children:
        yield from observation_leaves(child)


def _action_parts(space: spaces.Space) -> Iterator[Tuple[bool, int]]:
    """(discrete?, categories or numbers) of each part, in the order of action rows (space::ActionLeaves)."""
    if space.kind == "Box":
        yield False, space.action_words
    elif space.kind in ("Dict", "Tuple"):
        for child in space.children:
            yield from _action_parts(child)
    else:
        yield from ((True, size) for size in {"Discrete": (space.n,), "MultiBinary": (2,) * space.n}.get(space.kind, space.nvec))


def _one_hot(numbers: Array, size: int) -> Array:
    rows = np.zeros((len(numbers), size))
    rows[np.arange(len(numbers)), numbers] = 1
    return rows


def _rows(space: spaces.Space, rows: int, random: np.random.Generator) -> Array:
    """Flattened observations, float64; of a Box without bounds normal ones, three times as wide."""
    if space.kind in ("Dict", "Tuple"):
        return np.concatenate([_rows(child, rows, random) for child in space.children], 1)
    if space.kind == "MultiBinary":
        return random.integers(0, 2, (rows, space.n)).astype(float)
    if space.kind != "Box":
        sizes = (space.n,) if space.kind == "Discrete" else space.nvec
        return np.concatenate([_one_hot(random.integers(0, size, rows), size) for size in sizes], 1)
    low, high = (np.broadcast_to(np.asarray(bound, float).reshape(-1), space.flat_size) for bound in (space.low, space.high))
    bounded = np.isfinite(low) & np.isfinite(high) & (high - low < 1e6)
    if space.dtype == "uint8":
        return random.integers(low.astype(int), high.astype(int) + 1, (rows, space.flat_size)).astype(float)
    normal = np.clip(3 * random.normal(size=(rows, space.flat_size)), low, high)
    return np.where(bounded, random.uniform(np.where(bounded, low, 0), np.where(bounded, high, 1), normal.shape), normal)
