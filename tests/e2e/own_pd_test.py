#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode in different engines of ours: every answer is bit for bit that of one engine alone, whoever dies on the way."""

import tempfile
import threading
import unittest

from stator_process import MODEL, MODEL_DIR, Http, Serve, Stator, eventually

PROMPTS = [f"Story {n}: " + " ".join(f"word{(n * 7 + i) % 91}" for i in range(3 + 25 * n)) for n in range(5)]
WAYS = ({}, {"temperature": 0.9, "seed": 7}, {"temperature": 0.7, "top_p": 0.9, "seed": 11, "frequency_penalty": 0.5})


def ask(port: int, prompt: str, **more) -> tuple:
    status, answer = Http(port).post("/v1/completions", {
        "model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 2} | more)
    assert status == 200, answer
    usage = answer["usage"]
    return answer["choices"][0]["text"], answer["choices"][0]["logprobs"], answer["choices"][0]["finish_reason"], usage["prompt_tokens"]


class Fleet(unittest.TestCase):
    """A frontend, prefill and decode workers in processes of their own, and a server that does everything."""

    engine = "cpu"
    prompts = PROMPTS
    ways = WAYS
    frontend: tuple[str, ...] = ()

    @classmethod
    def setUpClass(cls):
        alone = Serve("--workers", "1", engine=cls.engine)
        cls.addClassCleanup(alone.close)
        cls.expected = {(prompt, i): ask(alone.http.port, prompt, **way) for prompt in cls.prompts for i, way in enumerate(cls.ways)}

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-own-pd-")
        self.addCleanup(folder.cleanup)
        self.discovery = ("--discovery", f"file:{folder.name}", "--discovery-lease-ttl", "10s")
        self.workers: dict[str, list[Stator]] = {"prefill": [], "decode": []}
        self.stator = self.start("frontend", "--host", "127.0.0.1", "--port", "0", *self.discovery, *self.frontend)
        self.http = Http(self.stator.port)

    def start(self, *arguments: str) -> Stator:
        process = Stator(*arguments)
        self.addCleanup(process.close)
        return process

    def add(self, role: str, *arguments: str) -> Stator:
        worker = self.start("worker", str(MODEL_DIR), "--engine", self.engine, "--role", role, "--system-port", "0",
                            *self.discovery, *arguments)
        self.workers[role].append(worker)
        living = sum(worker.alive() for workers in self.workers.values() for worker in workers)
        if any(worker.alive() for worker in self.workers["decode"]):  # prefill workers alone do not serve
            eventually(lambda: len(self.http.get("/health")[1].get("instances", [])) == living, f"{living} workers")
        return worker

    def sum(self, role: str, name: str, **labels: str) -> float:
        return sum(Http(worker.ready["system_port"]).metric(name, **labels) for worker in self.workers[role] if worker.alive())

    def ended(self, *outcomes: str) -> float:
        return sum(self.http.metric("stator_frontend_handoff_seconds_count", outcome=outcome) for outcome in outcomes)

    def check(self, prompts=None) -> int:
        """Every answer is as from one engine; how many there were."""
        count = 0
        for (prompt, way), expected in self.expected.items():
            if prompts is None or prompt in prompts:
                self.assertEqual(ask(self.stator.port, prompt, **self.ways[way]), expected)
                count += 1
        return count


class Cpu(Fleet):
    def test_one_prefill_and_one_decode_worker_answer_as_one_engine(self):
        self.add("prefill")
        self.add("decode")
        count = self.check()
        eventually(lambda: self.ended("used") == count, "every prompt was handed over")
        taken = self.sum("decode", "stator_engine_handoffs_taken_total")
        self.assertEqual(taken, count)
        self.assertEqual(self.sum("decode", "stator_engine_handoff_fallbacks_total"), 0)
        given = self.sum("prefill", "stator_engine_handoff_bytes_total", side="give")
        self.assertGreater(given, 0)
        self.assertEqual(given, self.sum("decode", "stator_engine_handoff_bytes_total", side="take"))
        self.assertEqual(self.sum("prefill", "stator_engine_handoffs_open"), 0)

    def test_workers_come_and_go(self):
        self.add("prefill")
        self.add("decode")
        self.add("prefill")
        self.check(PROMPTS[3:])
        gone = self.workers["prefill"][0]
        gone.terminate()
        self.assertEqual(gone.wait(), 0)
        eventually(lambda: len(self.http.get("/health")[1]["instances"]) == 2, "one prefill worker left")
        self.check(PROMPTS[3:])
        self.add("decode")
        self.check(PROMPTS[:3])
        self.workers["prefill"][1].kill()
        eventually(lambda: len(self.http.get("/health")[1]["instances"]) == 2, "only decode workers left")
        self.check(PROMPTS[2:4])

    def test_the_prefill_worker_is_killed_in_the_middle(self):
        self.add("prefill")
        self.add("decode")
        answers: dict[tuple, tuple] = {}
        clients = [threading.Thread(target=lambda key=key: answers.update({key: ask(self.stator.port, key[0], **WAYS[key[1]])}))
                   for key in self.expected if key[0] == PROMPTS[-1]]
        self.workers["prefill"][0].freeze()
        for client in clients:
            client.start()
        eventually(lambda: self.http.metric("stator_router_disaggregation_total", path="split") == len(clients), "prompts are asked for")
        self.workers["prefill"][0].kill()
        for client in clients:
            client.join()
        self.assertEqual(answers, {key: self.expected[key] for key in answers})
        self.assertEqual(len(answers), len(clients))

    def test_staging_memory_that_is_full_costs_computing_only(self):
        self.add("prefill", "--handoff-bytes", "256KiB")
        self.add("decode")
        self.check(PROMPTS[2:])
        self.assertGreater(self.sum("prefill", "stator_engine_handoff_staging_full_total"), 0)
        self.assertGreater(self.sum("decode", "stator_engine_handoff_fallbacks_total"), 0)


class Conditional(Fleet):
    frontend = ("--router-conditional-disagg-policy", "isl_bounding")
    ways = ({},)

    def test_short_prompts_stay_at_their_decode_worker(self):
        self.add("prefill")
        self.add("decode")
        self.check(PROMPTS[:2])
        self.check(PROMPTS[:2])
        self.assertGreater(self.http.metric("stator_router_disaggregation_total", path="whole"), 0)


class Sim(Fleet):
    engine = "sim"

    def test_simulated_engines_hand_over_too(self):
        self.add("prefill")
        self.add("decode")
        count = self.check()
        eventually(lambda: self.ended("used") == count, "every prompt was handed over")
        self.assertGreater(self.sum("decode", "stator_engine_handoff_blocks_total", side="take"), 0)


class OneProcess(unittest.TestCase):
    def test_serve_has_workers_of_both_roles(self):
        server = Serve("--prefill-workers", "1", "--decode-workers", "2", engine="cpu")
        self.addCleanup(server.close)
        alone = Serve("--workers", "1", engine="cpu")
        self.addCleanup(alone.close)
        self.assertEqual(len(server.worker_ids()), 3)
        for prompt in PROMPTS[2:]:
            self.assertEqual(ask(server.http.port, prompt), ask(alone.http.port, prompt))
        self.assertEqual(server.http.metric("stator_engine_handoffs_taken_total"), 3)
        self.assertEqual(server.http.metric("stator_engine_handoff_fallbacks_total"), 0)


if __name__ == "__main__":
    unittest.main()
