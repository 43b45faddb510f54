#!/usr/bin/env python3
"""Writes troupe/config_keys.py, what type checkers and editors know of the configuration's keys, from what the program prints of them.

  ./troupe config defaults --markdown | python/generate_config_keys.py > python/troupe/config_keys.py

tests/e2e/python_api_test.py holds the file against the program.
"""

import re
import sys

HEAD = '''"""The keys of a configuration by the block methods of troupe.Config that take them; docs/configuration.md says what they mean.

Written by python/generate_config_keys.py from what the program prints: for type checkers and editors, never imported by what runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Literal, Mapping, Sequence, TypedDict, Union

if TYPE_CHECKING:
    import os
'''
ENV_RUNNERS = ("num_workers", "num_envs_per_worker", "num_envs", "rollout_fragment_length", "batch_mode", "explore")
TRAINING = ("preset", "action_bound_method", "action_scaling")
LEARNER = ("device", "precision", "learner_threads")
# What a method takes under a name of its own.
NAMED = {"env": ("name", "args"), "algorithm": (), "multi_agent": ()}
PATHS = {"env.plugin", "experiment.directory", "multi_agent.policy_map_cache"}
ROW = re.compile(r"^\| `([a-z_.]+)` \| (?:`(.*?)`) \| (.*?) \| (.*) \|$")


def type_of(key, expected):
    """Of the column "expected"."""
    if key == "multi_agent.policy_mapping":
        return "Union[Mapping[str, Any], str, Callable[..., str]]"
    if key in ("multi_agent.policies", "multi_agent.policies_to_train"):
        return "Any"
    if key in PATHS:
        return 'Union[str, "os.PathLike[str]"]'
    expected = expected.replace("\\|", "|")
    expected, _, word = expected.partition(", or ")
    words = [f'Literal["{word}"]'] if re.fullmatch(r"[a-z_]+", word) else []
    if word and not words:
        return "Any"
    if expected == "true or false":
        kinds = ["bool"]
    elif match := re.fullmatch(r"one of ([\w, ]+)", expected):
        kinds = [f"Literal[{', '.join(repr(one).replace(chr(39), chr(34)) for one in match[1].split(', ') + ([word] if word else []))}]"]
        words = []
    elif re.fullmatch(r"an integer( .*)?", expected):
        kinds = ["int"]
    elif re.fullmatch(r"a number( in)?( [^a-z]*)?", expected):
        kinds = ["float"]
    elif re.fullmatch(r"a number( in)?( [^a-z]*)? or a schedule.*", expected):
        kinds = ["float", "Mapping[str, Any]", "Sequence[Sequence[float]]"]
    elif expected == "a string":
        kinds = ["str"]
    elif re.fullmatch(r"a list of [^(]* strings.*", expected):
        kinds = ["Sequence[str]"]
    elif re.fullmatch(r"a list of [^(]* integers.*", expected):
        kinds = ["Sequence[int]"]
    elif expected.startswith("a mapping"):
        kinds = ["Mapping[str, Any]"]
    else:
        return "Any"
    kinds += words
    return kinds[0] if len(kinds) == 1 else f"Union[{', '.join(kinds)}]"


def keys_of(markdown):
    """key -> type, in the order of the tables; two algorithms may have a key of one name, of which the types may differ."""
    found = {}
    for line in markdown.splitlines():
        row = ROW.match(line)
        if row is not None:
            kind = type_of(row[1], row[3])
            found[row[1]] = kind if found.get(row[1], kind) == kind else "Any"
    return found


def module_of(markdown):
    keys = keys_of(markdown)
    top = {key: kind for key, kind in keys.items() if "." not in key}
    sections = {}
    for key, kind in keys.items():
        section, _, name = key.partition(".")
        if name and "." not in name:
            sections.setdefault(section, {})[name] = kind
    assert set(top) == {*ENV_RUNNERS, *TRAINING, *LEARNER, "seed", "callbacks"}, sorted(top)
    sections["env"]["python"] = "Mapping[str, Any]"
    blocks = {
        "EnvKeys": {name: kind for name, kind in sections["env"].items() if name not in NAMED["env"]},
        "MultiAgentKeys": sections["multi_agent"],
        "TrainingKeys": {**sections["algorithm"], **{name: top[name] for name in TRAINING}},
        "EnvRunnerKeys": {name: top[name] for name in ENV_RUNNERS},
        "EvaluationKeys": sections["evaluation"],
        "StopKeys": sections["stop"],
        "ExperimentKeys": sections["experiment"],
        "LearnerKeys": {**sections["learner"], **{name: top[name] for name in LEARNER}},
    }
    assert set(sections) == {"env", "multi_agent", "algorithm", "model", "stop", "evaluation", "experiment", "learner"}, sorted(sections)
    text = HEAD
    for name, fields in blocks.items():
        text += f"\n\nclass {name}(TypedDict, total=False):\n" + "".join(f"    {key}: {kind}\n" for key, kind in fields.items())
    return text


if __name__ == "__main__":
    sys.stdout.write(module_of(sys.stdin.read()))
