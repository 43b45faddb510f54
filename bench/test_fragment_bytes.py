#!/usr/bin/env python3
"""Tests of bench/fragment_bytes.py without Troupe: what a connection of gRPC holds is read, however it is cut. python3 bench/test_fragment_bytes.py"""

import os
import pathlib
import socket
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import fragment_bytes  # noqa: E402
from fragment_bytes import Fragment, Messages, fields, fragment_of  # noqa: E402


def varint(value):
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def whole(number, value):
    return varint(number << 3) + varint(value)


def text(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def fragment(env_steps, payload, says=None):
    """A WorkerMessage with a fragment: sequence, env steps, a checksum of four bytes, and the payload's length as it says it."""
    header = whole(1, 7) + whole(4, env_steps) + varint(8 << 3 | 5) + b"abcd" + whole(7, len(payload) if says is None else says)
    return text(2, header) + text(15, payload)


HELLO = text(1, text(6, b"a worker"))


def grpc(message):
    return b"\0" + len(message).to_bytes(4, "big") + message


def frame(stream, data, kind=0, flags=0):
    return len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + data


class MessageTest(unittest.TestCase):
    def test_a_fragment_has_the_whole_messages_length_and_its_own_env_steps(self):
        message = fragment(2000, b"x" * 300)
        self.assertEqual(fragment_of(message), Fragment(len(message), 2000))

    def test_what_is_no_fragment_is_none(self):
        other_field_2 = text(2, b"not a message of protobuf, and long enough to look like one")
        for message in (b"", HELLO, text(3, b""), other_field_2, whole(2, 5), fragment(2000, b"x" * 300, says=299), text(2, whole(4, 5)) + whole(15, 3),
                        b"\xff" * 12, fragment(1, b"abc")[:-1]):
            with self.subTest(message):
                self.assertIsNone(fragment_of(message))

    def test_fields_end_within_the_message(self):
        self.assertEqual(fields(whole(3, 1 << 40) + text(5, b"ab") + varint(6 << 3 | 1) + b"12345678"), {3: 1 << 40, 5: b"ab", 6: b"12345678"})
        for broken in (text(5, b"abc")[:-1], varint(6 << 3 | 1) + b"123", varint(6 << 3 | 3), b"\x80" * 11):
            with self.subTest(broken), self.assertRaises((ValueError, IndexError)):
                fields(broken)


class ConnectionTest(unittest.TestCase):
    def connection(self):
        """Messages of two streams, each cut over frames of DATA, with others between; and what they are."""
        first, second = fragment(50, b"y" * 1000), fragment(75, b"z" * 20)
        one, other = grpc(HELLO) + grpc(first), grpc(second)
        data = fragment_bytes.PREFACE + frame(0, b"settings", kind=4) + frame(1, b"headers", kind=1) + frame(1, one[:30]) + frame(3, other[:3])
        padded = bytes([4]) + other[3:] + b"pad!"
        return data + frame(1, one[30:]) + frame(3, padded, flags=0x8), [HELLO, first, second]

    def test_messages_are_whole_however_the_connection_is_cut(self):
        data, messages = self.connection()
        for piece in (1, 2, 7, 64, len(data)):
            reader = Messages()
            found = [message for at in range(0, len(data), piece) for message in reader.add(data[at:at + piece])]
            self.assertEqual(sorted(found), sorted(messages), piece)

    def test_what_is_no_connection_of_grpc_is_said(self):
        with self.assertRaisesRegex(ValueError, "expected a connection of HTTP/2, got b'GET / HTTP/1.1"):
            Messages().add(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n")
        with self.assertRaisesRegex(ValueError, "compressed"):
            Messages().add(fragment_bytes.PREFACE + frame(1, b"\1" + grpc(HELLO)[1:]))

    def test_the_relay_passes_everything_on_and_keeps_the_fragments(self):
        data, messages = self.connection()
        with tempfile.TemporaryDirectory() as folder:
            server = socket.socket(socket.AF_UNIX)
            server.bind(os.path.join(folder, "learner"))
            server.listen(1)
            server.settimeout(10)
            relay = fragment_bytes.Relay(os.path.join(folder, "relay"), os.path.join(folder, "learner"))
            client = socket.socket(socket.AF_UNIX)
            client.connect(os.path.join(folder, "relay"))
            there, _ = server.accept()
            for end in (client, there):
                end.settimeout(10)
            client.sendall(data)
            got = b""
            while len(got) < len(data):
                received = there.recv(1 << 16)
                self.assertTrue(received, f"the relay ended after {len(got)} of {len(data)} bytes: {relay.error}")
                got += received
            there.sendall(b"an answer")
            self.assertEqual((got, client.recv(100)), (data, b"an answer"))
            client.close()
            self.assertEqual(there.recv(1), b"", "the end is passed on, too")
            there.close()
            server.close()
        self.assertEqual(relay.fragments, [Fragment(len(messages[1]), 50), Fragment(len(messages[2]), 75)])
        self.assertIsNone(relay.error)
        self.assertAlmostEqual(fragment_bytes.an_env_step(relay.fragments), (len(messages[1]) + len(messages[2])) / 125)


if __name__ == "__main__":
    unittest.main()
