#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures one server with `stator bench` and with AIPerf in turn and prints the means side by side.

    python3 -m venv VENV && VENV/bin/pip install aiperf
    bench/loadgen/aiperf_race.py --aiperf VENV/bin/aiperf

The server is `stator serve` with a simulated engine, whose timing depends on the load, or with --fake the do-nothing
server of this folder with fixed delays. Both clients ask for the same lengths, streams and concurrency, take token
counts from the server, and take turns --rounds times, so that other work on the machine meets both.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
METRICS = ("time_to_first_token", "time_to_second_token", "inter_token_latency", "inter_chunk_latency", "request_latency",
           "output_token_throughput_per_user", "input_sequence_length", "output_sequence_length", "request_throughput",
           "output_token_throughput")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--aiperf", required=True, help="the aiperf program")
    parser.add_argument("--stator", default=str(ROOT / "build/release/bin/stator"))
    parser.add_argument("--fast-server", default=str(ROOT / "build/release/bin/stator_fast_server"))
    parser.add_argument("--fake", action="store_true", help="fixed delays instead of a simulated engine")
    parser.add_argument("--url", help="measure this server instead of starting one")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--tokenizer", default=str(ROOT / "models/demo"))
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--input-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def start_server(options: argparse.Namespace) -> tuple[subprocess.Popen, str]:
    if options.fake:
        command = [options.fast_server, "0", "--first-us", "200000", "--gap-us", "20000"]
    else:
        command = [options.stator, "serve", str(ROOT / "models/demo"), "--engine", "sim", "--host", "127.0.0.1", "--port", "0", "--announce",
                   "--engine-prefix-caching", "false"]  # the clients' texts repeat themselves differently
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return server, f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"


def run_stator(options: argparse.Namespace, url: str, seed: int) -> dict:
    done = subprocess.run(
        [options.stator, "bench", "--url", url, "--model", options.model, "--concurrency", str(options.concurrency),
         "--requests", str(options.requests), "--input-tokens", str(options.input_tokens), "--output-tokens", str(options.output_tokens),
         "--ignore-eos", "--tokenizer", options.tokenizer, "--warmup-requests", str(options.concurrency), "--seed", str(seed),
         "--allow-client-bound", "--json", "-"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run_aiperf(options: argparse.Namespace, url: str, seed: int) -> dict:
    with tempfile.TemporaryDirectory(prefix="aiperf-race-") as folder:
        command = [
            options.aiperf, "profile", "--model", options.model, "--url", url, "--endpoint-type", "chat", "--streaming",
            "--concurrency", str(options.concurrency), "--request-count", str(options.requests - options.concurrency),
            "--warmup-request-count", str(options.concurrency), "--isl", str(options.input_tokens), "--isl-stddev", "0",
            "--osl", str(options.output_tokens), "--osl-stddev", "0", "--extra-inputs", "ignore_eos:true",
            "--use-server-token-count", "--use-legacy-max-tokens", "--tokenizer", options.tokenizer, "--random-seed", str(seed),
            "--artifact-dir", folder, "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"]
        done = subprocess.run(command, capture_output=True, text=True)
        found = list(pathlib.Path(folder).rglob("profile_export_aiperf.json"))
        if done.returncode != 0 or not found:
            sys.exit(f"aiperf failed ({done.returncode}):\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return json.loads(found[0].read_text())


def main() -> None:
    options = parse_arguments()
    server, url = (None, options.url) if options.url else start_server(options)
    reports: dict[str, list[dict]] = {"stator": [], "aiperf": []}
    try:
        for i in range(options.rounds):
            reports["stator"].append(run_stator(options, url, 100 + i))
            reports["aiperf"].append(run_aiperf(options, url, 200 + i))
    finally:
        if server is not None:
            server.terminate()
            server.wait()
    shares = [run["stator"]["runs"][0]["client"]["busy_share"] for run in reports["stator"]]
    print(f"{options.rounds} rounds in turn, {options.requests} requests each, load average {os.getloadavg()[0]:.1f}, "
          f"stator bench busy {100 * max(shares):.1f} % at most")
    print(f"{'mean':<36}{'stator':>12}{'aiperf':>12}{'difference':>12}")
    for metric in METRICS:
        means = {}
        for name, runs in reports.items():
            values = [run[metric]["avg"] for run in runs if run.get(metric)]
            means[name] = statistics.median(values) if values else float("nan")
        difference = 100 * (means["stator"] / means["aiperf"] - 1)
        print(f"{metric:<36}{means['stator']:>12.3f}{means['aiperf']:>12.3f}{difference:>+11.2f}%")


if __name__ == "__main__":
    main()
