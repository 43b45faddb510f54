"""What workers that are given work and never do it cost those that do: the rate of two honest workers with and without 300 silent ones.

    silent_workers.py BUILD [--silent 300] [--seconds 120] [--grant-timeout 2] [--at-least 0.8]

BUILD is the folder of a build with tests. Both rates are taken over so many seconds, once everybody has joined, in turns of a learner with a
trainer that costs nothing (tests/fault/fault_learner.cc). Exit status 1 when the ratio is below what is asked for.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

CONFIG = """
seed: 5
env: {{name: mpe/simple_spread}}
algorithm: {{name: mappo, train_batch_size: 4000, minibatch_size: 1000}}
num_workers: 2
num_envs_per_worker: 8
learner: {{grant_timeout_s: {grant_timeout}}}
stop: {{env_steps: 1000000000000}}
"""
PATIENCE_S = 120


def status(build, address):
    command = [os.path.join(build, "services", "cli", "troupe"), "status", "--learner", address, "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(answer.stdout) if answer.returncode == 0 else None


def await_status(build, address, condition):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        now = status(build, address)
        if now is not None and condition(now):
            return now
        time.sleep(0.2)
    raise SystemExit(f"not within {PATIENCE_S} s; last status: {status(build, address)}")


def measure(args, folder, silent):
    """Env steps a second of the learner, and its last status."""
    fault = os.path.join(args.build, "tests", "fault")
    address = f"unix:{folder}/learner-{silent}.sock"
    config = os.path.join(folder, "config.yaml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(CONFIG.format(grant_timeout=args.grant_timeout))
    processes = []
    try:
        processes.append(subprocess.Popen([os.path.join(fault, "fault_learner"), config, os.path.join(folder, f"run-{silent}"), address],
                                          stderr=subprocess.DEVNULL))
        await_status(args.build, address, lambda now: True)
        for _ in range(2):
            processes.append(subprocess.Popen([os.path.join(fault, "fault_worker"), address]))
        await_status(args.build, address, lambda now: now["updates"] >= 3)
        if silent > 0:
            processes.append(subprocess.Popen([os.path.join(fault, "silent_workers"), address, str(silent)]))
        before = await_status(args.build, address, lambda now: len(now["workers"]) >= 2 + silent)
        begin = time.monotonic()
        time.sleep(args.seconds)
        after = status(args.build, address)
        took = time.monotonic() - begin
        return (after["env_steps"] - before["env_steps"]) / took, after
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--silent", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--grant-timeout", type=float, default=2)
    parser.add_argument("--at-least", type=float, default=0.8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="troupe-silent-") as folder:
        alone, _ = measure(args, folder, 0)
        among, last = measure(args, folder, args.silent)
    ratio = among / alone if alone > 0 else 0
    print(json.dumps({"env_steps_per_s_alone": round(alone), "env_steps_per_s_among": round(among), "ratio": round(ratio, 3),
                      "silent": args.silent, "seconds": args.seconds, "expired_grants": last["expired_grants"]}))
    return 0 if ratio >= args.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
