#!/usr/bin/env python3
"""Training over 1,000 policies of which few are resident (docs/benchmarks.md, figure "1,000 policies").

    bench/many_policies_bench.py build/release [--seconds 30] [--repetitions 2] [--capacities 1000 100 16]

Two agents of simple_spread, 64 environments, episodes of 25 steps, MLP 2x64; each agent and episode draws one of 1,000 policies by
Zipf's law (weight 1/rank). One worker; the learner and the worker hold `policy_map_capacity` policies each, the others lie in the
learner's host memory. An update takes one episode of every environment. Runs of the capacities take turns. Prints, for each capacity:
  env steps/s    from the first third of the run to its end, and its ratio to that with all resident, medians with minimum and maximum
  CPU            seconds that learner and worker used for a million env steps over the same time: what other processes on the
                 machine disturb less
  memory         private bytes of learner and worker together after a third of the run and at its end (MiB)
  chi-square     of the episodes that the policies got against Zipf's law, per degree of freedom (counts below 5 are taken together);
                 1 is expected, and the probability of a larger one
Below 0.001 the frequencies do not follow, and the program fails.
"""

import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

POLICIES = 1000
ENVS = 64
STEPS = 25

CONFIG = """
seed: {seed}
env: {{name: mpe/simple_spread, args: {{N: 2, max_cycles: {steps}}}}}
multi_agent:
  policy_mapping: {{"*": {{{weights}}}}}
  policy_map_capacity: {capacity}
  policy_states_are_swappable: true
algorithm: {{name: ippo, train_batch_size: {batch}, num_epochs: {epochs}, minibatch_size: 400}}
model: {{actor_hidden_sizes: [64, 64], critic_hidden_sizes: [64, 64]}}
num_workers: 1
num_envs_per_worker: {envs}
stop: {{wall_clock: {seconds}}}
evaluation: {{at_end: false}}
experiment: {{write_interval: {batch}, checkpoint_interval: 1000000000}}
"""


def private_bytes(pid):
    """Of a process and its descendants."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            own = 1024 * sum(int(line.split()[1]) for line in file if line.startswith("Private"))
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return own + sum(private_bytes(child) for child in file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        return 0


def cpu_seconds(pid):
    """Of a process and its descendants."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, file.read().split()))
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def last_env_steps(progress):
    with open(progress) as file:
        return json.loads(file.read().rsplit("\n", 2)[-2])["env_steps"]


def chi_square(counts):
    """(statistic per degree of freedom, probability of a larger one) against Zipf's law."""
    total = sum(counts)
    norm = sum(1 / rank for rank in range(1, POLICIES + 1))
    statistic, cells, observed, expected = 0.0, 0, 0.0, 0.0
    for index, count in enumerate(counts):
        observed += count
        expected += total / (index + 1) / norm
        if expected >= 5 or index + 1 == POLICIES:
            statistic += (observed - expected) ** 2 / expected
            cells, observed, expected = cells + 1, 0.0, 0.0
    freedom = cells - 1
    # Wilson and Hilferty 1931: the cube root is nearly normal.
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return statistic / freedom, 0.5 * math.erfc(z / math.sqrt(2))


def run(build, capacity, seconds, epochs, seed):
    with tempfile.TemporaryDirectory(prefix="troupe_many_") as folder:
        weights = ", ".join(f"p{i:04d}: {1 / (i + 1):.9f}" for i in range(POLICIES))
        config = os.path.join(folder, "many.yaml")
        with open(config, "w") as file:
            file.write(CONFIG.format(seed=seed, steps=STEPS, weights=weights, capacity=capacity, batch=ENVS * STEPS, envs=ENVS,
                                     epochs=epochs, seconds=seconds))
        troupe = os.path.join(os.path.abspath(build), "services", "cli", "troupe")
        log_path = os.path.join(folder, "log")
        with open(log_path, "w") as log:
            process = subprocess.Popen([troupe, "train", config, "--name", "run", "--log-level", "debug"], cwd=folder, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)
        progress = os.path.join(folder, "runs", "run", "progress.jsonl")
        began, memory, used = None, [0, 0], []  # used: CPU seconds and env steps then
        while process.poll() is None:
            time.sleep(0.2)
            if began is None and os.path.exists(progress) and os.path.getsize(progress) > 0:
                began = time.monotonic()
            if began is None:
                continue
            held = private_bytes(process.pid)
            elapsed = time.monotonic() - began
            if elapsed >= seconds / 3 and memory[0] == 0:
                memory[0] = held
            if seconds / 3 <= elapsed < seconds - 1:
                memory[1] = held
                used.append((cpu_seconds(process.pid), last_env_steps(progress)))
        with open(log_path) as file:
            log = file.read()
        if process.returncode != 0:
            sys.exit(f"many_policies_bench: the run failed\n{log[-4000:]}")
        with open(progress) as file:
            lines = [json.loads(line) for line in file]
        first = next(line for line in lines if line["wall_clock_s"] >= seconds / 3)
        last = lines[-1]
        rate = (last["env_steps"] - first["env_steps"]) / (last["wall_clock_s"] - first["wall_clock_s"])
        with open(os.path.join(folder, "runs", "run", "checkpoints", "latest", "manifest.json")) as file:
            manifest = json.load(file)
        # "integers" since format 2; pairs.py measures builds of before, too.
        rows = {policy["id"]: policy.get("integers", policy)["trained_rows"] for policy in manifest["state"]["policies"]}
        counts = [rows[f"p{i:04d}"] / STEPS for i in range(POLICIES)]
        worker = re.search(r"policy_hits=(\d+) policy_misses=(\d+) policy_evictions=(\d+) weight_waits=(\d+)", log)
        cpu = 1e6 * (used[-1][0] - used[0][0]) / (used[-1][1] - used[0][1])
        return {"rate": rate, "cpu": cpu, "memory": memory, "counts": counts, "episodes": sum(counts), "updates": last["updates"],
                "worker": tuple(int(number) for number in worker.groups()) if worker else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--capacities", type=int, nargs="+", default=[POLICIES, 100, 16])
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    runs = {capacity: [] for capacity in arguments.capacities}
    for repetition in range(arguments.repetitions):
        for capacity in arguments.capacities:
            runs[capacity].append(run(arguments.build, capacity, arguments.seconds, arguments.epochs, seed=1 + repetition))
    base = [done["rate"] for done in runs[arguments.capacities[0]]]
    failed = False
    for capacity, done in runs.items():
        rates = [one["rate"] for one in done]
        ratios = [rate / reference for rate, reference in zip(rates, base)]
        print(f"capacity {capacity}: {statistics.median(rates):.0f} env steps/s ({min(rates):.0f} to {max(rates):.0f}), "
              f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), CPU "
              f"{statistics.median(one['cpu'] for one in done):.1f} s a million env steps "
              f"({', '.join(format(one['cpu'], '.1f') for one in done)})")
        for one in done:
            per_freedom, probability = chi_square(one["counts"])
            failed = failed or probability < 0.001
            before, after = (bytes_ / 2**20 for bytes_ in one["memory"])
            print(f"  {one['updates']} updates, {one['episodes']:.0f} draws: chi-square {per_freedom:.3f} (p {probability:.3f}), memory "
                  f"{before:.1f} then {after:.1f} MiB, worker (hits, misses, evictions, waits) {one['worker']}")
    if failed:
        sys.exit("many_policies_bench: the draws do not follow Zipf's law")


if __name__ == "__main__":
    main()
