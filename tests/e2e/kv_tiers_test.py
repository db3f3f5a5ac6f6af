#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CPU engine with KV tiers: answers are those of an engine without them, whatever happens to the bytes below."""

import pathlib
import random
import shutil
import subprocess
import tempfile
import unittest

from stator_process import BINARY, MODEL, MODEL_DIR, Serve, clean_environment, eventually

# 64 KiB a block of 16 tokens: the device holds 40 blocks, about a quarter of the prompts below.
SMALL = ("--workers", "1", "--kv-cache-bytes", "2560KiB", "--max-model-len", "512")
PROMPTS = [f"Story {n}: " + " ".join(f"word{(n * 7 + i) % 91}" for i in range(60)) for n in range(12)]


def ask(http, prompt: str, **more) -> dict:
    status, answer = http.post("/v1/completions", {
        "model": MODEL, "prompt": prompt, "max_tokens": 6, "temperature": 0, "logprobs": 2, **more})
    assert status == 200, answer
    return answer


def text(answer: dict) -> object:
    return answer["choices"][0]["text"], answer["choices"][0]["logprobs"]


def cached(answer: dict) -> int:
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class KvTiersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Serve("--workers", "1", engine="cpu")
        cls.addClassCleanup(server.close)
        cls.expected = {prompt: text(ask(server.http, prompt)) for prompt in PROMPTS}

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stator_kv_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.disk = self.folder / "kv"

    def serve(self, *arguments: str, **more) -> Serve:
        server = Serve(*SMALL, *arguments, engine="cpu", **more)
        self.addCleanup(server.close)
        return server

    def with_disk(self, *arguments: str, **more) -> Serve:
        return self.serve("--kv-host-bytes", "2MiB", "--kv-disk", str(self.disk), "--kv-disk-bytes", "64MiB", *arguments, **more)

    def check(self, http, prompts=PROMPTS) -> list[int]:
        """Every answer is as without tiers; how many tokens of each were cached."""
        hits = []
        for prompt in prompts:
            answer = ask(http, prompt)
            self.assertEqual(text(answer), self.expected[prompt])
            hits.append(cached(answer))
        return hits

    def settled(self, http) -> None:
        """Everything that was computed is on disk."""
        before = -1.0
        def still():
            nonlocal before
            last, before = before, http.metric("stator_kv_offload_blocks_total")
            return before > 0 and before == last
        eventually(still, "blocks on disk")

    def test_host_memory_gives_back_what_the_device_evicted(self):
        server = self.serve("--kv-host-bytes", "64MiB")
        self.assertEqual(self.check(server.http), [0] * len(PROMPTS))
        again = self.check(server.http)
        self.assertGreater(min(again), 100)
        self.assertGreater(server.http.metric("stator_engine_kv_host_loaded_blocks_total"), 50)

    def test_disk_gives_back_what_memory_dropped_and_survives_a_kill(self):
        server = self.with_disk()
        self.check(server.http)
        self.settled(server.http)
        self.assertGreater(min(self.check(server.http)), 100)
        self.assertGreater(server.http.metric("stator_kv_onboard_blocks_total", tier="disk", result="ok"), 50)
        self.assertGreater(server.http.metric("kvbm_onboard_blocks_d2h"), 50)
        self.assertGreater(server.http.metric("kvbm_disk_cache_hit_rate"), 0.1)
        self.assertGreater(server.http.metric("stator_kv_offload_bytes_total", tier="disk"), 50 * 65536)
        stored = server.http.metric("stator_kv_tier_blocks", tier="disk")
        eventually(lambda: server.http.metric("stator_router_index_tier_blocks") >= stored, "the router knows the disk's blocks")
        server.frontend.kill()
        server = self.with_disk()
        self.assertGreater(server.http.metric("stator_kv_g3_recovered_blocks"), 50)
        eventually(lambda: server.http.metric("stator_router_index_tier_blocks") >= stored - 10, "the router knows what was found on disk")
        self.assertGreater(min(self.check(server.http)), 100)

    def test_a_working_set_a_little_larger_than_memory_is_served_from_disk(self):
        # Device and host memory hold 104 of 10 x 11 blocks: each prompt finds some of itself there, and must not lose that to the rest.
        server = self.serve("--kv-host-bytes", "4MiB", "--kv-disk", str(self.disk), "--kv-disk-bytes", "64MiB")
        self.check(server.http, PROMPTS[:10])
        self.settled(server.http)
        for _ in range(2):
            self.assertGreater(min(self.check(server.http, PROMPTS[:10])), 100)

    def test_damaged_blocks_are_found_counted_and_computed_again(self):
        server = self.with_disk()
        self.check(server.http)
        self.settled(server.http)
        server.close()
        data = self.disk / "g3.data"
        noise = random.Random(11)
        stride = 4096 + 65536
        with data.open("r+b") as file:
            for slot in range(0, 60, 3):  # a bit of each third block
                at = slot * stride + 4096 + noise.randrange(65536)
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 1 << noise.randrange(8)]))
        server = self.with_disk()
        self.check(server.http)
        self.assertGreater(server.http.metric("stator_kv_integrity_errors_total", tier="disk"), 2)

    def test_salts_share_nothing(self):
        server = self.with_disk()
        ask(server.http, PROMPTS[0])
        self.settled(server.http)
        self.assertEqual(cached(ask(server.http, PROMPTS[0], cache_salt="tenant")), 0)
        server.close()
        # Another namespace: refused in one line, and serving goes on.
        server = self.with_disk("--kv-salt", "other")
        self.assertEqual(cached(ask(server.http, PROMPTS[0])), 0)
        self.assertEqual(server.http.metric("stator_kv_tier_enabled", tier="disk"), 0)
        self.assertEqual(server.frontend.log().count("the disk tier is switched off"), 1)
        server.close()
        server = self.with_disk("--kv-salt", "other", "--kv-disk-on-mismatch", "wipe")
        self.assertEqual(server.http.metric("stator_kv_tier_enabled", tier="disk"), 1)
        self.assertEqual(cached(ask(server.http, PROMPTS[0])), 0)

    def test_a_folder_that_cannot_be_used_costs_the_tier_only(self):
        self.disk.write_text("a file, no folder")
        server = self.with_disk()
        self.check(server.http, PROMPTS[:2])
        self.assertEqual(server.frontend.log().count("the disk tier is switched off"), 1)
        self.assertEqual(server.http.metric("stator_kv_tier_enabled", tier="disk"), 0)

    def test_budgets_beyond_the_machine_are_refused_with_the_numbers(self):
        for arguments, setting in ((("--kv-host-bytes", "900GiB"), "kv.host_bytes"),
                                   (("--kv-disk", str(self.disk), "--kv-disk-bytes", "900TiB"), "kv.disk_bytes")):
            done = subprocess.run([BINARY, "serve", MODEL_DIR, "--port", "0", "--engine", "cpu", *SMALL, *arguments],
                                  capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(setting, done.stderr)
            self.assertRegex(done.stderr, r"\d{10,} ")

    def test_names_of_the_older_settings_work(self):
        server = self.serve(env=clean_environment(
            DYN_KVBM_CPU_CACHE_GB="0.01", DYN_KVBM_DISK_CACHE_GB="0.05", DYN_KVBM_DISK_CACHE_DIR=str(self.disk)))
        self.check(server.http, PROMPTS[:2])
        self.settled(server.http)
        self.assertEqual(server.http.metric("stator_engine_kv_host_blocks_total"), 10_000_000 // 65536)
        self.assertEqual(server.http.metric("stator_kv_tier_blocks_max", tier="disk"), 50_000_000 // (65536 + 4096))


if __name__ == "__main__":
    unittest.main()
