"""A mutant, as the tables have them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    edits: list
    tests: list


def mutant(name, file, old, new, *tests):
    return Mutant(name, [(file, old, new)], list(tests))
