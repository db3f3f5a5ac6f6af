#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prompts whose KV blocks have the 64-bit hashes of another client's blocks: its answer stays what it is."""

import tempfile
import unittest

from stator_process import MODEL, ROOT, Serve

QUESTION = "What is a KV cache and why does it make language models faster?"


def pairs() -> list[list[list[int]]]:
    """[tokens of the question's prompt, other tokens of the same hash]: its first 16, its second 16, its first 32."""
    text = (ROOT / "src/stator/kv/testdata/colliding_blocks.txt").read_text()
    lines = [[int(word) for word in line.split()] for line in text.splitlines() if not line.startswith("#")]
    return [lines[i:i + 2] for i in range(0, len(lines), 2)]


FIRST, SECOND, LONG = pairs()


class ForgedBlocks(unittest.TestCase):
    def serve(self, engine: str, *arguments: str):
        deployment = Serve("--workers", "1", *arguments, engine=engine)
        self.addCleanup(deployment.close)
        self.deployment = deployment
        self.http = deployment.http

    def ask(self, **fields) -> tuple[str, int]:
        """The victim: its answer, and how much of its prompt was cached."""
        status, answer = self.http.post("/v1/chat/completions", {
            "model": MODEL, "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": QUESTION}]} | fields)
        self.assertEqual(status, 200, answer)
        cached = (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return answer["choices"][0]["message"]["content"], cached

    def attack(self, *blocks: list[int]) -> None:
        status, answer = self.http.post("/v1/completions", {
            "model": MODEL, "max_tokens": 2, "prompt": [token for block in blocks for token in block] + [5]})
        self.assertEqual(status, 200, answer)

    def check(self, shared_tokens: int, prompt_tokens: int, *blocks: list[int]) -> None:
        clean, cached = self.ask(cache_salt="nobody else's")
        self.assertEqual(cached, 0)
        self.attack(*blocks)
        # What the attacker's prompt really shares with the question's is used; so that is still the question's prompt.
        self.assertEqual(self.ask(), (clean, shared_tokens))
        self.assertEqual(self.ask(), (clean, prompt_tokens))
        self.assertEqual(self.http.metric("stator_engine_kv_hash_collisions_total"), 1)
        self.assertIn("somebody forges them", self.deployment.frontend.log())

    def test_the_second_block_of_a_prompt(self):
        for engine in ("cpu", "sim"):
            with self.subTest(engine):
                self.serve(engine)
                self.check(16, 32, FIRST[0], SECOND[1])

    def test_its_first_block(self):
        self.serve("cpu")
        self.check(0, 32, FIRST[1])

    def test_blocks_of_32_tokens(self):
        self.serve("cpu", "--block-size", "32")
        self.check(0, 32, LONG[1])

    def test_wherever_evicted_blocks_are_kept(self):
        """The forged block leaves the device for another tier; the victim's block is looked for there."""
        with tempfile.TemporaryDirectory() as folder:
            for tier, flags in (("host", ("--kv-host-bytes", "64MiB")), ("disk", ("--kv-disk", f"{folder}/disk", "--kv-disk-bytes", "64MiB")),
                                ("object", ("--kv-object", f"file://{folder}/object"))):
                with self.subTest(tier):
                    self.serve("cpu", "--kv-cache-bytes", "1200KiB", *flags)  # 18 blocks
                    clean, _ = self.ask(cache_salt="nobody else's")
                    self.attack(FIRST[0], SECOND[1])
                    for other in range(10):
                        self.attack([10 + 100 * other + token for token in range(100)])
                    self.assertGreater(self.http.metric("stator_kv_evictions_total", tier="device"), 20)
                    self.assertEqual(self.ask(), (clean, 16))
                    self.assertEqual(self.ask(), (clean, 32))
                    self.deployment.close()

    def test_salts_keep_them_apart_too(self):
        self.serve("sim")
        self.attack(FIRST[0])
        self.assertEqual(self.ask(cache_salt="another")[1], 0)


if __name__ == "__main__":
    unittest.main()
