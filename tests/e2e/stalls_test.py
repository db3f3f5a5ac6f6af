#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engine servers that stand still or are slow for a while, and heal: who gets their requests, and when they get theirs back."""

import concurrent.futures
import json
import random
import signal
import threading
import time
import unittest
import urllib.request
from collections.abc import Iterator

from stator_process import MODEL_DIR, PATIENCE_S, Http, Stator, eventually


def prompt(seed: int, length: int = 64) -> list[int]:
    numbers = random.Random(seed)
    return [numbers.randrange(300, 3000) for _ in range(length)]


class Fleet(unittest.TestCase):
    """Two fake vLLM servers behind `stator serve` with its default settings."""

    timing = "linear:step_us=10000"

    def setUp(self) -> None:
        self.engines = []
        for _ in range(2):
            self.engines.append(Stator("sim-server", "--dialect", "vllm", "--model-dir", str(MODEL_DIR), "--host", "127.0.0.1",
                                       "--port", "0", "--sim-timing", self.timing, "--kv-blocks", "8192"))
            self.addCleanup(self.engines[-1].close)
        self.stator = Stator("serve", str(MODEL_DIR), "--engine", "vllm", "--url", ",".join(e.url for e in self.engines),
                             "--host", "127.0.0.1", "--port", "0")
        self.addCleanup(self.stator.close)
        self.http = Http(self.stator.port)
        eventually(lambda: self.http.request("GET", "/health")[0] == 200, "healthy")
        self.model = self.http.get("/v1/models")[1]["data"][0]["id"]

    def complete(self, tokens: list[int], max_tokens: int) -> str:
        status, answer = self.http.post("/v1/completions", {"model": self.model, "prompt": tokens, "max_tokens": max_tokens,
                                                            "temperature": 0, "ignore_eos": True})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["text"]

    def stream(self, tokens: list[int], max_tokens: int, begun: threading.Semaphore) -> str:
        body = {"model": self.model, "prompt": tokens, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(f"{self.stator.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        text = ""
        with urllib.request.urlopen(request, timeout=3 * PATIENCE_S) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    self.assertNotIn("error", event, event)
                    text += "".join(choice["text"] for choice in event["choices"])
                    begun.release()
        return text

    def served(self) -> list[float]:
        return [Http(engine.port).metric("vllm:request_success_total") for engine in self.engines]

    def running(self) -> list[float]:
        return [Http(engine.port).metric("vllm:num_requests_running") for engine in self.engines]


class StoppedEngine(Fleet):
    def test_what_it_had_and_what_reaches_it_goes_on_elsewhere_until_it_answers_again(self):
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            long = [prompt(seed) for seed in range(6)]
            new = [prompt(100 + seed) for seed in range(12)]
            expected = list(pool.map(lambda p: self.complete(p, 600), long)) + list(pool.map(lambda p: self.complete(p, 8), new))
            begun = threading.Semaphore(0)
            streams = [pool.submit(self.stream, p, 600, begun) for p in long]
            for _ in long:
                self.assertTrue(begun.acquire(timeout=PATIENCE_S))
            eventually(lambda: min(self.running()) > 0, "both servers have streams")

            stopped = self.engines[0]
            stopped.freeze()
            began = time.monotonic()
            fresh = [pool.submit(self.complete, p, 8) for p in new]
            texts = [done.result(3 * PATIENCE_S) for done in streams]
            old_s = time.monotonic() - began
            texts += [done.result(3 * PATIENCE_S) for done in fresh]
            new_s = time.monotonic() - began
            print(f"\nafter the stop: streams done in {old_s:.1f} s, new requests in {new_s:.1f} s", flush=True)

            self.assertEqual(texts, expected)
            self.assertLess(new_s, 45, "the limits beside the health check are 120 s")
            self.assertEqual(self.http.metric("stator_adapter_stalls_total"), 1)
            self.assertEqual(self.http.metric("stator_adapter_engine_up"), 1, "one of two")
            stopped.thaw()
            eventually(lambda: self.http.metric("stator_adapter_engine_up") == 2, "it answers again")
            before = self.served()[0]
            seeds = iter(range(1000, 100000))
            eventually(lambda: self.complete(prompt(next(seeds)), 2) and self.served()[0] > before, "it gets requests again")


class SlowSpell(Fleet):
    timing = "linear:step_us=2000,prefill_token_us=100"

    def load(self, seconds: float, seeds: Iterator[int]) -> float:
        """Four clients at once; the first server's part of the requests."""
        before = self.served()
        end = time.monotonic() + seconds

        def client(_: int) -> None:
            while time.monotonic() < end:
                self.complete(prompt(next(seeds), 200), 2)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(client, range(4)))
        served = [now - then for now, then in zip(self.served(), before)]
        return served[0] / max(1, sum(served))

    def test_a_server_that_was_slow_for_a_while_gets_its_share_back(self):
        seeds = iter(range(10**6, 10**9))
        self.assertGreater(self.load(8, seeds), 0.25)

        slow = threading.Event()

        def pulses() -> None:
            while not slow.is_set():
                self.engines[0].process.send_signal(signal.SIGSTOP)
                time.sleep(0.25)
                self.engines[0].process.send_signal(signal.SIGCONT)
                time.sleep(0.03)

        thread = threading.Thread(target=pulses)
        thread.start()
        during = self.load(12, seeds)
        slow.set()
        thread.join()
        began = time.monotonic()
        share = eventually(lambda: (part := self.load(5, seeds)) > 0.25 and part, "an even share again", 2 * PATIENCE_S)
        print(f"\nshare {during:.2f} while slow; {share:.2f} within {time.monotonic() - began:.0f} s after", flush=True)
        self.assertLess(during, 0.4)


if __name__ == "__main__":
    unittest.main()
