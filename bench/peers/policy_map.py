#!/usr/bin/env python3
"""Troupe's policy map beside RLlib's (old API stack) in one run: 100 policies, 10 of them in memory, one access after another in the same order.

  bench/peers/policy_map.py                 five alternating repetitions, about two minutes
  bench/peers/policy_map.py --check         exit 1 when the bar is missed

An access ends with a policy that is ready to act and to train: networks, optimizer, normalizers. RLlib: `policy_map[id]`, which stashes the
least recently used policy's state in Ray's object store and makes the wanted one from its own (`swappable`: in the networks of the one that
left). Troupe: the learner's policy store writes the state of the one that left to host memory and fills in the wanted one, and a map of actors
packs its weights for inference; both checked to be of the policy that was asked for. The same networks in both: 18 inputs, actor and separate
critic of two layers of 64, Adam. One CPU for each, pinned; the other side waits meanwhile. See README.md for the virtual environments.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import measure  # noqa: E402
import venvs  # noqa: E402

ROOT = HERE.parents[1]
POLICIES = 100
CAPACITY = 10
RATIO_RLLIB = 100.0  # the bar of the project's performance figures, for --check


def sequences(accesses, seed):
    """{name: policy numbers}, the same in every repetition."""
    generator = random.Random(seed)
    zipf = [1 / rank for rank in range(1, POLICIES + 1)]
    return {
        "uniform": [generator.randrange(POLICIES) for _ in range(accesses)],
        "zipf": generator.choices(range(POLICIES), zipf, k=accesses),
    }


class Subject:
    """A program that answers each line of policy numbers with a line of JSON; lives until the end of the run."""

    def __init__(self, command, cpu, log, environment=None):
        self._log = log
        with open(log, "w") as errors:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **(environment or {})),
                preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
            )

    def ask(self, numbers):
        try:
            print(*numbers, file=self._process.stdin, flush=True)
            for line in self._process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        except BrokenPipeError:
            pass
        raise SystemExit(f"policy_map.py: {self._process.args[0]} ended with {self._process.wait()}; see {self._log}")

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)


def verdict(answers):
    """(holds, lines to print) of {(sequence, swappable): {subject: [answer, ...]}}."""
    header = "| order of accesses | states swappable | misses | RLlib, us per access | Troupe, us per access | Troupe is |"
    lines = [header, "|" + "---|" * header.count(" |")]
    ratios = []
    for (name, swappable), of in answers.items():
        cells = {}
        for subject, found in of.items():
            median, low, high = measure.spread([answer["us_per_access"] for answer in found])
            cells[subject] = f"{median:,.1f} ({low:,.1f}–{high:,.1f})"
        pairs = zip(of["rllib"], of["troupe"])
        ratios.append(statistics.median(peer["us_per_access"] / own["us_per_access"] for peer, own in pairs))
        misses = statistics.median(answer["miss_share"] for answer in of["rllib"])
        own_misses = statistics.median(answer["miss_share"] for answer in of["troupe"])
        lines.append(
            f"| {name} | {'yes' if swappable else 'no'} | {misses:.0%}, Troupe {own_misses:.0%} | {cells['rllib']}"
            f" | {cells['troupe']} | {ratios[-1]:,.0f}x |"
        )
    holds = min(ratios) >= RATIO_RLLIB
    lines += ["", f"{'met:    ' if holds else 'MISSED: '}{min(ratios):,.0f} times at least, the bar is {RATIO_RLLIB:g}"]
    return holds, lines


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--accesses", type=int, default=200, help="of each order, a repetition")
    parser.add_argument("--passes", type=int, default=50, help="how often Troupe goes through them in a repetition")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpu", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=pathlib.Path, default=venvs.default_folder())
    parser.add_argument("--python", help="a Python 3.11 for the virtual environment")
    parser.add_argument("--program", type=pathlib.Path, help="policy_access_bench; default: ./troupe bench builds it")
    parser.add_argument("--check", action="store_true", help="exit 1 when the bar is missed")
    return parser.parse_args()


def main():
    args = parse_arguments()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python = venvs.ensure("rllib", folder, args.python)
    sizes = ["--policies", POLICIES, "--capacity", CAPACITY]

    def own_command(*options):
        if args.program:
            return [args.program, *options]
        return [ROOT / "troupe", "bench", "policy_access", *(f"--arg={option}" for option in options)]

    # Any build that the entry script still has to do happens here, outside the figures.
    subprocess.run(list(map(str, own_command("--passes", 1))), check=True, stdout=subprocess.DEVNULL)
    measure.become_subreaper()
    answers = {}
    try:
        with tempfile.TemporaryDirectory(prefix="tp") as temporary:  # a short name: Ray puts Unix sockets in it
            for swappable in (0, 1):
                subjects = {}
                shared = [*sizes, "--swappable", swappable]
                leg = [python, HERE / "legs" / "policy_map_leg.py", *shared]
                environment = {"PEERS_TMP": f"{temporary}/{swappable}"}
                os.mkdir(environment["PEERS_TMP"])
                subjects["rllib"] = Subject(leg, args.cpu, folder / "policy_map-rllib.log", environment)
                own_options = [*shared, "--passes", args.passes, "--stdin", 1]
                subjects["troupe"] = Subject(own_command(*own_options), args.cpu, folder / "policy_map-troupe.log")
                for name, numbers in sequences(args.accesses, args.seed).items():
                    of = answers[name, swappable] = {subject: [] for subject in subjects}
                    for subject in subjects.values():
                        subject.ask(numbers)  # both begin with the policies that this order leaves in memory
                    for _ in range(args.repetitions):
                        for subject, asked in subjects.items():
                            of[subject].append(asked.ask(numbers))
                for subject in subjects.values():
                    subject.close()
    finally:
        measure.end_descendants()
    holds, lines = verdict(answers)
    print("\n".join(lines))
    return 1 if args.check and not holds else 0


if __name__ == "__main__":
    sys.exit(main())
