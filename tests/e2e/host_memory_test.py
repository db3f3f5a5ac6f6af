#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulated workers that keep evicted KV blocks in host memory: answers, metrics and what routers learn."""

import subprocess
import unittest

from stator_process import BINARY, MODEL, MODEL_DIR, Serve, Split, eventually

# A prompt takes about two thirds of the device's 64 blocks, so the next one evicts it.
SMALL = ("--kv-blocks", "64", "--block-size", "16", "--max-model-len", "1024", "--sim-speedup", "0")


def ask(http, story: str) -> dict:
    status, answer = http.post("/v1/chat/completions", {
        "model": MODEL, "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": f"{story}: " + "the cache remembers what it was told. " * 60}]})
    assert status == 200, answer
    return answer


def cached(answer: dict) -> int:
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class HostMemoryTest(unittest.TestCase):
    def test_evicted_prompts_come_back_with_the_same_answer(self):
        deployment = Serve("--workers", "1", "--host-blocks", "1000", *SMALL)
        self.addCleanup(deployment.close)
        http = deployment.http
        first = [ask(http, story) for story in ("one", "two", "three")]
        again = [ask(http, story) for story in ("one", "two", "three")]
        for before, after in zip(first, again):
            self.assertEqual(before["choices"][0]["message"], after["choices"][0]["message"])
            self.assertGreater(cached(after), 0.9 * after["usage"]["prompt_tokens"])
        self.assertGreater(http.metric("stator_engine_kv_host_loaded_blocks_total"), 50)
        self.assertGreater(http.metric("stator_engine_kv_host_offloaded_blocks_total"), 50)
        self.assertEqual(http.metric("stator_engine_kv_host_blocks_total"), 1000)

    def test_without_host_memory_they_are_computed_again(self):
        deployment = Serve("--workers", "1", *SMALL)
        self.addCleanup(deployment.close)
        http = deployment.http
        ask(http, "one")
        ask(http, "two")
        again = ask(http, "one")
        self.assertLess(cached(again), 0.5 * again["usage"]["prompt_tokens"])

    def test_routers_of_other_processes_learn_what_is_in_host_memory(self):
        deployment = Split(workers=2, worker_arguments=("--host-blocks", "1000", *SMALL))
        self.addCleanup(deployment.close)
        http = deployment.http
        for story in ("one", "two", "three", "four", "five", "six"):
            ask(http, story)
        eventually(lambda: http.metric("stator_router_index_tier_blocks") > 50, "blocks in host memory in the index")

    def test_an_engine_that_cannot_says_so(self):
        done = subprocess.run([BINARY, "serve", MODEL_DIR, "--engine", "sim", "--kv-host-bytes", "1GiB", "--port", "0"],
                              capture_output=True, text=True, timeout=300)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("host_blocks", done.stderr)


if __name__ == "__main__":
    unittest.main()
