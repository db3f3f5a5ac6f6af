#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What routing receipts claim to be cached, against what engines find when they evict all the time."""

import random
import unittest

from stator_process import MODEL, Serve

BLOCK = 16
TURNS = 2000
CONVERSATIONS = 12
# A conversation takes up to half of a worker's blocks, twelve of them three times what both have.
SMALL = ("--workers", "2", "--kv-blocks", "96", "--block-size", str(BLOCK), "--max-model-len", "1024", "--sim-speedup", "0", "--shards", "1")


def words(source: random.Random, count: int) -> list[int]:
    return [source.randrange(3000) for _ in range(count)]


class Receipts(unittest.TestCase):
    def test_a_quiet_fleet_has_every_block_they_claim(self):
        deployment = Serve(*SMALL)
        self.addCleanup(deployment.close)
        http = deployment.http
        seed = 5
        source = random.Random(seed)
        prompts = [words(source, BLOCK * source.randrange(2, 12)) for _ in range(CONVERSATIONS)]
        claimed_blocks = 0
        for turn in range(TURNS):
            at = source.randrange(CONVERSATIONS)
            status, answer = http.post("/v1/completions", {
                "model": MODEL, "prompt": prompts[at], "max_tokens": 8, "temperature": 0})
            self.assertEqual(status, 200, answer)
            _, receipt = http.get(f"/receipts/{answer['id']}")
            chosen = receipt["chosen"]["worker_id"]
            claimed = next(c["overlap_blocks"] for c in receipt["candidates"] if c["worker_id"] == chosen)
            found = ((answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0) // BLOCK
            self.assertLessEqual(claimed, found, f"seed {seed}, turn {turn}: {len(prompts[at])} tokens, {receipt}")
            claimed_blocks += claimed
            if source.random() < 0.3:
                continue  # the same again, of which many end with a whole block
            prompts[at] = prompts[at] + words(source, source.randrange(1, 40))
            if len(prompts[at]) > 700:
                prompts[at] = words(source, BLOCK * source.randrange(2, 12))
        self.assertGreater(claimed_blocks, TURNS)
        self.assertGreater(http.metric("dynamo_component_kv_cache_events_applied", event_type="removed"), TURNS / 4)


if __name__ == "__main__":
    unittest.main()
