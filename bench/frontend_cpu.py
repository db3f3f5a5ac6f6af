#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of `stator serve` per small request and per streamed token.

The whole process is counted: HTTP, template, tokenizer, router, two simulated workers that answer
without waiting, detokenizer and SSE. The server has one core, the load generator another.

Unpaced, the engine runs ahead and many tokens leave in one write. The paced row shows the other end:
one step of the engine every 10 ms, so every token of every stream is a write of its own.
"""

import os
import random
import tempfile

import measure

WORDS = ("worker router token cache block stream prefix queue batch model request answer memory "
         "engine prompt decode latency server kernel tensor client socket thread budget").split()
PROMPT_BODIES = 256
SHRINK_TRIES_MAX = 40


def add_options(parser):
    parser.add_argument("--runs", type=int, default=3, help="medians of so many [3]")
    parser.add_argument("--requests", type=int, default=20000, help="small requests per run [20000]")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--prompt-tokens", type=int, default=31)
    parser.add_argument("--streams", type=int, default=1280, help="streamed answers per run [1280]")
    parser.add_argument("--parallel-streams", type=int, default=64)
    parser.add_argument("--stream-tokens", type=int, default=256)
    parser.add_argument("--paced-streams", type=int, default=128, help="paced answers per run, 0 = skip")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--server-flag", action="append", default=[],
                        help="more flags of stator serve, e.g. --server-flag=--shards=1")


def chat(model, text, **fields):
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def make_prompts(server, model, tokens):
    """Different prompts of exactly `tokens` tokens, template included, as the server counts them."""
    rng = random.Random(7)
    prompts = []
    while len(prompts) < PROMPT_BODIES:
        words = rng.sample(WORDS, 4)
        for _ in range(SHRINK_TRIES_MAX):
            text = " ".join(words)
            count = server.post(chat(model, text, max_tokens=1))["usage"]["prompt_tokens"]
            if count == tokens:
                prompts.append(text)
                break
            if count > tokens:
                words.pop(rng.randrange(len(words)))
            else:
                words.append(rng.choice(WORDS if tokens - count > 2 else "a b c d e f g".split()))
            if not words:
                raise measure.BenchError(f"the chat template alone is longer than {tokens} tokens")
    return prompts


def thread_shares(before, after):
    spent = {name: seconds - before.get(name, 0) for name, seconds in after.items()}
    total = sum(spent.values()) or 1
    ranked = sorted(spent.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in ranked if seconds > 0)


def run(options, server, label, flags, units_per_request):
    """Medians over the runs; the first, uncounted run warms caches and pools."""
    measure.run_load(options, server, flags, options.load_core)
    costs, reports = [], []
    before = server.thread_cpu_s()
    for _ in range(options.runs):
        report, server_cpu_s = measure.run_load(options, server, flags, options.load_core)
        costs.append(server_cpu_s * 1e6 / (report["request_count"]["avg"] * units_per_request))
        reports.append(report)
    cost = measure.median(costs)
    middle = reports[costs.index(sorted(costs)[len(costs) // 2])]
    latency, rate = middle["request_latency"], middle["request_throughput"]["avg"]
    busy = middle["stator"]["runs"][0]["client"]["busy_share"]
    measure.detail(options, f"{label}: {cost:.2f} µs CPU each (runs: "
                   f"{', '.join(f'{c:.2f}' for c in costs)}); {rate:.0f} requests/s, "
                   f"{rate * units_per_request:.0f} tokens/s; latency p50 "
                   f"{latency['p50']:.2f} ms, p99 {latency['p99']:.2f} ms; generator "
                   f"{busy:.0%} of a core; server threads: "
                   f"{thread_shares(before, server.thread_cpu_s())}")
    if units_per_request > 1:
        ttft = middle["time_to_first_token"]
        measure.detail(options, f"  time to first text p50 {ttft['p50']:.2f} ms, p99 {ttft['p99']:.2f} ms")
    return cost


PACED_FLAGS = ["--sim-step-us", "10000", "--sim-prefill-token-us", "0",
               "--sim-decode-sequence-us", "0"]


def stream_bodies(options, folder, model, prompts):
    return measure.write_bodies(folder, [
        chat(model, text, max_tokens=options.stream_tokens, ignore_eos=True, stream=True)
        for text in prompts])


def serve(options, flags):
    common = ["--engine", "sim", "--workers", "2", *options.server_flag]
    return measure.Server(options, common + flags, options.server_core)


def measure_unpaced(options, folder):
    with serve(options, ["--sim-speedup", "0"]) as server:
        model = server.model_name()
        prompts = make_prompts(server, model, options.prompt_tokens)
        small = measure.write_bodies(folder, [chat(model, text, max_tokens=1, ignore_eos=True)
                                              for text in prompts])
        request_us = run(options, server, f"small request, {options.connections} connections",
                         ["--no-stream", "--bodies", small, "--requests", options.requests,
                          "--concurrency", options.connections], 1)
        streams = stream_bodies(options, folder, model, prompts)
        token_us = run(options, server, f"streamed token, {options.parallel_streams} streams",
                       ["--bodies", streams, "--requests", options.streams,
                        "--concurrency", options.parallel_streams], options.stream_tokens)
    return request_us, token_us, prompts


def measure_paced(options, folder, prompts):
    with serve(options, PACED_FLAGS) as server:
        streams = stream_bodies(options, folder, server.model_name(), prompts)
        return run(options, server, f"paced token, {options.parallel_streams} streams",
                   ["--bodies", streams, "--requests", options.paced_streams,
                    "--concurrency", options.parallel_streams], options.stream_tokens)


def measure_frontend(options):
    note = f"machine load {os.getloadavg()[0]:.1f}"
    with tempfile.TemporaryDirectory() as folder:
        request_us, token_us, prompts = measure_unpaced(options, folder)
        bars = [measure.Bar(f"CPU per small request ({options.prompt_tokens} tokens in, 1 out)",
                            request_us, 60, "µs", "326 µs", note),
                measure.Bar(f"CPU per streamed token ({options.parallel_streams} unpaced streams)",
                            token_us, 3, "µs", "12 µs", note)]
        if options.paced_streams > 0:
            paced_us = measure_paced(options, folder, prompts)
            bars.append(measure.Bar("CPU per streamed token, each in its own write (10 ms steps)",
                                    paced_us, None, "µs", note=note))
    return bars


if __name__ == "__main__":
    measure.main(measure_frontend, measure.parse_arguments(__doc__, add_options))
