# SPDX-License-Identifier: Apache-2.0
"""A Blob service in memory that believes nothing: every request's Shared Key signature is computed again by the rules of "Authorize with Shared Key"."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
import urllib.parse
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ACCOUNT, KEY = "devstoreaccount1", base64.b64encode(b"a key of an account, thirty-two b").decode()
STANDARD = ("Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date", "If-Modified-Since", "If-Match",
            "If-None-Match", "If-Unmodified-Since", "Range")


class FakeAzure:
    def __init__(self, container: str = "cache"):
        self.container = container
        self.objects: dict[str, bytes] = {}
        self.refused: list[str] = []
        self.lock = threading.Lock()
        self._failures: list[int] = []
        self._spoil = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def do_GET(self):
                outer.answer(self)

            do_HEAD = do_PUT = do_GET

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/{ACCOUNT}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def fail(self, status: int, times: int) -> None:
        with self.lock:
            self._failures = [status] * times

    def spoil(self, how: str = "") -> None:
        """Of GETs from now on: "flip" a bit, "cut" the body, send "half" of what was promised; nothing: whole again."""
        self._spoil = how

    def why_not(self, request: BaseHTTPRequestHandler) -> str:
        headers = request.headers
        if headers.get("x-ms-version", "") < "2015-02-21" or request.command == "PUT" and headers.get("x-ms-blob-type") != "BlockBlob":
            return "x-ms-version or x-ms-blob-type"
        if abs(parsedate_to_datetime(headers["x-ms-date"]).timestamp() - time.time()) > 900:
            return "the date is too old"
        path, _, query = request.path.partition("?")
        fields = [headers.get(name, "") for name in STANDARD]
        fields[2] = "" if fields[2] == "0" else fields[2]
        ms = sorted((name.lower(), value.strip()) for name, value in headers.items() if name.lower().startswith("x-ms-"))
        text = "\n".join([request.command, *fields, *(f"{name}:{value}" for name, value in ms), f"/{ACCOUNT}{path}"])
        text += "".join(f"\n{name.lower()}:{value}" for name, value in sorted(urllib.parse.parse_qsl(query)))
        signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
        return "" if headers.get("Authorization") == f"SharedKey {ACCOUNT}:{signature}" else "the signature does not match"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self.lock:
            failure = self._failures.pop() if self._failures else 0
        if failure:
            return self.send(request, failure, b"<Error><Code>ServerBusy</Code></Error>")
        wrong = self.why_not(request)
        if wrong:
            self.refused.append(wrong)
            return self.send(request, 403, f"<Error><Code>AuthenticationFailed</Code>{wrong}</Error>".encode())
        path, _, query = request.path.partition("?")
        _, _, container, *key = urllib.parse.unquote(path).split("/", 3)
        if container != self.container:
            return self.send(request, 404, b"<Error><Code>ContainerNotFound</Code></Error>")
        if not key:
            return self.send(request, 200 if query == "restype=container" else 400, b"")
        with self.lock:
            there = self.objects.get(key[0])
            if request.command == "PUT":
                if there is not None and request.headers.get("If-None-Match") == "*":
                    return self.send(request, 409, b"<Error><Code>BlobAlreadyExists</Code></Error>")
                self.objects[key[0]] = body
                return self.send(request, 201, b"")
        if there is None:
            return self.send(request, 404, b"<Error><Code>BlobNotFound</Code></Error>")
        if request.command == "GET" and self._spoil == "flip":
            there = there[:5000] + bytes([there[5000] ^ 4]) + there[5001:]
        if request.command == "GET" and self._spoil == "cut":
            there = there[:-100]
        if request.command == "GET" and self._spoil == "half":
            request.send_response(200)
            request.send_header("Content-Length", str(len(there)))
            request.end_headers()
            request.wfile.write(there[: len(there) // 2])
            request.close_connection = True
            return None
        return self.send(request, 200, there)

    def send(self, request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
