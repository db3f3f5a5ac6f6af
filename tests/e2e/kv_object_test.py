#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""KV blocks in an object store and in a shared folder: hosts use each other's, and nothing the store does changes a token."""

import base64
import pathlib
import shutil
import tempfile
import unittest

from fake_azure import ACCOUNT, KEY, FakeAzure
from fake_s3 import ACCESS, SECRET, FakeS3
from stator_process import MODEL, Serve, clean_environment, eventually

PROMPTS = [f"Tale {n}: " + " ".join(f"word{(n * 5 + i) % 83}" for i in range(60)) for n in range(4)]
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


def ask(http, prompt: str) -> dict:
    status, answer = http.post("/v1/completions", {
        "model": MODEL, "prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 2})
    assert status == 200, answer
    return answer


def said(answer: dict) -> object:
    return answer["choices"][0]["text"], answer["choices"][0]["logprobs"]


def cached(answer: dict) -> int:
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class KvObjectTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Serve("--workers", "1", engine="cpu")
        cls.addClassCleanup(server.close)
        cls.expected = {prompt: said(ask(server.http, prompt)) for prompt in PROMPTS}

    def serve(self, *arguments: str, env: dict | None = None) -> Serve:
        server = Serve("--workers", "1", *arguments, engine="cpu", env=clean_environment(**(KEYS if env is None else env)))
        self.addCleanup(server.close)
        return server

    def s3(self) -> FakeS3:
        store = FakeS3()
        self.addCleanup(store.close)
        return store

    def with_s3(self, store: FakeS3, bucket: str = "cache", **more) -> Serve:
        return self.serve("--kv-object", f"s3://{bucket}/prefix/a b", "--kv-object-endpoint", store.url, **more)

    def check(self, server: Serve) -> list[int]:
        hits = []
        for prompt in PROMPTS:
            answer = ask(server.http, prompt)
            self.assertEqual(said(answer), self.expected[prompt])
            hits.append(cached(answer))
        return hits

    def fill(self, server: Serve, count) -> None:
        self.check(server)
        before = -1
        def still():
            nonlocal before
            last, before = before, count()
            return before > 0 and before == last
        eventually(still, "all blocks are stored")

    def test_another_host_uses_what_the_first_one_computed(self):
        store = self.s3()
        first = self.with_s3(store)
        self.fill(first, lambda: len(store.objects))
        first.close()
        self.assertEqual(store.refused, [])
        self.assertRegex(next(iter(store.objects)), r"^prefix/a b/[0-9a-f]{32}/[0-9a-f]{2}/\d+:\w+(:\w+)?\.t1r0$")
        second = self.with_s3(store)
        self.assertGreater(min(self.check(second)), 100)
        self.assertGreater(second.http.metric("stator_kv_onboard_blocks_total", tier="object", result="ok"), 20)
        self.assertGreater(second.http.metric("stator_kv_object_requests_total", op="get", code="200"), 20)
        second.close()
        # Another salt is another namespace.
        third = self.serve("--kv-object", "s3://cache/prefix/a b", "--kv-object-endpoint", store.url, "--kv-salt", "other")
        self.assertEqual(cached(ask(third.http, PROMPTS[0])), 0)

    def test_busy_damaged_cut_and_slow_answers_are_survived(self):
        store = self.s3()
        self.fill(self.with_s3(store), lambda: len(store.objects))
        store.fail(503, 3)
        self.assertGreater(min(self.check(self.with_s3(store))), 100)
        for how in ("flip", "cut", "half"):
            store.spoil(how)
            server = self.with_s3(store)
            self.assertEqual(self.check(server), [0] * len(PROMPTS))
            self.assertGreater(server.http.metric("stator_kv_integrity_errors_total", tier="object")
                               + server.http.metric("stator_kv_load_errors_total", tier="object"), 0)
            server.close()
        store.spoil(delay_s=1.0)
        server = self.serve("--kv-object", "s3://cache/prefix/a b", "--kv-object-endpoint", store.url, "--kv-load-timeout", "100ms")
        self.assertEqual(said(ask(server.http, PROMPTS[0])), self.expected[PROMPTS[0]])
        self.assertGreater(server.http.metric("stator_kv_onboard_late_total"), 0)

    def test_a_store_whose_clock_differs_is_asked_by_its_time(self):
        store = self.s3()
        store.ahead_s = -7200.0
        server = self.with_s3(store)
        ask(server.http, PROMPTS[0])
        eventually(lambda: store.objects, "blocks are stored")
        self.assertIn("RequestTimeTooSkewed", store.refused)
        self.assertEqual(server.http.metric("stator_kv_tier_enabled", tier="object"), 1)
        self.assertIn("clock differs", server.frontend.log())

    def test_a_missing_bucket_or_wrong_keys_cost_the_tier_only(self):
        store = self.s3()
        for server, word in ((self.with_s3(store, bucket="other"), "does not exist"),
                             (self.with_s3(store, env=KEYS | {"AWS_SECRET_ACCESS_KEY": "wrong"}), "answers 403")):
            self.check(server)
            self.assertEqual(server.frontend.log().count("the object tier is switched off"), 1)
            self.assertIn(word, server.frontend.log())
            self.assertEqual(server.http.metric("stator_kv_tier_enabled", tier="object"), 0)
            server.close()

    def test_azure_serves_as_well_and_its_faults_are_survived(self):
        store = FakeAzure()
        self.addCleanup(store.close)
        keys = {"AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY}
        def serve(container: str = "cache", **more):
            return self.serve("--kv-object", f"az://{container}/prefix/a b", "--kv-object-endpoint", store.url, env=keys | more)
        first = serve()
        self.fill(first, lambda: len(store.objects))
        first.close()
        self.assertEqual(store.refused, [])
        self.assertRegex(next(iter(store.objects)), r"^prefix/a b/[0-9a-f]{32}/[0-9a-f]{2}/\d+:\w+(:\w+)?\.t1r0$")
        store.fail(503, 3)
        second = serve()
        self.assertGreater(min(self.check(second)), 100)
        self.assertGreater(second.http.metric("stator_kv_onboard_blocks_total", tier="object", result="ok"), 20)
        second.close()
        for how in ("flip", "half"):
            store.spoil(how)
            server = serve()
            self.assertEqual(self.check(server), [0] * len(PROMPTS))
            server.close()
        other = base64.b64encode(b"another key").decode()
        for server, word in ((serve(container="other"), "does not exist"), (serve(AZURE_STORAGE_KEY=other), "answers 403")):
            self.check(server)
            self.assertIn(word, server.frontend.log())
            self.assertEqual(server.http.metric("stator_kv_tier_enabled", tier="object"), 0)
            server.close()

    def test_a_folder_serves_as_well(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="stator_shared_"))
        self.addCleanup(shutil.rmtree, folder)
        first = self.serve("--kv-object", f"file://{folder}")
        self.fill(first, lambda: len(list(folder.rglob("*.t1r0"))))
        first.close()
        for file in list(folder.rglob("0:*.t1r0"))[:1]:
            file.write_bytes(file.read_bytes()[:-1] + b"?")  # one bit at least
        hits = self.check(self.serve("--kv-object", f"file://{folder}"))
        self.assertGreater(max(hits), 100)
        self.assertEqual(min(hits), 0)


if __name__ == "__main__":
    unittest.main()
