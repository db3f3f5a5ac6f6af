#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of `stator serve` per long chat request: seen before, 80 % shared, all different.

The whole process is counted: HTTP, JSON, template, tokenizer, block hashes, router and a simulated
worker that answers one token without waiting. Give --model a folder with the vocabulary to measure
(tokenizer.json, a chat template); prompts are made of shuffled sentences of the given text.
"""

import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import measure  # noqa: E402

SYSTEM = "You are a helpful assistant."
TURN_BYTES = 4000


def add_options(parser):
    parser.add_argument("--text", type=pathlib.Path, required=True, help="text file to take sentences from")
    parser.add_argument("--bytes", type=int, default=245_000, help="text per request [245000]")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--server-flag", action="append", default=[])


def sentences(path):
    found = [s for s in re.split(r"(?<=[.!?])\s+", path.read_text(errors="replace")) if len(s) > 20]
    if len(found) < 1000:
        raise measure.BenchError(f"{path} has only {len(found)} sentences; give a longer text")
    return found


def conversation(rng, pool, size):
    messages = [{"role": "system", "content": SYSTEM}]
    total = 0
    while total < size:
        content = ""
        while len(content) < min(TURN_BYTES, size - total):
            content += rng.choice(pool) + " "
        messages.append({"role": "user" if len(messages) % 2 else "assistant", "content": content})
        total += len(content)
    return messages


def cut_messages(messages, size):
    kept, total = [], 0
    for message in messages:
        kept.append(message)
        total += len(message["content"])
        if total >= size:
            break
    return kept


def bodies(options, kind, model, pool):
    rng = random.Random(kind)
    base = conversation(rng, pool, options.bytes)
    made = []
    for _ in range(1 if kind == "seen" else options.requests):
        if kind == "seen":
            messages = base
        elif kind == "shared":
            shared = cut_messages(base, options.bytes * 4 // 5)
            messages = shared + conversation(rng, pool, options.bytes // 5)[1:]
        else:
            messages = conversation(rng, pool, options.bytes)
        made.append({"model": model, "messages": messages, "max_tokens": 1, "ignore_eos": True})
    return made


def measure_kind(options, kind, flags, pool):
    """A fresh server per kind and run, so that no run profits from another."""
    costs = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder, \
                measure.Server(options, flags, options.server_core) as server:
            model = server.model_name()
            warm = measure.write_bodies(folder, bodies(options, "warm-up", model, pool)[:20])
            measure.run_load(options, server, ["--bodies", warm, "--requests", 20, "--connections", 1],
                             options.load_core)
            made = bodies(options, kind, model, pool)
            server.post(made[0])
            path = measure.write_bodies(folder, made)
            report = measure.run_load(options, server,
                                      ["--bodies", path, "--requests", options.requests,
                                       "--connections", options.connections], options.load_core)
            costs.append(report["watched_cpu_s"] * 1e3 / report["completed"])
    measure.detail(options, f"{kind}: runs {', '.join(f'{c:.2f}' for c in costs)} ms")
    return measure.median(costs)


def measure_prompts(options):
    pool = sentences(options.text)
    flags = ["--engine", "sim", "--workers", "1", "--sim-speedup", "0", *options.server_flag]
    peers = {"seen": "2.5 ms", "shared": "2.9 ms", "new": "4.5 ms"}
    names = {"seen": "seen before", "shared": "80 % shared", "new": "all different"}
    return [measure.Bar(f"CPU per request of {options.bytes // 1000} kB, {names[kind]}",
                        measure_kind(options, kind, flags, pool), None, "ms", peer)
            for kind, peer in peers.items()]


if __name__ == "__main__":
    measure.main(measure_prompts, measure.parse_arguments(__doc__, add_options))
