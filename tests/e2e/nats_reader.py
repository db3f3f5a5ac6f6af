# SPDX-License-Identifier: Apache-2.0
"""A subscriber that speaks NATS' text protocol by itself, so that what Stator publishes is read by somebody else's code."""

from __future__ import annotations

import socket


class NatsReader:
    """Everything published under `subject` from now on, with `next`."""

    def __init__(self, port: int, subject: str, timeout_s: float = 60.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(f'CONNECT {{"verbose":false}}\r\nSUB {subject} 1\r\nPING\r\n'.encode())
        while self._line() != b"PONG":
            pass

    def _line(self) -> bytes:
        line = self.file.readline()
        if not line:
            raise ConnectionError("the broker hung up")
        return line.rstrip(b"\r\n")

    def next(self) -> tuple[str, bytes]:
        """Subject and payload; TimeoutError if nothing comes in time."""
        while True:
            line = self._line()
            if line == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif line.startswith(b"MSG "):
                parts = line.decode().split(" ")
                payload = self.file.read(int(parts[-1]) + 2)[:-2]
                return parts[1], payload

    def close(self) -> None:
        self.file.close()
        self.socket.close()
