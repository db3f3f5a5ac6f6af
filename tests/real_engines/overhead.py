#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Stator adds in front of a real server: time to the first token, and CPU per streamed token.

    overhead.py --stator URL --direct URL --pid PID [--asked 200] [--streams 16] [--tokens 200]

The same short streams through Stator and directly, by turns, over connections that stay open; then many streams at once through
Stator while the kernel's account of its threads (/proc/PID/task/*/schedstat) is read, and once more while nothing is asked.
Prints figures; nothing here is a pass or a failure, because it depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import sys
import threading
import time
import urllib.parse


class Connection:
    """One kept-alive connection, one stream at a time."""

    def __init__(self, url: str):
        self.http = http.client.HTTPConnection("127.0.0.1", urllib.parse.urlsplit(url).port, timeout=300)

    def stream(self, prompt: list[int], tokens: int) -> tuple[float, int]:
        """Seconds until the first event, and how many events had a choice."""
        body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True})
        begin = time.perf_counter()
        self.http.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = self.http.getresponse()
        first, events = 0.0, 0
        for line in answer:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - begin
                events += 1
        assert answer.status == 200 and events, answer.status
        return first, events


def cpu_s(pid: int) -> float:
    return sum(int(task.read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def system_share(pid: int) -> float:
    """Of all CPU time so far; in ticks of 10 ms, so of little worth for less than a second of it."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return system / max(user + system, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stator", required=True)
    parser.add_argument("--direct", required=True)
    parser.add_argument("--pid", type=int, required=True, help="the Stator process")
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=200)
    arguments = parser.parse_args()
    source = random.Random(3)

    def prompt() -> list[int]:
        return [source.randrange(300, 30_000) for _ in range(20)]

    sides = {"stator": Connection(arguments.stator), "direct": Connection(arguments.direct)}
    first = {name: [] for name in sides}
    for i in range(arguments.asked + 5):
        for name in sorted(sides, reverse=bool(i % 2)):
            took, _ = sides[name].stream(prompt(), 2)
            if i >= 5:
                first[name].append(took * 1e3)
    added = [a - b for a, b in zip(first["stator"], first["direct"])]
    middle = {name: statistics.median(values) for name, values in first.items()}
    print(f"time to first token, {arguments.asked} streams each by turns: p50 {middle['stator']:.2f} ms through Stator, "
          f"{middle['direct']:.2f} ms directly, {middle['stator'] - middle['direct']:+.2f} ms (median of the pairs' differences "
          f"{statistics.median(added):+.2f} ms); load {os.getloadavg()[0]:.1f}")

    asked = [(Connection(arguments.stator), prompt()) for _ in range(arguments.streams)]
    events = []
    threads = [threading.Thread(target=lambda c=c, p=p: events.append(c.stream(p, arguments.tokens)[1])) for c, p in asked]
    begin, before = time.perf_counter(), cpu_s(arguments.pid)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, used = time.perf_counter() - begin, cpu_s(arguments.pid) - before
    idle_before = cpu_s(arguments.pid)
    time.sleep(5)
    idle = (cpu_s(arguments.pid) - idle_before) / 5 * took
    tokens = arguments.streams * arguments.tokens
    print(f"{arguments.streams} streams of {arguments.tokens} tokens in {took:.1f} s, {sum(events)} events: {used / tokens * 1e6:.1f} us of "
          f"Stator's CPU per token, {(used - idle) / tokens * 1e6:.1f} us without what it uses when idle "
          f"({idle / took * 1e3:.1f} ms per second); {system_share(arguments.pid):.0%} of all its CPU was the kernel's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
