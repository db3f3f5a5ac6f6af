#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A conversation through Stator with one real server: does the router know what the server has cached?

    overlap.py --stator URL --engine URL [--turns 50] [--pause 0.5] [--hits METRIC]

Before each turn the router's receipt says how many blocks it believes cached; the server's own counter of prefix-cache hits says how
many tokens were. Talks begin anew when they get long, so that a small cache evicts. Start the server with KV events and a cache
of 48 blocks. The pause lets events arrive. Exits 1 if a turn differs by more than a block.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import urllib.request


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def post(url: str, body: dict) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def metric(text: str, name: str) -> float:
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + "{"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stator", required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between turns")
    parser.add_argument("--hits", default="vllm:prefix_cache_hits_total", help="the server's counter of cached tokens")
    arguments = parser.parse_args()
    talk = random.randrange(1 << 30)
    messages: list[dict] = []
    beyond, worst, over = 0, 0, 0
    for turn in range(arguments.turns):
        messages.append({"role": "user", "content": f"and then {turn}?" if messages else f"talk {talk} " * 12})
        before = metric(get(f"{arguments.engine}/metrics"), arguments.hits)
        answer = post(f"{arguments.stator}/v1/chat/completions",
                      {"model": "m", "messages": messages, "max_tokens": 12, "temperature": 0})
        hit = metric(get(f"{arguments.engine}/metrics"), arguments.hits) - before
        receipt = json.loads(get(f"{arguments.stator}/receipts/{answer['id']}"))
        difference = receipt["best_overlap_blocks"] * receipt["block_size"] - hit
        beyond += abs(difference) > receipt["block_size"]
        over += difference > 0
        worst = max(worst, abs(difference))
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or "."})
        if receipt["prompt_tokens"] > 700:
            talk += 1
            messages = []
        time.sleep(arguments.pause)
    removed = [line for line in get(f"{arguments.stator}/metrics").splitlines()
               if line.startswith('dynamo_component_kv_cache_events_applied{event_type="removed",status="ok"}')]
    print(f"{arguments.turns} turns: {beyond} beyond one block, {over} where the router believed more than was there, worst "
          f"{worst:.0f} tokens; {removed[0].split()[-1] if removed else 0} removals")
    return 0 if beyond == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
