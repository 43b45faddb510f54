"""HTTP/2 and gRPC by hand, for clients that no library would be: frames as bytes, and one honest call."""

import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
COMPUTE_ACTIONS = "/troupe.v1.Query/ComputeActions"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def split_frames(data):
    """[(type, flags, stream, payload)] of the whole frames, and the bytes behind them."""
    frames, at = [], 0
    while len(data) - at >= 9:
        end = at + 9 + int.from_bytes(data[at:at + 3], "big")
        if len(data) < end:
            break
        frames.append((data[at + 3], data[at + 4], int.from_bytes(data[at + 5:at + 9], "big") & 0x7fffffff, data[at + 9:end]))
        at = end
    return frames, data[at:]


def hpack_int(value, prefix_bits):
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes([value])
    out, value = bytearray([limit]), value - limit
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def header_block(path, extra=()):
    """Literal fields without indexing: nothing to keep in step with."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "troupe"),
              ("content-type", "application/grpc"), ("te", "trailers"), *extra]
    block = b""
    for name, value in fields:
        block += b"\0" + hpack_int(len(name), 7) + name.encode() + hpack_int(len(value), 7) + value.encode()
    return block


def message(payload, compressed=0):
    return struct.pack(">BI", compressed, len(payload)) + payload


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def query_bytes(policy, observations):
    """ComputeActionsRequest with rows of float32."""
    rows = b"".join(struct.pack(f"<{len(row)}f", *row) for row in observations)
    return field(1, field(1, policy.encode()) + field(2, len(observations)) + field(3, 1) + field(4, rows))


def connect(address, timeout=10.0):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host.strip("[]"), int(port)), timeout)


class Connection:
    """An honest client: one call at a time, any number of them. Raises OSError when the other side closes or is silent."""

    def __init__(self, address, timeout=10.0):
        self.deadline = time.monotonic() + timeout
        self.socket = connect(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))
        self.stream = -1
        self.buffer = b""

    def close(self):
        self.socket.close()

    def exactly(self, count):
        while len(self.buffer) < count:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise OSError("no answer in time")
            self.socket.settimeout(left)
            got = self.socket.recv(65536)
            if not got:
                raise OSError("closed by the server")
            self.buffer += got
        out, self.buffer = self.buffer[:count], self.buffer[count:]
        return out

    def next_frame(self):
        head = self.exactly(9)
        size = int.from_bytes(head[:3], "big")
        return head[3], head[4], int.from_bytes(head[5:], "big") & 0x7fffffff, self.exactly(size)

    def call(self, path, payload, timeout=10.0):
        """The answer's message, or None where the call was refused."""
        self.deadline = time.monotonic() + timeout
        self.stream += 2
        self.socket.sendall(frame(HEADERS, END_HEADERS, self.stream, header_block(path))
                            + frame(DATA, END_STREAM, self.stream, message(payload)))
        answer = b""
        while True:
            kind, flags, stream, body = self.next_frame()
            if kind == SETTINGS and not flags & ACK:
                self.socket.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.socket.sendall(frame(PING, ACK, 0, body))
            elif kind == GOAWAY:
                raise OSError(f"goodbye: {body[8:].decode(errors='replace')}")
            elif stream == self.stream and kind == DATA:
                answer += body
                self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", max(1, len(body)))))
            if stream == self.stream and kind in (HEADERS, DATA) and flags & END_STREAM:
                return answer[5:] or None
            if stream == self.stream and kind == RST_STREAM:
                return None
