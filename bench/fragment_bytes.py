#!/usr/bin/env python3
"""What a fragment of simple_spread takes on the wire, an env step: MLPs, and a GRU of 64 units in actor and critic (docs/benchmarks.md).

    bench/fragment_bytes.py build/release [--updates 5] [--set KEY=VALUE…]

Runs a learner and two workers with bench/peers/troupe.yaml. Between them stands a relay that reads what workers send: of each WorkerMessage with a
fragment its length, header and gaps between columns included, and the env steps that it says it has. --set is of both networks. The figure follows from
the configuration alone, so that one run of a few updates is enough and what else the machine does changes nothing.
"""

import argparse
import dataclasses
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

CONFIG = pathlib.Path(__file__).resolve().parent / "peers" / "troupe.yaml"
GRU = ("model.actor_core=gru", "model.critic_core=gru", "model.core_size=64", "model.actor_hidden_sizes=[64]", "model.critic_hidden_sizes=[64]",
       "model.max_seq_len=25")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA = 0  # a type of HTTP/2 frames (RFC 9113, 6.1)
PADDED = 0x8
# Field numbers of rollout.proto.
FRAGMENT, PAYLOAD, NUM_ENV_STEPS, PAYLOAD_BYTES = 2, 15, 4, 7


@dataclasses.dataclass(frozen=True)
class Fragment:
    bytes: int
    env_steps: int


def varint(data, at):
    """(value, where it ends); IndexError where the bytes end before it does."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")


def fields(data):
    """{number: the last value} of a protobuf message: integers, and bytes of what has a length. ValueError for what is none."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            length, begin = {1: (8, at), 5: (4, at)}.get(kind, (None, at))
            if kind == 2:
                length, begin = varint(data, at)
            if length is None or begin + length > len(data):
                raise ValueError(f"a field of wire type {kind} that does not end within the message")
            value, at = data[begin:begin + length], begin + length
        found[key >> 3] = value
    return found


def fragment_of(message):
    """The Fragment that a WorkerMessage holds; None where it is another message, of this stream or another one."""
    try:
        whole = fields(message)
        header = fields(whole[FRAGMENT])
    except (KeyError, ValueError, IndexError, TypeError):
        return None
    payload = whole.get(PAYLOAD, b"")
    if not isinstance(payload, (bytes, bytearray, memoryview)) or header.get(PAYLOAD_BYTES) != len(payload) or not isinstance(header.get(NUM_ENV_STEPS), int):
        return None
    return Fragment(len(message), header[NUM_ENV_STEPS])


class Messages:
    """Takes the bytes that a gRPC client sends on a connection, in pieces, and gives its messages, whole ones, of all streams."""

    def __init__(self):
        self._rest = bytearray()
        self._began = False
        self._streams = {}  # by id: the bytes of DATA frames that are no whole message yet

    def add(self, data):
        self._rest += data
        if not self._began:
            if len(self._rest) < len(PREFACE):
                return []
            if not self._rest.startswith(PREFACE):
                raise ValueError(f"expected a connection of HTTP/2, got {bytes(self._rest[:24])!r}")
            del self._rest[:len(PREFACE)]
            self._began = True
        found = []
        while len(self._rest) >= 9:
            length = int.from_bytes(self._rest[:3], "big")
            if len(self._rest) < 9 + length:
                break
            kind, flags, stream = self._rest[3], self._rest[4], int.from_bytes(self._rest[5:9], "big")
            frame = bytes(self._rest[9:9 + length])
            del self._rest[:9 + length]
            if kind == DATA:
                if flags & PADDED:
                    frame = frame[1:len(frame) - frame[0]]
                found += self._data(stream, frame)
        return found

    def _data(self, stream, frame):
        """Of a stream each message has a byte that says whether it is compressed, and four with its length."""
        held = self._streams.setdefault(stream, bytearray())
        held += frame
        while len(held) >= 5 and len(held) >= 5 + int.from_bytes(held[1:5], "big"):
            length = int.from_bytes(held[1:5], "big")
            if held[0] != 0:
                raise ValueError("a message is compressed; workers send none")
            yield bytes(held[5:5 + length])
            del held[:5 + length]


class Relay:
    """Listens at a Unix socket, connects each client to another one, and keeps the fragments that clients send. A thread a connection, which end with
    the process."""

    def __init__(self, path, to):
        self.fragments = []
        self.error = None
        self._to = to
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._to)
            except OSError:
                client.close()  # the learner has ended; a worker tries again and gives up
                continue
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client, server):
        messages = Messages()
        try:
            while True:
                for end in select.select([client, server], [], [])[0]:
                    data = end.recv(1 << 18)
                    if not data:
                        return
                    if end is client:
                        self.fragments += [fragment for fragment in map(fragment_of, messages.add(data)) if fragment]
                    (server if end is client else client).sendall(data)
        except ValueError as error:
            self.error = str(error)
        except OSError:
            pass  # either side has ended
        finally:
            client.close()
            server.close()


def wait_for(condition, what, learner, log, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline or learner.poll() is not None:
            sys.exit(f"fragment_bytes: {what} did not happen (exit status of the learner: {learner.poll()})\n{log.read_text()[-2000:]}")
        time.sleep(0.02)


def fragments_of(build, sets, updates):
    """All fragments of a run of so many updates."""
    services = pathlib.Path(build) / "services"
    with tempfile.TemporaryDirectory(prefix="troupe-bytes-") as name:
        folder = pathlib.Path(name)
        log = folder / "log"
        command = [services / "learner" / "troupe-learner", CONFIG, "--name", "run", "--listen", f"unix:{folder}/learner", "--workers", "2"]
        for setting in (f"experiment.directory={folder}", f"stop.updates={updates}", "stop.env_steps=0", *sets):
            command += ["--set", setting]
        processes = []
        try:
            with open(log, "w") as out:
                processes.append(subprocess.Popen(command, stdout=out, stderr=out, cwd=folder))
                learner = processes[0]
                wait_for(lambda: "learner ready" in log.read_text(), "the learner's start", learner, log)
                relay = Relay(f"{folder}/relay", f"{folder}/learner")
                for _ in range(2):
                    processes.append(subprocess.Popen([services / "cli" / "troupe", "worker", "--learner", f"unix:{folder}/relay"], stdout=out, stderr=out))
            try:
                learner.wait(timeout=120)
            except subprocess.TimeoutExpired:
                sys.exit(f"fragment_bytes: the learner did not end\n{log.read_text()[-2000:]}")
            if learner.returncode != 0 or relay.error or not relay.fragments:
                why = relay.error or f"exit status of the learner {learner.returncode}, {len(relay.fragments)} fragments"
                sys.exit(f"fragment_bytes: {why}\n{log.read_text()[-2000:]}")
            return list(relay.fragments)
        finally:
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.wait()


def an_env_step(fragments):
    return sum(fragment.bytes for fragment in fragments) / sum(fragment.env_steps for fragment in fragments)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of both, after what the networks set")
    args = parser.parse_args()
    if args.updates < 1:
        parser.error(f"--updates: got {args.updates}, expected at least 1")
    mlp = None
    for name, sets in (("MLP", ()), ("GRU of 64 units", GRU)):
        fragments = fragments_of(os.path.abspath(args.build), (*sets, *args.set), args.updates)
        found = an_env_step(fragments)
        mlp = found if mlp is None else mlp
        print(f"{name:16} {found:7.1f} bytes an env step, {found - mlp:5.1f} more than the MLP: {len(fragments)} fragments of "
              f"{min(f.env_steps for f in fragments)} to {max(f.env_steps for f in fragments)} env steps", flush=True)


if __name__ == "__main__":
    main()
