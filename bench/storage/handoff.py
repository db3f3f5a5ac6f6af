#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a hand-over between two CPU engines costs, on the demo model with prompts of 500 to 2,000 tokens:
from the prefill worker's last pass to the first token of the decode worker as the frontend sees it (two messages, the rest of the
transfer, one pass of at most 16 tokens), and how much of the transfer was over before the prompt was computed.

    STATOR_BINARY=build/release/bin/stator python3 bench/storage/handoff.py [ROUNDS]
"""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
from stator_process import MODEL, Serve  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9


def prompt(seed: int, length: int) -> list[int]:
    return [(seed * 7919 + i * 31) % 2900 + 10 for i in range(length)]


def ask(http, tokens: list[int]) -> tuple[float, float]:
    """Seconds in all, and from the end of the prompt to the first token."""
    begin = time.monotonic()
    status, answer = http.post("/v1/completions", {"model": MODEL, "prompt": tokens, "max_tokens": 1, "temperature": 0,
                                                   "nvext": {"extra_fields": ["timing"]}})
    took = time.monotonic() - begin
    assert status == 200, answer
    return took, answer["nvext"]["timing"].get("kv_transfer_estimated_latency_ms", 0) / 1e3


def cached(http, tokens: list[int]) -> float:
    """The same pass where the prompt is there already."""
    return min(ask(http, tokens)[0] for _ in range(3))


apart = Serve("--prefill-workers", "1", "--decode-workers", "1", engine="cpu")
alone = Serve("--workers", "1", engine="cpu")
try:
    for length in (500, 1000, 2000):
        before = [apart.http.metric(f"stator_engine_handoff_{name}_total") for name in ("early_bytes",)]
        moved = apart.http.metric("stator_engine_handoff_bytes_total", side="take")
        gaps, wholes, alones, again = [], [], [], []
        for round_ in range(ROUNDS):
            tokens = prompt(1000 * length + round_, length)
            alones.append(ask(alone.http, tokens)[0])
            again.append(cached(alone.http, tokens))
            whole, gap = ask(apart.http, tokens)
            wholes.append(whole)
            gaps.append(gap)
        bytes_ = apart.http.metric("stator_engine_handoff_bytes_total", side="take") - moved
        early = apart.http.metric("stator_engine_handoff_early_bytes_total") - before[0]
        print(f"{length} tokens, {bytes_ / ROUNDS / 2**20:.2f} MiB: end of prefill to first token {statistics.median(gaps) * 1e3:.1f} ms, "
              f"of that request and pass {statistics.median(again) * 1e3:.1f} ms; {100 * early / bytes_:.0f} % moved before the end; "
              f"TTFT apart {statistics.median(wholes) * 1e3:.0f} ms, one engine {statistics.median(alones) * 1e3:.0f} ms")
    lost = apart.http.metric("stator_engine_handoff_fallbacks_total")
    print(f"fallbacks: {lost:.0f}")
finally:
    apart.close()
    alone.close()
