#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of a `stator frontend` process per long chat request: seen before, 80 % shared, all different.

The whole process is counted: HTTP, JSON, template, tokenizer, block hashes, router, KV events. Two
simulated workers, processes of their own on the other core, answer one token without waiting. Give
--model a folder with the vocabulary to measure (tokenizer.json, a chat template, a context of 70,000
tokens or more); prompts are made of shuffled sentences of --text, of shuffled pieces of --code.

    bench/text/prompt_path.py --model LLAMA3 --text prose.txt --code code.txt
"""

import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import frontend_process  # noqa: E402
import measure  # noqa: E402

SYSTEM = "You are a helpful assistant."
TURN_BYTES = 4000
CODE_LINES = 12
# What is measured: kind, of prose or code, bar in ms.
MEASURED = [("seen", "prose", None), ("shared", "prose", 0.8), ("new", "prose", 2.0), ("new", "code", 2.2)]
NAMES = {"seen": "seen before", "shared": "80 % shared", "new": "all different"}


def add_options(parser):
    parser.add_argument("--text", type=pathlib.Path, required=True, help="text file to take sentences from")
    parser.add_argument("--code", type=pathlib.Path, help="file of source code, for prompts of code")
    parser.add_argument("--bytes", type=int, default=245_000, help="text per request [245000]")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--frontend-core", default="0")
    parser.add_argument("--load-core", default="1")


def sentences(path):
    found = [s for s in re.split(r"(?<=[.!?])\s+", path.read_text(errors="replace")) if len(s) > 20]
    if len(found) < 1000:
        raise measure.BenchError(f"{path} has only {len(found)} sentences; give a longer text")
    return found


def pieces(path):
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    found = ["".join(lines[at:at + CODE_LINES]) for at in range(0, len(lines), CODE_LINES)]
    if len(found) < 1000:
        raise measure.BenchError(f"{path} has only {len(lines)} lines; give more code")
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


def measure_kind(options, kind, pool):
    """A fresh fleet per kind and run, so that no run profits from another; every body is sent once."""
    costs = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder, frontend_process.Fleet(options, 2, frontend_process.UNPACED) as fleet:
            model = fleet.model_name()
            warm = measure.write_bodies(folder, bodies(options, "warm-up", model, pool)[:20])
            measure.run_load(options, fleet, ["--bodies", warm, "--requests", 20, "--concurrency", 1],
                             options.load_core)
            made = bodies(options, kind, model, pool)
            fleet.post(made[0])
            path = measure.write_bodies(folder, made)
            report, cpu_s = measure.run_load(options, fleet,
                                             ["--bodies", path, "--requests", options.requests,
                                              "--concurrency", options.connections], options.load_core)
            costs.append(cpu_s * 1e3 / report["request_count"]["avg"])
    measure.detail(options, f"{kind}: runs {', '.join(f'{c:.2f}' for c in costs)} ms")
    return measure.median(costs)


def measure_prompts(options):
    pools = {"prose": sentences(options.text)}
    if options.code:
        pools["code"] = pieces(options.code)
    return [measure.Bar(f"CPU of the frontend per request of {options.bytes // 1000} kB of {text}, {NAMES[kind]}",
                        measure_kind(options, kind, pools[text]), bar, "ms")
            for kind, text, bar in MEASURED if text in pools]


if __name__ == "__main__":
    measure.main(measure_prompts, measure.parse_arguments(__doc__, add_options))
