#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What routing receipts claim to be cached, against what engines find when they evict all the time."""

import concurrent.futures
import random
import unittest

from stator_process import MODEL, Deployment, Serve, Split

BLOCK = 16
TURNS = 2000
TURNS_APART = 500
TURNS_TOGETHER = 60
CLIENTS = 8
CONVERSATIONS = 12
# A conversation takes up to half of a worker's blocks, twelve of them three times what both have.
SMALL = ("--workers", "2", "--kv-blocks", "96", "--block-size", str(BLOCK), "--max-model-len", "1024", "--sim-speedup", "0", "--shards", "1")


def words(source: random.Random, count: int) -> list[int]:
    return [source.randrange(3000) for _ in range(count)]


class Receipts(unittest.TestCase):
    def test_a_quiet_fleet_has_every_block_they_claim(self):
        deployment = Serve(*SMALL)
        self.addCleanup(deployment.close)
        self.assertEqual(self.converse(deployment, TURNS), 0)

    def test_workers_in_processes_of_their_own_have_them_too(self):
        # Removals may be on their way when the next turn is routed: what the engine finds corrects the receipt.
        deployment = self.split()
        print(f"{self.converse(deployment, TURNS_APART)} of {TURNS_APART} receipts were corrected")

    def test_requests_that_run_together_claim_no_more_than_there_was(self):
        # An engine evicts for whom it admits first, after the router has chosen.
        deployment = self.split()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            corrected = sum(clients.map(lambda seed: self.converse(deployment, TURNS_TOGETHER, seed), range(CLIENTS)))
        print(f"{corrected} of {CLIENTS * TURNS_TOGETHER} receipts were corrected")

    def split(self) -> Split:
        deployment = Split("--shards", "1", workers=2, worker_arguments=tuple(
            argument for argument in SMALL if argument not in ("--workers", "2", "--shards", "1")))
        self.addCleanup(deployment.close)
        return deployment

    def converse(self, deployment: Deployment, turns: int, seed: int = 5) -> int:
        """Checks every turn's receipt; returns how many had expected more than there was."""
        http = deployment.http
        source = random.Random(seed)
        prompts = [words(source, BLOCK * source.randrange(2, 12)) for _ in range(CONVERSATIONS)]
        claimed_blocks = 0
        corrected = 0
        for turn in range(turns):
            at = source.randrange(CONVERSATIONS)
            status, answer = http.post("/v1/completions", {
                "model": MODEL, "prompt": prompts[at], "max_tokens": 8, "temperature": 0})
            self.assertEqual(status, 200, answer)
            _, receipt = http.get(f"/receipts/{answer['id']}")
            chosen = receipt["chosen"]["worker_id"]
            of_chosen = next(c for c in receipt["candidates"] if c["worker_id"] == chosen)
            claimed = of_chosen["overlap_blocks"]
            found = ((answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0) // BLOCK
            self.assertLessEqual(claimed, found, f"seed {seed}, turn {turn}: {len(prompts[at])} tokens, {receipt}")
            claimed_blocks += claimed
            corrected += "expected_overlap_blocks" in receipt
            if source.random() < 0.3:
                continue  # the same again, of which many end with a whole block
            prompts[at] = prompts[at] + words(source, source.randrange(1, 40))
            if len(prompts[at]) > 700:
                prompts[at] = words(source, BLOCK * source.randrange(2, 12))
        if turns >= TURNS_APART:
            self.assertGreater(claimed_blocks, turns)
        self.assertGreater(http.metric("dynamo_component_kv_cache_events_applied", event_type="removed"), turns / 4)
        return corrected


if __name__ == "__main__":
    unittest.main()
