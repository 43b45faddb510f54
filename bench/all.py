#!/usr/bin/env python3
"""Every figure of docs/benchmarks.md in one go: measured, what stands beside it, its target, and what was recorded last.

    bench/all.py [build/release] --python VENV/bin/python [--record] [--rounds 5] [--json FILE] [--only TEXT…] [--skip TEXT…]
    bench/all.py --docs              the tables of docs/benchmarks.md and README.md from what is recorded

Needs the programs built (./troupe build and ./troupe bench) and nothing else running: three quarters of an hour, and as much for the
peers' programs, whose virtual environments bench/peers/run.py makes on first use (--skip peers leaves them out). --python is an
interpreter with numpy, gymnasium, pettingzoo, mpe2, lbforaging and supersuit. A figure that cannot be measured here is printed as not
measured; the documents have a row for each figure of the recorded run, and for no other. A bar that is missed, and what was recorded last, have the memcpy of their machine beside them: machines differ.

Results are written to --json (build/bench.json) after every program; with --go-on those of a run that was cut short, of the same machine
and commit, are kept. --record makes the run the recorded one (bench/recorded.json, a whole run or none) and writes the tables as --docs
does. Exit status 1 where a figure misses its target or is not measured, or where --docs finds no recorded run.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

import pairs
from figures import PROGRAMS, number

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDED = ROOT / "bench" / "recorded.json"
NOT_RECORDED = "not recorded yet"
MARKS = ("<!-- figures: bench/all.py --docs -->\n", "<!-- end of figures -->\n")
MEMCPY = PROGRAMS[0].figures[0]
HEADLINE = re.compile(r"(many|[\d,]+) times as fast as RLlib")


def train(build, rounds):
    """{name: median env steps/s}, each setting once in every round."""
    settings = {
        f"epochs{epochs}_lag{lag}": (steps, [f"algorithm.num_epochs={epochs}", f"algorithm.max_policy_lag={lag}"])
        for epochs, lag, steps in ((10, 0, 600_000), (10, 1, 600_000), (1, 0, 3_000_000), (1, 1, 3_000_000))
    }
    steps, sets = settings["epochs10_lag1"]
    settings["epochs10_lag1_rows"] = (steps, [*sets, "algorithm.minibatch_by=rows"])
    rates = {name: [] for name in settings}
    for _ in range(rounds):
        for name, (steps, sets) in settings.items():
            rates[name].append(pairs.rate(build, steps, 2, sets))
    return {name: statistics.median(values) for name, values in rates.items()}


def machine():
    model = platform.processor() or "unknown"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{os.cpu_count()} x {model}"


def commit():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def run(program, places):
    """(output, error): one of them is None."""
    if places["python"] is None and any("{python}" in part for part in program.command):
        return None, "needs --python"
    command = [part.format(**places) for part in program.command]
    if program.one_core:
        command = ["taskset", "-c", "0", *command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return None, f"{command[0]}: {error.strerror}"
    if done.returncode != 0 and not done.stdout:
        return None, f"exit status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
    return done.stdout, None


def measure(figure, output, error):
    """What is written of a figure: value, beside, or error."""
    if output is None:
        return {"error": error}
    try:
        value = figure.measured(output)
        beside = figure.beside(output) if figure.beside else None
    except (ValueError, KeyError, IndexError) as unreadable:  # it printed something else
        return {"error": f"not found in the output: {unreadable!r}"}
    if value is None:
        return {"error": "not found in the output"}
    return {"value": value, "beside": beside or ""}


def failed(figure, entry):
    return "error" in entry or figure.met(entry["value"]) is False


def measured(figure, entry):
    return f"{number(entry['value'])} {figure.unit}".strip()


def beside(figure, entry):
    value, space, words = entry["beside"].partition(" ")
    return f"{value} {figure.unit} {words}" if figure.same_unit and space else entry["beside"]


def memcpy(figures):
    """", memcpy 11.2 GB/s" of the machine that measured these; empty where that is not among them."""
    entry = figures.get(MEMCPY.what, {})
    return f", memcpy {measured(MEMCPY, entry)}" if "value" in entry else ""


def cells(figure, figures):
    """figure, measured, beside it, target; `figures` has all that the run measured"""
    entry = figures[figure.what]
    if "error" in entry:
        return [figure.what, f"not measured: {entry['error']}", "", figure.target()]
    met = figure.met(entry["value"])
    verdict = "" if met is None else ": met" if met else f": **missed**{memcpy(figures)}"
    return [figure.what, measured(figure, entry), beside(figure, entry), figure.target() + verdict]


def row(parts):
    return "| " + " | ".join(parts) + " |\n"


def last(figure, recorded):
    """What was recorded of it last, and where."""
    entry = recorded.get("figures", {}).get(figure.what, {})
    if "value" not in entry:
        return NOT_RECORDED
    return f"{measured(figure, entry)} ({recorded['machine']}{memcpy(recorded['figures'])}, {recorded['commit']}, {recorded['date']})"


def heading(recorded):
    return (f"One run: {recorded['machine']}, commit {recorded['commit']}, {recorded['date']}, medians of {recorded['rounds']} rounds where a "
            f"program repeats.\n\n")


def recorded_figures(recorded):
    """(program, figure) of those that the run measured: a row without a figure would say nothing."""
    return [(program, figure) for program in PROGRAMS for figure in program.figures if "value" in recorded["figures"].get(figure.what, {})]


def benchmarks_table(recorded):
    """docs/benchmarks.md between its marks."""
    lines = [heading(recorded), row(["figure", "measured", "beside it", "target", "program"]), "|---|---|---|---|---|\n"]
    lines += [row([*cells(figure, recorded["figures"]), program.name]) for program, figure in recorded_figures(recorded)]
    return "".join(lines)


def readme_table(recorded):
    """README.md between its marks."""
    lines = [heading(recorded), row(["figure", "measured", "beside it"]), "|---|---|---|\n"]
    lines += [row(cells(figure, recorded["figures"])[:3]) for _, figure in recorded_figures(recorded) if figure.in_readme]
    return "".join(lines)


def filled(document, table):
    """The document with the table between its marks."""
    begin, end = document.index(MARKS[0]) + len(MARKS[0]), document.index(MARKS[1])
    return document[:begin] + table + document[end:]


def headline(recorded):
    """How README's first lines say the ratio to RLlib."""
    entry = recorded.get("figures", {}).get("Troupe beside RLlib, environments included", {})
    return f"{number(round(entry['value'])) if 'value' in entry else 'many'} times as fast as RLlib"


def documents(recorded):
    """path -> its text with the recorded figures; without a recorded run the documents stay as they are"""
    found = {}
    if not recorded:
        return found
    for name, table in (("docs/benchmarks.md", benchmarks_table(recorded)), ("README.md", readme_table(recorded))):
        found[ROOT / name] = filled((ROOT / name).read_text(), table)
    found[ROOT / "README.md"] = HEADLINE.sub(headline(recorded), found[ROOT / "README.md"])
    return found


def write(path, value):
    """A file that is whole or as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)


def read(path):
    return json.loads(path.read_text()) if path.exists() else {}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build" / "release"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="programs whose name holds one of these")
    parser.add_argument("--skip", nargs="+", default=[], metavar="TEXT")
    parser.add_argument("--python", help="an interpreter with the packages of Python environments")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "build" / "bench.json")
    parser.add_argument("--go-on", action="store_true", help="keep what --json has of the same machine and commit")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--docs", action="store_true", help="write the tables and measure nothing")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record and (args.only or args.skip):
        parser.error("--record takes a whole run, got --only or --skip; expected neither, or no --record")
    return args


def main():
    args = parse_arguments()
    if args.train:
        print(json.dumps(train(args.build, args.rounds)))
        return 0
    recorded = read(RECORDED)
    if args.docs and not recorded:
        print("bench/all.py: no run is recorded, so docs/benchmarks.md and README.md stay as they are; --record measures and records one", file=sys.stderr)
        return 1
    if not args.docs:
        result, missed = measure_all(args, recorded)
        if args.record:
            recorded = result
            write(RECORDED, recorded)
    else:
        missed = False
    if args.docs or args.record:
        for path, text in documents(recorded).items():
            path.write_text(text)
    return 1 if missed else 0


def measure_all(args, recorded):
    """(what --json has, whether a figure failed)"""
    here = dict(machine=machine(), commit=commit(), date=time.strftime("%Y-%m-%d"), rounds=args.rounds)
    result = dict(here, figures={})
    before = read(args.json) if args.go_on else {}
    if all(before.get(key) == here[key] for key in ("machine", "commit", "rounds")):
        result = before
    print(f"{here['machine']}, commit {here['commit']}\n")
    print(row(["figure", "measured", "beside it", "target", "recorded last"]) + "|---|---|---|---|---|", flush=True)
    places = dict(build=os.path.abspath(args.build), python=args.python and os.path.abspath(args.python), rounds=args.rounds)
    missed = False
    for program in PROGRAMS:
        if (args.only and not any(name in program.name for name in args.only)) or any(name in program.name for name in args.skip):
            continue
        if any("value" not in result["figures"].get(figure.what, {}) for figure in program.figures):
            output, error = run(program, places)
            for figure in program.figures:
                result["figures"][figure.what] = measure(figure, output, error)
            write(args.json, result)
        for figure in program.figures:
            entry = result["figures"][figure.what]
            missed = missed or failed(figure, entry)
            print(row([*cells(figure, result["figures"]), last(figure, recorded)]), end="", flush=True)
    return result, missed


if __name__ == "__main__":
    sys.exit(main())
