#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon a fleet of simulated workers is served, and its memory at rest.

Starts a frontend, then N `stator worker` processes at once (and last one process with the largest N of
workers), and waits until the frontend lists the model with all of them. Resident memory is the sum over
the worker processes: what each maps (Rss), and with shared pages counted once (Pss). Give a model with
a large vocabulary to see what a tokenizer costs:

    bench/start_workers.py --model LLAMA3/ --workers 1 8 64
"""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.request

import measure

LISTED_TIMEOUT_S = 300
POLL_S = 0.01
# By the number of processes: seconds until listed, megabytes resident.
BARS = {1: (0.3, None), 8: (0.8, None), 64: (4.0, 400)}
ONE_PROCESS_BARS = {64: (0.5, 200)}


def add_options(parser):
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64], help="fleets [1 8 64]")
    parser.add_argument("--runs", type=int, default=3, help="medians of so many [3]")
    parser.add_argument("--worker-flag", action="append", default=[], help="more flags of worker")


def memory_mb(pid):
    """(Rss, Pss) of a process."""
    found = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        found[name] = int(value.split()[0]) * 1024 / 1e6
    return found["Rss"], found["Pss"]


def listed(url, count):
    with urllib.request.urlopen(url + "/v1/models", timeout=10) as answer:
        if not json.load(answer)["data"]:
            return False
    with urllib.request.urlopen(url + "/health", timeout=10) as answer:
        return len(json.load(answer).get("instances", [])) == count


def start_fleet(options, processes, workers_each):
    """(seconds until all are listed, Rss, Pss of the workers, Rss of the frontend)."""
    with tempfile.TemporaryDirectory(prefix="stator-bench-") as folder, open(os.devnull, "w") as null:
        discovery = ["--discovery", f"file:{folder}"]
        frontend = subprocess.Popen(
            [options.stator, "frontend", "--port", "0", "--host", "127.0.0.1", "--announce", *discovery],
            stdout=subprocess.PIPE, stderr=null)
        command = [options.stator, "worker", options.model, "--engine", "sim", *discovery, *options.worker_flag]
        if workers_each > 1:
            command += ["--workers", str(workers_each)]
        workers = []
        try:
            url = json.loads(frontend.stdout.readline())["url"]
            started = time.monotonic()
            workers = [subprocess.Popen(command, stdout=null, stderr=null) for _ in range(processes)]
            while not listed(url, processes * workers_each):
                if time.monotonic() - started > LISTED_TIMEOUT_S:
                    raise measure.BenchError(f"not all workers were listed within {LISTED_TIMEOUT_S} s")
                if any(worker.poll() is not None for worker in workers):
                    raise measure.BenchError("a worker ended")
                time.sleep(POLL_S)
            seconds = time.monotonic() - started
            sizes = [memory_mb(worker.pid) for worker in workers]
            return seconds, sum(s[0] for s in sizes), sum(s[1] for s in sizes), memory_mb(frontend.pid)[0]
        finally:
            for process in [*workers, frontend]:
                process.send_signal(signal.SIGKILL)
                process.wait()


def measure_fleets(options):
    bars = []
    fleets = [(count, 1, BARS.get(count, (None, None))) for count in options.workers]
    largest = max(options.workers)
    if largest > 1:
        fleets.append((1, largest, ONE_PROCESS_BARS.get(largest, (None, None))))
    for processes, each, (seconds_max, megabytes_max) in fleets:
        runs = [start_fleet(options, processes, each) for _ in range(options.runs)]
        seconds, rss, pss, frontend = (measure.median([run[i] for run in runs]) for i in range(4))
        name = f"{processes} worker processes" if each == 1 else f"one process with {each} workers"
        note = f"machine load {os.getloadavg()[0]:.1f}"
        measure.detail(options, f"{name}: listed after {', '.join(f'{run[0]:.2f}' for run in runs)} s; "
                       f"Rss {rss:.0f}, Pss {pss:.0f} MB; frontend {frontend:.0f} MB")
        bars.append(measure.Bar(f"{name}: listed", seconds, seconds_max, "s", note=note))
        bars.append(measure.Bar(f"{name}: resident", pss, megabytes_max, "MB", note=f"Pss; Rss {rss:.0f} MB"))
    return bars


if __name__ == "__main__":
    measure.main(measure_fleets, measure.parse_arguments(__doc__, add_options))
