#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What spans of every request cost at 5,000 requests a second: CPU of the frontend per request with a collector, without one, and with one that is away.

Three frontends in front of the same simulated engines take the same closed-loop load in turn; CPU is that of their processes (/proc/PID/stat). The
collector of this script only reads and counts. Prints the share of a core that 5,000 traced requests a second add, and how many spans came or were counted
as lost.

    bench/traces.py [--requests 20000] [--rounds 3]
"""

import argparse
import http.server
import os
import pathlib
import re
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "e2e"))
from stator_process import BINARY, MODEL_DIR, Http, Stator, clean_environment, eventually  # noqa: E402

RATE = 5000


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    batches = 0

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        Collector.batches += 1
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


def cpu_s(process) -> float:
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spans(server: Stator, kind: str) -> int:
    text = Http(server.port).request("GET", "/metrics")[2].decode()
    return sum(int(float(value)) for value in re.findall(rf"^stator_trace_spans_{kind}_total(?:{{[^}}]*}})? (\S+)$", text, re.M))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--requests", type=int, default=20000)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    receiver = Threads(("127.0.0.1", 0), Collector)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        discovery = ("--discovery", f"file:{folder}/discovery")
        worker = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0", *discovery)
        ways = {"no collector": (), "collector": ("--otlp-endpoint", f"http://127.0.0.1:{receiver.server_address[1]}"),
                "collector away": ("--otlp-endpoint", "http://127.0.0.1:1")}
        servers = {name: Stator("frontend", "--host", "127.0.0.1", "--port", "0", *discovery, *flags) for name, flags in ways.items()}
        used: dict[str, list[float]] = {name: [] for name in ways}
        try:
            for server in servers.values():
                eventually(lambda: Http(server.port).request("GET", "/health")[0] == 200, "healthy")
            for turn in range(given.rounds + 1):
                for name, server in servers.items():
                    before = cpu_s(server.process)
                    subprocess.run([BINARY, "bench", "--url", server.url, "--concurrency", "32", "--requests", str(given.requests), "--input-tokens", "64",
                                    "--output-tokens", "1", "--no-stream", "--distinct-prompts", "64", "--allow-client-bound"],
                                   env=clean_environment(), capture_output=True, check=True)
                    if turn > 0:  # the first warms up
                        used[name].append((cpu_s(server.process) - before) / given.requests)
            plain = statistics.median(used["no collector"])
            for name, values in used.items():
                cost = statistics.median(values)
                print(f"{name}: {cost * 1e6:.1f} us per request (of {[round(v * 1e6, 1) for v in values]}); {RATE}/s add "
                      f"{(cost - plain) * RATE * 100:.1f} % of a core; {(cost / plain - 1) * 100:.1f} % more CPU")
            print(f"collector: {Collector.batches} batches, {spans(servers['collector'], 'dropped')} spans lost; "
                  f"away: {spans(servers['collector away'], 'dropped')} spans counted as lost")
        finally:
            for server in (*servers.values(), worker):
                server.kill()
            receiver.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
