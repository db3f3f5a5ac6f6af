# SPDX-License-Identifier: Apache-2.0
"""An S3 server in memory that believes nothing: every request's SigV4 signature and payload hash are computed again.

Faults are switched on by a test: `fail(status, times)`, `spoil(how)`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ACCESS, SECRET, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1"


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class FakeS3:
    def __init__(self, bucket: str = "cache"):
        self.bucket = bucket
        self.objects: dict[str, bytes] = {}
        self.refused: list[str] = []  # why signatures were not good
        self.requests = 0
        self.lock = threading.Lock()
        self._failures: list[int] = []
        self._spoil = ""
        self._delay_s = 0.0
        self.ahead_s = 0.0  # of its clock
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def date_time_string(self, timestamp=None):
                return super().date_time_string((timestamp or time.time()) + outer.ahead_s)

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def do_GET(self):
                outer.answer(self)

            do_HEAD = do_PUT = do_DELETE = do_GET

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def fail(self, status: int, times: int) -> None:
        """The next requests get this status."""
        with self.lock:
            self._failures = [status] * times

    def spoil(self, how: str = "", delay_s: float = 0.0) -> None:
        """Of GETs from now on: "flip" a bit, "cut" the body, send "half" of what was promised; nothing: whole again."""
        self._spoil, self._delay_s = how, delay_s

    def why_not(self, request: BaseHTTPRequestHandler, body: bytes) -> str:
        """What is wrong with the signature; empty: nothing."""
        headers = {name.lower(): value.strip() for name, value in request.headers.items()}
        match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, "
                             r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})", headers.get("authorization", ""))
        if not match:
            return "no SigV4 Authorization header"
        access, date, region, names, signature = match.groups()
        if access != ACCESS or region != REGION or not headers["x-amz-date"].startswith(date):
            return "other credentials, region or date"
        stamp = time.mktime(time.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")) - time.timezone
        if abs(stamp - time.time() - self.ahead_s) > 900:
            return "RequestTimeTooSkewed"
        unsigned = [name for name in headers if name.startswith("x-amz-") and name not in names.split(";")]
        if unsigned or "host" not in names.split(";"):
            return f"unsigned headers {unsigned}"
        payload = headers["x-amz-content-sha256"]
        if payload != "UNSIGNED-PAYLOAD" and payload != hashlib.sha256(body).hexdigest():
            return "the payload has another hash"
        path, _, query = request.path.partition("?")
        if urllib.parse.quote(urllib.parse.unquote(path), safe="/-_.~") != path:
            return f"the path {path} is not encoded as S3 does"
        lines = "".join(f"{name}:{headers[name]}\n" for name in names.split(";"))
        canonical = "\n".join([request.command, path, query, lines, names, payload])
        to_sign = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], f"{date}/{region}/s3/aws4_request",
                             hashlib.sha256(canonical.encode()).hexdigest()])
        key = _hmac(_hmac(_hmac(_hmac(b"AWS4" + SECRET.encode(), date), region), "s3"), "aws4_request")
        return "" if hmac.compare_digest(_hmac(key, to_sign).hex(), signature) else "the signature does not match"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.requests += 1
        time.sleep(self._delay_s)
        with self.lock:
            failure = self._failures.pop() if self._failures else 0
        if failure:
            return self.send(request, failure, b"<Error><Code>SlowDown</Code></Error>")
        wrong = self.why_not(request, body)
        if wrong:
            self.refused.append(wrong)
            return self.send(request, 403, f"<Error><Code>SignatureDoesNotMatch</Code>{wrong}</Error>".encode())
        path = urllib.parse.unquote(request.path.partition("?")[0])
        bucket, _, key = path[1:].partition("/")
        if bucket != self.bucket:
            return self.send(request, 404, b"<Error><Code>NoSuchBucket</Code></Error>")
        if not key:
            return self.send(request, 200, b"")
        with self.lock:
            found = self.objects.get(key)
            if request.command == "PUT":
                if found is not None and request.headers.get("If-None-Match") == "*":
                    return self.send(request, 412, b"<Error><Code>PreconditionFailed</Code></Error>")
                self.objects[key] = body
                return self.send(request, 200, b"")
        if found is None:
            return self.send(request, 404, b"<Error><Code>NoSuchKey</Code></Error>")
        if request.command == "GET" and self._spoil == "flip":
            found = found[:5000] + bytes([found[5000] ^ 1]) + found[5001:]
        if request.command == "GET" and self._spoil == "cut":
            found = found[:-100]
        self.send(request, 200, found)

    def send(self, request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "HEAD":
            return
        if self._spoil == "half" and request.command == "GET" and status == 200:
            request.wfile.write(body[:len(body) // 2])
            request.close_connection = True
            return
        request.wfile.write(body)
