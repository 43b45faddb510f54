#!/usr/bin/env python3
"""Queries of a policy server by one Python thread, troupe.query's calls and stream, each beside its floor: grpcio alone with the same bytes.

  bench/python_client_bench.py BUILD [--rounds 5] [--seconds 0.5]      with a Python that has numpy, grpcio and protobuf

Trains 8,000 env steps of simple_spread (18 floats, two layers of 64), serves them on loopback, and asks for one row and for 64 at a time, sampled;
all kinds of queries in turns, so many seconds each a round. Prints medians of the rounds.
"""

import argparse
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import time

import grpc
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from troupe import query_calls  # noqa: E402  of this checkout
from troupe.query import PolicyClient  # noqa: E402

POLICY = "shared"


class BareStream:
    """grpcio's stream, with a queue for its requests as troupe.query has one: it takes bytes and gives bytes."""

    def __init__(self, channel):
        self._requests = queue.SimpleQueue()
        self._answers = channel.stream_stream(query_calls.STREAM)(iter(self._requests.get, None))

    def ask(self, request):
        self._requests.put(request)
        return next(self._answers)

    def close(self):
        self._requests.put(None)
        self._answers.cancel()


def rate(ask, seconds):
    """-> (calls a second, microseconds of this process's CPU a call)."""
    done, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < begin + seconds:
        ask()
        done += 1
    return done / (time.perf_counter() - begin), 1e6 * (time.process_time() - cpu) / done


def measure(address, rounds, seconds):
    """-> {(kind, rows): [what rate says, each round]}; kind: call, stream, and the floor of either."""
    rates = {}
    channel = query_calls.open_channel(grpc, address, None, False)
    bare_call, bare_stream = channel.unary_unary(query_calls.COMPUTE), BareStream(channel)
    with PolicyClient(address) as client, client.stream() as stream:
        asks = {}
        for rows in (1, 64):
            observations = numpy.linspace(-1, 1, 18 * rows, dtype=numpy.float32).reshape(rows, 18)
            request = query_calls.encode_request([query_calls.Asked(POLICY, observations)])
            asks["call", rows] = lambda observations=observations: client.compute_actions(POLICY, observations)
            asks["floor of call", rows] = lambda request=request: bare_call(request, timeout=10)
            asks["stream", rows] = lambda observations=observations: stream.compute_actions(POLICY, observations)
            asks["floor of stream", rows] = lambda request=request: bare_stream.ask(request)
        for ask in asks.values():
            rate(ask, 0.2)
        for _ in range(rounds):
            for kind, ask in asks.items():
                rates.setdefault(kind, []).append(rate(ask, seconds))
    bare_stream.close()
    channel.close()
    return rates


def report(rates):
    for rows in (1, 64):
        for kind in ("call", "stream"):
            (of_client, cpu), (of_floor, floor_cpu) = ((statistics.median(each) for each in zip(*rates[name, rows])) for name in (kind, f"floor of {kind}"))
            share = statistics.median(a[0] / b[0] for a, b in zip(rates[kind, rows], rates[f"floor of {kind}", rows]))
            print(f"{kind + ',':7} rows {rows:2}: {of_client:6.0f} queries/s, {of_client * rows:7.0f} rows/s, {1e6 / of_client:4.0f} us; "
                  f"grpcio alone {of_floor:6.0f} queries/s, {1e6 / of_floor:4.0f} us; {share:.2f} of it; CPU of the client {cpu:.0f} us, with grpcio alone {floor_cpu:.0f} us")
    print(f"load average {os.getloadavg()[0]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    arguments = parser.parse_args()
    troupe = arguments.build.resolve() / "services" / "cli" / "troupe"
    with tempfile.TemporaryDirectory(prefix="troupe_client_") as folder:
        subprocess.run([troupe, "train", ROOT / "examples" / "simple_spread_mappo.yaml", "--name", "asked", "--set", "stop.env_steps=8000",
                        "--set", "evaluation.at_end=false", "--log-level", "warn"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        log = os.path.join(folder, "serve.log")
        with open(log, "w") as file:
            server = subprocess.Popen([troupe, "serve", "asked", "--listen", "127.0.0.1:0", "--reload-interval", "0"], cwd=folder, stderr=file)
        try:
            address, deadline = None, time.monotonic() + 30
            while address is None:
                if server.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"python_client_bench.py: no server: {pathlib.Path(log).read_text()}")
                time.sleep(0.05)
                said = pathlib.Path(log).read_text()
                if "policy server ready" in said:
                    address = said.split('listen="')[1].split('"')[0] if 'listen="' in said else said.split("listen=")[1].split()[0]
            report(measure(address, arguments.rounds, arguments.seconds))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
