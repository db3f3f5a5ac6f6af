# SPDX-License-Identifier: Apache-2.0
"""One HTTP exchange at a time on its own connection, kept as the bytes that went over it."""

from __future__ import annotations

import json
import pathlib
import socket

TIMEOUT_S = 120.0
ANSWER_BYTES_MAX = 64 << 20


class Recorder:
    """Sends requests to one server and writes NAME.req.http and NAME.resp.http into `folder`."""

    def __init__(self, host: str, port: int, folder: pathlib.Path, secret_headers: dict[str, str]):
        self.host, self.port = host, port
        self.folder = folder
        self.secret_headers = secret_headers

    def send(self, method: str, path: str, body: object = None, headers: dict | None = None,
             cut_after: int | None = None, name: str = "") -> tuple[bytes, bytes]:
        """Returns (request, answer); values of secret headers are left out of the request. `cut_after`: leave after
        that many bytes of the answer."""
        payload = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        shown = {"Host": "127.0.0.1", "Connection": "close"}
        if payload or method == "POST":
            shown |= {"Content-Type": "application/json", "Content-Length": str(len(payload))}
        shown |= headers or {}

        def bytes_of(fields: dict) -> bytes:
            lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())]
            return "\r\n".join(lines).encode() + b"\r\n\r\n" + payload

        received = b""
        with socket.create_connection((self.host, self.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(bytes_of(shown | self.secret_headers))
            while len(received) < (cut_after or ANSWER_BYTES_MAX):
                try:
                    part = connection.recv(65536)
                except ConnectionResetError:
                    break
                if not part:
                    break
                received += part
        return bytes_of(shown | dict.fromkeys(self.secret_headers, "…")), received

    def exchange(self, name: str, **request) -> str:
        """Records one exchange; returns its status line."""
        sent, received = self.send(**request)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{name}.req.http").write_bytes(sent)
        (self.folder / f"{name}.resp.http").write_bytes(received)
        return received.split(b"\r\n", 1)[0].decode(errors="replace") or "no answer"
