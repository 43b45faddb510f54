#!/usr/bin/env python3
"""Every figure of docs/benchmarks.md in one go: measured, its floor, its target, and what was recorded last.

    bench/all.py [build/release] [--rounds 5] [--only TEXT…] [--skip TEXT…] [--python VENV/bin/python] [--record] [--markdown FILE]

Needs the benchmarks built (./troupe bench) and nothing else running: half an hour, an hour with the peers' programs, whose virtual
environments bench/peers/run.py makes on first use (--skip peers leaves them out). Figures of Python environments need --python, an
interpreter with numpy, mpe2 and lbforaging; a figure that cannot be measured here is said to be so, never left out in silence.
A bar that a slower machine misses is read beside its memcpy, which is the first figure. --record writes bench/recorded.json, with
the machine and the commit; --markdown writes the table. Exit status 1 where a figure misses its target or its program fails.
"""

import argparse
import dataclasses
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

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDED = ROOT / "bench" / "recorded.json"


@dataclasses.dataclass(frozen=True)
class Figure:
    """One row: `measured` and `floor` take a program's output to a number, or None."""

    what: str
    unit: str
    measured: object
    floor: object = None
    floor_is: str = ""
    at_least: float | None = None
    at_most: float | None = None

    def target(self):
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    def met(self, value):
        """True, False, or None without a target."""
        if self.at_least is not None:
            return value >= self.at_least
        return None if self.at_most is None else value <= self.at_most


@dataclasses.dataclass(frozen=True)
class Program:
    """`command` with {build}, {python} and {rounds} filled in; its output goes to the figures. `one_core`: pinned to a core."""

    name: str
    command: tuple
    figures: tuple
    one_core: bool = False


def text(pattern, scale=1.0):
    """The number in the first group of a pattern, in the printed output."""

    def take(output):
        found = re.search(pattern, output)
        return None if found is None else float(found[1].replace(",", "")) * scale

    return take


def ratio(above, below):
    def take(output):
        a, b = above(output), below(output)
        return None if a is None or not b else a / b

    return take


def google(name, key, scale=1.0):
    """The median over repetitions of a Google Benchmark's number."""

    def take(output):
        values = [b[key] for b in json.loads(output)["benchmarks"] if b["name"].removesuffix("_median") == name and key in b]
        return values[-1] * scale if values else None

    return take


def last_json(key, scale=1.0):
    def take(output):
        value = json.loads(output.splitlines()[-1])
        for part in key.split("/"):
            value = value[part]
        return value * scale

    return take


GOOGLE = ("--benchmark_format=json", "--benchmark_repetitions={rounds}", "--benchmark_report_aggregates_only=true")
TRAIN = (sys.executable, "-B", __file__, "{build}", "--train", "--rounds", "{rounds}")

PROGRAMS = (
    Program(
        "ingest",
        ("{build}/bench/ingest_bench", "--trials", "{rounds}"),
        (
            Figure("memcpy, one core", "GB/s", text(r"memcpy, one core: ([\d.]+)")),
            *(
                Figure(
                    f"payload from a worker process into the training buffer, {socket}, observations of 18 floats",
                    "GB/s",
                    text(rf"training buffer, obs18 {place}"),
                    text(rf"bare stream, callback -> callback {place}"),
                    "bare stream",
                    at_least=1.5,
                )
                for socket, place in (("Unix socket", r"+([\d.]+)"), ("TCP", r"+[\d.]+ +([\d.]+)"))
            ),
        ),
    ),
    Program(
        "environments",
        ("{build}/bench/env_bench", *GOOGLE),
        (
            Figure(
                "simple_spread with random actions, one core",
                "M env steps/s",
                google("Run/spread_random_actions", "items_per_second", 1e-6),
                google("Run/spread_floor_random_actions", "items_per_second", 1e-6),
                "an environment that only writes its rows",
                at_least=1.0,
            ),
            Figure("cartpole with two agents, random actions, one core", "M env steps/s", google("Run/cartpole_random_actions", "items_per_second", 1e-6)),
        ),
        one_core=True,
    ),
    Program(
        "rollout",
        ("{build}/bench/rollout_bench", "--repetitions", "9"),
        (
            Figure(
                "rollout, one core: environments, actor, sampling, recording",
                "M agent-steps/s",
                text(r"rollout \(everything\) +(\d+)", 1e-6),
                text(r"floor \(environments \+ inference, (\d+)", 1e-6),
                "environments and inference alone",
                at_least=1.0,
            ),
            Figure("rollout over 500 policies, of the rate of one", "", text(r"500 policies: ([\d.]+) of"), at_least=0.25),
        ),
        one_core=True,
    ),
    Program(
        "stacked forward",
        ("{build}/bench/stacked_forward_bench",),
        (Figure("forward of 256 rows over 64 policies, beside one policy", "times", text(r"many policies +[\d.]+ us +([\d.]+) x"), at_most=2.5),),
        one_core=True,
    ),
    Program(
        "assembly",
        ("{build}/bench/assemble_bench", *GOOGLE),
        (
            Figure(
                "assembly of 12,000 rows of 18 floats",
                "ms",
                google("BM_Assemble", "cpu_time", 1e-3),
                google("BM_AssembleFloorMemcpy", "cpu_time", 1e-3),
                "memcpy",
                at_most=2.0,
            ),
        ),
    ),
    Program(
        "update",
        ("{build}/bench/update_bench", "9"),
        (
            *(
                Figure(
                    f"update of 120 minibatch steps of 1000 rows, {threads}",
                    "ms",
                    text(rf"fused avx(?:512|2), {threads} +([\d.]+)(?![\s\S]*fused avx\d+, {threads})"),
                    text(rf"LibTorch, {threads} +([\d.]+)"),
                    "LibTorch's autograd",
                )
                for threads in ("1 thread", "2 threads")
            ),
            Figure(
                "the same, share of the measured FMA peak, 1 thread",
                "%",
                text(r"of the FMA peak: 1 thread ([\d.]+) %"),
                at_least=58,
            ),
            Figure("the same, 2 threads", "%", text(r"of the FMA peak: .*2 threads ([\d.]+) %"), at_least=58),
        ),
    ),
    Program(
        "stacked update",
        ("{build}/bench/stacked_update_bench", "{rounds}"),
        (
            Figure(
                "update of 64 policies with 128 rows each, beside one after another, LibTorch",
                "times",
                ratio(text(r"LibTorch, one after another, 2 threads +([\d.]+)"), text(r"fused, stacked, 2 threads +([\d.]+)")),
                at_least=4.0,
            ),
        ),
    ),
    Program(
        "weights",
        ("{build}/bench/weights_bench",),
        tuple(
            Figure(f"weights of 0.33 MB to 8 subscribers, {socket}, p50", "ms", text(rf"{socket} +0.33 MB.* all p50 ([\d.]+)"), at_most=5.0)
            for socket in ("unix", "tcp")
        ),
    ),
    Program(
        "queries",
        ("{build}/bench/query_bench",),
        tuple(
            Figure(
                f"one-row policy query, {socket}, p50 beside a bare call",
                "times",
                text(rf"{socket} +one row: .*p50 ([\d.]+) times"),
                at_most=1.5,
            )
            for socket in ("unix", "tcp")
        ),
    ),
    Program(
        "policy map",
        ("{build}/bench/policy_map_bench", *GOOGLE),
        (
            Figure(
                "64 lookups among 1,000 policies, beside 64 atomic increments",
                "times",
                ratio(google("BM_Lookups/real_time/threads:1", "cpu_time"), google("BM_LookupsFloorIncrements/real_time", "cpu_time")),
                at_most=3.0,
            ),
            Figure("a miss of 0.33 MB from host memory", "us", google("BM_MissThroughTheTier/host:1/real_time", "real_time", 1e-3), at_most=150),
            Figure("a miss of 0.33 MB from disk", "us", google("BM_MissThroughTheTier/host:0/real_time", "real_time", 1e-3), at_most=2000),
        ),
    ),
    Program(
        "end to end",
        TRAIN,
        (
            Figure("main job, 2 workers, 120 minibatch steps an update, lag 0", "env steps/s", last_json("epochs10_lag0")),
            Figure("one pass over the data (num_epochs: 1), lag 0", "env steps/s", last_json("epochs1_lag0"), at_least=480_000),
            Figure("one pass over the data, lag 1", "env steps/s", last_json("epochs1_lag1"), at_least=480_000),
            Figure(
                "one pass over the data, lag 1 beside lag 0",
                "times",
                ratio(last_json("epochs1_lag1"), last_json("epochs1_lag0")),
                at_least=1.0,
            ),
        ),
    ),
    Program(
        "processes",
        (sys.executable, "-B", str(ROOT / "bench" / "footprint_bench.py"), "{build}"),
        (
            Figure("worker: private memory", "MB", text(r"worker, private memory +median ([\d.]+)"), at_most=25),
            Figure("learner: from start to ready", "s", text(r"learner, start to ready +median ([\d.]+)"), at_most=2.0),
        ),
    ),
    Program(
        "many policies",
        (sys.executable, "-B", str(ROOT / "bench" / "many_policies_bench.py"), "{build}"),
        (
            Figure("1,000 policies, 100 of them resident, of the rate with all", "", text(r"capacity 100: .*?ratio ([\d.]+)"), at_least=0.8),
            Figure("1,000 policies, 16 of them resident, of the rate with all", "", text(r"capacity 16: .*?ratio ([\d.]+)"), at_least=0.5),
        ),
    ),
    Program(
        "Python environments",
        ("{python}", "-B", str(ROOT / "bench" / "env_host_bench.py"), "--repeat", "{rounds}"),
        (Figure("mpe2 simple_spread through the host, beside a bare loop", "", text(r"mpe2[\s\S]*?bare loop[^\n]*?this: ([\d.]+)"), at_least=0.9),),
    ),
    Program(
        "peers",
        (sys.executable, "-B", str(ROOT / "bench" / "peers" / "run.py"), "--repetitions", "{rounds}", "--seconds", "10"),
        (
            Figure("main job beside RLlib's best setting", "times", text(r"Troupe: ([\d.]+) times RLlib"), at_least=8),
            Figure("main job beside the best framework", "times", text(r"Troupe: ([\d.]+) times the best framework"), at_least=5),
            Figure("main job beside a plain PyTorch script", "times", text(r"Troupe: ([\d.]+) times the plain"), at_least=1.2),
            Figure("main job beside JaxMARL's jitted MAPPO", "times", text(r"Troupe: ([\d.]+) times JaxMARL"), at_least=3),
        ),
    ),
    Program(
        "peers' policy map",
        (sys.executable, "-B", str(ROOT / "bench" / "peers" / "policy_map.py")),
        (Figure("access to one of 100 policies of which 10 are resident, beside RLlib's", "times", text(r"([\d,]+) times at least"), at_least=100),),
    ),
)


def train(build, rounds):
    """{name: median env steps/s}, each setting once in every round."""
    settings = {
        f"epochs{epochs}_lag{lag}": (steps, [f"algorithm.num_epochs={epochs}", f"algorithm.max_policy_lag={lag}"])
        for epochs, lag, steps in ((10, 0, 600_000), (1, 0, 3_000_000), (1, 1, 3_000_000))
    }
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
    if "{python}" in program.command and places["python"] is None:
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


def number(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def row(figure, output, recorded):
    """(cells, value or None, whether it failed)"""
    value = figure.measured(output)
    if value is None:
        return [figure.what, "not found in the output", "", figure.target(), ""], None, True
    floor = figure.floor(output) if figure.floor else None
    beside = "" if floor is None else f"{number(floor)} {figure.floor_is}"
    before = recorded.get(figure.what)
    last = "" if before is None else f"{number(before['value'])} ({before['machine']}, {before['commit']}, {before['date']})"
    met = figure.met(value)
    said = figure.target() + ("" if met is None else " met" if met else " **missed**")
    return [figure.what, f"{number(value)} {figure.unit}".strip(), beside, said, last], value, met is False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build" / "release"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="programs whose name holds one of these")
    parser.add_argument("--skip", nargs="+", default=[], metavar="TEXT")
    parser.add_argument("--python", help="an interpreter with numpy, mpe2 and lbforaging")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--markdown")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        print(json.dumps(train(args.build, args.rounds)))
        return 0
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    here = dict(machine=machine(), commit=commit(), date=time.strftime("%Y-%m-%d"))
    lines = ["| figure | measured | beside it | target | recorded last |", "|---|---|---|---|---|"]
    print(f"{here['machine']}, commit {here['commit']}\n\n" + "\n".join(lines), flush=True)
    failed = False
    places = dict(build=os.path.abspath(args.build), python=args.python, rounds=args.rounds)
    for program in PROGRAMS:
        if (args.only and not any(name in program.name for name in args.only)) or any(name in program.name for name in args.skip):
            continue
        output, error = run(program, places)
        for figure in program.figures:
            if output is None:
                cells, value, missed = [figure.what, f"not measured: {error}", "", figure.target(), ""], None, True
            else:
                cells, value, missed = row(figure, output, recorded)
            failed = failed or missed
            if value is not None and args.record:
                recorded[figure.what] = dict(here, value=value, unit=figure.unit)
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    if args.record:
        RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")
    if args.markdown:
        pathlib.Path(args.markdown).write_text("\n".join(lines) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
