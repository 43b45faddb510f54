"""Functions and policies in Python, as a worker or a learner asks them (lib/envhost/python_functions.h).

A mapping function, `policy_mapping: {function: "python:module:name"}`, is called once for every agent and episode, when
the agent is first observed, and answers with the id of a policy:

    def choose(agent_id, episode, worker):
        return "main" if agent_id == "player_0" else random.choice(worker.policies)

`episode` is an Episode, `worker` a Worker. Functions that take fewer parameters, `(agent_id, episode)` or `(agent_id)`,
get as many. `random` and numpy's global generator are seeded from the run's seed and the worker.

A policy, `class: "python:module:name"`, is called with the observations of all its agents that act, and answers with
their actions, both as arrays with a row an agent (lists of rows where the space is a Dict or Tuple):

    def act(observations, rows):
        return rows.rng.integers(5, size=len(observations))

`rows` is a Rows; a function with one parameter gets the observations alone. A class is made once, with those of
`observation_space`, `action_space` (Gymnasium's) and `policy_id` that its constructor names, and then called.
"""

import hashlib
import inspect
import json
from typing import Any, Callable, Dict, List

import numpy as np

from troupe import _shm_host as shm
from troupe._shm_env import BadOutput, Block, Stop
from troupe.env_adapters.resolve import find_callable
from troupe.envs.spaces import Space, parse


class Episode:
    """What a mapping function knows of an episode.

    episode_id: a number of 63 bits, the same for the same seed, environment and episode, without order. env_id: the
    environment's number in the run. episode: how many episodes that environment has played before. env_args: its
    arguments, as text. agent_policies: agent id -> policy id of the agents that have their policy.
    """

    __slots__ = ("episode_id", "env_id", "episode", "env_args", "agent_policies")

    def __init__(self, seed: int, question: Dict[str, Any]) -> None:
        self.env_id: int = question["env_id"]
        self.episode: int = question["episode"]
        self.env_args: Dict[str, str] = question["env_args"]
        self.agent_policies: Dict[str, str] = question["mapped"]
        digest = hashlib.blake2b(f"{seed} {self.env_id} {self.episode}".encode(), digest_size=8).digest()
        self.episode_id = int.from_bytes(digest, "little") >> 1

    def policy_for(self, agent_id: str) -> str:
        """The policy of an agent that has one in this episode; KeyError for others."""
        return self.agent_policies[agent_id]


class Worker:
    """Who asks. worker_index: its number, from 0. policies: the ids that may be answered."""

    __slots__ = ("worker_index", "policies")

    def __init__(self, question: Dict[str, Any]) -> None:
        self.worker_index: int = question["worker"]
        self.policies: List[str] = question["policies"]


class Rows:
    """What a policy knows of the rows it acts for, besides their observations.

    env_ids, episodes, agent_slots, env_steps: [rows] uint32. action_mask: [rows, categories] uint8, 1 allowed, or None.
    deterministic: the best action is wanted, not a sample. rng: a numpy Generator that follows from the run's seed and
    these rows.
    """

    def __init__(self, keys: np.ndarray, action_mask: Any, deterministic: bool, seed: int) -> None:
        self.env_ids, self.episodes, self.agent_slots, self.env_steps = keys.T
        self.action_mask = action_mask
        self.deterministic = deterministic
        self._seed = seed

    @property
    def rng(self) -> np.random.Generator:
        if not hasattr(self, "_rng"):
            first = [int(column[0]) for column in (self.env_ids, self.episodes, self.agent_slots, self.env_steps)]
            self._rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self._seed, *first])))
        return self._rng


def _count_arguments(what: str, function: Callable[..., Any], most: int) -> int:
    """How many positional arguments, of `most`, the function takes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return most
    for count in range(most, 0, -1):
        try:
            signature.bind(*range(count))
            return count
        except TypeError:
            pass
    raise BadOutput(f"{what} takes {signature}, expected 1 to {most} positional parameters")


class Function:
    """The place of a function: its block, and what the worker has made in it. `host` is the EnvHost."""

    def __init__(self, host: Any, offset: int) -> None:
        header = Block(host.memory_fd, offset, shm.PAGE_BYTES).header
        size = header[shm.BLOCK_BYTES_LOW] | header[shm.BLOCK_BYTES_HIGH] << 32
        self._host = host
        self._block = Block(host.memory_fd, offset, size)
        self._callee: Any = None

    def serve(self, kind: int) -> None:
        """Answers a request of this kind."""
        header = self._block.header
        self._block.begin()
        try:
            if kind == shm.KIND_MAKE:
                payload = self._block.view[shm.BLOCK_ERROR + shm.BLOCK_ERROR_CAPACITY :]
                what = json.loads(bytes(payload[: header[shm.BLOCK_CALL_COUNT]]))
                made = [callee for callee in CALLEES if callee.key in what]
                if not made:
                    raise RuntimeError(f"{', '.join(what)}: none of {', '.join(callee.key for callee in CALLEES)}")
                self._callee = made[0](self._host, what, payload)
            elif kind == shm.KIND_CALL:
                self._callee.call(header, header[shm.BLOCK_CALL_SEED_LOW] | header[shm.BLOCK_CALL_SEED_HIGH] << 32)
            else:
                raise RuntimeError(f"request {kind} is none of a function")
        except Stop:
            raise
        except BaseException as error:  # also SystemExit: a function does not end its neighbours
            self._block.fail(error)

    def close(self) -> None:
        """Closes what has a close()."""
        callee, self._callee = self._callee, None
        close = getattr(callee.function, "close", None) if callee is not None else None
        if callable(close):
            close()


class Callee:
    """A function of the user's, and how it is called."""

    what, key, most_arguments = "", "", 0

    def __init__(self, host: Any, what: Dict[str, Any], payload: memoryview) -> None:
        self.host, self.payload = host, payload
        self.name = what[self.key]
        self.function = self.find(what)
        self._count = _count_arguments(f"{self.what} {self.name}", self.function, self.most_arguments)

    def find(self, what: Dict[str, Any]) -> Callable[..., Any]:
        """The function that the worker names."""
        return find_callable(self.what, what[self.key])

    def ask(self, *arguments: Any) -> Any:
        """Calls the function with as many of the arguments as it takes."""
        return self.function(*arguments[: self._count])

    def call(self, header: Any, seed: int) -> None:
        """Answers what stands in the payload."""
        raise NotImplementedError


class MappingFunction(Callee):
    """Text in, text out."""

    what, key, most_arguments = "mapping function", "mapping", 3

    def call(self, header: Any, seed: int) -> None:
        question = json.loads(bytes(self.payload[: header[shm.BLOCK_CALL_COUNT]]))
        worker = Worker(question)
        self.host.seed_globals((seed + worker.worker_index) & 0x7FFFFFFF)
        answer = self.ask(question["agent_id"], Episode(seed, question), worker)
        if not isinstance(answer, str):
            raise BadOutput(f"got {answer!r:.100} ({type(answer).__name__}), expected a policy's id, a str")
        data = answer.encode("utf-8", "replace")[:1024]
        self.payload[: len(data)] = data
        header[shm.BLOCK_CALL_COUNT] = len(data)


class Policy(Callee):
    """Rows in, actions out."""

    what, key, most_arguments = "policy", "policy", 2

    def __init__(self, host: Any, what: Dict[str, Any], payload: memoryview) -> None:
        self._observations: Space = parse(what["observation_space"])
        self._actions: Space = parse(what["action_space"])
        super().__init__(host, what, payload)
        count = what["rows"]
        self._keys = np.frombuffer(payload, np.uint32, 4 * count, what["keys"]).reshape(count, 4)
        size = self._observations.flat_size
        self._obs = np.frombuffer(payload, self._observations.flat_dtype, size * count, what["obs"]).reshape(count, size)
        self._mask = None
        if what["mask_size"]:
            size = what["mask_size"]
            self._mask = np.frombuffer(payload, np.uint8, size * count, what["mask"]).reshape(count, size)
        size = self._actions.action_words
        self._words = np.frombuffer(payload, np.int32, size * count, what["actions"]).reshape(count, size)
        self._floats = self._words.view(np.float32)

    def find(self, what: Dict[str, Any]) -> Callable[..., Any]:
        found = super().find(what)
        if inspect.isclass(found):
            offered = {
                "observation_space": self._observations.gymnasium,
                "action_space": self._actions.gymnasium,
                "policy_id": lambda: what["policy_id"],
            }
            taken = inspect.signature(found).parameters
            found = found(**{key: offer() for key, offer in offered.items() if key in taken})
            if not callable(found):
                raise BadOutput(f"{self.what} {what[self.key]}: its objects cannot be called, expected a method __call__")
        return found

    def call(self, header: Any, seed: int) -> None:
        count = header[shm.BLOCK_CALL_COUNT]
        self.host.seed_globals(seed & 0x7FFFFFFF)
        mask = None if self._mask is None else self._mask[:count].copy()
        rows = Rows(self._keys[:count].copy(), mask, bool(header[shm.BLOCK_CALL_DETERMINISTIC]), seed)
        self._write(self.ask(self._observations.unflatten_rows(self._obs[:count]), rows), count)

    def _write(self, actions: Any, count: int) -> None:
        try:
            given = len(actions)
        except TypeError:
            raise BadOutput(f"got {type(actions).__name__}, expected actions, one a row") from None
        if given != count:
            raise BadOutput(f"got {given} actions, expected {count}, one a row")
        for row in range(count):
            try:
                self._actions.encode(actions[row], self._words[row], self._floats[row])
            except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
                raise BadOutput(f"row {row}: action {actions[row]!r:.100}: {error}") from error


class Batch:
    """What a function that says who trains knows of a batch. It has no arrays: they would have to be copied.

    updates: how many there were before. env_steps: of the batch. policies: {id: agent steps} of those that are asked about. agents: {agent: agent steps}
    of those that the policy in question played. rows: their sum. infos: {column: mean over the episodes that ended in the batch}.
    """

    __slots__ = ("updates", "env_steps", "policies", "agents", "rows", "infos")

    def __init__(self, question: Dict[str, Any], policy: Dict[str, Any]) -> None:
        self.updates: int = question["updates"]
        self.env_steps: int = question["env_steps"]
        self.policies: Dict[str, int] = {entry["id"]: entry["rows"] for entry in question["policies"]}
        self.agents: Dict[str, int] = policy["agents"]
        self.rows: int = policy["rows"]
        self.infos: Dict[str, float] = question["infos"]


class TrainFunction(Callee):
    """Says which policies train on a batch, `policies_to_train: "python:module:name"`:

        def trains(policy_id, batch):
            return policy_id != "old" and batch.rows > 100
    """

    what, key, most_arguments = "policies_to_train", "trains", 2

    def call(self, header: Any, seed: int) -> None:
        question = json.loads(bytes(self.payload[: header[shm.BLOCK_CALL_COUNT]]))
        answers: List[bool] = []
        for policy in question["policies"]:
            answer = self.ask(policy["id"], Batch(question, policy))
            if not isinstance(answer, (bool, np.bool_)):
                raise BadOutput(f"got {answer!r:.100} ({type(answer).__name__}) for policy {policy['id']}, expected True or False")
            answers.append(bool(answer))
        data = json.dumps(answers).encode()
        self.payload[: len(data)] = data
        header[shm.BLOCK_CALL_COUNT] = len(data)


class EpisodeEnds(Callee):
    """Episodes in, what their callbacks track out."""

    what, key, function = "callback", "callbacks", None

    def __init__(self, host: Any, what: Dict[str, Any], payload: memoryview) -> None:
        from troupe.episode_callbacks import EpisodeCallbacks

        self.payload = payload
        self._budget_s = what["step_timeout_s"] / 4
        self._callbacks = EpisodeCallbacks(what["callbacks"], what["step_timeout_s"], what["evaluating"])

    def call(self, header: Any, seed: int) -> None:
        from troupe.episode_callbacks import call_ended

        episodes = json.loads(bytes(self.payload[: header[shm.BLOCK_CALL_COUNT]]))
        data = json.dumps(call_ended(self._callbacks, episodes, self._budget_s)).encode()
        self.payload[: len(data)] = data
        header[shm.BLOCK_CALL_COUNT] = len(data)


# What a worker may want made; the key of one of them stands in its request.
CALLEES = (MappingFunction, Policy, TrainFunction, EpisodeEnds)
