#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""KV blocks in a real S3 server (scripts/test_s3.sh starts one): what one engine computed another one loads, bit for bit."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from kv_object_test import PROMPTS, ask, cached, said  # noqa: E402
from stator_process import Serve, clean_environment, eventually  # noqa: E402

KEYS = {name: os.environ.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")}


class RealS3(unittest.TestCase):
    def serve(self, bucket: str = "stator-kv", **keys: str) -> Serve:
        server = Serve("--workers", "1", "--kv-object", f"s3://{bucket}/prefix/a b", "--kv-object-endpoint",
                       os.environ["STATOR_S3_ENDPOINT"], engine="cpu", env=clean_environment(**(KEYS | keys)))
        self.addCleanup(server.close)
        return server

    def test_another_engine_loads_what_one_computed(self):
        first = self.serve()
        said_first = [said(ask(first.http, prompt)) for prompt in PROMPTS]
        blocks = lambda: first.http.metric("stator_kv_offload_blocks_total", tier="object", result="ok")  # noqa: E731
        computed = lambda: first.http.metric("stator_kv_registrations_total", tier="device")  # noqa: E731
        eventually(lambda: blocks() >= computed() > 0, "all blocks in the bucket")
        first.close()

        second = self.serve()
        answers = [ask(second.http, prompt) for prompt in PROMPTS]

        self.assertEqual([said(answer) for answer in answers], said_first)
        self.assertGreater(min(cached(answer) for answer in answers), 100)
        self.assertEqual(second.http.metric("stator_kv_integrity_errors_total"), 0)

    def test_wrong_keys_and_a_missing_bucket_switch_the_tier_off(self):
        for server in (self.serve(AWS_SECRET_ACCESS_KEY="wrong"), self.serve(bucket="missing")):
            self.assertTrue(said(ask(server.http, PROMPTS[0])))
            eventually(lambda: server.http.metric("stator_kv_tier_enabled", tier="object") == 0, "the tier is off")


if __name__ == "__main__":
    unittest.main()
