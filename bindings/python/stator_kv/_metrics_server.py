# SPDX-License-Identifier: Apache-2.0
"""GET /metrics of one cache on loopback."""

import http.server
import threading


def serve(cache, port: int) -> http.server.ThreadingHTTPServer:
    """Runs on a daemon thread; shutdown() and server_close() end it."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            body = cache.metrics().encode() if self.path == "/metrics" else b"see /metrics\n"
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, name="stator-kv-metrics", daemon=True).start()
    return server
