#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The router asks a `stator store` what it has of a prompt (--router-shared-cache), and goes on without it."""

import unittest

from stator_process import MODEL, Http, Serve, Stator, eventually

PROMPT = "Saga: " + " ".join(f"word{i % 71}" for i in range(60))
ASKED = "dynamo_component_router_shared_cache_hit_rate"


def ask(http, prompt: str) -> dict:
    status, answer = http.post("/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 2, "temperature": 0})
    assert status == 200, answer
    return answer


class SharedCacheTest(unittest.TestCase):
    def test_what_the_store_has_is_weighed_and_a_store_that_is_gone_costs_nothing(self):
        store = Stator("store", "--listen", "127.0.0.1:0", "--host-bytes", "64MiB")
        self.addCleanup(store.close)
        address = f"127.0.0.1:{store.port}"
        server = Serve("--workers", "2", "--kv-store", address, "--router-shared-cache", address,
                       "--router-shared-cache-timeout", "20s", engine="cpu")
        self.addCleanup(server.close)
        metric = server.http.metric

        first = ask(server.http, PROMPT)
        self.assertEqual((metric(f"{ASKED}_count"), metric(f"{ASKED}_sum")), (1, 0))
        eventually(lambda: Http(store.port).metric("stator_kv_store_puts_total") >= 10, "its blocks are in the store")
        self.assertEqual(ask(server.http, PROMPT)["choices"][0]["text"], first["choices"][0]["text"])
        self.assertEqual(metric(f"{ASKED}_count"), 2)
        self.assertGreater(metric(f"{ASKED}_sum"), 0.5)
        self.assertEqual(metric("dynamo_component_router_shared_cache_errors_total"), 0)

        status, answer = Http(store.port).post("/check_blocks", {"block_hashes": [1, 2, 3]})
        self.assertEqual((status, answer), (200, {"ranges": []}))
        self.assertEqual(Http(store.port).post("/check_blocks", {"hashes": []})[0], 400)

        store.kill()
        for i in range(5):
            ask(server.http, f"Without it, {i}. " * 8)
        self.assertGreater(metric("dynamo_component_router_shared_cache_errors_total"), 0)
        self.assertIn("the shared cache does not answer", server.frontend.log())


if __name__ == "__main__":
    unittest.main()
