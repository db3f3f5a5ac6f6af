#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 on the front door's own port, by other people's clients: curl, nghttp and httpx; h2c by prior knowledge and h2 by ALPN."""

import asyncio
import json
import pathlib
import re
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import unittest

import httpx
from authority import Authority
from stator_process import MODEL, MODEL_DIR, Http, Stator, eventually

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def head(path: bytes = b"/live", method: bytes = b"GET", extra: bytes = b"") -> bytes:
    return literal(b":method", method) + literal(b":scheme", b"http") + literal(b":authority", b"t") + literal(b":path", path) + extra


def chat(**fields) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 8} | fields


class Http2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0", "--log", "warn")
        cls.addClassCleanup(cls.server.close)
        cls.http = Http(cls.server.port)

    def metric(self, line: str) -> float:
        text = self.http.request("GET", "/metrics")[2].decode()
        found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.M)
        return float(found.group(1)) if found else 0.0

    def client(self) -> httpx.Client:
        return httpx.Client(http1=False, http2=True, base_url=self.server.url, timeout=60)

    def curl(self, *arguments: str) -> str:
        return subprocess.run(["curl", "-sS", "--max-time", "60", *arguments], check=True, capture_output=True, text=True).stdout

    def test_curl_by_prior_knowledge(self):
        answer = self.curl("--http2-prior-knowledge", "-w", "\n%{http_version} %{http_code}", f"{self.server.url}/v1/models")
        body, last = answer.rsplit("\n", 1)
        self.assertEqual(last, "2 200")
        self.assertEqual(json.loads(body)["data"][0]["id"], MODEL)
        # An upgrade is answered in HTTP/1.1: RFC 9113 has none.
        self.assertTrue(self.curl("--http2", "-w", "%{http_version}", f"{self.server.url}/live").endswith("1.1"))

    def test_nghttp(self):
        out = subprocess.run(["nghttp", "-v", "-m", "5", f"{self.server.url}/ready"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(out.count(":status: 200"), 5)

    def test_the_answers_are_those_of_http1(self):
        with self.client() as client:
            for method, path, body in (("POST", "/v1/chat/completions", chat()), ("POST", "/v1/completions", {"model": MODEL, "prompt": "a", "max_tokens": 4, "temperature": 0}),
                                       ("POST", "/v1/messages", {"model": MODEL, "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": "a"}]}),
                                       ("POST", "/v1/chat/completions", chat(temperature=9)), ("GET", "/absent", None), ("PUT", "/v1/models", None),
                                       ("POST", "/v1/chat/completions", {"model": "absent", "messages": []})):
                answer = client.request(method, path, json=body)
                self.assertEqual(answer.http_version, "HTTP/2")
                status, headers, raw = self.http.request(method, path, body)
                self.assertEqual(answer.status_code, status)
                self.assertEqual(answer.headers["content-type"], headers["content-type"])
                mine, other = answer.json(), json.loads(raw)
                for volatile in ("id", "created"):
                    mine.pop(volatile, None), other.pop(volatile, None)
                self.assertEqual(mine, other)

    def test_streams(self):
        with self.client() as client, client.stream("POST", "/v1/chat/completions", json=chat(stream=True)) as answer:
            self.assertEqual(answer.http_version, "HTTP/2")
            self.assertEqual(answer.headers["content-type"].split(";")[0], "text/event-stream")
            lines = [line for line in answer.iter_lines() if line]
        self.assertEqual(lines[-1], "data: [DONE]")
        self.assertGreater(len(lines), 3)

    def test_many_at_once_on_one_connection(self):
        before = self.metric("stator_http2_connections_total")

        async def ask() -> list[httpx.Response]:
            # One thread: httpx's connections number their streams without a lock.
            async with httpx.AsyncClient(http1=False, http2=True, base_url=self.server.url, timeout=60) as client:
                await client.get("/live")
                return await asyncio.gather(*(client.post("/v1/completions", json={"model": MODEL, "prompt": f"{i}", "max_tokens": 3}) for i in range(64)))

        self.assertEqual({answer.status_code for answer in asyncio.run(ask())}, {200})
        self.assertEqual(self.metric("stator_http2_connections_total") - before, 1)

    def test_a_large_body_and_a_refused_one(self):
        with self.client() as client:
            text = "word " * 100_000
            answer = client.post("/tokenize", json={"model": MODEL, "prompt": text})
            self.assertEqual(answer.status_code, 200)
            self.assertGreaterEqual(answer.json()["count"], 100_000)
            refused = client.post("/v1/models", content=b"x" * 200_000)
            self.assertIn(refused.status_code, (405, 413))
            self.assertEqual(client.get("/live").status_code, 200)

    def test_a_client_that_leaves_cancels(self):
        with self.client() as client, client.stream("POST", "/v1/completions", json={
                "model": MODEL, "prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": True}) as answer:
            next(answer.iter_lines())
            eventually(lambda: self.metric("stator_router_active_requests") > 0, "it runs")
        eventually(lambda: self.metric("stator_router_active_requests") == 0, "it was cancelled")


class Attacks(unittest.TestCase):
    """What clients must not be able to do; the server lives on and everything is given back."""

    @classmethod
    def setUpClass(cls):
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0", "--log", "error", "--http-idle-timeout", "2s", "--http-slow-client-timeout", "1s")
        cls.addClassCleanup(cls.server.close)
        cls.http = Http(cls.server.port)

    def tearDown(self):
        self.assertEqual(self.http.get("/live")[0], 200)
        eventually(lambda: re.search(r"^stator_http_connections_open 1$", self.http.request("GET", "/metrics")[2].decode(), re.M), "connections are closed")

    def attack(self, bytes_: bytes) -> bytes:
        """What comes back until the server closes."""
        back = b""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            sender = threading.Thread(target=self._send, args=(connection, PREFACE + frame(4, 0, 0) + bytes_))
            sender.start()
            try:
                while data := connection.recv(65536):
                    back += data
            except ConnectionError:
                pass
            sender.join()
        return back

    @staticmethod
    def _send(connection, bytes_):
        try:
            connection.sendall(bytes_)
        except OSError:
            pass

    def test_rapid_reset(self):
        self.attack(b"".join(frame(1, 5, i, head()) + frame(3, 0, i, struct.pack(">I", 8)) for i in range(1, 20_001, 2)))

    def test_continuation_flood(self):
        self.attack(frame(1, 1, 1, head()) + b"".join(frame(9, 0, 1, literal(b"x-%d" % (i % 9), b"y" * 50)) for i in range(20_000)))

    def test_settings_and_ping_flood(self):
        self.attack(frame(4, 0, 0, struct.pack(">HI", 4, 1000)) * 20_000)
        self.attack(frame(6, 0, 0, b"12345678") * 20_000)

    def test_empty_frames_and_priorities(self):
        self.attack(frame(1, 4, 1, head(b"/v1/completions", b"POST")) + frame(0, 0, 1) * 20_000)
        self.attack(frame(2, 0, 1, struct.pack(">IB", 0, 1)) * 20_000)

    def test_hpack_bomb(self):
        entry = b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4000  # one entry of the dynamic table, then named again and again
        self.attack(frame(1, 5, 1, head(extra=entry + b"\xbe" * 12_000)))

    def test_a_huge_header_table(self):
        # The client allows, and asks for, tables of 4 GiB and fills what it may with 20,000 entries.
        entries = b"".join(b"\x40\x05x-%03d\x7f\x81\x01" % (i % 1000) + b"y" * 256 for i in range(40))
        self.attack(frame(4, 0, 0, struct.pack(">HI", 1, 0xFFFFFFFF)) + frame(1, 5, 1, b"\x3f\xe1\xff\xff\xff\x0f" + head()))
        self.attack(frame(4, 0, 0, struct.pack(">HI", 1, 0xFFFFFFFF)) + b"".join(frame(1, 5, i, head(extra=entries)) for i in range(1, 1001, 2)))

    def test_windows_that_overflow(self):
        self.attack(frame(8, 0, 0, struct.pack(">I", 0x7FFFFFFF)) * 2)
        self.attack(frame(1, 4, 1, head(b"/v1/completions", b"POST")) + frame(8, 0, 1, struct.pack(">I", 0x7FFFFFFF)) * 2)
        self.attack(frame(4, 0, 0, struct.pack(">HI", 4, 0xFFFFFFFF)))

    def test_more_streams_than_allowed(self):
        begun = b"".join(frame(1, 4, i, head(b"/v1/completions", b"POST", literal(b"content-type", b"application/json"))) + frame(0, 0, i, b"{") for i in range(1, 4001, 2))
        back = b""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            self._send(connection, PREFACE + frame(4, 0, 0) + begun)
            while (data := connection.recv(65536)) and frame(3, 0, 3999, struct.pack(">I", 7)) not in back[-8192:] + data:  # REFUSED_STREAM
                back += data
        self.assertTrue(data)

    def test_windows_that_never_open(self):
        request = json.dumps({"model": MODEL, "prompt": "x", "max_tokens": 64, "ignore_eos": True}).encode()
        streams = b"".join(frame(1, 4, i, head(b"/v1/completions", b"POST", literal(b"content-type", b"application/json"))) + frame(0, 1, i, request) for i in range(1, 41, 2))
        self.attack(frame(4, 0, 0, struct.pack(">HI", 4, 0)) + streams)

    def test_broken_frames(self):
        for bytes_ in (frame(1, 5, 1, b"\xff" * 40), frame(1, 5, 2, head()), frame(0, 0, 1, b"x"), frame(8, 0, 0, struct.pack(">I", 0)), frame(9, 4, 1, head()),
                       frame(4, 0, 1), frame(4, 0, 0, b"12345"), b"\xff" * 64, frame(1, 5, 1, head(extra=literal(b"connection", b"close")))):
            with self.subTest(bytes_=bytes_[:20]):
                self.attack(bytes_)


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        authority = Authority(path, "ca")
        authority.options("server", "IP:127.0.0.1")
        cls.ca = str(path / "ca.pem")
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0", "--log", "warn", "--tls-cert-path", str(path / "server.pem"), "--tls-key-path", str(path / "server.key"))
        cls.addClassCleanup(cls.server.close)
        cls.url = f"https://127.0.0.1:{cls.server.port}"

    def curl(self, *arguments: str) -> str:
        return subprocess.run(["curl", "-sS", "--max-time", "60", "--cacert", self.ca, "-o", "/dev/null", "-w", "%{http_version} %{http_code}", *arguments, f"{self.url}/v1/models"],
                              check=True, capture_output=True, text=True).stdout

    def test_alpn(self):
        self.assertEqual(self.curl("--http2"), "2 200")
        self.assertEqual(self.curl("--http1.1"), "1.1 200")
        self.assertEqual(self.curl("--no-alpn"), "1.1 200")
        context = ssl.create_default_context(cafile=self.ca)
        for offered, version in (({"http2": True}, "HTTP/2"), ({"http2": True, "http1": False}, "HTTP/2"), ({}, "HTTP/1.1")):
            with httpx.Client(verify=context, base_url=self.url, timeout=60, **offered) as client:
                self.assertEqual(client.get("/v1/models").http_version, version)
                self.assertEqual(client.post("/v1/chat/completions", json=chat()).status_code, 200)
        out = subprocess.run(["nghttp", "-v", "-m", "3", f"{self.url}/ready"], check=True, capture_output=True, text=True).stdout
        self.assertIn("h2", re.search(r"The negotiated protocol: (\S+)", out).group(1))
        self.assertEqual(out.count(":status: 200"), 3)


class Drain(unittest.TestCase):
    def test_streams_under_way_end_well(self):
        server = Stator("serve", str(MODEL_DIR), "--port", "0", "--log", "warn")
        self.addCleanup(server.close)
        with httpx.Client(http1=False, http2=True, base_url=server.url, timeout=60) as client:
            with client.stream("POST", "/v1/completions", json={"model": MODEL, "prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True}) as answer:
                lines = answer.iter_lines()
                next(lines)
                server.terminate()
                rest = [line for line in lines if line]
        self.assertEqual(rest[-1], "data: [DONE]")
        self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    unittest.main()
