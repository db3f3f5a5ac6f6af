#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tenant that wants to know what another one asked: identical prompts tell it nothing.

As a test: a few pairs, what answers and receipts say. `probing_test.py --pairs 1000` also compares times to the first token of prompts that
the other tenant has sent before with those of prompts that nobody has sent, pair by pair, and prints what it found.
"""

import argparse
import http.client
import json
import math
import pathlib
import statistics
import sys
import tempfile
import time
import unittest

from access_test import ask, key
from stator_process import MODEL_DIR, Stator

PAIRS = 12
# About 100 tokens: several blocks, and with these costs 20 ms that a hit would save.
WORDS = ("router", "cache", "block", "prefix", "worker", "tenant", "stream", "token")


def prompt(number: int, kind: str) -> str:
    return f"{kind} {number}: " + " ".join(WORDS[(number // 8**i + i) % 8] for i in range(40))


class Service:
    """Two tenants before one simulated worker that takes 0.2 ms per prompt token that is not cached."""

    def __init__(self, folder: pathlib.Path):
        self.keys, lines = {}, []
        for role, tenant in (("user", "victim"), ("user", "probe"), ("operator", "ops")):
            self.keys[tenant], line = key(role, tenant)
            lines.append(line)
        (folder / "keys").write_text("\n".join(lines) + "\n")
        self.stator = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--workers", "1", "--sim-prefill-token-us", "200",
                             "--sim-step-us", "1000", "--host", "127.0.0.1", "--port", "0", "--admin-port", "0", "--api-keys",
                             str(folder / "keys"))
        self.port = self.stator.ready["port"]

    def complete(self, tenant: str, text: str) -> tuple[int, float, str]:
        """Cached tokens as usage says, seconds to the first token, the answer's id."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = {"model": "demo", "prompt": text, "max_tokens": 1, "stream": True, "stream_options": {"include_usage": True}}
        began = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"content-type": "application/json", "authorization": f"Bearer {self.keys[tenant]}"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        first, cached, name = None, 0, ""
        for line in answer:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - began
                chunk = json.loads(line[6:])
                name = chunk["id"]
                if chunk.get("usage"):
                    cached = (chunk["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        connection.close()
        return cached, first, name


class Probing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.service = Service(pathlib.Path(folder.name))
        cls.addClassCleanup(cls.service.stator.close)

    def test_usage_says_nothing_of_another_tenants_prompts(self):
        for number in range(PAIRS):
            text = prompt(number, "secret")
            self.service.complete("victim", text)
            self.assertEqual(self.service.complete("probe", text)[0], 0)
        self.assertGreater(self.service.complete("victim", prompt(0, "secret"))[0], 0, "the own prompt is cached, so there was something to see")

    def test_receipts_are_for_operators(self):
        port, keys = self.service.stator.ready["admin_port"], self.service.keys
        name = self.service.complete("victim", prompt(0, "receipt"))[2]
        for path in (f"/receipts/{name}", "/receipts/last", "/requests", "/metrics"):
            for listener in (self.service.port, port):
                self.assertIn(ask(listener, "GET", path, x_api_key=keys["probe"])[0], (403, 404), path)
        self.assertEqual(ask(port, "GET", f"/receipts/{name}", x_api_key=keys["ops"])[0], 200)


def compare(pairs: int) -> int:
    """Of each pair: how much sooner came the first token of a prompt that the other tenant had sent than of a new one?"""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(pathlib.Path(folder))
        known, fresh, own, cached = [], [], [], 0
        for number in range(pairs):
            text = prompt(number, "secret")
            service.complete("victim", text)
            probes = [(known, text), (fresh, prompt(number, "nobody"))]
            for times, asked in probes if number % 2 else reversed(probes):
                found, took, _ = service.complete("probe", asked)
                times.append(took)
                cached += found
            if number % 10 == 0:
                own.append(service.complete("victim", text)[1])
        service.stator.close()
    differences = [new - old for new, old in zip(fresh, known)]
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(pairs)
    z = mean / error
    print(json.dumps({"pairs": pairs, "cached_tokens": cached, "ttft_ms_median_known_to_other": round(1e3 * statistics.median(known), 3),
                      "ttft_ms_median_known_to_nobody": round(1e3 * statistics.median(fresh), 3),
                      "ttft_ms_median_own_hit": round(1e3 * statistics.median(own), 3),
                      "sooner_ms_mean": round(1e3 * mean, 4), "standard_error_ms": round(1e3 * error, 4), "z": round(z, 2),
                      "told_apart": abs(z) > 3.29}, indent=1))  # p < 0.001
    return 1 if cached or abs(z) > 3.29 else 0


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int)
    given, rest = options.parse_known_args()
    if given.pairs:
        sys.exit(compare(given.pairs))
    unittest.main(argv=[sys.argv[0], *rest])
