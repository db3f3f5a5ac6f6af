# SPDX-License-Identifier: Apache-2.0
"""No operators' route answers on the public port: not by another method, spelling, version of HTTP or form of the target, with any key or none."""

import json
import pathlib
import re
import socket
import tempfile
import unittest

import h2.config
import h2.connection
import h2.events

from access_test import key, stator
from stator_process import MODEL_DIR, Stator

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "Post")
# What a route's own answer has, and a refusal has not.
TELLTALES = (b"stator_", b"dynamo_", b'"reason"', b'"thresholds"', b'"tenants"', b"http.port", b"threads", b"draining", b"<html", b"adapters", b"candidates")


def spellings(path: str) -> list[str]:
    """Other ways to write a path, each of which some server or proxy takes for the same."""
    first = path[1:]
    encoded = "/" + "".join(f"%{ord(c):02x}" for c in first)
    name = first.split("/")[0]
    return [path, path + "/", path + "//", "/" + path, path.upper(), path.capitalize(), path.title(), encoded, f"/%{ord(first[0]):02X}{first[1:]}",
            path + "?", path + "?x=/v1/models", path + "#part", path + ";a=b", path + "%00", path + "%20", path + ".", "/." + path, "/v1/.." + path,
            "/v1/models/.." + path, "/v1/models/../.." + path, "/v1/%2e%2e" + path, "/health/.." + path, "/ui/.." + path, "/" + name + "/." + path[1 + len(name):],
            path.replace("/", "\\"), path.replace("/", "%2f"), "*" + path]


class Answers:
    """Requests in a row over one connection that is made anew where the server closes it."""

    def __init__(self, port: int):
        self.port, self.socket, self.rest = port, None, b""

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket, self.rest = None, b""

    def ask(self, method: str, target: str, headers: dict[str, str]) -> tuple[int, bytes]:
        text = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        body = b"{}" if method.upper() in ("POST", "PUT", "PATCH") else b""
        if body:
            text += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        for again in (True, False):
            try:
                if self.socket is None:
                    self.socket = socket.create_connection(("127.0.0.1", self.port), 60)
                self.socket.sendall(text.encode() + b"\r\n" + body)
                return self.read(method)
            except (ConnectionError, EOFError):
                self.close()
                if not again:
                    raise
        raise AssertionError("unreachable")

    def read(self, method: str) -> tuple[int, bytes]:
        while b"\r\n\r\n" not in self.rest:
            self.more()
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        status = int(head.split(b" ")[1])
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        size = int(length.group(1)) if length and method != "HEAD" else 0
        while len(self.rest) < size:
            self.more()
        body, self.rest = self.rest[:size], self.rest[size:]
        if re.search(rb"(?i)\r\nconnection: close", head):
            self.close()
        return status, body

    def more(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError
        self.rest += data


def ask_http2(port: int, requests: list[tuple[str, str, dict[str, str]]]) -> list[tuple[int, bytes]]:
    """All of them as streams of connections; a stream that is reset counts as status 0."""
    out = []
    for start in range(0, len(requests), 50):
        part = requests[start:start + 50]
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False))
        connection.initiate_connection()
        found = {}
        for method, target, headers in part:
            stream = connection.get_next_available_stream_id()
            found[stream] = [0, b"", False]
            connection.send_headers(stream, [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", target), *headers.items()],
                                    end_stream=True)
        with socket.create_connection(("127.0.0.1", port), 60) as wire:
            wire.sendall(connection.data_to_send())
            while not all(done for _, _, done in found.values()):
                data = wire.recv(1 << 16)
                if not data:
                    break
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        found[event.stream_id][0] = int(dict(event.headers)[b":status"])
                    elif isinstance(event, h2.events.DataReceived):
                        found[event.stream_id][1] += event.data
                        connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                        found[event.stream_id][2] = True
                wire.sendall(connection.data_to_send())
        out += [(status, body) for status, body, _ in found.values()]
    return out


class PublicPort(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        file = pathlib.Path(cls.folder.name) / "keys"
        cls.keys, lines = {None: None}, []
        for role in ("user", "service", "operator"):
            cls.keys[role], line = key(role, role)
            lines.append(line)
        file.write_text("\n".join(lines) + "\n")
        cls.server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--port", "0", "--host", "127.0.0.1", "--admin-port", "0", "--api-keys", str(file),
                            "--log", "error")
        cls.addClassCleanup(cls.server.kill)
        table = json.loads(stator("routes", "--json").stdout)["routes"]
        cls.paths = sorted({route["path"].replace("{id}", "last") for route in table if route["listener"] == "admin"} | {"/ui/app.js", "/ui"})

    def check(self, what: tuple, status: int, body: bytes):
        self.assertIn(status, (400, 401, 403, 404, 405, 413, 415, 501), (what, body[:200]))
        for word in TELLTALES:
            self.assertNotIn(word, body, what)

    def test_table_names_operators_routes(self):
        self.assertTrue({"/metrics", "/receipts/last", "/busy_threshold", "/tenants", "/requests", "/config", "/profile", "/drain", "/v1/loras", "/ui/",
                         "/engine/sleep", "/routing/preview"} <= set(self.paths), self.paths)

    def test_every_method_and_key(self):
        answers = Answers(self.server.port)
        self.addCleanup(answers.close)
        for path in self.paths:
            for role, secret in self.keys.items():
                for method in METHODS:
                    status, body = answers.ask(method, path, {"x-api-key": secret} if secret else {})
                    self.check((method, path, role), status, body)
        self.assertTrue(self.server.alive())

    def test_every_spelling_as_an_operator(self):
        answers = Answers(self.server.port)
        self.addCleanup(answers.close)
        headers = {"authorization": f"Bearer {self.keys['operator']}"}
        targets = [spelling for path in self.paths for spelling in spellings(path)]
        targets += [f"http://localhost{path}" for path in self.paths] + [f"http://127.0.0.1:{self.server.ready['admin_port']}{path}" for path in self.paths]
        targets += [f"//localhost{path}" for path in self.paths]
        for target in targets:
            for method in ("GET", "POST"):
                status, body = answers.ask(method, target, headers)
                self.check((method, target), status, body)

    def test_the_same_over_http2(self):
        headers = {"x-api-key": self.keys["operator"]}
        requests = [(method, target, headers) for path in self.paths for target in [*spellings(path), f"http://localhost{path}"] for method in ("GET", "DELETE")
                    if " " not in target]
        for asked, (status, body) in zip(requests, ask_http2(self.server.port, requests), strict=True):
            if status:
                self.check(asked[:2], status, body)

    def test_headers_that_proxies_send_change_no_path(self):
        answers = Answers(self.server.port)
        self.addCleanup(answers.close)
        for name in ("x-original-url", "x-rewrite-url", "x-forwarded-path", "x-http-method-override", "x-forwarded-uri"):
            status, body = answers.ask("GET", "/v1/nothing", {"x-api-key": self.keys["operator"], name: "/metrics"})
            self.check((name,), status, body)


if __name__ == "__main__":
    unittest.main()
