#!/usr/bin/env python3
"""What asynchronous learners give: IMPALA beside PPO, and a run with a worker that is ten times slower (docs/benchmarks.md).

    bench/async_bench.py build/release [--rounds 5] [--env-steps 1500000]

A learner and its workers over TCP on this machine, simple_spread with networks of 2 x 64. Each round runs all cases, one after another:

  impala beside ppo   two workers; env steps a second of IMPALA as a share of those of PPO with one epoch at lag 1, the same minibatches
  a slow worker       four workers, of which one is stopped for nine tenths of the time; the rate as a share of that without the slowdown,
                      of IMPALA, and beside it of PPO at lag 0; the share of the slow worker's rows that was trained on
  aged                rows that were too old, of all accepted ones, in the runs of IMPALA

The share of trained rows counts every row that was too old as one of the slow worker's.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIG = """
env: {name: mpe/simple_spread, args: {N: 3, local_ratio: 0.5, max_cycles: 25}}
algorithm: {name: %s, train_batch_size: 4000, minibatch_size: 1000, gamma: 0.95%s}
model: {actor_hidden_sizes: [64, 64], critic_hidden_sizes: [64, 64]}
num_envs_per_worker: %d
evaluation: {at_end: false}
experiment: {write_interval: 1}
"""
IMPALA = ("impala", "")
PPO = ("ippo", ", num_epochs: 1, max_policy_lag: %d")
WARM = 20  # updates
BEAT_S = 0.1  # of the slow worker: a tenth of it at work


def rows_of(build, run, pid):
    """Rows that the worker has delivered; 0 once the run has ended."""
    said = subprocess.run([os.path.join(build, "services", "cli", "troupe"), "status", run, "--json"], capture_output=True, text=True)
    workers = json.loads(said.stdout)["workers"] if said.returncode == 0 else []
    return sum(worker["accepted_rows"] for worker in workers if worker["name"].endswith(f":{pid}")) if isinstance(workers, list) else 0


class SlowWorker(threading.Thread):
    """Stops a process for nine tenths of the time."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process, self.over = process, threading.Event()

    def run(self):
        while not self.over.is_set():
            self.process.send_signal(signal.SIGSTOP)
            self.over.wait(0.9 * BEAT_S)
            self.process.send_signal(signal.SIGCONT)
            self.over.wait(0.1 * BEAT_S)

    def stop(self):
        self.over.set()
        self.join()


def measure(build, algorithm, workers, slow, env_steps):
    """Env steps a second, rows by fate, and the rows that the slow worker delivered."""
    program = os.path.join(build, "services", "cli", "troupe")
    with tempfile.TemporaryDirectory(prefix="troupe-async-") as folder:
        config = os.path.join(folder, "config.yaml")
        with open(config, "w") as file:
            file.write(CONFIG % (*algorithm, 160 // workers))
        run = os.path.join(folder, "run")
        learner = subprocess.Popen([program, "learner", config, "--listen", "127.0.0.1:0", "--directory", folder, "--name", "run", "--workers", str(workers),
                                    "--set", f"stop.env_steps={env_steps}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(run, "address")):
            if learner.poll() is not None or time.monotonic() > deadline:
                learner.kill()
                sys.exit(f"the learner did not start:\n{learner.communicate()[0][-2000:]}")
            time.sleep(0.02)
        with open(os.path.join(run, "address")) as file:
            address = next(word for word in file.read().split() if word.startswith("127.0.0.1:"))
        at_work = [subprocess.Popen([program, "worker", "--learner", address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                   for _ in range(workers)]
        slowed = SlowWorker(at_work[-1]) if slow else None
        if slowed:
            time.sleep(0.5)  # all have joined
            slowed.start()
        delivered = 0
        while learner.poll() is None:
            time.sleep(0.1)
            if slowed:
                delivered = max(delivered, rows_of(build, run, at_work[-1].pid))
        if slowed:
            slowed.stop()
        said, _ = learner.communicate(timeout=60)
        for worker in at_work:
            worker.terminate()
            worker.wait()
        if learner.returncode != 0:
            sys.exit(f"the learner's exit status is {learner.returncode}:\n{said[-2000:]}")
        with open(os.path.join(run, "progress.jsonl")) as file:
            lines = [json.loads(line) for line in file]
    first, last = lines[WARM], lines[-1]
    rate = (last["env_steps"] - first["env_steps"]) / (last["wall_clock_s"] - first["wall_clock_s"])
    return rate, last, delivered


def spread(numbers):
    return f"{statistics.median(numbers):.3f} ({min(numbers):.3f} to {max(numbers):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--env-steps", type=int, default=1500000)
    args = parser.parse_args()
    beside, impala, ppo, trained, aged = [], [], [], [], []
    for _ in range(args.rounds):
        rate, last, _ = measure(args.build, IMPALA, 2, False, args.env_steps)
        beside.append(rate / measure(args.build, (PPO[0], PPO[1] % 1), 2, False, args.env_steps)[0])
        aged.append(last["rows_aged"] / last["rows_accepted"])
        whole = measure(args.build, IMPALA, 4, False, args.env_steps)[0]
        rate, last, delivered = measure(args.build, IMPALA, 4, True, args.env_steps)
        impala.append(rate / whole)
        aged.append(last["rows_aged"] / last["rows_accepted"])
        trained.append(1 - last["rows_aged"] / max(1, delivered))
        whole = measure(args.build, (PPO[0], PPO[1] % 0), 4, False, args.env_steps)[0]
        ppo.append(measure(args.build, (PPO[0], PPO[1] % 0), 4, True, args.env_steps)[0] / whole)
        print(f"impala beside ppo {beside[-1]:.3f}; a slow worker: impala {impala[-1]:.3f}, ppo at lag 0 {ppo[-1]:.3f}, "
              f"trained {trained[-1]:.3f} of its {delivered} rows, aged {100 * aged[-1]:.2f} %", flush=True)
    print(f"impala beside ppo with one epoch at lag 1, two workers: {spread(beside)} of its rate")
    print(f"with one of four workers slowed tenfold: impala {spread(impala)} of its rate, ppo at lag 0 {spread(ppo)}")
    print(f"of the slow worker's rows were trained: {spread(trained)}; aged of all rows: {100 * max(aged):.2f} % at most")


if __name__ == "__main__":
    main()
