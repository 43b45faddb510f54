#!/usr/bin/env python3
"""What attacks on a port do to the server and to honest peers: memory, how long honest peers wait, when it accepts again, how fast it trains.

  attack_test.py TROUPE SOURCE                 the short form: each attack for a second or two, against `troupe serve`, with room for busy machines; and
                                               that `troupe learner` goes on training while it is attacked
  attack_test.py TROUPE SOURCE --full [NAME…]  counts and times in full, against `troupe serve` and `troupe learner` with its worker; prints a table

Each attack runs on fresh connections, and on those that have made a valid call. Limits (docs/deployment.md): resident memory at most 64 MiB above
what it was, an honest peer's p99 below 1 s on one connection and 2 s on a new one each time, accepting again within 1 s of the attack's end, and the
training rate at least half of what it was. The rate is held by --full alone: what other programs leave of a machine changes within seconds.
"""

import contextlib
import glob
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import http2

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = """
env: {name: cartpole}
num_workers: 1
num_envs_per_worker: 8
multi_agent: {policies: [shared]}
algorithm: {train_batch_size: 400, minibatch_size: 200, num_epochs: 1, use_agent_id: false}
model: {actor_hidden_sizes: [16, 16], activation: tanh}
stop: {env_steps: %d}
experiment: {write_interval: 400, checkpoint_interval: 40000}
evaluation: {at_end: false}
"""
QUERY = http2.query_bytes("shared", [[0.1, 0.0, -0.2, 0.0]])
MEMORY_LIMIT_MIB = 64
P99_LIMIT_S = {"one connection": 1.0, "new connections": 2.0}

# name -> attack.py's arguments of the full form, its seconds, those of the short form, its seconds, and the server's limit of descriptors.
ATTACKS = {
    "idle_few_descriptors": (["idle", "--count", "2000"], 3, ["idle", "--count", "2000"], 1.5, 1024),
    "idle": (["idle", "--count", "4000"], 12, ["idle", "--count", "1000"], 1.5, None),
    "settings_only": (["settings_only", "--count", "2000"], 12, ["settings_only", "--count", "500"], 1.5, None),
    "no_body": (["no_body", "--count", "2000"], 12, ["no_body", "--count", "500"], 1.5, None),
    "unknown_method": (["unknown_method", "--count", "2000"], 12, ["unknown_method", "--count", "500"], 1.5, None),
    "resets": (["resets", "--count", "40000"], 3, ["resets", "--count", "40000"], 2, None),
    "resets_4_clients": (["resets", "--count", "10000000", "--clients", "4"], 12, None, 0, None),
    "message": (["message", "--count", "16384"], 5, ["message", "--count", "16384"], 2, None),
    "gzip": (["gzip", "--count", "100000"], 3, ["gzip", "--count", "100000"], 1, None),
    "unfinished": (["unfinished", "--count", "1000000", "--clients", "20"], 12, ["unfinished", "--count", "1000000", "--clients", "3"], 2, None),
    "amplified": (["amplified", "--count", "1000000", "--clients", "8"], 12, ["amplified", "--count", "1000000"], 2, None),
    "amplified_streams": (["amplified_streams", "--count", "1000000", "--clients", "8"], 12, None, 0, None),
    "unread_answers": (["unread_answers", "--count", "1000000", "--clients", "20"], 12, ["unread_answers", "--count", "1000000", "--clients", "8"], 2, None),
    "settings": (["settings", "--count", "50000"], 3, ["settings", "--count", "50000"], 1.5, None),
    "settings_unread": (["settings_unread", "--count", "50000"], 3, ["settings_unread", "--count", "50000"], 1, None),
    "pings": (["pings", "--count", "200000"], 3, ["pings", "--count", "100000"], 1, None),
    "window_updates": (["window_updates", "--count", "2000000"], 3, None, 0, None),
    "empty_data": (["empty_data", "--count", "2000000"], 3, ["empty_data", "--count", "500000"], 1, None),
    "streams": (["streams", "--count", "20000"], 3, ["streams", "--count", "20000"], 1, None),
    "unknown_methods": (["unknown_methods", "--count", "40000"], 3, None, 0, None),
    "big_headers": (["big_headers", "--count", "512", "--clients", "4"], 3, ["big_headers", "--count", "512"], 1, None),
    "many_fields": (["many_fields", "--count", "1000000", "--clients", "4"], 6, ["many_fields", "--count", "1000000", "--clients", "4"], 3, None),
    "half_preface": (["half_preface", "--count", "300"], 12, None, 0, None),
}
# The others run twice: on fresh connections, and on those that have made a valid call (proven). These make one always, or never.
ONE_KIND = {"unfinished", "amplified", "amplified_streams", "half_preface"}


def memory_mib(pid, what):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(what + r":\s+(\d+) kB", file.read()).group(1)) / 1024


def forget_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")


class Prober(threading.Thread):
    """An honest peer that asks about ten times a second until it is told to stop: on one connection, or on a new one each time. A question that
    fails is asked again, and all of that counts as one wait."""

    def __init__(self, address, new_connections):
        super().__init__(daemon=True)
        self.address, self.new_connections = address, new_connections
        self.waits, self.failures, self.stopped = [], 0, threading.Event()

    def run(self):
        connection = None
        while not self.stopped.wait(0.1):
            begun = time.monotonic()
            while not self.stopped.is_set() or time.monotonic() - begun < 10:
                try:
                    connection = connection or http2.Connection(self.address, 3)
                    if connection.call(http2.COMPUTE_ACTIONS, QUERY, 3):
                        break
                except OSError:
                    if connection:
                        connection.close()
                    connection = None
                self.failures += 1
                time.sleep(0.02)
            self.waits.append(time.monotonic() - begun)
            if self.new_connections and connection:
                connection.close()
                connection = None

    def p99(self):
        waits = sorted(self.waits)
        return waits[min(len(waits) - 1, int(len(waits) * 0.99))] if waits else float("inf")


class Server:
    """A process of ours that listens on a port of its own choice."""

    def __init__(self, folder, descriptors, command):
        if descriptors:
            # Not by code of ours between fork and exec: grpcio's threads are not there, and its handlers fail.
            command = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *command]
        self.log_path = os.path.join(folder, f"log.{time.monotonic_ns()}")
        self.log = open(self.log_path, "w")
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        self.others = []
        self.address = self.await_address()

    def log_text(self):
        with open(self.log_path) as file:
            return file.read()

    def await_address(self):
        deadline = time.monotonic() + 60
        while True:
            found = re.search(r'ready .*listen="(127\.0\.0\.1:\d+)', self.log_text())
            if found:
                return found.group(1)
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"it does not listen:\n{self.log_text()}")
            time.sleep(0.02)

    def stop(self):
        for process in [*self.others, self.process]:
            process.kill()
            process.wait()
        self.log.close()


class Attacked:
    """The folder of a trained run, and servers of it."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.config("trained.yaml", 400)
        subprocess.run([program, "train", "trained.yaml", "--name", "trained"], cwd=folder, check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
        self.runs = 0

    def config(self, name, env_steps, line=""):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(CONFIG % env_steps + line)

    @contextlib.contextmanager
    def serve(self, descriptors, *flags):
        server = Server(self.folder, descriptors, [self.program, "serve", "runs/trained", "--listen", "127.0.0.1:0", *flags])
        try:
            yield server
        finally:
            server.stop()

    @contextlib.contextmanager
    def learner(self, descriptors, line=""):
        """`line`: of its configuration, beside those of CONFIG."""
        self.runs += 1
        name = f"attacked{self.runs}"
        self.config("endless.yaml", 10**12, line)
        server = Server(self.folder, descriptors,
                        [self.program, "learner", "endless.yaml", "--name", name, "--listen", "127.0.0.1:0"])
        server.progress = os.path.join(self.folder, "runs", name, "progress.jsonl")
        try:
            server.others.append(subprocess.Popen([self.program, "worker", "--learner", server.address], cwd=self.folder,
                                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            deadline = time.monotonic() + 60
            while env_steps(server) < 4000:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"it does not train:\n{server.log_text()}")
                time.sleep(0.1)
            yield server
        finally:
            server.stop()


def env_steps(server):
    if not os.path.exists(server.progress):
        return 0
    with open(server.progress) as file:
        text = file.read()
    lines = text[:text.rfind("\n") + 1].splitlines()  # the last one may be on its way
    return json.loads(lines[-1])["env_steps"] if lines else 0


def rate_over(server, seconds):
    before, begun = env_steps(server), time.monotonic()
    time.sleep(seconds)
    return (env_steps(server) - before) / (time.monotonic() - begun)


def accepts_again(address, limit):
    """Seconds until a newcomer is answered."""
    begun = time.monotonic()
    while time.monotonic() - begun < limit:
        try:
            connection = http2.Connection(address, 1)
            try:
                if connection.call(http2.COMPUTE_ACTIONS, QUERY, 1):
                    return time.monotonic() - begun
            finally:
                connection.close()
        except OSError:
            time.sleep(0.01)
    return float("inf")


def measure(server, arguments, seconds, trains):
    """What one attack does to one server."""
    pid = server.process.pid
    measured = {}
    accepts_again(server.address, 5)
    if trains:
        measured["rate_before"] = rate_over(server, max(5.0, seconds))
    measured["rss_before_mib"] = memory_mib(pid, "VmRSS")
    forget_peak(pid)
    probers = [Prober(server.address, new) for new in (False, True)]
    for prober in probers:
        prober.start()
    time.sleep(0.3)
    attack = subprocess.Popen([sys.executable, "-B", os.path.join(HERE, "attack.py"), *arguments[:1], server.address, *arguments[1:],
                               "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True)
    if trains:
        measured["rate_during"] = rate_over(server, seconds)
    said, _ = attack.communicate(timeout=seconds + 60)
    measured["accepts_again_s"] = accepts_again(server.address, 15)
    for prober in probers:
        prober.stopped.set()
    for prober in probers:
        prober.join(30)
    measured["alive"] = server.process.poll() is None
    measured["rss_growth_mib"] = memory_mib(pid, "VmHWM") - measured["rss_before_mib"] if measured["alive"] else float("inf")
    measured["p99_s"] = {"one connection": probers[0].p99(), "new connections": probers[1].p99()}
    measured["answers"] = sum(len(prober.waits) for prober in probers)
    measured["failures"] = sum(prober.failures for prober in probers)
    measured["attack"] = json.loads(said) if said.strip() else None
    return measured


def faults_of(measured, slack):
    """What is outside the limits; `slack`: times as long, on busy machines."""
    faults = []
    if not measured["alive"]:
        return ["the process is gone"]
    if measured["rss_growth_mib"] > MEMORY_LIMIT_MIB:
        faults.append(f"memory grew by {measured['rss_growth_mib']:.0f} MiB, at most {MEMORY_LIMIT_MIB}")
    for who, p99 in measured["p99_s"].items():
        limit = P99_LIMIT_S[who] * slack
        if p99 >= limit:
            faults.append(f"an honest peer ({who}) waited {p99:.2f} s, less than {limit:g}")
    if measured["accepts_again_s"] > 1.0 * slack:
        faults.append(f"it accepted again after {measured['accepts_again_s']:.2f} s, at most {slack:g}")
    if measured.get("rate_before") and measured["rate_during"] < 0.5 * measured["rate_before"]:
        faults.append(f"it trained {measured['rate_during']:.0f} env steps/s, {measured['rate_before']:.0f} before")
    if not measured["attack"]:
        faults.append("the attack did not take place")
    return faults


class DeafServer:
    """`troupe serve` at a Unix socket whose file somebody deletes: alive, and nobody reaches it. Its watchdog has to end it."""

    def __init__(self, attacked):
        path = os.path.join(attacked.folder, "deaf.sock")
        self.log = open(os.path.join(attacked.folder, "deaf.log"), "w+")
        self.process = subprocess.Popen([attacked.program, "serve", "runs/trained", "--listen", f"unix:{path}"], cwd=attacked.folder,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while not os.path.exists(path):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError("troupe serve does not listen at a Unix socket")
            time.sleep(0.02)
        os.unlink(path)

    def faults(self):
        try:
            code = self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return ["a deaf server lived on"]
        finally:
            self.log.seek(0)
            text = self.log.read()
            self.log.close()
        faults = [] if code == 70 else [f"a deaf server ended with {code}, expected 70"]
        if "the process is deaf" not in text:
            faults.append(f"it said nothing of that:\n{text}")
        return faults


def many_at_once(address, count, process):
    """The fault, if any, when `count` honest peers connect before the server looks, as workers do while a learner comes back. Each asks one
    question, and has to be answered on the connection that it made."""
    question = (http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0)
                + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.header_block(http2.COMPUTE_ACTIONS))
                + http2.frame(http2.DATA, http2.END_STREAM, 1, http2.message(QUERY)))
    host, port = address.rsplit(":", 1)
    waiting, answered, poll = {}, 0, select.poll()
    process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(count):
            peer = socket.socket()
            peer.setblocking(False)
            peer.connect_ex((host, int(port)))
            waiting[peer.fileno()] = [peer, b"", False]
            poll.register(peer, select.POLLOUT | select.POLLIN)
    finally:
        process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 30
    closed = 0
    while waiting and time.monotonic() < deadline:
        for fd, event in poll.poll(100):
            peer, got, asked = waiting[fd]
            over = False
            if event & select.POLLOUT and not asked:
                peer.send(question)
                waiting[fd][2] = True
                poll.modify(peer, select.POLLIN)
            elif event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                try:
                    data = peer.recv(65536)
                except OSError:
                    data = b""
                waiting[fd][1] = got = got + data
                answered_now = any(kind == http2.DATA and len(body) > 5 for kind, _, _, body in http2.split_frames(got)[0])
                answered += answered_now
                closed += not data and not answered_now
                over = answered_now or not data
            if over:
                poll.unregister(fd)
                peer.close()
                del waiting[fd]
    for peer, _, _ in waiting.values():
        peer.close()
    return [] if answered == count else [f"of {count} honest peers at once {answered} were answered, {closed} closed, {len(waiting)} left waiting"]


def scheduling(pid):
    """Seconds that the threads of a process have run, and that they could have run and no processor was free for them."""
    ran = waited = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path) as file:
            numbers = file.read().split()
        ran, waited = ran + int(numbers[0]), waited + int(numbers[1])
    return ran / 1e9, waited / 1e9


def crowd_faults(attacked, count=3500, tries=20):
    """Faults of many_at_once, with so many peers or as many as one address has places. Who has asked nothing 50 ms after gRPC got the connection
    goes for those behind, so a server that gets no processor closes some. Such a try does not count: one where its threads waited for a processor
    more than three times as long as they had one. In a crowd they wait as long as they run, or half as long again, where nothing else runs."""
    for _ in range(tries):
        with attacked.serve(None) as server:
            count = min(count, int(re.search(r"connections over TCP, (\d+) of one address", server.log_text())[1]) - 8)
            ran, waited = scheduling(server.process.pid)
            faults = many_at_once(server.address, count, server.process)
            ran, waited = (now - before for now, before in zip(scheduling(server.process.pid), (ran, waited)))
        print(f"{count} honest peers at once: {'; '.join(faults) or 'all answered'}; the server ran {ran:.2f} s and waited {waited:.2f} s to run", flush=True)
        if not faults or waited <= 3 * ran:
            break
    return faults


def training_faults(attacked, env_steps_more=100_000, limit_s=90):
    """What is wrong where a learner does not go on training while it is attacked. However busy the machine is, it trains so many env steps (250 updates)
    before the attack ends, which goes on until it has."""
    faults = []
    for name in ("resets", "unfinished"):
        with attacked.learner(None) as server:
            goal, deadline = env_steps(server) + env_steps_more, time.monotonic() + limit_s
            attack = subprocess.Popen([sys.executable, "-B", os.path.join(HERE, "attack.py"), name, server.address, "--count", "1000000000", "--clients", "3",
                                       "--seconds", str(2 * limit_s)], stdout=subprocess.DEVNULL)
            try:
                while env_steps(server) < goal and time.monotonic() < deadline and attack.poll() is None:
                    time.sleep(0.1)
                if attack.poll() is not None:
                    faults.append(f"the attack {name} on a learner did not last")
                elif env_steps(server) < goal:
                    faults.append(f"a learner attacked by {name} has {env_steps(server)} env steps after {limit_s} s, expected {goal}")
            finally:
                attack.kill()
                attack.wait()
        print(f"a learner trains while it is attacked by {name}: {faults[-1] if faults else 'held'}", flush=True)
    return faults


def row(target, name, measured, faults):
    rate = f"{measured['rate_during'] / max(1, measured['rate_before']):.2f}" if "rate_before" in measured else "-"
    p99 = " / ".join(f"{p99:.3f}" for p99 in measured["p99_s"].values())
    print(f"| {target} | {name} | {measured['attack']} | {measured['rss_before_mib']:.0f} + {measured['rss_growth_mib']:.0f} | {p99} | "
          f"{measured['accepts_again_s']:.2f} | {rate} | {'; '.join(faults) or 'held'} |", flush=True)


def main():
    program, full = os.path.abspath(sys.argv[1]), "--full" in sys.argv
    chosen = [name for name in sys.argv[3:] if name != "--full"]
    targets = [name.split(":")[1] for name in chosen if name.startswith("target:")] or (["serve", "learner"] if full else ["serve"])
    names = [name for name in chosen if not name.startswith("target:")] or list(ATTACKS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    folder = tempfile.mkdtemp(prefix="troupe_attack_")
    failed, deaf = 0, None
    try:
        attacked = Attacked(program, folder)
        deaf = DeafServer(attacked) if names == list(ATTACKS) else None
        print("| target | attack | what it did | RSS MiB | p99 s, one connection / new ones | accepts again s | rate | |\n|---|---|---|---|---|---|---|---|")
        for target in targets:
            for name in names:
                in_full, full_s, in_short, short_s, descriptors = ATTACKS[name]
                arguments, seconds = (in_full, full_s) if full else (in_short, short_s)
                if not arguments:
                    continue
                for proven in [False] if name in ONE_KIND else [False, True]:
                    with getattr(attacked, target)(descriptors) as server:
                        asked = [*arguments, "--proven"] if proven else arguments
                        measured = measure(server, asked, seconds, trains=full and target == "learner")
                        faults = faults_of(measured, 1 if full else 5)
                        row(target, f"{name}, proven" if proven else name, measured, faults)
                        if faults:
                            failed += 1
                            print(server.log_text()[-2000:], file=sys.stderr)
        faults = []
        if names == list(ATTACKS):
            faults += crowd_faults(attacked)
            if not full:
                faults += training_faults(attacked)
            faults += deaf.faults()
        for fault in faults:
            failed += 1
            print(fault, file=sys.stderr)
    finally:
        if deaf:
            deaf.process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
