#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a hand-over between two CPU engines costs, on the demo model with prompts of 500 to 2,000 tokens:
from the prefill worker's last pass to the first token of the decode worker as the frontend sees it (two messages, the rest of the
transfer, one pass of at most 16 tokens), and how much of the transfer was over before the prompt was computed.

    STATOR_BINARY=build/release/bin/stator python3 bench/storage/handoff.py [ROUNDS [FLAG…]]
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
from stator_process import MODEL, Serve  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
MORE = sys.argv[2:]  # flags of the prefill and decode workers, and of the engine alone


def prompt(seed: int, length: int) -> list[int]:
    return [(seed * 7919 + i * 31) % 2900 + 10 for i in range(length)]


def ask(http, tokens: list[int]) -> tuple[float, float]:
    """Seconds to the first token, and of those from the end of the prompt on. (An answer of one token needs no hand-over.)"""
    status, answer = http.post("/v1/completions", {"model": MODEL, "prompt": tokens, "max_tokens": 2, "temperature": 0,
                                                   "nvext": {"extra_fields": ["timing"]}})
    assert status == 200, answer
    timing = answer["nvext"]["timing"]
    return timing["ttft_ms"] / 1e3, timing.get("kv_transfer_estimated_latency_ms", 0) / 1e3


def cached(http, tokens: list[int]) -> float:
    """To the first token where the prompt is in the engine's cache: what a request and its last, short pass take anyway."""
    return min(ask(http, tokens)[0] for _ in range(3))


apart = Serve("--prefill-workers", "1", "--decode-workers", "1", *MORE, engine="cpu")
alone = Serve("--workers", "1", *MORE, engine="cpu")
try:
    for length in (500, 1000, 2000):
        sooner = apart.http.metric("stator_engine_handoff_early_bytes_total")
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
        early = apart.http.metric("stator_engine_handoff_early_bytes_total") - sooner
        print(f"{length} tokens, {bytes_ / ROUNDS / 2**20:.2f} MiB: end of prefill to first token {statistics.median(gaps) * 1e3:.1f} ms, "
              f"request and short pass alone {statistics.median(again) * 1e3:.1f} ms; {100 * early / bytes_:.0f} % moved before the end; "
              f"TTFT apart {statistics.median(wholes) * 1e3:.0f} ms, one engine {statistics.median(alones) * 1e3:.0f} ms")
    lost = apart.http.metric("stator_engine_handoff_fallbacks_total")
    print(f"fallbacks: {lost:.0f}")
finally:
    apart.close()
    alone.close()
