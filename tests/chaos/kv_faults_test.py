#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""KV tiers under faults: an engine with a cache of a quarter of its prompts is killed at random moments, and what it left on disk is
flipped, torn, cut or replaced before it starts again. Every answer must be bit-equal to an engine without tiers.

STATOR_KV_ROUNDS=100 python3 kv_faults_test.py     the long form; STATOR_TEST_SEED names the faults
"""

import http.client
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from stator_process import MODEL, Serve  # noqa: E402

ROUNDS = int(os.environ.get("STATOR_KV_ROUNDS", "6"))
SEED = int(os.environ.get("STATOR_TEST_SEED", "0")) or random.randrange(1, 1 << 32)
STRIDE = 65536 + 4096  # of the demo model
PROMPTS = [f"Chapter {n // 3}: " + " ".join(f"word{(n // 3 * 11 + i) % 97}" for i in range(40 + 15 * (n % 3))) for n in range(18)]


def ask(http, prompt: str) -> object:
    status, answer = http.post("/v1/completions", {
        "model": MODEL, "prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 2})
    assert status == 200, answer
    return answer["choices"][0]["text"], answer["choices"][0]["logprobs"]


class KvFaultsTest(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(SEED)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stator_kv_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.disk = self.folder / "kv"

    def serve(self) -> Serve:
        server = Serve("--workers", "1", "--kv-cache-bytes", "3MiB", "--max-model-len", "512", "--kv-host-bytes", "2MiB",
                       "--kv-disk", str(self.disk), "--kv-disk-bytes", "16MiB", engine="cpu")
        self.addCleanup(server.close)
        return server

    def damage(self, kind: str) -> None:
        data, log = self.disk / "g3.data", self.disk / "g3.log"
        slots = data.stat().st_size // STRIDE
        with data.open("r+b") as file:
            for slot in self.random.sample(range(slots), slots // 4):
                at = slot * STRIDE + self.random.randrange(STRIDE)
                file.seek(at)
                if kind == "flip":
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ 1 << self.random.randrange(8)]))
                elif kind == "torn":  # the end of the slot was never written
                    file.write(bytes(STRIDE - at % STRIDE))
                elif kind == "swap":
                    other = self.random.randrange(slots)
                    file.seek(other * STRIDE)
                    block = file.read(STRIDE)
                    file.seek(slot * STRIDE)
                    file.write(block)
        if kind == "cut":
            os.truncate(data, data.stat().st_size // 2)
        if kind == "log" and log.stat().st_size:
            with log.open("r+b") as file:
                file.seek(self.random.randrange(log.stat().st_size))
                file.write(b"\xff\x00\xff")
        if kind == "old log":  # a backup of another moment
            shutil.copy(self.kept, log)

    def test_answers_never_change(self):
        plain = Serve("--workers", "1", engine="cpu")
        self.addCleanup(plain.close)
        expected = {prompt: ask(plain.http, prompt) for prompt in PROMPTS}
        plain.close()
        self.kept = self.folder / "kept.log"
        requests = found = loaded = 0
        kinds = ["flip", "torn", "swap", "cut", "log", "old log"]
        for round_ in range(ROUNDS):
            server = self.serve()
            killer = None
            if round_ % 2:  # in the middle of its work
                killer = threading.Timer(self.random.uniform(0.05, 1.0), server.frontend.process.kill)
                killer.start()
            for prompt in self.random.choices(PROMPTS, k=40):
                try:
                    answer = ask(server.http, prompt)
                except (OSError, http.client.HTTPException):
                    if killer is None:
                        raise
                    break
                requests += 1
                self.assertEqual(answer, expected[prompt], f"seed {SEED}, round {round_}, {prompt[:20]}")
            if killer is None:
                found += server.http.metric("stator_kv_integrity_errors_total") + server.http.metric("stator_kv_load_errors_total")
                loaded += server.http.metric("stator_kv_onboard_blocks_total", tier="disk", result="ok")
            else:
                killer.join()
            server.close()
            if round_ == 0:
                shutil.copy(self.disk / "g3.log", self.kept)
            self.damage(kinds[round_ % len(kinds)])
        print(f"seed {SEED}: {requests} requests bit-equal, {loaded:.0f} blocks loaded from disk, {found:.0f} damaged or stale ones found",
              file=sys.stderr)
        self.assertGreater(loaded, 0)
        self.assertGreater(found, 0)


if __name__ == "__main__":
    unittest.main()
