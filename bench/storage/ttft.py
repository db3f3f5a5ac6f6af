#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time to the first token of a prompt of 1,900 to 2,000 tokens on the demo model: computed, from host memory (G2), from disk (G3).

    STATOR_BINARY=build/release/bin/stator python3 bench/storage/ttft.py      prints medians, each after the other
"""

import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
from stator_process import MODEL, Serve  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7


def prompt(seed: int) -> list[int]:
    return [(seed * 7919 + i * 31) % 2900 + 10 for i in range(2000)]


def first_token(http, tokens: list[int]) -> tuple[float, int]:
    begin = time.monotonic()
    status, answer = http.post("/v1/completions", {"model": MODEL, "prompt": tokens, "max_tokens": 1, "temperature": 0})
    took = time.monotonic() - begin
    assert status == 200, answer
    return took, (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def measure(host_bytes: str, others: int) -> tuple[float, float]:
    """Medians of computing and of coming back after `others` more prompts."""
    with tempfile.TemporaryDirectory() as disk:
        server = Serve("--workers", "1", "--kv-cache-bytes", "9MiB", "--kv-host-bytes", host_bytes, "--kv-disk", disk,
                       "--kv-disk-bytes", "512MiB", engine="cpu")
        try:
            cold, warm = [], []
            for round_ in range(ROUNDS):
                base = 100 * round_
                cold.append(first_token(server.http, prompt(base))[0])
                for other in range(1, others + 1):
                    first_token(server.http, prompt(base + other))
                took, cached = first_token(server.http, prompt(base))
                assert cached >= 1984, cached
                warm.append(took)
            return statistics.median(cold), statistics.median(warm)
        finally:
            server.close()


for tier, host_bytes, others in (("G2", "64MiB", 1), ("G3", "9MiB", 3)):
    cold, warm = measure(host_bytes, others)
    print(f"{tier}: computed {cold * 1e3:.0f} ms, back from {tier} {warm * 1e3:.0f} ms, ratio {warm / cold:.3f}")
