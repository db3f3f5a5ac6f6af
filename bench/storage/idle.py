#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU seconds per generated token of one CPU engine, with and without tiers that have nothing to do: every prompt is known from the
start, so nothing is offloaded or loaded. Alternating runs; prints medians and their ratio.

    STATOR_BINARY=build/release/bin/stator python3 bench/storage/idle.py [ROUNDS]
"""

import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
from stator_process import MODEL, Serve  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
TOKENS = 256


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(http) -> None:
    status, answer = http.post("/v1/completions", {"model": MODEL, "prompt": "One and the same prompt, again and again.",
                                                   "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True})
    assert status == 200 and answer["usage"]["completion_tokens"] == TOKENS, answer


with tempfile.TemporaryDirectory() as disk:
    kinds = {"without": Serve("--workers", "1", engine="cpu"),
             "with": Serve("--workers", "1", "--kv-host-bytes", "64MiB", "--kv-disk", disk, "--kv-disk-bytes", "64MiB", engine="cpu")}
    try:
        costs: dict[str, list[float]] = {kind: [] for kind in kinds}
        for server in kinds.values():
            ask(server.http)  # its blocks are offloaded now
        for _ in range(ROUNDS):
            for kind, server in kinds.items():
                begin = cpu_seconds(server.frontend.process.pid)
                for _ in range(4):
                    ask(server.http)
                costs[kind].append((cpu_seconds(server.frontend.process.pid) - begin) / (4 * TOKENS))
        medians = {kind: statistics.median(values) for kind, values in costs.items()}
        print(f"CPU per token: {medians['without'] * 1e6:.0f} us without tiers, {medians['with'] * 1e6:.0f} us with, ratio "
              f"{medians['with'] / medians['without']:.3f} (without: {min(costs['without']) * 1e6:.0f} to {max(costs['without']) * 1e6:.0f} us)")
    finally:
        for server in kinds.values():
            server.close()
