#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of a `stator frontend` process whose workers are processes of their own.

Small requests (1, 32, 256 connections with eight workers, 32 with 64 workers), and streamed tokens with
an engine that takes a step every 10 ms, so that every token is a write of its own. The frontend has one
core and one shard, workers and load generator the other. With --bare PROGRAM, a server without any work
that is started as `PROGRAM PORT 10` and writes one event per token and 10 ms, its cost per token is
measured in turn with the frontend's, and the ratio shown.

    bench/frontend_process.py                                  everything
    bench/frontend_process.py --only paced --bare ./fake
"""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time

import frontend_cpu
import measure
import start_workers

LISTED_TIMEOUT_S = 120
WORKER_FLAGS = ["--engine", "sim", "--kv-blocks", "65536"]
UNPACED = ["--sim-speedup", "0"]
# Connections, workers, bar in µs.
SMALL = [(1, 8, 80), (32, 8, 30), (256, 8, 24), (32, 64, 48)]
# Streams, bar as a multiple of the bare server's cost.
PACED = [(64, 1.5), (512, 1.25)]
PACED_TOKENS = 600  # of each stream: six seconds


def add_options(parser):
    parser.add_argument("--runs", type=int, default=3, help="medians of so many [3]")
    parser.add_argument("--requests", type=int, default=6000, help="small requests per run [6000]")
    parser.add_argument("--only", choices=["small", "paced"], help="one half")
    parser.add_argument("--bare", help="a bare server to compare with, started as BARE PORT 10")
    parser.add_argument("--frontend-core", default="0")
    parser.add_argument("--load-core", default="1")


class Started:
    """What run_load and make_prompts want of a server."""

    def __init__(self, options, process, url):
        self.options, self.process, self.url, self.pid = options, process, url, process.pid

    cpu_s = measure.Server.cpu_s
    post = measure.Server.post
    model_name = measure.Server.model_name
    thread_cpu_s = measure.Server.thread_cpu_s


class Fleet(Started):
    """A frontend and worker processes; use as a context manager."""

    def __init__(self, options, workers, worker_flags):
        self.folder = tempfile.TemporaryDirectory(prefix="stator-bench-")
        discovery = ["--discovery", f"file:{self.folder.name}"]
        self.processes = []
        frontend = self.start(options.frontend_core, [
            options.stator, "frontend", "--port", "0", "--host", "127.0.0.1", "--announce", "--shards", "1", *discovery], subprocess.PIPE)
        super().__init__(options, frontend, json.loads(frontend.stdout.readline())["url"])
        try:
            for _ in range(workers):
                self.start(options.load_core, [options.stator, "worker", options.model, *WORKER_FLAGS, *worker_flags, *discovery], subprocess.DEVNULL)
            deadline = time.monotonic() + LISTED_TIMEOUT_S
            while not start_workers.listed(self.url, workers):
                if time.monotonic() > deadline:
                    raise measure.BenchError(f"not all workers were listed within {LISTED_TIMEOUT_S} s")
                time.sleep(0.1)
        except BaseException:
            self.__exit__()
            raise

    def start(self, core, command, stdout):
        process = subprocess.Popen(measure.pinned(core, command), stdout=stdout, stderr=subprocess.DEVNULL,
                                   preexec_fn=measure.raise_descriptor_limit)
        self.processes.append(process)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.folder.cleanup()


def small_requests(options, folder):
    bars = []
    for workers in sorted({workers for _, workers, _ in SMALL}):
        with Fleet(options, workers, UNPACED) as fleet:
            prompts = frontend_cpu.make_prompts(fleet, fleet.model_name(), 31)
            bodies = measure.write_bodies(folder, [frontend_cpu.chat(fleet.model_name(), text, max_tokens=1, ignore_eos=True) for text in prompts])
            for connections, wanted, limit in SMALL:
                if wanted == workers:
                    requests = options.requests if connections > 1 else options.requests // 4
                    cost = frontend_cpu.run(options, fleet, f"small request, {connections} connections, {workers} workers",
                                            ["--no-stream", "--bodies", bodies, "--requests", requests, "--concurrency", connections], 1)
                    bars.append(measure.Bar(f"CPU per small request, {connections} connections, {workers} workers", cost, limit, "µs", "526 µs" if workers > 8 else ""))
    return bars


def paced_cost(options, server, folder, model, streams):
    """Microseconds per token of streams that all run at once."""
    bodies = measure.write_bodies(folder, [
        frontend_cpu.chat(model, f"stream {i}", max_tokens=PACED_TOKENS, ignore_eos=True, stream=True) for i in range(64)])
    report, cpu_s = measure.run_load(options, server, ["--bodies", bodies, "--requests", streams, "--concurrency", streams], options.load_core)
    return cpu_s * 1e6 / (report["request_count"]["avg"] * PACED_TOKENS)


def bare_cost(options, folder, streams):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(measure.pinned(options.frontend_core, [options.bare, port, "10"]), preexec_fn=measure.raise_descriptor_limit)
    try:
        time.sleep(0.5)
        server = Started(options, process, f"http://127.0.0.1:{port}")
        return paced_cost(options, server, folder, "m", streams)
    finally:
        process.kill()
        process.wait()


def paced_streams(options, folder):
    bars = []
    for streams, limit in PACED:
        ours, bare = [], []
        with Fleet(options, 8, frontend_cpu.PACED_FLAGS) as fleet:
            paced_cost(options, fleet, folder, fleet.model_name(), streams)
            for _ in range(options.runs):
                ours.append(paced_cost(options, fleet, folder, fleet.model_name(), streams))
                if options.bare:
                    bare.append(bare_cost(options, folder, streams))
        cost = measure.median(ours)
        bars.append(measure.Bar(f"CPU per paced token, {streams} streams", cost, None, "µs"))
        if bare:
            bars.append(measure.Bar(f"of the bare server's, {streams} streams", cost / measure.median(bare), limit, "×",
                                    note=f"bare server {measure.median(bare):.2f} µs"))
    return bars


def measure_frontend(options):
    bars = []
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "paced":
            bars += small_requests(options, folder)
        if options.only != "small":
            bars += paced_streams(options, folder)
    measure.detail(options, f"machine load {os.getloadavg()[0]:.1f}")
    return bars


if __name__ == "__main__":
    measure.main(measure_frontend, measure.parse_arguments(__doc__, add_options))
