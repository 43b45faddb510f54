#!/usr/bin/env python3
"""Troupe beside its peers in one run: end-to-end training speed on simple_spread. See README.md.

  bench/peers/run.py --setup-only                  make the virtual environments
  bench/peers/run.py                               five alternating repetitions of the default legs
  bench/peers/run.py --legs troupe reference:threads=2 --repetitions 3
  bench/peers/run.py --legs troupe troupe_gru recurrent:threads=1 recurrent:threads=2      networks with a GRU
  bench/peers/run.py --sweep                       try the settings of each peer; the best are the default legs from then on
  bench/peers/run.py --report FILE.jsonl           print the table of an earlier run again
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import legs  # noqa: E402
import measure  # noqa: E402
import report  # noqa: E402
import venvs  # noqa: E402

ROOT = HERE.parents[1]
DEFAULT_REFERENCE = ROOT.parent / "shared" / "peers" / "spread_reference"


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--legs", nargs="+", default=None, metavar="KIND[:key=value,...]")
    parser.add_argument("--skip", nargs="+", default=[], metavar="KIND", help="kinds to leave out")
    parser.add_argument("--repetitions", type=int, default=None, help="default 5, of a sweep 1")
    parser.add_argument("--seconds", type=float, default=20.0, help="steady state measured in each repetition")
    parser.add_argument("--cpus", default=None, help="e.g. 0,1; default: the first two this process may use")
    parser.add_argument("--seed", type=int, default=1, help="of the first repetition; each adds one")
    parser.add_argument("--folder", type=pathlib.Path, default=venvs.default_folder())
    parser.add_argument("--python", help="a Python 3.11 for the virtual environments")
    parser.add_argument("--out", type=pathlib.Path, help="JSON lines; default: in --folder, by date")
    parser.add_argument("--troupe", type=pathlib.Path, default=ROOT / "troupe")
    parser.add_argument("--troupe-config", type=pathlib.Path, default=HERE / "troupe.yaml")
    parser.add_argument(
        "--reference",
        type=pathlib.Path,
        default=DEFAULT_REFERENCE,
        help="folder of the plain PyTorch script; its legs are left out where it is missing",
    )
    parser.add_argument("--sweep", action="store_true", help="writes bench/peers/sweep.json; --repetitions is 1 by default")
    parser.add_argument("--setup-only", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed or a leg failed")
    parser.add_argument("--report", type=pathlib.Path, help="only print the table of these JSON lines")
    args = parser.parse_args()
    if args.legs and args.sweep:
        parser.error("--sweep has legs of its own, got --legs; expected one of them")
    if args.legs is None:
        args.legs = [name for names in legs.SWEEP.values() for name in names] if args.sweep else list(legs.default_legs())
    args.repetitions = args.repetitions or (1 if args.sweep else 5)
    return args


def record_sweep(records, path=legs.SWEPT):
    """What the settings gave, with the machine; one that failed has no rate."""
    groups = report.by_leg(records)
    rates = {name: round(report.median_rate(group)) if group else None for name, group in groups.items()}
    measured = {name: rate for name, rate in rates.items() if rate is not None}
    path.write_text(json.dumps(dict(machine=records[0]["machine"], when=records[0]["when"], env_steps_per_s=measured,
                                    failed=[name for name in rates if name not in measured]), indent=1) + "\n")
    for kind, name in legs.fastest(measured).items():
        print(f"fastest {kind}: {name}" + ("" if name in measured else " (not measured)"))


def select_legs(args):
    """The legs that can run here; says which cannot and why."""
    chosen = []
    for leg in map(legs.parse_leg, args.legs):
        kind = leg.name.partition(":")[0]
        if kind in args.skip:
            continue
        if leg.kind.role.startswith("troupe") and not args.troupe.exists() and not args.setup_only:
            print(f"left out: {leg.name}: no {args.troupe}")
        elif kind == "reference" and not (args.reference / "ppo.py").exists():
            print(f"left out: {leg.name}: no ppo.py in {args.reference}; name its folder with --reference")
        else:
            chosen.append(leg)
    if not chosen:
        raise SystemExit("run.py: no leg left to run")
    return chosen


def command_of(leg, args, pythons, seed):
    command = [pythons.get(leg.kind.venv, sys.executable), HERE / "legs" / leg.kind.script]
    command += ["--seconds", args.seconds, "--seed", seed, *leg.arguments()]
    if leg.kind.role.startswith("troupe"):
        command += ["--troupe", args.troupe.resolve(), "--config", args.troupe_config.resolve()]
    if leg.kind.role == "script":
        command += ["--reference", args.reference.resolve()]
    return [str(part) for part in command]


def machine(cpus):
    model = "unknown"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {"cpu": model, "cpus": sorted(cpus), "kernel": platform.release()}


def run_all(chosen, args, pythons, cpus):
    """Alternates: every repetition runs each leg once, and starts one leg later than the one before."""
    out = args.out or args.folder / f"results-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    logs = args.folder / "logs"
    for folder in (out.parent, logs):
        folder.mkdir(parents=True, exist_ok=True)
    records = []
    with open(out, "a") as sink:
        for repetition in range(args.repetitions):
            shift = repetition % len(chosen)
            for leg in chosen[shift:] + chosen[:shift]:
                record = {
                    "leg": leg.name,
                    "title": leg.kind.title,
                    "role": leg.kind.role,
                    "environment": leg.kind.environment,
                    "repetition": repetition,
                    "num_cpus": len(cpus),
                    "machine": machine(cpus),
                    "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                }
                log = logs / (leg.name.replace(":", "-").replace(",", "-") + f"-{repetition}.log")
                try:
                    record |= measure.run_leg(
                        command_of(leg, args, pythons, args.seed + repetition),
                        cpus=cpus,
                        seconds=args.seconds,
                        log_path=log,
                        environment={"TQDM_DISABLE": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
                    )
                    print(
                        f"repetition {repetition} {leg.name}: {record['env_steps_per_s']:,.0f} env steps/s, "
                        f"{record['iterations']} iterations in {record['seconds']:.1f} s",
                        flush=True,
                    )
                except measure.LegFailed as error:
                    record["error"] = str(error)
                    print(f"repetition {repetition} {leg.name}: FAILED: {error}", flush=True)
                records.append(record)
                sink.write(json.dumps(record) + "\n")
                sink.flush()
    print(f"\nresults: {out}\n")
    return records


def main():
    args = parse_arguments()
    if args.report:
        print(report.summary([json.loads(line) for line in args.report.read_text().splitlines()]))
        return 0
    try:
        chosen = select_legs(args)
    except ValueError as error:
        raise SystemExit(f"run.py: {error}")
    args.folder = args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    needed = dict.fromkeys(leg.kind.venv for leg in chosen if leg.kind.venv)
    pythons = {name: venvs.ensure(name, args.folder, args.python) for name in needed}
    if args.setup_only:
        return 0
    allowed = sorted(os.sched_getaffinity(0))
    cpus = {int(c) for c in args.cpus.split(",")} if args.cpus else set(allowed[:2])
    if any(leg.kind.role.startswith("troupe") for leg in chosen):
        # Any build that the entry script still has to do happens here, outside the figures.
        subprocess.run([args.troupe.resolve(), "version"], check=True)
    measure.become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the running leg is ended, too
    try:
        records = run_all(chosen, args, pythons, cpus)
    finally:
        measure.end_descendants()
    print(report.summary(records))
    if args.sweep:
        record_sweep(records)
    failed = any("error" in r for r in records) or not all(holds for holds, _ in report.verdicts(records))
    return 1 if args.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
