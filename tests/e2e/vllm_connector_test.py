#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The vLLM connector's shim against a stand-in of vLLM's interface that checks every byte attention would read.
The same in the real vLLM: scripts/test_vllm_kv.sh."""

import os
import pathlib
import shutil
import tempfile
import types
import unittest
import urllib.request

from stator_process import BINARY, Stator

os.environ["STATOR_KV_LIBRARY"] = str(pathlib.Path(BINARY).resolve().parents[1] / "lib" / "libstator_kv.so.1")
from fake_vllm_engine import BLOCK, Engine, Request  # noqa: E402
from free_ports import free_port  # noqa: E402


def prompts(count: int = 6, tokens: int = 100) -> list[list[int]]:
    return [[(n * 1000 + i * (n + 3)) % 32_000 for i in range(tokens + n)] for n in range(count)]


def requests(name: str, **more) -> list[Request]:
    return [Request(f"{name}-{n}", list(tokens), **more) for n, tokens in enumerate(prompts())]


FULL = [(len(tokens) - 1) // BLOCK * BLOCK for tokens in prompts()]


class VllmConnectorTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stator_vllm_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def engine(self, **options) -> Engine:
        engine = Engine(**({"host_bytes": "1MiB"} | options))
        self.addCleanup(engine.close)
        return engine

    def test_host_memory_serves_prompts_again_in_both_modes(self):
        for load in ("async", "sync"):
            engine = self.engine(load=load)
            self.assertEqual(engine.run(*requests("first")), [0] * 6)
            self.assertEqual(engine.run(*requests("again")), FULL)
            stats = engine.cache.stats()
            self.assertEqual((stats["operations"], stats["host_pinned"], stats["integrity_errors"]), (0, 0, 0))
            self.assertEqual(stats["get_blocks"], sum(FULL) // BLOCK)

    def test_more_prompts_than_host_memory_holds_wait_for_their_turn(self):
        tiers = {"disk": str(self.folder / "kv"), "disk_bytes": "8MiB"}
        engine = self.engine(**tiers)
        engine.run(*requests("first"))
        engine.close()
        # 64 slots: at most 16 blocks are staged at once, a prompt has 6.
        self.assertEqual(self.engine(**(tiers | {"host_bytes": 64 * 512})).run(*requests("again")), FULL)

    def test_blocks_of_generated_tokens_are_kept_too(self):
        engine = self.engine()
        first = Request("first", list(range(30)), max_tokens=40)
        engine.run(first)
        self.assertEqual(engine.run(Request("next", first.all_token_ids + [7] * 20)), [64], "30 + 39 tokens are 4 full blocks")
        engine = self.engine(save_decode="false")
        first = Request("first", list(range(30)), max_tokens=40)
        engine.run(first)
        self.assertEqual(engine.run(Request("next", first.all_token_ids + [7] * 20)), [16])

    def test_a_restart_finds_what_the_disk_has(self):
        tiers = {"disk": str(self.folder / "kv"), "disk_bytes": "8MiB"}
        engine = self.engine(**tiers)
        engine.run(*requests("first"))
        engine.close()
        self.assertEqual(self.engine(**tiers).run(*requests("again")), FULL)

    def test_two_engines_share_a_store(self):
        store = Stator("store", "--listen", "127.0.0.1:0", "--host-bytes", "16MiB")
        self.addCleanup(store.close)
        first = self.engine(store=f"store://127.0.0.1:{store.port}")
        second = self.engine(store=f"127.0.0.1:{store.port}")
        first.run(*requests("first"))
        self.assertTrue(first.cache.flush())
        self.assertEqual(second.run(*requests("second")), FULL)
        other = self.engine(store=f"127.0.0.1:{store.port}", salt="other")
        self.assertEqual(other.run(*requests("other")), [0] * 6, "another namespace")
        store.kill()
        self.assertEqual(second.run(Request("gone", [9] * 100)), [0], "a store that is gone costs nothing but its hits")

    def test_tenants_adapters_and_pictures_are_apart(self):
        engine = self.engine()
        lora = types.SimpleNamespace(lora_name="a", lora_path="/a")
        picture = lambda name: (types.SimpleNamespace(identifier=name, mm_position=types.SimpleNamespace(offset=20, length=40)),)  # noqa: E731
        kinds = [{}, {"cache_salt": "tenant"}, {"lora_request": lora}, {"mm_features": picture("cat")}, {"mm_features": picture("dog")}]
        for n, kind in enumerate(kinds):
            hits = engine.run(Request(f"first-{n}", list(range(100)), **kind))
            self.assertLessEqual(hits[0], 16 if "mm_features" in kind else 0, "before the picture the tokens are the same")
        for n, kind in enumerate(kinds):
            self.assertEqual(engine.run(Request(f"again-{n}", list(range(100)), **kind)), [96])

    def test_preemption_and_aborts_leave_nothing_behind(self):
        engine = self.engine(disk=str(self.folder / "kv"), disk_bytes="8MiB")
        engine.run(*requests("first"))
        engine.close()
        engine = self.engine(disk=str(self.folder / "kv"), disk_bytes="8MiB")
        some = [engine.add(request) for request in requests("some", max_tokens=30)]
        while not engine.running:
            engine.step()
        engine.preempt(engine.running[0])
        for request in some[3:]:
            if not request.loading:
                engine.finish(request)
        engine.run()
        stats = engine.cache.stats()
        self.assertEqual((stats["operations"], stats["host_pinned"]), (0, 0))
        self.assertEqual(sorted(engine.free), list(range(64)))

    def test_damage_is_computed_again(self):
        tiers = {"disk": str(self.folder / "kv"), "disk_bytes": "8MiB"}
        engine = self.engine(**tiers)
        engine.run(*requests("first"))
        engine.close()
        data = next(self.folder.rglob("g3.data"))
        with data.open("r+b") as file:
            for slot in range(0, 36, 3):
                file.seek(slot * 8192 + 4096 + 5)
                byte = file.read(1)
                file.seek(-1, 1)
                file.write(bytes([byte[0] ^ 1]))
        engine = self.engine(**tiers)
        hits = engine.run(*requests("again"))
        self.assertLess(sum(hits), sum(FULL))
        self.assertEqual(engine.run(*requests("third")), FULL, "put again")

    def test_after_a_change_of_weights_nothing_old_is_found(self):
        engine = self.engine()
        engine.run(*requests("first"))
        self.assertIs(engine.scheduler.reset_cache(), True)
        self.assertEqual(engine.run(*requests("again")), [0] * 6)
        self.assertEqual(engine.run(*requests("third")), FULL)

    def test_producers_only_store_and_consumers_only_load(self):
        engine = self.engine(role="kv_producer")
        engine.run(*requests("first"))
        self.assertEqual(engine.run(*requests("again")), [0] * 6)
        self.assertGreater(engine.cache.stats()["put_blocks"], 30)
        engine = self.engine(role="kv_consumer")
        engine.run(*requests("first"))
        self.assertEqual(engine.cache.stats()["put_blocks"], 0)

    def test_settings_are_named_when_they_are_wrong(self):
        for wrong, word in (({"hots_bytes": 1}, "hots_bytes"), ({"host_bytes": "4 quids"}, "quids"), ({"host_bytes": 0}, "no tier")):
            with self.assertRaisesRegex(Exception, word):
                Engine(**wrong)
        engine = self.engine(disk=str(self.folder / "kv"), disk_bytes="8MiB")
        os.environ["DYN_KVBM_CPU_CACHE_GB"] = "0.001"
        self.addCleanup(os.environ.pop, "DYN_KVBM_CPU_CACHE_GB")
        port = free_port()
        other = Engine(metrics_port=port)
        self.addCleanup(other.close)
        self.assertEqual(other.cache.stats()["host_slots"], 10**6 // 512)
        self.assertIn('stator_kv_tier_blocks_max{tier="host"} 1953', urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())
        self.assertIsNotNone(engine)


if __name__ == "__main__":
    unittest.main()
