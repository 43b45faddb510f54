"""Checks a run folder's progress.jsonl and summary.json after a run with faults; prints one line a fact (what, tab, value).

Exit status 1 and one line a fault on stderr when something does not add up.
"""

import argparse
import json
import os
import sys


def check_lines(lines, env_steps, batch, free_running=False):
    """Faults of the lines of progress.jsonl of a run of `batch` env steps an update, or, of a free-running one, at least as many;
    docs/metrics.md has the identities."""
    faults = []
    if not lines:
        return ["progress.jsonl is empty"]
    previous = {"env_steps": 0, "updates": 0, "wall_clock_s": 0.0}
    for number, line in enumerate(lines, 1):
        rows = {name[5:]: value for name, value in line.items() if name.startswith("rows_")}
        if rows["accepted"] != rows["trained"] + rows["queued"] + rows["dropped"] + rows["rolled_back"]:
            faults.append(f"line {number}: accepted != trained + queued + dropped + rolled_back: {rows}")
        if rows["received"] != rows["accepted"] + rows["duplicate"] + rows["stale"] + rows["invalid"]:
            faults.append(f"line {number}: received != accepted + duplicate + stale + invalid: {rows}")
        if rows["trained"] != line["agent_steps"]:
            faults.append(f"line {number}: {rows['trained']} rows trained, but {line['agent_steps']} agent steps")
        # The identities above hold whatever is lost: a counter gives what another takes.
        if line["env_steps"] < line["updates"] * batch or (line["env_steps"] > line["updates"] * batch and not free_running):
            faults.append(f"line {number}: {line['env_steps']} env steps after {line['updates']} updates of {batch}")
        for key, before in previous.items():
            if line[key] < before or (key == "env_steps" and line[key] == before):
                faults.append(f"line {number}: {key} goes from {before} to {line[key]}")
        previous = {key: line[key] for key in previous}
    if lines[-1]["env_steps"] < env_steps:
        faults.append(f"trained {lines[-1]['env_steps']} env steps, expected {env_steps}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--env-steps", type=int, required=True, help="stop.env_steps")
    parser.add_argument("--batch", type=int, required=True, help="algorithm.train_batch_size")
    parser.add_argument("--bar", type=float, required=True, help="smallest mean return_sum of the final evaluation")
    arguments = parser.parse_args()
    with open(os.path.join(arguments.run, "progress.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    with open(os.path.join(arguments.run, "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    faults = check_lines(lines, arguments.env_steps, arguments.batch)
    evaluation = (summary["evaluation"] or {}).get("return_sum", {}).get("mean")
    if evaluation is None:
        faults.append(f"summary.json has no evaluation: {summary}")
    elif not evaluation >= arguments.bar:
        faults.append(f"evaluation: return_sum {evaluation}, expected at least {arguments.bar}")
    if summary["env_steps"] != lines[-1]["env_steps"]:
        faults.append(f"summary.json says {summary['env_steps']} env steps, the last line of progress.jsonl {lines[-1]['env_steps']}")
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    last = lines[-1]
    for key in ("env_steps", "agent_steps", "updates", "wall_clock_s", "rows_received", "rows_accepted", "rows_duplicate", "rows_stale", "rows_invalid",
                "rows_trained", "rows_queued", "rows_dropped", "rows_rolled_back"):
        print(f"{key}\t{last[key]}")
    print(f"counters add up on\t{len(lines)} of {len(lines)} lines")
    print(f"final evaluation, {summary['evaluation']['episodes']} episodes, return_sum (bar {arguments.bar:g})\t{evaluation:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
