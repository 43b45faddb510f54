"""Acts for worlds outside in this process, as a worker does (troupe.external). Needs libtroupe_acting.so."""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from troupe import acting, query_calls
from troupe.policy import Policy
from troupe.query_calls import QueryError

# What GetPolicies answers, all pieces together, and the names of its files.
MAX_BYTES = 64 << 20
FILES = ("manifest.json", "policies.safetensors")
# Its environment in a row's key: decisions are counted, so that no two are drawn alike.
_ENV = 0
# Of an agent: the id of the policy that does, and its numbers. None: nothing.
Remembered = Optional[Tuple[str, NDArray[np.float32]]]


def fetch(ask: Callable[[int, int], Any]) -> Optional[Tuple[int, Dict[str, bytes]]]:
    """(number of the weights, {name: bytes}), or None where the worker has none yet. ask(weights, offset): a GetPoliciesReply. QueryError."""
    reply = ask(0, 0)
    number = reply.weights
    if number == 0:
        return None
    files = [(file.name, file.size) for file in query_calls.bounded(reply.files, len(FILES), "files")]
    size = sum(size for _, size in files)
    if sorted(name for name, _ in files) != sorted(FILES) or size > MAX_BYTES:
        raise QueryError("INTERNAL", f"the answer has files {files}, expected {' and '.join(FILES)} of at most {MAX_BYTES} bytes")
    data = bytearray(reply.data)
    while 0 < len(reply.data) and len(data) < size:
        reply = ask(number, len(data))
        data += reply.data
    if len(data) != size or reply.weights != number:
        raise QueryError("INTERNAL", f"the answer has {len(data)} bytes of weights {reply.weights}, expected {size} of {number}")
    cut, at = {}, 0
    for name, length in files:
        cut[name] = bytes(data[at:at + length])
        at += length
    return number, cut


class LocalPolicies:
    """The policies that play a world, and which plays whom. One thread uses it.

    number: of the weights, as the worker counts them."""

    def __init__(self, number: int, files: Dict[str, bytes]) -> None:
        """TroupeError for files that are no checkpoint, or without libtroupe_acting.so."""
        self.number = number
        with tempfile.TemporaryDirectory(prefix="troupe-policies-") as folder:  # the user's alone
            for name, data in files.items():
                with open(os.path.join(folder, name), "xb") as file:
                    file.write(data)
            checkpoint = acting.Checkpoint(folder, secrets.randbits(64))
        policies = [Policy(checkpoint, place) for place in range(len(checkpoint.description["policies"]))]
        agents: List[str] = checkpoint.description["agents"]
        self._players = {agent: (policies[place], slot) for slot, (agent, place) in enumerate(zip(agents, checkpoint.map(_ENV, 0)))}

    def act(self, agent: str, observation: Any, mask: Any, remembered: Remembered) -> Tuple[Any, float, Remembered]:
        """-> (action, its log-probability, what its policy remembers now). remembered: what was before; of another policy it is forgotten. ValueError
        for what does not fit the spaces."""
        if agent not in self._players:
            raise ValueError(f"there is no agent {agent!r}, expected one of {', '.join(list(self._players)[:8])}")
        policy, slot = self._players[agent]
        state = None
        if remembered is not None and (remembered[0], remembered[1].size) == (policy.id, policy.state_size):
            state = remembered[1]
        action, log_prob, state = policy.decide(observation, slot, mask, state)
        return action, log_prob, None if state is None else (policy.id, state)


class Decided(NamedTuple):
    """What policies did in a step, and what note_call takes with the call that reports it."""

    weights: int
    actions: Dict[str, Any]
    log_probs: Dict[str, float]
    remembered: Dict[str, Remembered]
    fetches: int


class _Episode:
    """One that is played: what policies remember of its agents, and the call that says what they did last, with the fetches before it."""

    def __init__(self) -> None:
        self.remembered: Dict[str, Remembered] = {}
        self.unanswered: Optional[Tuple[Any, int]] = None


class LocalInference:
    """The newest policies, and the episodes that they play. Thread-safe; one call of an episode at a time."""

    # A client that begins episodes and does not end them keeps so many, and as many that are lost.
    MAX_EPISODES = 4096
    _LOOK_S = 0.02
    # Of GetPolicies: a client cannot act here, or what came is no answer. And what passes, with newer policies, fewer who ask, or a faster client.
    _REFUSED, _PASSING = ("FAILED_PRECONDITION", "INTERNAL"), ("ABORTED", "RESOURCE_EXHAUSTED", "CANCELLED")

    def __init__(self, ask: Callable[[int, int], Any], timeout: float) -> None:
        """ask: as fetch has it; timeout: seconds to wait for the first policies. TroupeError without libtroupe_acting.so."""
        acting.load()
        self._ask, self._timeout = ask, timeout
        self._lock = threading.RLock()
        self._policies: Optional[LocalPolicies] = None
        self._told = 0
        self._fetches = 0
        self._episodes: Dict[str, _Episode] = {}
        self._lost: Dict[str, None] = {}  # the oldest first

    def hear(self, number: int, fetches: int) -> None:
        """The worker acts with the weights of that number, as it answers a call that was made after so many fetches. 0, which is the first that another
        worker says: with none yet."""
        with self._lock:
            if fetches < self._fetches:
                return  # those that have come since may be newer
            self._told = number
            if number == 0:
                self._policies = None

    def refresh(self) -> int:
        """Gets the policies that the worker acts with, where they are others than before. Waits for the first ones alone; those at hand act on where
        others do not come. All episodes wait meanwhile, behind the lock: rows of the weights before would be left out. -> the number of fetches so far.
        QueryError, TroupeError."""
        deadline = time.monotonic() + self._timeout
        with self._lock:
            while self._policies is None or self._policies.number != self._told:
                missing = self._fetch()
                if self._policies is not None:
                    break
                if time.monotonic() > deadline:
                    raise QueryError("DEADLINE_EXCEEDED", f"got no policies from the worker in {self._timeout:g} s, at last: {missing}")
                time.sleep(self._LOOK_S)
            return self._fetches

    def _fetch(self) -> str:
        """-> why the newest policies are not here; empty: they are. QueryError where nothing can act on."""
        try:
            fetched = fetch(self._ask)
        except QueryError as error:
            if error.code in self._REFUSED or (self._policies is None and error.code not in self._PASSING):
                raise
            return str(error)
        if fetched is None:
            return "the worker has none yet"
        self._policies = LocalPolicies(*fetched)
        self._told = self._policies.number
        self._fetches += 1
        return ""

    def begin(self, episode: str) -> None:
        with self._lock:
            self._lost.pop(episode, None)
            self._episodes[episode] = _Episode()
            if len(self._episodes) > self.MAX_EPISODES:
                del self._episodes[next(iter(self._episodes))]

    def forget(self, episode: str) -> None:
        with self._lock:
            self._episodes.pop(episode, None)

    def lose(self, episode: str) -> None:
        """From now on take_call refuses it."""
        with self._lock:
            self.forget(episode)
            self._lost[episode] = None
            if len(self._lost) > self.MAX_EPISODES:
                del self._lost[next(iter(self._lost))]

    def act(self, episode: str, observations: Mapping[str, Any], masks: Mapping[str, Any]) -> Decided:
        """The episode is as before until note_call. QueryError, TroupeError, ValueError."""
        with self._lock:
            fetches = self.refresh()
            if episode not in self._episodes:
                raise ValueError(f"episode {episode!r} was not begun by start_episode of this ExternalEnv, or is over")
            assert self._policies is not None
            before = self._episodes[episode].remembered
            decided = {agent: self._policies.act(agent, seen, masks.get(agent), before.get(agent)) for agent, seen in observations.items()}
            return Decided(self._policies.number, {agent: action for agent, (action, _, _) in decided.items()},
                           {agent: log_prob for agent, (_, log_prob, _) in decided.items()},
                           {agent: remembered for agent, (_, _, remembered) in decided.items()}, fetches)

    def note_call(self, episode: str, decided: Decided, call: Any) -> None:
        """The call says what was decided; take_call gives it back once."""
        with self._lock:
            played = self._episodes.get(episode)
            if played is not None:  # else others have begun so many meanwhile
                played.remembered.update(decided.remembered)
                played.unanswered = call, decided.fetches

    def take_call(self, episode: str) -> Optional[Tuple[Any, int]]:
        """-> (the call, the fetches before it). QueryError where the episode is lost."""
        with self._lock:
            if episode in self._lost:
                raise QueryError("ABORTED", f"the worker did not take a step of episode {episode!r}, which its world has taken: begin another")
            played = self._episodes.get(episode)
            if played is None:
                return None
            unanswered, played.unanswered = played.unanswered, None
            return unanswered
