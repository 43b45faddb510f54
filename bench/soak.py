#!/usr/bin/env python3
"""Memory of a job in which policies come and go all the time (docs/benchmarks.md, "Others, by command").

    bench/soak.py build/release [--minutes 60] [--warm-up 0.34] [--policies 200] [--capacity 4] [--json FILE] [--limit MIB_PER_HOUR]

simple_spread with two agents, 64 environments, MLP 2x64; each agent and episode draws one of the policies by Zipf's law (weight 1/rank),
and learner and worker hold `--capacity` of them. A checkpoint every 200,000 env steps. Prints, for the learner and the worker:
  RSS        pages in RAM: MiB at 0, 34, 66 and 100 % of the time, and its slope
  in use     bytes that the allocator has handed out, as the process says itself (`heap_bytes`): the same of the least in each
             interval of 1/60 of the time, since what an update or a checkpoint takes meanwhile comes and goes
The slopes are Theil and Sen's (the median of the slopes of all pairs) after the warm-up, in MiB an hour. --json writes all samples.
With --limit the program fails where a slope of RSS is larger. A run of minutes says nothing about less than some 10 MiB an hour.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

CONFIG = """
seed: 1
env: {{name: mpe/simple_spread, args: {{N: 2, max_cycles: 25}}}}
multi_agent:
  policy_mapping: {{"*": {{{weights}}}}}
  policy_map_capacity: {capacity}
  policy_states_are_swappable: true
algorithm: {{name: ippo, train_batch_size: 1600, num_epochs: 2, minibatch_size: 400}}
model: {{actor_hidden_sizes: [64, 64], critic_hidden_sizes: [64, 64]}}
num_workers: 1
num_envs_per_worker: 64
stop: {{wall_clock: {seconds}}}
evaluation: {{at_end: false}}
experiment: {{write_interval: 1600, checkpoint_interval: 200000}}
"""
MIB = 2**20
INTERVALS = 60


def theil_sen(samples):
    """Units an hour of [(seconds, value)]: the median of the slopes of all pairs; 0 for fewer than two."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(samples) for b in samples[i + 1 :] if b[0] > a[0]]
    return 3600 * statistics.median(slopes) if slopes else 0.0


def least(samples, interval):
    """[(seconds, value)] -> the smallest of each interval of so many seconds."""
    found = {}
    for at, value in samples:
        index = int(at / interval)
        if index not in found or value < found[index][1]:
            found[index] = (at, value)
    return [found[index] for index in sorted(found)]


def rss_bytes(pid):
    """0 for a process that is gone."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def children(pid):
    """{"learner": pid, "worker": pid} of a `troupe train`, as far as they are there."""
    found = {}
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            pids = file.read().split()
        for child in pids:
            with open(f"/proc/{child}/cmdline") as file:
                words = file.read().split("\0")
            if "worker" in words[:2]:
                found["worker"] = int(child)
            elif os.path.basename(words[0]) == "troupe-learner":
                found["learner"] = int(child)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


class Tail:
    """The whole lines that are added to a file."""

    def __init__(self, path):
        self._path, self._at = path, 0

    def lines(self):
        if not os.path.exists(self._path):
            return []
        with open(self._path, "rb") as file:
            file.seek(self._at)
            text = file.read()
        end = text.rfind(b"\n") + 1
        self._at += end
        return text[:end].decode(errors="replace").splitlines()


class Job:
    """A `troupe train` and what is known of its memory: samples[process]["rss" or "heap"] is [(seconds, bytes)]."""

    def __init__(self, troupe, folder, seconds, policies, capacity, environment=None):
        weights = ", ".join(f"p{i:04d}: {1 / (i + 1):.9f}" for i in range(policies))
        with open(os.path.join(folder, "soak.yaml"), "w") as file:
            file.write(CONFIG.format(weights=weights, capacity=capacity, seconds=seconds))
        self._log_path = os.path.join(folder, "log")
        with open(self._log_path, "w") as log:
            self.process = subprocess.Popen([troupe, "train", "soak.yaml", "--name", "run", "--log-level", "debug"], cwd=folder,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self._log = Tail(self._log_path)
        self._progress = Tail(os.path.join(folder, "runs", "run", "progress.jsonl"))
        self._began = None
        self.updates = 0
        self.samples = {name: {"rss": [], "heap": []} for name in ("learner", "worker")}

    def sample(self):
        """Takes what is new. Time begins with the first update."""
        progress, log = self._progress.lines(), self._log.lines()
        if self._began is None and progress:
            self._began = time.monotonic()
        if self._began is None:
            return
        at = round(time.monotonic() - self._began, 2)
        for name, pid in children(self.process.pid).items():
            if held := rss_bytes(pid):
                self.samples[name]["rss"].append((at, held))
        for line in progress:
            record = json.loads(line)
            self.updates = record["updates"]
            self.samples["learner"]["heap"].append((at, record["heap_bytes"]))
        for line in log:
            if match := re.search(r"memory pid=\d+ rss_bytes=\d+ heap_bytes=(\d+)", line):
                self.samples["worker"]["heap"].append((at, int(match.group(1))))

    def run(self, interval=1.0):
        """To its end; SystemExit where it fails."""
        try:
            while self.process.poll() is None:
                time.sleep(interval)
                self.sample()
        finally:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait()
        if self.process.returncode != 0:
            with open(self._log_path) as file:
                sys.exit(f"soak: the run ended with {self.process.returncode}\n{file.read()[-4000:]}")


def summary(samples, warm_up):
    """process -> kind -> {"mib": at the four times, "mib_per_hour"}; `warm_up`: the part of the time that does not count."""
    found = {}
    for name, kinds in samples.items():
        found[name] = {}
        for kind, values in kinds.items():
            end = values[-1][0]
            if kind == "heap":
                values = least(values, end / INTERVALS)
            at = [min(values, key=lambda sample, part=part: abs(sample[0] - part * end))[1] for part in (0, 0.34, 0.66, 1)]
            found[name][kind] = {"mib": [round(value / MIB, 2) for value in at],
                                 "mib_per_hour": round(theil_sen([s for s in values if s[0] >= warm_up * end]) / MIB, 2)}
    return found


def thinned(samples, most=720):
    """Evenly, at most so many; what is left says the same."""
    step = max(1, -(-len(samples) // most))
    return samples[::step]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=0.34)
    parser.add_argument("--policies", type=int, default=200)
    parser.add_argument("--capacity", type=int, default=4)
    parser.add_argument("--json")
    parser.add_argument("--limit", type=float)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    troupe = os.path.join(os.path.abspath(arguments.build), "services", "cli", "troupe")
    with tempfile.TemporaryDirectory(prefix="troupe_soak_") as folder:
        job = Job(troupe, folder, 60 * arguments.minutes, arguments.policies, arguments.capacity)
        job.run()
    # Theil and Sen's slope looks at all pairs: of an hour, every fifth second is enough.
    samples = {name: {"rss": thinned(kinds["rss"]), "heap": kinds["heap"]} for name, kinds in job.samples.items()}
    found = summary(samples, arguments.warm_up)
    for name, kinds in found.items():
        for kind, values in kinds.items():
            print(f"{name} {'RSS' if kind == 'rss' else 'in use, least'}: {', '.join(f'{mib:.1f}' for mib in values['mib'])} MiB, "
                  f"{values['mib_per_hour']:+.2f} MiB/h")
    print(f"{job.updates} updates in {arguments.minutes:g} minutes, {os.cpu_count()} cores")
    if arguments.json:
        data = {"minutes": arguments.minutes, "warm_up": arguments.warm_up, "policies": arguments.policies, "capacity": arguments.capacity,
                "updates": job.updates, "cores": os.cpu_count(), "summary": found,
                "samples": {name: {"rss": samples[name]["rss"], "heap_least": least(kinds["heap"], 60 * arguments.minutes / 720)}
                            for name, kinds in samples.items()}}
        with open(arguments.json, "w") as file:
            json.dump(data, file)
            file.write("\n")
    over = [name for name, kinds in found.items() if arguments.limit is not None and kinds["rss"]["mib_per_hour"] > arguments.limit]
    if over:
        sys.exit(f"soak: RSS of {' and '.join(over)} grows by more than {arguments.limit:g} MiB/h")


if __name__ == "__main__":
    main()
