#!/usr/bin/env python3
"""Start-up and memory of a run's processes (docs/benchmarks.md, figure 5).

    bench/footprint_bench.py build/release [--repetitions 5]

Prints, as medians with minimum and maximum:
  learner: seconds from its start until it says that it is ready
  worker:  seconds from its start until the first update made of its samples is on disk, an upper bound of the time to its first fragment
           (the update of 200 env steps takes a few ms)
  worker:  private memory (Private_Clean + Private_Dirty of smaps_rollup) while two of them sample at the setting of the peers
The floor: seconds that starting and ending `troupe version` takes.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIG = os.path.join(ROOT, "examples", "simple_spread_mappo.yaml")
SMALL = {"num_envs_per_worker": 8, "algorithm.train_batch_size": 200, "algorithm.minibatch_size": 600, "algorithm.num_epochs": 1,
         "experiment.write_interval": 200, "stop.env_steps": 10**9, "evaluation.at_end": "false"}
PEERS = {"stop.env_steps": 10**9, "evaluation.at_end": "false", "experiment.write_interval": 4000}


def wait_for(condition, what, timeout=30.0):
    """Seconds (steady clock) at which `condition` became true."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return time.monotonic()
        time.sleep(0.0005)  # a look at a file takes about 10 us; this bounds the error
    sys.exit(f"footprint_bench: {what} did not happen within {timeout} s")


class Run:
    """A learner and its workers, in a folder of their own."""

    def __init__(self, build, folder, settings, workers):
        self.troupe = os.path.join(build, "services", "cli", "troupe")
        learner = os.path.join(build, "services", "learner", "troupe-learner")
        self.address = f"unix:{folder}/learner.sock"
        self.progress = os.path.join(folder, "runs", "bench", "progress.jsonl")
        sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self.log = os.path.join(folder, "learner.log")
        self.processes = []
        begin = time.monotonic()
        with open(self.log, "w") as log:
            self.learner = self._start([learner, CONFIG, "--name", "bench", "--listen", self.address, "--workers", str(workers), *sets],
                                       cwd=folder, stdout=subprocess.DEVNULL, stderr=log)
        self.ready_s = wait_for(lambda: "learner ready" in open(self.log).read(), "the learner's start") - begin

    def _start(self, command, **options):
        process = subprocess.Popen(command, **options)
        self.processes.append(process)
        return process

    def worker(self):
        return self._start([self.troupe, "worker", "--learner", self.address], stderr=subprocess.DEVNULL)

    def updates(self):
        try:
            with open(self.progress) as file:
                return sum(1 for _ in file)
        except FileNotFoundError:
            return 0

    def end(self):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def private_mb(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_")) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", help="build folder, for example build/release")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    ready, first, memory, floor = [], [], [], []
    for _ in range(options.repetitions):
        begin = time.monotonic()
        subprocess.run([os.path.join(build, "services", "cli", "troupe"), "version"], stdout=subprocess.DEVNULL, check=True)
        floor.append(time.monotonic() - begin)
        with tempfile.TemporaryDirectory(prefix="troupe_bench_") as folder:
            run = Run(build, folder, SMALL, workers=1)
            ready.append(run.ready_s)
            begin = time.monotonic()
            run.worker()
            first.append(wait_for(lambda: run.updates() > 0, "the first update") - begin)
            run.end()
        with tempfile.TemporaryDirectory(prefix="troupe_bench_") as folder:
            run = Run(build, folder, PEERS, workers=2)
            workers = [run.worker(), run.worker()]
            wait_for(lambda: run.updates() >= 20, "twenty updates", timeout=60)
            memory += [private_mb(worker.pid) for worker in workers]
            run.end()
    for name, values, unit, target in (("learner, start to ready", ready, "s", 2.0),
                                       ("worker, start to an update of its samples", first, "s", 0.3),
                                       ("worker, private memory", memory, "MB", 25.0),
                                       ("floor: troupe version", floor, "s", None)):
        against = "" if target is None else f"  (target: at most {target} {unit})"
        print(f"{name:44} median {statistics.median(values):.3f} {unit}  min {min(values):.3f}  max {max(values):.3f}{against}")


if __name__ == "__main__":
    main()
