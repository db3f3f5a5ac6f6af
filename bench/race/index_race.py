#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Races Stator's KV index against published ones: NVIDIA Dynamo's (crate dynamo-kv-router) and SMG's (crate kv-index).

    index_race.py TRACE.jsonl [--tokens-per-block 64] [--workers 16] [--rounds 3] [--scratch DIR] [--json]

needs `cargo` (rustc 1.85 or newer) and, for the first run, crates.io. TRACE is a Mooncake trace (hash_ids of 512-token blocks).
Every side gets the same stream, that of `stator index-bench`; the sides take turns, each run in a process of its own bound to one
core, and the figures are medians over the rounds. Bytes come from a further run that counts allocations. All sides must find the
same number of matched blocks: otherwise the race is void and the exit status is 1.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
PEERS = ("dynamo-radix", "dynamo-compressed", "dynamo-positional", "smg-chain")
FIGURES = ("lookup_p50_ns", "lookup_p99_ns", "apply_blocks_per_s")
RUN_SECONDS_MAX = 600


def build_peers(scratch):
    if shutil.which("cargo") is None:
        sys.exit("index_race.py: cargo is not installed (https://rustup.rs)")
    project = scratch / "peers"
    shutil.copytree(HERE / "peers", project, dirs_exist_ok=True)
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=project, check=True)
    return project / "target" / "release" / "stator-race-peers"


def run(command):
    core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    done = subprocess.run(core + [str(part) for part in command], check=True, capture_output=True, text=True,
                          timeout=RUN_SECONDS_MAX)
    return json.loads(done.stdout)


def sides(options, peers):
    """Name → command; a side is run the same way every time."""
    commands = {"stator": [options.stator, "index-bench", options.trace, "--tokens-per-block", options.tokens_per_block,
                           "--workers", options.workers, "--json"]}
    for name in PEERS:
        commands[name] = [peers, options.trace, options.workers, 512 // options.tokens_per_block, name]
    return commands


def race(options, peers):
    commands = sides(options, peers)
    runs = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            runs[name].append(run(command))
    result = {}
    for name, each in runs.items():
        result[name] = {figure: statistics.median(one[figure] for one in each) for figure in FIGURES}
        counted = each[0] if name == "stator" else run(commands[name] + ["--count-bytes"])
        result[name]["bytes_per_holder_block"] = counted["bytes_per_holder_block"]
        result[name]["score_sum"] = [one["score_sum"] for one in each + [counted]]
    return result


def print_table(result):
    print("| Index | look-up p50 / p99 | apply | memory per holder-block |")
    print("|---|---|---|---|")
    for name, figures in result.items():
        print(f"| {name} | {figures['lookup_p50_ns'] / 1e3:.2f} / {figures['lookup_p99_ns'] / 1e3:.2f} µs "
              f"| {figures['apply_blocks_per_s'] / 1e6:.1f} M blocks/s | {figures['bytes_per_holder_block']:.1f} B |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--tokens-per-block", type=int, default=64, choices=[1 << i for i in range(10)])
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stator", type=pathlib.Path, default=REPOSITORY / "build/release/bin/stator")
    parser.add_argument("--scratch", type=pathlib.Path, default=REPOSITORY / "build/race", help="where the peers are built")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rounds < 1 or options.workers < 1:
        parser.error("--rounds and --workers must be at least 1")
    result = race(options, build_peers(options.scratch))
    scores = {name: sorted(set(figures["score_sum"])) for name, figures in result.items()}
    equal = len({tuple(each) for each in scores.values()}) == 1 and all(len(each) == 1 for each in scores.values())
    if options.json:
        print(json.dumps({"trace": options.trace.name, "load": os.getloadavg()[0], "valid": equal, "sides": result}, indent=1))
    else:
        print_table(result)
    if not equal:
        sys.exit(f"void: the sides do not agree on the matched blocks: {scores}")
    if not options.json:
        print(f"All sides matched {scores['stator'][0]} blocks. Load {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
