#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 that servers behind proxies must not misread: each request of the corpus is refused with one answer and a closed connection,
or understood in the one way that the standard allows, so that the request hidden behind it is never answered."""

import concurrent.futures
import re
import socket
import unittest

from stator_process import MODEL, MODEL_DIR, Http, Stator, eventually

BODY = f'{{"model":"{MODEL}","prompt":"a"}}'.encode()
SIZE = str(len(BODY)).encode()
HEX = f"{len(BODY):x}".encode()
# What an attacker would have the server take for a request of its own.
HIDDEN = b"GET /v1/models HTTP/1.1\r\nHost: t\r\nX-Request-Id: hidden\r\n\r\n"


def post(headers: bytes, body: bytes = BODY, version: bytes = b"1.1") -> bytes:
    return b"POST /tokenize HTTP/" + version + b"\r\nHost: t\r\nContent-Type: application/json\r\n" + headers + b"\r\n" + body


def get(headers: bytes = b"Host: t\r\n", target: bytes = b"/live") -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\n" + headers + b"\r\n"


def chunked(size_line: bytes, end: bytes = b"\r\n0\r\n\r\n") -> bytes:
    return post(b"Transfer-Encoding: chunked\r\n", size_line + b"\r\n" + BODY + end)


WHOLE = HEX + b"\r\n" + BODY + b"\r\n0\r\n\r\n"
REFUSED = {
    "length and chunks": post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", WHOLE),
    "chunks and length": post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", WHOLE),
    "two lengths": post(b"Content-Length: 5\r\nContent-Length: " + SIZE + b"\r\n"),
    "the same length twice": post((b"Content-Length: " + SIZE + b"\r\n") * 2),
    "list of lengths": post(b"Content-Length: " + SIZE + b", " + SIZE + b"\r\n"),
    **{f"length {text}": post(b"Content-Length: " + text + b"\r\n") for text in (b"+5", b"-1", b"0x5", b"5_0", b"5 0", b"", b"9" * 30, b"18446744073709551621")},
    "space before the colon": post(b"Content-Length : " + SIZE + b"\r\n"),
    "tab before the colon": post(b"Transfer-Encoding\t: chunked\r\n", WHOLE),
    "folded coding": post(b"Transfer-Encoding:\r\n chunked\r\n", WHOLE),
    "folded header": post(b"X: a\r\n b\r\nContent-Length: " + SIZE + b"\r\n"),
    "folded first header": b"GET /live HTTP/1.1\r\n Host: t\r\n\r\n",
    **{f"coding {text}": post(b"Transfer-Encoding: " + text + b"\r\n", WHOLE)
       for text in (b"identity", b"gzip, chunked", b"chunked, identity", b"xchunked", b'"chunked"', b"\x0bchunked", b"chunked\x00", b"chunked;q=1")},
    "two codings": post(b"Transfer-Encoding: chunked\r\n" * 2, WHOLE),
    "chunks in HTTP/1.0": post(b"Transfer-Encoding: chunked\r\n", WHOLE, b"1.0"),
    **{f"chunk size {text}": chunked(text) for text in (b"0x" + HEX, b"-1", b"+" + HEX, b" " + HEX, HEX + b" ", b"1000000000000001d", b"0" * 99 + HEX, b"", b"1;a=\"\r\n\"")},
    "chunk ended by a line feed": post(b"Transfer-Encoding: chunked\r\n", HEX + b"\n" + BODY + b"\n0\n\n"),
    "line feed in an extension": chunked(HEX + b";a\nb"),
    "NUL in an extension": chunked(HEX + b";\x00"),
    "endless extension": chunked(HEX + b";" + b"a" * 100_000),
    "chunk longer than its size": chunked(b"1"),
    "endless trailers": chunked(HEX, b"\r\n0\r\n" + b"X: y\r\n" * 20_000 + b"\r\n"),
    "folded trailer": chunked(HEX, b"\r\n0\r\nX: y\r\n z\r\n\r\n"),
    "no host": get(b""),
    "two hosts": get(b"Host: a\r\nHost: b\r\n"),
    "the same host twice": get(b"Host: a\r\nHost: a\r\n"),
    **{f"host {text}": get(b"Host: " + text + b"\r\n") for text in (b"a/b", b"u@a", b"a, b", b"a b", b"a\\b")},
    **{f"target {text}": get(target=text) for text in (b"file:///etc/passwd", b"ftp://t/live", b"/li\x00ve", b"/live x", b" /live")},
    **{f"header {text}": get(b"Host: t\r\n" + text + b"\r\n") for text in (b"X: a\x00b", b"X\x00: a", b"X: a\x01b", b"X: a\rb", b"X: a\nY: b", b"X", b": x", b"a b: x", b"a(b: x")},
    "carriage return twice": b"GET /live HTTP/1.1\r\nHost: t\r\r\n\r\n",
    "bare line feeds": b"GET /live HTTP/1.1\nHost: t\n\n",
    "tabs in the request line": b"GET\t/live\tHTTP/1.1\r\nHost: t\r\n\r\n",
    **{f"version {text}": b"GET /live " + text + b"\r\nHost: t\r\n\r\n" for text in (b"HTTP/2.0", b"HTTP/1.2", b"HTTP/11", b"http/1.1", b"HTTP/1.1 ")},
    "no version": b"GET /live\r\n\r\n",
    "5,000 headers": get(b"Host: t\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(5000))),
    "a large header": get(b"Host: t\r\nX: " + b"y" * 1_000_000 + b"\r\n"),
    "a large target": get(target=b"/" + b"a" * 1_000_000),
    "a large method": b"A" * 1_000_000 + b" / HTTP/1.1\r\nHost: t\r\n\r\n",
    "another expectation": post(b"Expect: tea\r\nContent-Length: " + SIZE + b"\r\n"),
}
UNDERSTOOD = {  # and whether what follows is a request, which it is when the message before it is over
    "length": post(b"Content-Length: " + SIZE + b"\r\n"),
    "length with zeros": post(b"Content-Length: 000" + SIZE + b"\r\n"),
    "CHUNKED": post(b"Transfer-Encoding: CHUNKED\r\n", WHOLE),
    "extension": chunked(HEX + b" ;a=b"),
    "trailer": chunked(HEX, b"\r\n0\r\nContent-Length: 500\r\n\r\n"),
    "hidden in a body": post(b"Content-Length: %d\r\n" % (len(HIDDEN) + len(BODY)), BODY + HIDDEN),
    "hidden in the body of a GET": get(b"Host: t\r\nContent-Length: %d\r\n" % len(HIDDEN)) + HIDDEN,
    "hidden in a chunk": post(b"Transfer-Encoding: chunked\r\n", b"%x\r\n" % len(HIDDEN) + HIDDEN + b"\r\n0\r\n\r\n"),
    "whole URL": get(target=b"http://other/live"),
    "a name with an underscore": post(b"Transfer_Encoding: chunked\r\nContent-Length: " + SIZE + b"\r\n"),
    "empty lines before": b"\r\n\r\n" + get(),
}


class HostileHttp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0", "--log", "error")
        cls.addClassCleanup(cls.server.close)
        cls.http = Http(cls.server.port)

    def send(self, bytes_: bytes) -> bytes:
        """Everything that comes back until the server closes; with a request to close behind `bytes_`, it always does."""
        back = b""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            try:
                connection.sendall(bytes_)
            except ConnectionError:
                pass
            try:
                while data := connection.recv(65536):
                    back += data
            except ConnectionError:
                pass
        return back

    @staticmethod
    def statuses(answer: bytes) -> list[int]:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]

    def test_refused(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = dict(zip(REFUSED, pool.map(self.send, (bytes_ + HIDDEN for bytes_ in REFUSED.values()))))
        for name, answer in answers.items():
            with self.subTest(name=name):
                statuses = self.statuses(answer)
                self.assertEqual(len(statuses), 1, answer[:300])
                self.assertIn(statuses[0], (400, 413, 417, 431, 501, 505))
                self.assertIn(b'"message"', answer)
                self.assertNotIn(b"hidden", answer)

    def test_understood(self):
        last = get(b"Host: t\r\nConnection: close\r\n")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = dict(zip(UNDERSTOOD, pool.map(self.send, (bytes_ + last for bytes_ in UNDERSTOOD.values()))))
        for name, answer in answers.items():
            with self.subTest(name=name):
                self.assertEqual(len(self.statuses(answer)), 2, answer[:300])
                self.assertNotIn(b"hidden", answer)
                self.assertEqual(self.statuses(answer)[1], 200)

    def test_nothing_is_left_behind(self):
        self.test_refused()
        eventually(lambda: re.search(rb"^stator_http_connections_open 1$", self.http.request("GET", "/metrics")[2], re.M), "connections are closed")


if __name__ == "__main__":
    unittest.main()
