#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engines find a `stator store` through discovery: our own workers, and vLLM's connector."""

import os
import pathlib
import shutil
import sys
import tempfile
import unittest

from stator_process import BINARY, MODEL, MODEL_DIR, Http, Stator, eventually

os.environ["STATOR_KV_LIBRARY"] = str(pathlib.Path(BINARY).resolve().parents[1] / "lib" / "libstator_kv.so.1")
from fake_vllm_engine import Engine, Request  # noqa: E402

PROMPT = " ".join(f"word{i * 7 % 83}" for i in range(80))


class StoreDiscoveryTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="stator_disc_")
        self.addCleanup(shutil.rmtree, self.folder)
        self.discovery = ["--discovery", f"file:{self.folder}"]

    def start(self, *arguments: str) -> Stator:
        process = Stator(*arguments)
        self.addCleanup(process.close)
        return process

    def store(self) -> Stator:
        return self.start("store", "--listen", "127.0.0.1:0", "--host-bytes", "64MiB", *self.discovery)

    def test_workers_share_the_store_that_they_find(self):
        store = self.store()
        frontend = self.start("frontend", "--host", "127.0.0.1", "--port", "0", *self.discovery)
        http, cached = Http(frontend.port), []
        for _ in range(2):
            worker = self.start("worker", str(MODEL_DIR), "--engine", "cpu", "--kv-store", "discover", *self.discovery)
            eventually(lambda: len(http.get("/health")[1].get("instances", [])) == 1, "one worker")
            status, answer = http.post("/v1/completions", {"model": MODEL, "prompt": PROMPT, "max_tokens": 4, "temperature": 0})
            self.assertEqual(status, 200, answer)
            cached.append((answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
            eventually(lambda: Http(store.port).metric("stator_kv_store_puts_total") >= 10, "its blocks are in the store")
            worker.terminate()
            worker.wait()
            eventually(lambda: not http.get("/health")[1].get("instances"), "no worker")
        self.assertEqual(cached[0], 0)
        self.assertGreater(cached[1], 100)

    def test_foreign_engines_find_it_and_go_on_without_one(self):
        store = self.store()
        first, second = (Engine(store=f"discover:file:{self.folder}") for _ in range(2))
        self.addCleanup(first.close)
        self.addCleanup(second.close)
        first.run(Request("a", list(range(100))))
        self.assertTrue(first.cache.flush())
        self.assertEqual(second.run(Request("b", list(range(100)))), [96])
        store.terminate()
        store.wait()
        sys.modules["stator_kv._discover"].find.__defaults__ = (0.0,)
        alone = Engine(store=f"discover:file:{self.folder}")
        self.addCleanup(alone.close)
        self.assertEqual(alone.run(Request("c", list(range(100)))), [0])

    def test_an_address_of_all_interfaces_must_be_named(self):
        process = Stator("store", "--listen", "0.0.0.0:0", *self.discovery, announce=False)
        self.addCleanup(process.close)
        self.assertEqual(process.wait(), 2)
        self.assertIn("--advertise", process.log())


if __name__ == "__main__":
    unittest.main()
