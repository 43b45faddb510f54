"""Troupe itself: `./troupe train CONFIG --workers N`, learner and workers as processes over gRPC.

Follows the run's `progress.jsonl` and ends the run with SIGTERM, which is how an operator drains it. Marks
come from the lines' own `env_steps`, `wall_clock_s` and minibatch count; when each line arrived is kept as a
check on that clock. Needs only Python's standard library.
"""

import glob
import json
import os
import signal
import subprocess
import sys
import time

import probe


class Progress:
    """Reads the whole lines that a growing progress.jsonl has so far."""

    def __init__(self, directory):
        self._pattern = os.path.join(directory, "**", "progress.jsonl")
        self._file = None
        self._rest = ""

    def poll(self):
        if self._file is None:
            found = glob.glob(self._pattern, recursive=True)
            if not found:
                return []
            self._file = open(found[0])
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        return [json.loads(line) for line in lines if line.strip()]


def main():
    args = probe.parse_args(
        __doc__, troupe="./troupe", config="", workers=2, stop_env_steps=100_000_000, set="", env="", processes=1
    )
    run_dir = os.environ.get("PEERS_TMP") or "/tmp"
    overrides = [
        f"seed={args.seed}",
        f"stop.env_steps={args.stop_env_steps}",
        f"experiment.directory={run_dir}",
    ] + [item for item in args.set.split(",") if item]
    if args.env:
        # An environment in Python, run by the interpreter that runs this program.
        overrides += [
            f"env.name={args.env}",
            f"env.python.interpreter={sys.executable}",
            f"env.python.processes={args.processes}",
        ]
    command = [args.troupe, "train", args.config, "--workers", str(args.workers)]
    for item in overrides:
        command += ["--set", item]
    print("command:", " ".join(command), flush=True)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    progress = Progress(run_dir)
    marks = probe.Marks(args.seconds)
    arrivals = []
    last = {}
    enough = False
    offset = None
    minibatch_steps = 0
    while not enough:
        running = process.poll() is None
        for line in progress.poll():
            if enough or "env_steps" not in line or line["env_steps"] <= last.get("env_steps", 0):
                continue
            now = time.monotonic()
            offset = now - line["wall_clock_s"] if offset is None else offset
            # A line tells the optimizer steps of its update; troupe.yaml has a line for every update.
            minibatch_steps += line["minibatch_steps"] * (line["updates"] - last.get("updates", 0))
            arrivals.append(now)
            last = line
            enough = marks.add(line["env_steps"], minibatch_steps, at=line["wall_clock_s"] + offset)
        if not running and not enough:
            break  # stopped by itself: too few steps, or an error that its output tells
        time.sleep(0.02)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        exit_code = process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        exit_code = process.wait()
    if len(marks.marks) < 2:
        raise SystemExit(f"troupe ended with code {exit_code} after {len(marks.marks)} lines of progress")
    own = marks.marks[-1][0] - marks.marks[0][0]
    marks.write(
        return_sum=last.get("return_sum"),
        exit_code=exit_code,
        clock_ratio=own / (arrivals[-1] - arrivals[0]),
        last_progress=last,
    )


if __name__ == "__main__":
    main()
