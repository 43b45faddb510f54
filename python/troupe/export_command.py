"""The Python half of `troupe export`, which finds the checkpoint and becomes this."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Dict, List, Optional, Sequence

from troupe.export import FORMATS
from troupe.policy import Policy, open_policies
from troupe.program import USAGE, TroupeError


def _arguments(words: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="troupe export", description="Writes a policy of a checkpoint to a file.")
    parser.add_argument("checkpoint", help="its folder")
    parser.add_argument("--policy", help="may be left out where there is but one")
    parser.add_argument("--format", choices=FORMATS, help="by the ending of --output where it is left out")
    parser.add_argument("--output", required=True)
    parser.add_argument("--allow-torchscript")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def _find(policies: Dict[str, Policy], asked: Optional[str], checkpoint: str) -> Policy:
    if asked is None and len(policies) == 1:
        return next(iter(policies.values()))
    shown: List[str] = list(policies)[:8]
    expected = f"expected one of {', '.join(shown)}{', ...' if len(policies) > len(shown) else ''}"
    if asked is None:
        raise TroupeError(f"{checkpoint}: got no --policy of {len(policies)}, {expected}", USAGE)
    if asked not in policies:
        raise TroupeError(f"{checkpoint}: got {asked}, {expected}")
    return policies[asked]


def main(words: Optional[Sequence[str]] = None) -> int:
    """What `troupe export` runs, with the checkpoint that it found. Prints; returns the exit code."""
    asked = _arguments(words)
    try:
        policy = _find(open_policies(asked.checkpoint, 0), asked.policy, asked.checkpoint)
        done = policy.export(asked.output, asked.format, overwrite=asked.overwrite, torchscript=asked.allow_torchscript)
    except TroupeError as error:
        print(f"troupe: error: {error}", file=sys.stderr)
        return error.code
    if asked.json:
        print(json.dumps({"path": done.path, "golden": done.golden, "policy_id": policy.id, "version": policy.version, "difference": done.difference,
                          "checked_with": done.checked_with}))
        return 0
    reference = "the module" if policy.network.is_module else "a worker's actor"
    checked = f"; in {done.checked_with} it gives the outputs of {reference} to {done.difference:.1g}" if done.checked_with else ""
    print(f"wrote {done.path} and {done.golden}: policy {policy.id}, version {policy.version}{checked}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
