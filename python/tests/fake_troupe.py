#!/usr/bin/env python3
"""Stands for the program `troupe` in tests of the Python API: it writes down what it is asked, and trains nothing.

A configuration is JSON here, with a section `fake`: {"lines": how many progress.jsonl gets, "warns": it says something, "says": that it says, piece by
piece, "then": "run" (until a signal), "finish", "nothing" (as finish, without a summary), "fail", "deaf" (to SIGTERM and SIGQUIT)}.
"""

import json
import os
import signal
import sys
import time


def configuration(path):
    with open(path) as file:
        return json.load(file)


def note(what):
    with open(os.environ["FAKE_TROUPE_LOG"], "a") as file:
        file.write(json.dumps(what) + "\n")


def end(folder, reason):
    with open(os.path.join(folder, "summary.json"), "w") as file:
        json.dump({"reason": reason, "env_steps": 1000}, file)
    sys.exit(0)


def train(arguments):
    resumed = arguments[0] == "--resume"
    folder = arguments[1] if resumed else os.path.join("runs", arguments[arguments.index("--name") + 1])
    config = configuration(os.path.join(folder, "config.yaml") if resumed else arguments[0])
    fake = config.get("fake", {})
    if not resumed and os.path.exists(folder):
        sys.exit(f"troupe: error: run \"{folder}\" is there")
    signal.signal(signal.SIGTERM, lambda *_: end(folder, "SIGTERM"))
    signal.signal(signal.SIGINT, lambda *_: end(folder, "SIGINT"))
    os.makedirs(folder, exist_ok=True)
    lives = int(open(os.path.join(folder, "learner_epoch")).read()) if resumed else 0
    with open(os.path.join(folder, "config.yaml"), "w") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "progress.jsonl"), "a") as file:
        with open(os.path.join(folder, "learner_epoch"), "w") as epoch:
            epoch.write(f"{lives + 1}\n")
        note({"pid": os.getpid()})
        for line in range(1, fake.get("lines", 3) + 1):
            file.write(json.dumps({"env_steps": 100 * line, "return_sum": -line, "life": lives + 1}) + "\n")
            file.flush()
            time.sleep(0.01)
    print("a line of progress", flush=True)
    if "warns" in fake:
        print("W a warning", file=sys.stderr, flush=True)
    for piece in fake.get("says", ()):
        print(piece, end="", file=sys.stderr, flush=True)
        time.sleep(0.3)  # longer than the API's look at it
    if fake.get("then", "finish") == "finish":
        end(folder, "stop.env_steps reached: 1000 of 1000")
    if fake["then"] == "nothing":
        sys.exit(0)
    if fake["then"] == "fail":
        print("troupe-learner: error: an update failed: the loss is not finite\nsaved at 100", file=sys.stderr)
        sys.exit(1)
    if fake["then"] == "deaf":
        for each in (signal.SIGTERM, signal.SIGQUIT):
            signal.signal(each, lambda number, _: note({"ignored": number}))
        note({"deaf": True})
    while True:
        signal.pause()


def main():
    arguments = sys.argv[1:]
    note({"arguments": arguments, "venv": os.environ.get("VIRTUAL_ENV"), "notebook": os.environ.get("TROUPE_NOTEBOOK")})
    if arguments[:2] == ["config", "show"]:
        config = configuration(arguments[2])
        note({"config": config})
        if "oops" in config:
            print(f'troupe: error: {arguments[2]}:1:2: unknown key "oops"; the nearest is "stop"', file=sys.stderr)
            return 2
        print(json.dumps({"algorithm": {"name": "mappo"}, "experiment": {"directory": "runs", "experiment_name": ""}, **config}))
    elif arguments[0] == "train":
        train(arguments[1:])
    elif arguments[0] == "evaluate":
        print("I it executes python:mine:Env", file=sys.stderr)
        value = {"mean": -2.5, "std": 0.5}
        print(json.dumps({"episodes": 3, "return_sum": value, "return_mean": value, "agents": {"agent_0": value}, "infos": {"won": value}, "episode_length": {"mean": 25},
                          "seed": 7, "per_episode": []}))
    elif arguments[:2] == ["checkpoint", "ls"]:
        print(json.dumps([{"env_steps": steps, "path": f"checkpoints/{steps}", "latest": steps == 300, "best": steps == 200} for steps in (100, 200, 300)]))
    elif arguments[:2] == ["checkpoint", "verify"]:
        print("troupe: error: no such checkpoint", file=sys.stderr)
        return 1
    elif arguments[0] == "checkpoint":
        print(json.dumps({"env_steps": 300, "path": "runs/run/checkpoints/300"}))
    elif arguments[:2] == ["runs", "ls"]:
        print("I reads them", file=sys.stderr)
        print(json.dumps([{"name": "second", "state": "running"}, {"name": "first", "state": "finished"}]))
    elif arguments[0] == "status":
        print(json.dumps({"running": False}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
