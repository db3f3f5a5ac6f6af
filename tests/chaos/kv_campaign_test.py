#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The correctness campaign of the storage plane: engines whose cache holds a quarter of their prompts, with every tier and hand-offs
between prefill and decode workers, while blocks are flipped, torn, cut, replaced, answered late or not at all and peers are killed.
Every answer must be bit-equal to an engine without tiers, and what was damaged must be counted.

STATOR_KV_REQUESTS=10000 python3 kv_campaign_test.py     (scripts/kv_campaign.sh N); STATOR_TEST_SEED names the faults
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from fake_s3 import ACCESS, SECRET, FakeS3  # noqa: E402
from stator_process import MODEL, MODEL_DIR, Http, Serve, Stator, clean_environment, eventually  # noqa: E402

REQUESTS = int(os.environ.get("STATOR_KV_REQUESTS", "120"))
SEED = int(os.environ.get("STATOR_TEST_SEED", "0")) or random.randrange(1, 1 << 32)
STRIDE = 65536 + 4096  # of the demo model
# About four times the 40 blocks of the device below; chains with common beginnings.
PROMPTS = [f"Chapter {n // 3}: " + " ".join(f"w{(n // 3 * 11 + i) % 97}" for i in range(16 + 8 * (n % 3))) for n in range(24)]
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
SMALL = ("--kv-cache-bytes", "2560KiB", "--max-model-len", "256")
DISK_KINDS = ("flip", "torn", "swap", "cut", "log")
OBJECT_KINDS = ("flip", "cut", "replace")
# What says that damage was noticed, and what says that a tier gave something.
FOUND = ("stator_kv_integrity_errors_total", "stator_kv_load_errors_total", "stator_engine_handoff_integrity_errors_total",
         "stator_engine_handoff_fallbacks_total", "stator_kv_onboard_late_total", "stator_engine_handoffs_refused_total")


def ask(port: int, prompt: str) -> object:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": MODEL, "prompt": prompt, "max_tokens": 3, "temperature": 0, "logprobs": 1}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        return body["choices"][0]["text"], body["choices"][0]["logprobs"]
    finally:
        connection.close()


class KvCampaign(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        plain = Serve("--workers", "1", engine="cpu")
        cls.expected = {prompt: ask(plain.http.port, prompt) for prompt in PROMPTS}
        plain.close()
        cls.sums = {"requests": 0, "host": 0.0, "disk": 0.0, "object": 0.0, "handed over": 0.0, "found": 0.0, "damaged": 0}

    @classmethod
    def tearDownClass(cls):
        print(f"seed {SEED}: " + ", ".join(f"{value:.0f} {name}" for name, value in cls.sums.items()), file=sys.stderr)

    def setUp(self):
        self.random = random.Random(f"{SEED}{self._testMethodName}")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stator_kv_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def serve(self, *arguments: str, env: dict | None = None) -> Serve:
        server = Serve(*SMALL, *arguments, engine="cpu", env=clean_environment(**(env or {})))
        self.addCleanup(server.close)
        return server

    def run_requests(self, port: int, count: int) -> None:
        prompts = self.random.choices(PROMPTS, k=count)
        with concurrent.futures.ThreadPoolExecutor(4) as clients:
            for prompt, answer in zip(prompts, clients.map(lambda one: ask(port, one), prompts)):
                self.assertEqual(answer, self.expected[prompt], f"seed {SEED}, {self._testMethodName}, {prompt[:20]}")
        self.sums["requests"] += count

    def count(self, *ports: int) -> float:
        found = 0.0
        for port in ports:
            http_ = Http(port)
            found += sum(http_.metric(name) for name in FOUND)
            self.sums["host"] += http_.metric("stator_engine_kv_host_loaded_blocks_total")
            for tier in ("disk", "object"):
                self.sums[tier] += http_.metric("stator_kv_onboard_blocks_total", tier=tier, result="ok")
            self.sums["handed over"] += http_.metric("stator_engine_handoff_blocks_total", side="take")
        self.sums["found"] += found
        return found

    def damage_disk(self, disk: pathlib.Path, kind: str) -> None:
        data, log = disk / "g3.data", disk / "g3.log"
        slots = data.stat().st_size // STRIDE
        if kind == "cut":
            os.truncate(data, data.stat().st_size // 4)
        elif kind == "log" and log.stat().st_size:
            with log.open("r+b") as file:
                file.seek(self.random.randrange(log.stat().st_size))
                file.write(b"\xff\x00\xff")
        else:
            with data.open("r+b") as file:
                for slot in self.random.sample(range(slots), slots // 2):
                    self.spoil_slot(file, slot, slots, kind)
                    self.sums["damaged"] += 1

    def spoil_slot(self, file, slot: int, slots: int, kind: str) -> None:
        at = slot * STRIDE + self.random.randrange(STRIDE)
        file.seek(at)
        if kind == "flip":
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << self.random.randrange(8)]))
        elif kind == "torn":  # the end of the slot was never written
            file.write(bytes(STRIDE - at % STRIDE))
        else:
            file.seek(self.random.randrange(slots) * STRIDE)
            block = file.read(STRIDE)
            file.seek(slot * STRIDE)
            file.write(block)

    def damage_objects(self, store: FakeS3, kind: str) -> None:
        with store.lock:
            names = sorted(store.objects)
            for name in self.random.sample(names, len(names) // 3):
                body = store.objects[name]
                if kind == "flip":
                    at = self.random.randrange(len(body))
                    body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1:]
                elif kind == "cut":
                    body = body[:self.random.randrange(len(body))]
                else:
                    body = store.objects[self.random.choice(names)]
                store.objects[name] = body
                self.sums["damaged"] += 1

    def test_memory_and_disk(self):
        """A restart or kill between rounds, and damage of another kind each time."""
        disk = self.folder / "kv"
        rounds = max(2, REQUESTS // 3 // 200)
        found = 0.0
        for round_ in range(rounds):
            server = self.serve("--workers", "1", "--kv-host-bytes", "1280KiB", "--kv-disk", str(disk), "--kv-disk-bytes", "12MiB")
            self.run_requests(server.http.port, REQUESTS // 3 // rounds)
            found += self.count(server.http.port)
            server.close()
            self.damage_disk(disk, DISK_KINDS[round_ % len(DISK_KINDS)])
        self.assertGreater(found, 0)

    def test_objects(self):
        """A bucket whose objects are damaged, whose answers are late, short or errors."""
        store = FakeS3()
        self.addCleanup(store.close)
        rounds = max(3, REQUESTS // 3 // 200)
        found = 0.0
        for round_ in range(rounds):
            server = self.serve("--workers", "1", "--kv-object", "s3://cache/p", "--kv-object-endpoint", store.url,
                                "--kv-load-timeout", "150ms", env=KEYS)
            trouble = ("", "slow", "half", "error")[round_ % 4]
            store.spoil("half" if trouble == "half" else "", 0.3 if trouble == "slow" else 0.0)
            if trouble == "error":
                store.fail(503, 20)
            self.run_requests(server.http.port, REQUESTS // 3 // rounds)
            found += self.count(server.http.port)
            store.spoil()
            server.close()
            self.damage_objects(store, OBJECT_KINDS[round_ % len(OBJECT_KINDS)])
        self.assertGreater(found, 0)

    def test_hand_offs(self):
        """Two prefill workers and one that decodes, over shared memory; a prefill worker is killed in each round."""
        discovery = ("--discovery", f"file:{self.folder}", "--discovery-lease-ttl", "2s")
        frontend = Stator("frontend", "--host", "127.0.0.1", "--port", "0", *discovery)
        self.addCleanup(frontend.close)
        rounds = max(1, REQUESTS // 3 // 400)

        def worker(role: str) -> Stator:
            made = Stator("worker", str(MODEL_DIR), "--engine", "cpu", "--role", role, "--system-port", "0", "--handoff-bytes", "1MiB",
                          *SMALL, *discovery)
            self.addCleanup(made.close)
            return made

        def workers(count: int) -> None:
            eventually(lambda: len(Http(frontend.port).get("/health")[1].get("instances", [])) == count, f"{count} workers")

        decode, kept = worker("decode"), worker("prefill")
        for _ in range(rounds):
            victim = worker("prefill")
            workers(3)
            killer = concurrent.futures.ThreadPoolExecutor(1)
            killed = killer.submit(lambda: (time.sleep(self.random.uniform(0.1, 1.0)), victim.kill()))
            self.run_requests(frontend.port, REQUESTS // 3 // rounds)
            killed.result()
            workers(2)
        self.count(decode.ready["system_port"], kept.ready["system_port"])
        self.assertGreater(self.sums["handed over"], 0)


if __name__ == "__main__":
    unittest.main()
