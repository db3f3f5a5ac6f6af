#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of `stator serve` per open stream.

Opens thousands of streams on a slow simulated engine, waits until each has its first text, and
divides what the server's resident memory grew by the number of streams. The engine's own state of
the running sequences is in that process and counted, too; kernel socket buffers are not.
"""

import contextlib
import os
import resource
import tempfile
import time

import measure

DESCRIPTORS_SPARE = 200  # of the server: listeners, logs, event descriptors
PROMPT_BODIES = 1000
TOKENS_PER_STREAM = 1500


def add_options(parser):
    parser.add_argument("--steps", default="1000,5000,10000", help="streams open at each reading")
    parser.add_argument("--step-ms", type=float, default=2000, help="time of one engine step [2000]")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=240, help="seconds per step for first texts")


def server_flags(options, streams):
    return ["--engine", "sim", "--workers", options.workers, "--sim-step-us", options.step_ms * 1e3,
            "--sim-prefill-token-us", 0, "--sim-decode-sequence-us", 0,
            "--max-num-seqs", streams, "--engine-waiting-max", streams,
            "--max-num-batched-tokens", 1 << 20, "--kv-blocks", streams * 16,
            "--frontend-inflight-max", 2 * streams]


def measure_open_streams(options):
    steps = [int(step) for step in options.steps.split(",")]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < steps[-1] + DESCRIPTORS_SPARE:
        raise measure.BenchError(f"the hard limit of open files is {hard}: raise it (ulimit -Hn) "
                                 f"above {steps[-1] + DESCRIPTORS_SPARE} or lower --steps")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(measure.Server(options, server_flags(options, steps[-1])))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        model = server.model_name()
        bodies = measure.write_bodies(folder, [
            {"model": model, "stream": True, "max_tokens": TOKENS_PER_STREAM, "ignore_eos": True,
             "messages": [{"role": "user", "content": f"Stream {i}: what is a KV cache, and why?"}]}
            for i in range(PROMPT_BODIES)])
        # One small stream first, so that what is built once is not charged to the streams.
        server.post({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]})
        idle_kib = server.rss_kib()
        measure.detail(options, f"idle after one request: {idle_kib / 1024:.1f} MiB")
        return read_steps(options, server, stack, bodies, (steps, idle_kib))


def read_steps(options, server, stack, bodies, plan):
    steps, idle_kib = plan
    opened, bars = 0, []
    for step in steps:
        holder = measure.start_load(options, server, [
            "--bodies", bodies, "--concurrency", step - opened, "--requests", step - opened,
            "--request-timeout", "1h"])
        stack.callback(holder.communicate)
        stack.callback(holder.kill)
        wait_for_first_texts(options, server, step)
        opened = step
        grown = server.rss_kib() - idle_kib
        measure.detail(options, f"{step} streams open, each with its first text: +{grown / 1024:.1f} MiB")
        bars.append(measure.Bar(f"memory per open stream at {step:,}", grown / step, 32, "KiB",
                                "257 KB", f"machine load {os.getloadavg()[0]:.1f}"))
    return bars


def wait_for_first_texts(options, server, streams):
    """Until the server counts so many running requests and as many first tokens, beside the one before them."""
    give_up = time.monotonic() + options.timeout
    while True:
        running = server.metric_sum("dynamo_frontend_inflight_requests")
        begun = server.metric_sum("dynamo_frontend_time_to_first_token_seconds_count") - 1
        if running == streams and begun >= streams:
            return
        if time.monotonic() > give_up:
            raise measure.BenchError(
                f"{running:.0f} of {streams} streams are open and {begun:.0f} have their first text after "
                f"{options.timeout:.0f} s; raise --timeout or lower --step-ms")
        time.sleep(0.25)


if __name__ == "__main__":
    measure.main(measure_open_streams, measure.parse_arguments(__doc__, add_options))
