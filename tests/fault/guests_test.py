#!/usr/bin/env python3
"""Honest clients at a TCP port, each with its fastest legal traffic: none is closed, no call hangs, and none fails but in words.

  guests_test.py TROUPE SOURCE

docs/adr/0056-what-a-client-costs.md says what the port may limit. attack_test.py is the reverse of this.
"""

import collections
import os
import queue
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc

import http2
from attack_test import QUERY, Attacked, env_steps
from http2 import ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, SETTINGS, WINDOW_UPDATE, frame

PROGRAM = SOURCE = ""
HERE = os.path.dirname(os.path.abspath(__file__))
STREAM = "/troupe.v1.Query/StreamActions"
SECONDS = 2.0
# Set where clients have been brought for these tests: what is missing then is an error.
MUST_RUN = os.environ.get("TROUPE_TEST_CLIENTS", "0") != "0"
HAVE_GO = shutil.which("go") and os.path.isdir("/usr/share/gocode/src/google.golang.org/grpc")
DEBIANS_PYTHON = "/usr/bin/python3"
HAVE_DEBIANS_GRPCIO = os.path.exists(DEBIANS_PYTHON) and subprocess.run([DEBIANS_PYTHON, "-c", "import grpc"], stderr=subprocess.DEVNULL).returncode == 0
# Calls may hear this beside expired ones, whose resets are held.
IN_WORDS = "this connection has 64 open calls, at most 64"


class Channel:
    """A channel of bare grpcio, which asks nothing twice. Counts what it hears."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)])
        self.unary = self.channel.unary_unary(http2.COMPUTE_ACTIONS)
        self.answered, self.failed = 0, collections.Counter()
        self.lock = threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def note(self, error):
        with self.lock:
            if error is None:
                self.answered += 1
            else:
                self.failed[f"{error.code().name}: {error.details()}"] += 1

    def ask(self, timeout=10.0, query=QUERY):
        try:
            self.unary(query, timeout=timeout)
            self.note(None)
        except grpc.RpcError as error:
            self.note(error)

    def open_stream(self, timeout=20.0):
        """-> (ask, close)."""
        questions = queue.SimpleQueue()
        answers = self.channel.stream_stream(STREAM)(iter(questions.get, None), timeout=timeout)

        def ask():
            questions.put(QUERY)
            try:
                next(answers)
                self.note(None)
            except grpc.RpcError as error:
                self.note(error)

        def close():
            answers.cancel()
            questions.put(None)
        return ask, close


def for_a_while(threads, do):
    """Each of so many threads does it again and again."""
    until = time.monotonic() + SECONDS

    def run(number):
        while time.monotonic() < until:
            do(number)
    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


class Raw:
    """A connection of frames by hand, as another library of gRPC would send them."""

    def __init__(self, address):
        self.socket = http2.connect(address, 10)
        self.socket.sendall(http2.PREFACE + frame(SETTINGS, 0, 0))
        self.buffer = b""

    def close(self):
        self.socket.close()

    def frames(self):
        """The frames that have come, once something has; PING and SETTINGS of the server are answered."""
        got = self.socket.recv(1 << 16)
        if not got:
            raise OSError("closed by the server")
        found, self.buffer = http2.split_frames(self.buffer + got)
        for kind, flags, _, body in found:
            if kind == GOAWAY:
                raise OSError(f"goodbye: {body[8:].decode(errors='replace')}")
            if kind in (PING, SETTINGS) and not flags & ACK:
                self.socket.sendall(frame(kind, ACK, 0, body if kind == PING else b""))
        return found


class GuestsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="troupe_guests_")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.serving = Attacked(PROGRAM, cls.folder)
        one = cls.serving.serve(None)
        cls.server = one.__enter__()
        cls.addClassCleanup(one.__exit__, None, None, None)
        cls.address = cls.server.address

    def tearDown(self):
        self.assertNotIn("connection closed", self.server.log_text())

    def test_streams_that_open_before_the_first_question(self):
        for count in (9, 16, 60):
            with Channel(self.address) as channel:
                streams = [channel.open_stream() for _ in range(count)]
                time.sleep(0.05)
                asking = [threading.Thread(target=ask) for ask, _ in streams]
                for thread in asking:
                    thread.start()
                for thread in asking:
                    thread.join()
                self.assertEqual((channel.answered, channel.failed), (count, {}))
                for _, close in streams:
                    close()

    def test_many_streams_of_one_channel(self):
        with Channel(self.address) as channel:
            streams = [channel.open_stream() for _ in range(16)]
            for_a_while(16, lambda number: streams[number][0]())
            self.assertEqual(channel.failed, {})
            self.assertGreater(channel.answered, 50)
            for _, close in streams:
                close()

    def test_streams_that_ask_once(self):
        with Channel(self.address) as channel:
            def once(_):
                ask, close = channel.open_stream()
                ask()
                close()
            for_a_while(4, once)
            self.assertEqual(channel.failed, {})
            self.assertGreater(channel.answered, 20)

    def test_calls_that_are_cancelled(self):
        with Channel(self.address) as channel:
            channel.ask()
            for number in range(600):
                channel.unary.future(QUERY, timeout=10).cancel()
                if number % 20 == 0:
                    channel.ask()
            self.assertEqual((channel.answered, channel.failed), (31, {}))

    def test_deadlines_that_pass_harm_no_other_call(self):
        with Channel(self.address) as channel:
            innocent = collections.Counter()

            def ask(number):
                if number > 0:
                    channel.ask(timeout=0.002)
                    return
                try:
                    channel.unary(QUERY, timeout=10)
                    innocent["answered"] += 1
                except grpc.RpcError as error:
                    innocent[f"{error.code().name}: {error.details()}"] += 1
            for_a_while(32, ask)
            self.assertGreater(innocent.pop("answered", 0), 0)
            innocent.pop(f"RESOURCE_EXHAUSTED: {IN_WORDS}", None)
            self.assertEqual(innocent, {})
            for heard in channel.failed:
                self.assertRegex(heard, f"^DEADLINE_EXCEEDED|{IN_WORDS}$")

    def test_a_ping_for_each_answer(self):
        """As grpc-go and grpc-java send it to measure the way, which they do by default; three window updates beside it."""
        raw = Raw(self.address)
        self.addCleanup(raw.close)
        block = http2.header_block(http2.COMPUTE_ACTIONS)
        answered, stream = 0, 1
        begun = time.monotonic()
        raw.socket.sendall(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, http2.message(QUERY)))
        while answered < 2000:
            for kind, flags, of, body in raw.frames():
                if kind == DATA:
                    grant = struct.pack(">I", max(1, len(body)))
                    raw.socket.sendall(frame(PING, 0, 0, b"12345678") + frame(WINDOW_UPDATE, 0, 0, grant) * 3)
                if of == stream and kind in (HEADERS, DATA) and flags & END_STREAM:
                    answered, stream = answered + 1, stream + 2
                    raw.socket.sendall(frame(HEADERS, END_HEADERS, stream, block)
                                       + frame(DATA, END_STREAM, stream, http2.message(QUERY)))
        self.assertLess(time.monotonic() - begun, 60)

    def test_large_queries_of_many_threads(self):
        """16 KiB each: together more than a connection's window, which the door withholds until there is room."""
        large = http2.query_bytes("shared", [[0.1, 0.0, -0.2, 0.0]] * 1024)
        with Channel(self.address) as channel:
            for_a_while(32, lambda _: channel.ask(query=large))
            self.assertEqual(channel.failed, {})
            self.assertGreater(channel.answered, 50)

    def test_a_crowd_of_streams(self):
        self.ask_by_streams(self.address, connections=36, streams=60)

    def test_ten_thousand_streams_where_they_are_asked_for(self):
        with self.serving.serve(None, "--max-streams", "10000") as server:
            self.ask_by_streams(server.address, connections=200, streams=50)
            self.assertNotIn("closed", server.log_text())

    def ask_by_streams(self, address, connections, streams):
        """Opens all of them, asks on each, then asks once more: all have to be answered."""
        block, question = http2.header_block(STREAM), http2.message(QUERY)
        ids, raws = range(1, 2 * streams, 2), []
        for _ in range(connections):
            raws.append(Raw(address))
            self.addCleanup(raws[-1].close)
            raws[-1].socket.sendall(b"".join(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, 0, stream, question) for stream in ids))
        for turn in range(2):
            for raw in raws if turn > 0 else []:
                raw.socket.sendall(b"".join(frame(DATA, 0, stream, question) for stream in ids))
            for raw in raws:
                waiting = set(ids)
                while waiting:
                    for kind, flags, stream, body in raw.frames():
                        self.assertFalse(flags & END_STREAM and kind in (HEADERS, DATA), body)
                        if kind == DATA:
                            waiting.discard(stream)

    def test_a_worker_with_fragments_of_one_step(self):
        with self.serving.learner(None, "rollout_fragment_length: 1") as server:
            goal, deadline = env_steps(server) + 4000, time.monotonic() + 120
            while env_steps(server) < goal:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            for words in ("connection closed", "call refused", "reconnect"):
                self.assertNotIn(words, server.log_text())

    def test_guests_beside_attackers(self):
        with self.serving.serve(None) as server:
            attack = [sys.executable, "-B", os.path.join(HERE, "attack.py")]
            attacks = [[name, "--count", "10000000", "--clients", "2", "--proven"] for name in ("resets", "pings", "streams", "unfinished", "unread_answers")]
            # They come differently far, and each again once it has to go. Together more than gRPC has places for.
            attacks += [[name, "--count", "300"] for name in ("settings_only", "no_body", "unknown_method")]
            attackers = [subprocess.Popen([*attack, name, server.address, *rest, "--seconds", "60"], stdout=subprocess.DEVNULL) for name, *rest in attacks]
            try:
                with Channel(server.address) as channel:
                    streams = [channel.open_stream() for _ in range(8)]
                    for_a_while(16, lambda number: streams[number][0]() if number < 8 else channel.ask())
                    self.assertEqual(channel.failed, {})
                    self.assertGreater(channel.answered, 50)
                    for _, close in streams:
                        close()
                for _ in range(5):
                    with Channel(server.address) as newcomer:
                        newcomer.ask()
                        self.assertEqual((newcomer.answered, newcomer.failed), (1, {}))
                self.assertEqual([attacker.poll() for attacker in attackers], [None] * len(attackers))
            finally:
                for attacker in attackers:
                    attacker.kill()
                    attacker.wait()

    @unittest.skipUnless(HAVE_GO or MUST_RUN, "no compiler of Go with grpc-go: TROUPE_TEST_CLIENTS=1 ./troupe test brings it")
    def test_grpc_go_at_full_speed(self):
        program, query = os.path.join(self.folder, "go_guest"), os.path.join(self.folder, "query")
        with open(query, "wb") as file:
            file.write(QUERY)
        subprocess.run(["go", "build", "-o", program, os.path.join(HERE, "go_guest.go")], check=True,
                       env={**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": os.path.join(self.folder, "go_cache")})
        heard = subprocess.run([program, self.address, query, str(SECONDS)], check=True, capture_output=True, text=True).stdout
        self.assertRegex(heard, r"^calls map\[answer:\d{3,}\]\nstreams map\[answer:\d{3,}\]\n$")

    @unittest.skipUnless(HAVE_DEBIANS_GRPCIO or MUST_RUN, "no grpcio of Debian: TROUPE_TEST_CLIENTS=1 ./troupe test brings it")
    def test_an_old_grpcio(self):
        """The cases that speak grpcio, with 1.51 of Debian 12 in the place of the newest. It sends windows, pings and resets otherwise."""
        cases = [f"GuestsTest.test_{name}" for name in ("streams_that_open_before_the_first_question", "many_streams_of_one_channel", "streams_that_ask_once",
                                                        "calls_that_are_cancelled", "deadlines_that_pass_harm_no_other_call",
                                                        "large_queries_of_many_threads")]
        done = subprocess.run([DEBIANS_PYTHON, "-B", os.path.join(HERE, "guests_test.py"), PROGRAM, SOURCE, *cases], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"Ran {len(cases)} tests", done.stderr)

    def test_two_hundred_clients_under_the_usual_soft_limit(self):
        with self.serving.serve("-S 1024") as server:
            self.ask_by_streams(server.address, connections=200, streams=1)
            self.assertNotIn("closed", server.log_text())

    def test_newcomers_beyond_the_places_hear_why(self):
        with self.serving.serve(1024) as server:
            self.assertIn("places for 256 connections over TCP, 160 of one address", server.log_text().splitlines()[0])
            self.ask_by_streams(server.address, connections=160, streams=1)
            newcomer = Raw(server.address)
            self.addCleanup(newcomer.close)
            with self.assertRaisesRegex(OSError, "goodbye: no place: there are 160 connections, at most 256, and 160 of one address"):
                while True:
                    newcomer.frames()

    def test_calls_beyond_the_limit_are_refused_and_the_connection_goes_on(self):
        """The facts of gRPC 1.51 that a refusal stands on: what the headers of a refused call add to the connection's table is there for later calls,
        and its data is counted on the connection's window."""
        raw = Raw(self.address)
        self.addCleanup(raw.close)
        block = http2.header_block(http2.COMPUTE_ACTIONS)
        held = range(1, 129, 2)  # 64 calls that have begun
        raw.socket.sendall(b"".join(frame(HEADERS, END_HEADERS, stream, block) for stream in held))
        # The refused one's path enters the table, which the next call names by its number there; and its data fills most of the window.
        path = http2.COMPUTE_ACTIONS.encode()
        indexed = b"\x83\x86" + b"\x44" + bytes([len(path)]) + path + b"\x41\x06troupe" + b"\x5f\x10application/grpc" + b"\x40\x02te\x08trailers"
        again = b"\x83\x86\xc1\xc0\xbf\xbe"
        raw.socket.sendall(frame(HEADERS, END_HEADERS, 129, indexed) + frame(DATA, 0, 129, b"\0\0\0\x9c\x40" + b"x" * 15995)
                           + frame(DATA, 0, 129, b"x" * 16000) + frame(DATA, END_STREAM, 129, b"x" * 8005))
        refused, window = b"", 65535 - 40000
        while not refused:
            for kind, flags, stream, body in raw.frames():
                if stream == 129:
                    self.assertEqual((kind, flags), (HEADERS, END_HEADERS | END_STREAM))
                    refused = body
                window += struct.unpack(">I", body)[0] if kind == WINDOW_UPDATE and stream == 0 else 0
        self.assertIn(IN_WORDS.encode(), refused)
        line, deadline = f'call refused peer=127.0.0.1:[0-9]+ reason="{IN_WORDS}"', time.monotonic() + 10
        while not re.search(line, self.server.log_text()) and time.monotonic() < deadline:
            time.sleep(0.01)  # it is written once the refusal is on its way
        self.assertRegex(self.server.log_text(), line)
        while window < 40000:
            window += sum(struct.unpack(">I", body)[0] for kind, _, stream, body in raw.frames() if kind == WINDOW_UPDATE and stream == 0)
        # One of the held calls is asked, and is answered; then there is a place.
        message = http2.message(QUERY)
        raw.socket.sendall(frame(DATA, END_STREAM, 1, message))
        self.assertGreater(self.await_end(raw, 1), 0)
        raw.socket.sendall(frame(HEADERS, END_HEADERS, 131, again) + frame(DATA, END_STREAM, 131, message))
        self.assertGreater(self.await_end(raw, 131), 0)

    def await_end(self, raw, stream):
        """Bytes of its answer."""
        size = 0
        while True:
            for kind, flags, of, body in raw.frames():
                size += len(body) if of == stream and kind == DATA else 0
                if of == stream and kind in (HEADERS, DATA) and flags & END_STREAM:
                    return size


if __name__ == "__main__":
    PROGRAM, SOURCE = map(os.path.abspath, sys.argv[1:3])
    del sys.argv[1:3]
    unittest.main(verbosity=2)  # what skips says why
