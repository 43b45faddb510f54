#!/usr/bin/env python3
"""Troupe's policy service beside Ray Serve and FastAPI in one run: the same actor, one observation a request, as many requests a second as there are.

  bench/peers/serving.py                    three alternating repetitions, some five minutes
  bench/peers/serving.py --check            exit 1 when a bar is missed
  bench/peers/serving.py --python PATH      a Python with ray[serve], fastapi, uvicorn and torch, in the place of a virtual environment of its own

The actor has 18 inputs and two layers of 64, and samples one of five actions. Servers and clients are on loopback, on the same two CPUs, one server at a
time. The peers speak HTTP with JSON, to 1, 8 and 32 clients that keep their connections, send bytes that were made before and read until the answer is
whole; Troupe speaks gRPC, by calls and by streams, to the clients of bench/saturation_bench. A ratio is of the best of either in the same repetition.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import measure  # noqa: E402
import venvs  # noqa: E402

ROOT = HERE.parents[1]
CLIENTS = (1, 8, 32)
LOG_LINES = 20  # in an error
BODY = json.dumps({"obs": [round(-0.9 + 0.1 * i, 2) for i in range(18)]}).encode()
REQUEST = b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
PEERS = {"FastAPI": ("serving_fastapi.py",), "Ray Serve": ("serving_ray.py", "plain"), "Ray Serve, batched": ("serving_ray.py", "batched")}
BARS = {"FastAPI": 12.0, "Ray Serve": 100.0}  # of the issue of the policy service, for --check


def is_whole(head, body):
    """Of an answer, which says its length or comes in chunks."""
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


def ask(connection):
    """One request and its whole answer."""
    connection.sendall(REQUEST)
    data = b""
    while True:
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("the server has closed the connection")
        data += more
        head, end, body = data.partition(b"\r\n\r\n")
        if end and is_whole(head, body):
            if not data.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(f"the server answers {data[:80]!r}")
            return


def load(port, clients, seconds):
    """-> (whole answers, seconds) of so many clients, each of which asks once at least."""
    counts, failures = [0] * clients, []
    end = time.perf_counter() + seconds

    def client(number):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not counts[number] or time.perf_counter() < end:
                    ask(connection)
                    counts[number] += 1
        except OSError as error:
            failures.append(error)

    begin = time.perf_counter()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(counts), time.perf_counter() - begin


def requests_per_second(port, clients, seconds):
    """Of so many clients."""
    count, taken = load(port, clients, seconds)
    return count / taken


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_server(server, port, seconds=180):
    deadline = time.monotonic() + seconds
    while True:
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the server has not begun to answer")
        try:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
                connection.request("POST", "/act", BODY, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.2)


def peer(python, name, seconds, log):
    """{clients: requests a second} of a server with a port of its own, which is ended with all that it started. RuntimeError with the end of its log."""
    program, *more = PEERS[name]
    port = free_port()
    with open(log, "w") as errors:
        server = subprocess.Popen([str(python), str(HERE / "legs" / program), str(port), *more], stdin=subprocess.PIPE, stdout=errors, stderr=errors)
    try:
        await_server(server, port)
        load(port, 8, 1)
        return {clients: requests_per_second(port, clients, seconds) for clients in CLIENTS}
    except (RuntimeError, OSError) as error:
        with open(log, errors="replace") as file:
            end = "".join(file.readlines()[-LOG_LINES:]).strip()
        raise RuntimeError(f"{name}: {error}; its log ends with:\n{end}") from error
    finally:
        server.stdin.close()
        if program == "serving_fastapi.py":
            server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        measure.end_descendants()


def rates(output):
    """{kind: queries a second} of saturation_bench's words."""
    return {kind: float(rate) for kind, rate in re.findall(r"(?m)^(call|stream|bare call), rows 1 +(\d+) queries/s", output)}


def troupe(build, seconds):
    done = subprocess.run([str(build / "bench" / "saturation_bench"), "--rounds", "1", "--milliseconds", str(int(1000 * seconds))], capture_output=True,
                          text=True, check=True)
    return rates(done.stdout)


def report(repetitions):
    """The lines, and {peer: Troupe's best beside its best, the median of the repetitions}."""
    lines = []
    for name in repetitions[0]:
        kinds = [f"{kind}: {statistics.median(each[name][kind] for each in repetitions):,.0f}" for kind in repetitions[0][name]]
        lines.append(f"{name}: requests/s by {'clients' if name in PEERS else 'kind'}: {'; '.join(kinds)}")
    ratios = {}
    for name in PEERS:
        best = [max(each["Troupe"][kind] for kind in ("call", "stream")) / max(each[name].values()) for each in repetitions]
        ratios[name] = statistics.median(best)
        lines.append(f"Troupe beside {name}: {ratios[name]:.1f} times ({min(best):.1f} to {max(best):.1f})")
    return lines, ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--python")
    parser.add_argument("--folder", type=pathlib.Path, default=venvs.default_folder())
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    python = arguments.python or venvs.ensure("serving", arguments.folder, None)
    cpus = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, set(cpus))
    measure.become_subreaper()
    repetitions = []
    with tempfile.TemporaryDirectory(prefix="troupe_serving_") as folder:
        for repetition in range(arguments.repetitions):
            measured = {"Troupe": troupe(arguments.build, 1)}
            for name in PEERS:
                measured[name] = peer(python, name, arguments.seconds, os.path.join(folder, "log"))
            repetitions.append(measured)
            print(f"repetition {repetition + 1}, load average {os.getloadavg()[0]:.1f}: {json.dumps(measured)}", flush=True)
    lines, ratios = report(repetitions)
    print("\n".join(lines))
    missed = [name for name, bar in BARS.items() if ratios[name] < bar]
    for name in missed:
        print(f"missed: {BARS[name]:g} times {name}")
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
