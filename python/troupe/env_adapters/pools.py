"""Agents by pattern: `car_*` among an environment's agents is a pool of slots, which agents of such names take in turn."""

from __future__ import annotations

from typing import Any, Hashable

from troupe.env_adapters.base import EnvAdapterError

#: Slots of a pool that the environment's `pool_sizes` does not name.
DEFAULT_SIZE = 64
MOST_AGENTS = 1024


class AgentPools:
    """The slots of an environment's agents, pools among them, and who has each slot of a pool.

    A slot is named by its number in the pool (`car_0`, `car_1`, …), whoever has it. An agent that is not there yet takes
    the free slot with the lowest number; a slot is free once its agent has ended.
    """

    def __init__(self, name: str, entries: list, sizes: Any):
        """`entries`: what the environment says of its agents. `sizes`: slots by pattern."""
        self._name = name
        self.declared: list[Hashable] = []  # by slot: the entry that it comes from, which has the spaces
        self.names: list[Hashable] = []  # by slot
        self._slots: dict[str, range] = {}  # by pattern
        sizes = dict(sizes or {})
        for entry in entries:
            if not (isinstance(entry, str) and "*" in entry):
                self.declared.append(entry)
                self.names.append(entry)
                continue
            if entry.count("*") > 1:
                raise self._error(f"the agents {entry!r} have several *, expected one")
            size = sizes.pop(entry, DEFAULT_SIZE)
            if not isinstance(size, int) or not 1 <= size <= MOST_AGENTS:
                raise self._error(f"pool_sizes has {size!r} for {entry!r}, expected a whole number from 1 to {MOST_AGENTS}")
            self._slots[entry] = range(len(self.names), len(self.names) + size)
            self.declared.extend([entry] * size)
            self.names.extend(entry.replace("*", str(number)) for number in range(size))
        if sizes:
            raise self._error(f"pool_sizes has {next(iter(sizes))!r}, expected a pattern among the agents")
        self._refuse_overlaps(entries)

    def __bool__(self) -> bool:
        return bool(self._slots)

    def pattern_of(self, key: Hashable) -> str | None:
        """The pool that an agent of this name belongs to."""
        return next((pattern for pattern in self._slots if isinstance(key, str) and _fits(key, pattern)), None)

    def admit(self, arrivals: list, index: dict, keys: list, seen: list, done: list) -> None:
        """Gives slots to those of `arrivals`, agents that are there now, that have none: `index` and `keys` change."""
        claimed = {index[key] for key in arrivals if key in index}
        for key in arrivals:
            pattern = None if key in index else self.pattern_of(key)
            if pattern is None:
                continue
            slots = self._slots[pattern]
            slot = next((i for i in slots if i not in claimed and (done[i] or not seen[i])), None)
            if slot is None:
                raise self._error(
                    f"{key!r} came, but all {len(slots)} slots of {pattern!r} are taken (one is free from the step "
                    f"after its agent's end): end agents that leave, or give the environment pool_sizes = "
                    f"{{{pattern!r}: N}} (at most {MOST_AGENTS} agents in all)"
                )
            claimed.add(slot)
            index.pop(keys[slot], None)
            index[key], keys[slot] = slot, key

    def forget(self, index: dict, keys: list) -> None:
        """An episode begins: nobody has a slot."""
        keys[:] = self.names
        index.clear()
        index.update((key, i) for i, key in enumerate(keys))

    def words(self) -> str:
        """For people, behind the number of agents."""
        return "".join(f", {pattern} a pool of {len(slots)}" for pattern, slots in self._slots.items())

    def _refuse_overlaps(self, entries: list) -> None:
        patterns = list(self._slots)
        for i, pattern in enumerate(patterns):
            for other in [*patterns[i + 1 :], *(entry for entry in entries if entry not in self._slots)]:
                if isinstance(other, str) and (_overlap(pattern, other) if "*" in other else _fits(other, pattern)):
                    raise self._error(f"the agents {pattern!r} and {other!r} overlap, expected names that fit one of them")

    def _error(self, what: str) -> EnvAdapterError:
        return EnvAdapterError(f"environment {self._name}: {what}")


def _fits(key: str, pattern: str) -> bool:
    head, tail = pattern.split("*")
    return len(key) > len(head) + len(tail) and key.startswith(head) and key.endswith(tail)


def _overlap(one: str, other: str) -> bool:
    """True if some name fits both patterns."""
    (head, tail), (other_head, other_tail) = one.split("*"), other.split("*")
    heads = head.startswith(other_head) or other_head.startswith(head)
    tails = tail.endswith(other_tail) or other_tail.endswith(tail)
    return heads and tails
