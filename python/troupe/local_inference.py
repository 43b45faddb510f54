"""Acts for worlds outside in this process, as a worker does (troupe.external). Needs libtroupe_acting.so."""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

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

    def act(self, agent: str, observation: Any, mask: Any, state: Optional[NDArray[np.float32]]) -> Tuple[Any, float, Optional[NDArray[np.float32]]]:
        """-> (action, its log-probability, what the policy remembers now). state: what it remembered before; None: nothing. ValueError for what does
        not fit the spaces."""
        if agent not in self._players:
            raise ValueError(f"there is no agent {agent!r}, expected one of {', '.join(list(self._players)[:8])}")
        policy, slot = self._players[agent]
        return policy.decide(observation, slot, mask, state)


class _Episode:
    """One that is played: what policies remember of its agents, and the call that says what they did last."""

    def __init__(self) -> None:
        self.states: Dict[str, Optional[NDArray[np.float32]]] = {}
        self.unanswered: Any = None


class LocalInference:
    """The newest policies, and the episodes that they play. Thread-safe; one call of an episode at a time."""

    # A client that begins episodes and does not end them keeps so many.
    MAX_EPISODES = 4096
    _LOOK_S = 0.02

    def __init__(self, ask: Callable[[int, int], Any], timeout: float) -> None:
        """ask: as fetch has it; timeout: seconds to wait for the first policies. TroupeError without libtroupe_acting.so."""
        acting.load()
        self._ask, self._timeout = ask, timeout
        self._lock = threading.RLock()
        self._policies: Optional[LocalPolicies] = None
        self._told = 0
        self._episodes: Dict[str, _Episode] = {}

    def hear(self, number: int) -> None:
        """The worker acts with the weights of that number. 0, which is the first that another worker says: with none yet."""
        with self._lock:
            self._told = number
            if number == 0:
                self._policies = None

    def refresh(self) -> None:
        """Gets the policies that the worker acts with, where they are others than before. Waits for the first ones alone. QueryError, TroupeError."""
        deadline = time.monotonic() + self._timeout
        with self._lock:
            while self._policies is None or self._policies.number != self._told:
                try:
                    fetched = fetch(self._ask)
                except QueryError as error:
                    if error.code not in ("ABORTED", "RESOURCE_EXHAUSTED"):  # newer ones came meanwhile, or too many ask
                        raise
                    fetched = None
                if fetched is not None:
                    self._policies = LocalPolicies(*fetched)
                    self._told = self._policies.number
                elif self._policies is not None:
                    return  # those before act on, until there are others
                elif time.monotonic() > deadline:
                    raise QueryError("DEADLINE_EXCEEDED", f"the worker has had no weights to act with for {self._timeout:g} s")
                else:
                    time.sleep(self._LOOK_S)

    def begin(self, episode: str) -> None:
        with self._lock:
            self._episodes[episode] = _Episode()
            if len(self._episodes) > self.MAX_EPISODES:
                del self._episodes[next(iter(self._episodes))]

    def forget(self, episode: str) -> None:
        with self._lock:
            self._episodes.pop(episode, None)

    def act(self, episode: str, observations: Mapping[str, Any], masks: Mapping[str, Any]) -> Tuple[int, Dict[str, Any], Dict[str, float]]:
        """-> (number of the weights, {agent: action}, {agent: log-probability}). QueryError, TroupeError, ValueError."""
        with self._lock:
            self.refresh()
            if episode not in self._episodes:
                raise ValueError(f"episode {episode!r} was not begun by start_episode of this ExternalEnv, or is over")
            assert self._policies is not None
            played = self._episodes[episode]
            decided = {agent: self._policies.act(agent, seen, masks.get(agent), played.states.get(agent)) for agent, seen in observations.items()}
            played.states.update({agent: state for agent, (_, _, state) in decided.items()})
            return (self._policies.number, {agent: action for agent, (action, _, _) in decided.items()},
                    {agent: log_prob for agent, (_, log_prob, _) in decided.items()})

    def note_call(self, episode: str, call: Any) -> None:
        """The call that says what was decided last; take_call gives it back once."""
        with self._lock:
            self._episodes[episode].unanswered = call

    def take_call(self, episode: str) -> Any:
        with self._lock:
            played = self._episodes.get(episode)
            if played is None:
                return None
            call, played.unanswered = played.unanswered, None
            return call
