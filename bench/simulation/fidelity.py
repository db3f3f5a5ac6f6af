#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends one workload through live processes and through `stator sim`, and compares what both report.

    bench/simulation/fidelity.py                       # 0.3, 0.6 and 0.9 of what the fleet can do
    bench/simulation/fidelity.py --loads 0.6 --requests 200 --rules sglang

Live: `stator serve` with simulated engines behind the real frontend and router, asked by `stator bench`, which replays
the trace at its times. Simulated: the same trace, router, rules and timing on virtual time. Exit status 1 if a mean is
more than 5 % apart, or a p99 more than 15 %.
"""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "demo"
# Our name, that of `stator bench`, that of `stator sim`.
FIGURES = (("time to first token", "time_to_first_token", "ttft"), ("mean gap per request", "inter_token_latency", "tpot"),
           ("gap between tokens", "inter_chunk_latency", "itl"), ("request latency", "request_latency", "e2e_latency"))
MEAN_BOUND = 0.05
P99_BOUND = 0.15
BLOCK_TOKENS = 64


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stator", default=str(ROOT / "build/release/bin/stator"))
    parser.add_argument("--loads", type=float, nargs="+", default=[0.3, 0.6, 0.9], help="parts of the fleet's capacity")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--router", default="kv")
    parser.add_argument("--rules", default="vllm")
    parser.add_argument("--timing", default="polynomial")
    parser.add_argument("--drafts", default="", help="acceptance of draft tokens, e.g. 0.8,0.6")
    parser.add_argument("--kv-blocks", type=int, default=4096)
    parser.add_argument("--speedup", type=float, default=1, help="live engines, and arrivals, are so many times faster")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lower-bounds", action="store_true",
                        help="only fail when live is faster than simulated: for machines that are busy with other work")
    parser.add_argument("--json", help="FILE for all figures")
    return parser.parse_args()


def make_requests(options: argparse.Namespace) -> list[dict]:
    """Poisson arrivals, one per second; half of the prompts begin with one of eight shared texts."""
    draw = random.Random(options.seed)
    rows, now = [], 0.0
    for index in range(options.requests):
        now += draw.expovariate(1.0)
        tokens = min(1700, max(64, int(draw.lognormvariate(math.log(600), 0.6))))
        blocks = math.ceil(tokens / BLOCK_TOKENS)
        shared = min(8, blocks) if draw.random() < 0.5 else 0
        group = draw.randrange(8)
        ids = [group * 100 + i for i in range(shared)] + [100_000 + index * 100 + i for i in range(blocks - shared)]
        rows.append({"timestamp": 1000 * now, "input_length": tokens, "output_length": draw.randint(16, 160), "hash_ids": ids})
    return rows


def write_trace(path: pathlib.Path, rows: list[dict], rate: float) -> None:
    with path.open("w") as file:
        for row in rows:
            file.write(json.dumps(row | {"timestamp": row["timestamp"] / rate}) + "\n")


def fleet(options: argparse.Namespace) -> list[str]:
    """What both are told, by the same names."""
    return ["--workers", str(options.workers), "--router", options.router, "--sim-rules", options.rules, "--sim-timing", options.timing,
            "--block-size", str(BLOCK_TOKENS), "--kv-blocks", str(options.kv_blocks), "--max-num-batched-tokens", "8192",
            *(["--sim-draft-acceptance", options.drafts] if options.drafts else [])]


def simulate(options: argparse.Namespace, trace: pathlib.Path, *more: str) -> dict:
    report = trace.with_suffix(".sim.json")
    subprocess.run(
        [options.stator, "sim", str(trace), "--trace-block-size", str(BLOCK_TOKENS), *fleet(options), "--report-json", str(report), *more],
        check=True, stdout=subprocess.DEVNULL)
    return json.loads(report.read_text())


def run_live(options: argparse.Namespace, trace: pathlib.Path) -> dict:
    server = subprocess.Popen(
        [options.stator, "serve", str(MODEL), "--engine", "sim", "--host", "127.0.0.1", "--port", "0", "--announce",
         "--sim-speedup", str(options.speedup), *fleet(options)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
        done = subprocess.run(
            [options.stator, "bench", "--url", url, "--endpoint-type", "completions", "--tokenizer", str(MODEL), "--trace", str(trace),
             "--trace-block-tokens", str(BLOCK_TOKENS), "--trace-speed", str(options.speedup), "--ignore-eos", "--in-flight-max", "1024",
             "--allow-client-bound", "--json", "-"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)
    finally:
        server.kill()
        server.wait()


def compare(options: argparse.Namespace, live: dict, simulated: dict) -> list[dict]:
    rows = []
    for title, live_name, name in FIGURES:
        for statistic, key, bound in (("mean", "avg", MEAN_BOUND), ("p99", "p99", P99_BOUND)):
            measured = live[live_name][key] * options.speedup
            expected = simulated[f"{statistic}_{name}_ms"]
            apart = measured / expected - 1
            good = apart > -bound if options.lower_bounds else abs(apart) <= bound
            rows.append({"figure": f"{statistic} {title}", "live_ms": measured, "simulated_ms": expected, "apart": apart, "good": good})
    return rows


def main() -> int:
    options = parse_arguments()
    rows = make_requests(options)
    results = []
    with tempfile.TemporaryDirectory(prefix="stator-fidelity-") as folder:
        trace = pathlib.Path(folder) / "trace.jsonl"
        write_trace(trace, rows, 1)
        capacity = simulate(options, trace, "--concurrency", str(64 * options.workers))["request_throughput_rps"]
        print(f"capacity of {options.workers} workers: {capacity:.2f} requests/s")
        for load in options.loads:
            write_trace(trace, rows, load * capacity)
            simulated, live = simulate(options, trace), run_live(options, trace)
            tokens = live["input_sequence_length"]["avg"], simulated["total_input_tokens"] / simulated["completed_requests"]
            print(f"\nload {load} ({load * capacity:.2f} requests/s), prompt tokens live {tokens[0]:.1f}, simulated {tokens[1]:.1f}, "
                  f"requests live {live['request_count']['avg']:.0f}, simulated {simulated['completed_requests']}")
            compared = compare(options, live, simulated)
            for row in compared:
                print(f"  {row['figure']:26} live {row['live_ms']:9.2f} ms   simulated {row['simulated_ms']:9.2f} ms   "
                      f"{100 * row['apart']:+6.2f} %{'' if row['good'] else '   TOO FAR'}")
            results.append({"load": load, "requests_per_s": load * capacity, "figures": compared,
                            "completed": [live["request_count"]["avg"], simulated["completed_requests"]],
                            "prompt_tokens": tokens})
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    all_served = all(one["completed"] == [options.requests, options.requests] and abs(one["prompt_tokens"][0] - one["prompt_tokens"][1]) < 0.5
                     for one in results)
    return 0 if all_served and all(row["good"] for one in results for row in one["figures"]) else 1


if __name__ == "__main__":
    sys.exit(main())
