#!/usr/bin/env python3
"""How many round trips of a slow network an update takes beyond the work itself (docs/benchmarks.md).

    bench/round_trips_bench.py build/release [--repetitions 1]

A learner and its worker over TCP, through a proxy of this program that hands on each byte half a round trip later: once without a delay, once with. The
policy lag is 0, so that an update waits for rows, and rows wait for its weights; in the last case it is 1, and an update hides the network. Of each run the
median time between two updates counts, from the 21st on.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIG = os.path.join(ROOT, "examples", "simple_spread_mappo.yaml")
SMALL = {"model.actor_hidden_sizes": "[64,64]", "model.critic_hidden_sizes": "[64,64]"}
# The parts of an update, the round trip in seconds, and the run's settings.
CASES = (
    ("160 KB of rows", 0.1, {**SMALL, "algorithm.train_batch_size": 600, "algorithm.minibatch_size": 600}),
    ("1.1 MB of rows", 0.1, {**SMALL, "algorithm.train_batch_size": 4000, "algorithm.minibatch_size": 4000}),
    ("4.3 MB of weights", 0.05, {"model.actor_hidden_sizes": "[1000,1000]", "model.critic_hidden_sizes": "[8]", "algorithm.train_batch_size": 100,
                                 "algorithm.minibatch_size": 100}),
)
# The share of its rate that 50 ms leave is a figure.
HIDDEN = ("an update of 90 ms at lag 1", 0.05, {**SMALL, "algorithm.train_batch_size": 4000, "algorithm.minibatch_size": 1000, "algorithm.num_epochs": 22,
                                               "algorithm.max_policy_lag": 1})
UPDATES = 120
WARM = 20


class Delay:
    """A proxy for `target` on a port of its own, in a thread."""

    def __init__(self, target, seconds):
        self.target, self.seconds = target, seconds
        self.loop = asyncio.new_event_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % listening.getsockname()[1]
        self.loop.run_until_complete(asyncio.start_server(self.serve, sock=listening))
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    async def serve(self, reader, writer):
        host, port = self.target.rsplit(":", 1)
        other_reader, other_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(self.hand_on(reader, other_writer), self.hand_on(other_reader, writer), return_exceptions=True)

    async def hand_on(self, reader, writer):
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due = asyncio.Queue()

        async def write():
            while (part := await due.get()) is not None:
                await asyncio.sleep(max(0.0, part[0] - self.loop.time()))
                writer.write(part[1])
            writer.close()
        writing = asyncio.ensure_future(write())
        try:
            while data := await reader.read(1 << 18):
                due.put_nowait((self.loop.time() + self.seconds, data))
        finally:
            due.put_nowait(None)
            await writing


def update_s(build, settings, delay):
    """The median time of an update."""
    program = os.path.join(build, "services", "cli", "troupe")
    sets = {"algorithm.num_epochs": 1, "algorithm.max_policy_lag": 0, **settings, "experiment.write_interval": 1, "evaluation.at_end": "false",
            "stop.env_steps": settings["algorithm.train_batch_size"] * UPDATES}
    with tempfile.TemporaryDirectory(prefix="troupe-trips-") as folder:
        run = os.path.join(folder, "run")
        learner = subprocess.Popen([program, "learner", CONFIG, "--listen", "127.0.0.1:0", "--directory", folder, "--name", "run", "--workers", "1",
                                    *[part for key, value in sets.items() for part in ("--set", f"{key}={value}")]],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(run, "address")):
            if learner.poll() is not None or time.monotonic() > deadline:
                learner.kill()
                sys.exit(f"the learner did not start:\n{learner.communicate()[0][-2000:]}")
            time.sleep(0.02)
        with open(os.path.join(run, "address")) as file:
            address = next(word for word in file.read().split() if word.startswith("127.0.0.1:"))
        worker = subprocess.Popen([program, "worker", "--learner", Delay(address, delay).address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        said, _ = learner.communicate(timeout=600)
        worker.terminate()
        worker.wait()
        if learner.returncode != 0:
            sys.exit(f"the learner's exit status is {learner.returncode}:\n{said[-2000:]}")
        with open(os.path.join(run, "progress.jsonl")) as file:
            times = [json.loads(line)["wall_clock_s"] for line in file]
    return statistics.median(after - before for before, after in zip(times[WARM:], times[WARM + 1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--repetitions", type=int, default=1)
    args = parser.parse_args()
    what, round_trip, settings = HIDDEN
    shares = []
    for _ in range(args.repetitions):
        work, slow = (update_s(args.build, settings, delay) for delay in (0, round_trip / 2))
        shares.append(work / slow)
    print(f"{what}, {1000 * round_trip:.0f} ms: median {statistics.median(shares):.2f} of the rate without a delay, {1000 * work:.1f} ms an update", flush=True)
    for what, round_trip, settings in CASES:
        trips = []
        for _ in range(args.repetitions):
            work, slow = (update_s(args.build, settings, delay) for delay in (0, round_trip / 2))
            trips.append((slow - work) / round_trip)
        print(f"{what}, {1000 * round_trip:.0f} ms: median {statistics.median(trips):.2f} round trips beyond the work of {1000 * work:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
