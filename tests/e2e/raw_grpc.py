# SPDX-License-Identifier: Apache-2.0
"""A gRPC client that misbehaves on purpose: HTTP/2 frames over a bare socket, streams that say nothing or never end."""

from __future__ import annotations

import select
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GO_AWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
FRAME_BYTES = 16 * 1024


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name: str, value: str) -> bytes:
    """A header field that no table keeps (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class RawGrpc:
    """One connection. Calls are numbered 1, 3, 5, …; it follows the windows that the server gives."""

    def __init__(self, address: str):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))
        self.next_stream = 1
        self.window = 65_535
        self.stream_window = 65_535
        self.windows: dict[int, int] = {}
        self.ended: set[int] = set()
        self.open = True
        self.received = b""

    def call(self, path: str, message: bytes | None = None, ends: bool = True) -> int:
        """Begins a call, and says a short message if there is one: all it says if it `ends`."""
        stream = self.next_stream
        self.next_stream += 2
        block = b"".join(field(*pair) for pair in (
            (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "worker"),
            ("content-type", "application/grpc"), ("te", "trailers")))
        self.windows[stream] = self.stream_window
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, block))
        if message is not None:
            self.socket.sendall(frame(DATA, END_STREAM if ends else 0, stream, b"\0" + struct.pack(">I", len(message)) + message))
        return stream

    def send(self, stream: int, data: bytes) -> int:
        """As many of the bytes as the windows allow now."""
        count = min(len(data), self.window, self.windows[stream], FRAME_BYTES)
        if count > 0:
            self.socket.sendall(frame(DATA, 0, stream, data[:count]))
            self.window -= count
            self.windows[stream] -= count
        return count

    def hear(self, timeout_s: float = 0.0) -> bool:
        """Takes what the server has said, and answers its pings. False when nothing came."""
        if not self.open or not select.select([self.socket], [], [], timeout_s)[0]:
            return False
        try:
            got = self.socket.recv(1 << 18)
        except OSError:
            got = b""
        if not got:
            self.open = False
            return False
        self.received += got
        while len(self.received) >= 9:
            size = int.from_bytes(self.received[:3], "big")
            if len(self.received) < 9 + size:
                break
            kind, flags = self.received[3], self.received[4]
            stream = int.from_bytes(self.received[5:9], "big")
            self._take(kind, flags, stream, self.received[9:9 + size])
            self.received = self.received[9 + size:]
        return True

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == 4:  # the window that streams begin with
                    self.windows = {s: w + value - self.stream_window for s, w in self.windows.items()}
                    self.stream_window = value
            self.socket.sendall(frame(SETTINGS, ACK, 0))
        elif kind == WINDOW_UPDATE and stream == 0:
            self.window += struct.unpack(">I", payload)[0]
        elif kind == WINDOW_UPDATE and stream in self.windows:
            self.windows[stream] += struct.unpack(">I", payload)[0]
        elif kind == RESET or (kind == HEADERS and flags & END_STREAM):
            self.ended.add(stream)
            self.windows.pop(stream, None)
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))

    def close(self) -> None:
        self.socket.close()
