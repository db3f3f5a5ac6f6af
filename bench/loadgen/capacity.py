#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `stator bench` can do on one core: requests/s, streamed tokens/s, how late it sends, streams it holds.

The server is stator_fast_server, pinned to core 0; the generator has one thread, pinned to core 1. Prints each figure
beside its bar; exits 1 with --strict when one is missed. On a machine with other work, run it as
`chrt -r 5 bench/loadgen/capacity.py`, or look at the CPU figures only.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Server:
    def __init__(self, program: str, core: int, *arguments: str):
        self.process = subprocess.Popen(["taskset", "-c", str(core), program, "0", *arguments], stdout=subprocess.PIPE)
        self.url = f"http://127.0.0.1:{json.loads(self.process.stdout.readline())['port']}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def start_bench(options: argparse.Namespace, url: str, core: int, *arguments: str) -> subprocess.Popen:
    command = ["taskset", "-c", str(core), options.stator, "bench", "--url", url, "--model", "m", "--input-tokens", "31",
               "--allow-client-bound", "--json", "-", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def report_of(process: subprocess.Popen) -> dict:
    out, _ = process.communicate(timeout=300)
    if process.returncode != 0:
        sys.exit(f"stator bench failed with {process.returncode}")
    return json.loads(out)


def measure(options: argparse.Namespace, server_arguments: list[str], *arguments: str) -> dict:
    with Server(options.server, 0, *server_arguments) as server:
        return report_of(start_bench(options, server.url, 1, *arguments))


def median_by_delay(options: argparse.Namespace, server_arguments: list[str], *arguments: str) -> dict:
    """Of five runs."""
    reports = [measure(options, server_arguments, *arguments) for _ in range(5)]
    return sorted(reports, key=lambda report: report["send_delay"]["p99"])[2]


def client(report: dict) -> dict:
    return report["stator"]["runs"][0]["client"]


def hold_streams(options: argparse.Namespace, count: int) -> tuple[int, float, int]:
    """Streams held at once, CPU seconds, peak memory in bytes; two processes when the limit of open files is too low for one."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    shares = 1 if limit >= count + 200 else 2
    servers = [Server(options.server, 0, "--first-us", "100000", "--gap-us", "1000000") for _ in range(shares)]
    benches = [start_bench(options, server.url, 1, "--concurrency", str(count // shares), "--requests", str(count // shares),
                           "--ramp", "6s", "--output-tokens", "12") for server in servers]
    reports = [report_of(process) for process in benches]
    for server in servers:
        server.__exit__()
    held = sum(max(piece["in_flight"] for piece in report["stator"]["timeline"]) for report in reports)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    answered = sum(report["request_count"]["avg"] for report in reports)
    if answered != count // shares * shares:
        sys.exit(f"only {answered} of {count} streams were answered")
    return round(held), sum(client(report)["cpu_s"] for report in reports), memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stator", default=str(ROOT / "build/release/bin/stator"))
    parser.add_argument("--server", default=str(ROOT / "build/release/bin/stator_fast_server"))
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    rows: list[tuple[str, float, str, float, bool, str]] = []

    def add(what: str, value: float, unit: str, bar: float, larger_is_better: bool, note: str) -> None:
        rows.append((what, value, unit, bar, value >= bar if larger_is_better else value <= bar, note))

    report = measure(options, [], "--no-stream", "--concurrency", "32", "--requests", "300000", "--output-tokens", "1")
    per_request = client(report)["cpu_us_per_request"]
    add("small requests", report["request_throughput"]["avg"], "/s", 40_000, True, f"{per_request:.1f} µs of CPU each")

    report = measure(options, ["--burst", "16"], "--concurrency", "32", "--requests", "20000", "--output-tokens", "512")
    per_token = client(report)["cpu_s"] * 1e6 / report["total_osl"]["avg"]
    add("streamed tokens, 16 per write", report["output_token_throughput"]["avg"], "/s", 1_500_000, True, f"{per_token:.3f} µs of CPU each")

    report = median_by_delay(options, [], "--no-stream", "--rate", "20000", "--duration", "3s", "--output-tokens", "1")
    add("send delay p99 at 20,000 requests/s", report["send_delay"]["p99"] * 1000, "µs", 200, False, f"busy {100 * client(report)['busy_share']:.0f} %")

    report = median_by_delay(options, ["--burst", "16"], "--rate", "1465", "--duration", "3s", "--output-tokens", "512")
    add("send delay p99 at 750,000 tokens/s", report["send_delay"]["p99"] * 1000, "µs", 200, False, f"busy {100 * client(report)['busy_share']:.0f} %")

    held, cpu_s, memory = hold_streams(options, 20_000)
    add("streams at once", held, "", 19_990, True, f"{cpu_s:.1f} s of CPU for 240,000 tokens, {memory / 1e6:.0f} MB peak of the largest process")

    print(f"load average {os.getloadavg()[0]:.1f}")
    for what, value, unit, bar, met, note in rows:
        print(f"{what:<46}{value:>12,.0f} {unit:<4} bar {bar:>11,.0f}  {'met' if met else 'MISSED':<7} {note}")
    return 1 if options.strict and not all(row[4] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
