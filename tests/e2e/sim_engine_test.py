#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Live simulated workers: data-parallel ranks, and the faults they can be told to have. Whatever a faulty worker does, the answer is that of a
healthy one."""

import signal
import subprocess
import unittest

from stator_process import BINARY, MODEL, MODEL_DIR, Serve, Split, Stator, eventually

FAST = ("--sim-speedup", "0")


def ask(http, story: str, tokens: int = 8) -> dict:
    status, answer = http.post("/v1/chat/completions", {
        "model": MODEL, "max_tokens": tokens, "min_tokens": tokens, "temperature": 0,
        "messages": [{"role": "user", "content": f"{story}: " + "the cache remembers what it was told. " * 20}]})
    assert status == 200, answer
    return answer


def said(answer: dict) -> str:
    return answer["choices"][0]["message"]["content"]


def refused_start(*arguments: str) -> str:
    done = subprocess.run([BINARY, "serve", MODEL_DIR, "--port", "0", *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    return done.stderr


class RanksTest(unittest.TestCase):
    def deploy(self, *arguments: str) -> Serve:
        deployment = Serve("--workers", "1", *FAST, *arguments)
        self.addCleanup(deployment.close)
        return deployment

    def test_ranks_share_the_work_and_say_the_same(self):
        alone, ranks = self.deploy(), self.deploy("--dp-size", "2", "--router", "round_robin")
        for i in range(8):
            self.assertEqual(said(ask(ranks.http, f"story {i}")), said(ask(alone.http, f"story {i}")))
        for rank in (0, 1):
            self.assertEqual(ranks.http.metric("stator_engine_finished_requests_total", engine=f"sim0.dp{rank}"), 4, f"rank {rank}")

    def test_routers_know_which_rank_holds_what(self):
        ranks = self.deploy("--dp-size", "2", "--router", "kv")
        for _ in range(2):
            answers = [ask(ranks.http, f"story {i}") for i in range(8)]
        for again in answers:
            cached = (again["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            self.assertGreater(cached, 0.8 * again["usage"]["prompt_tokens"])

    def test_ranks_of_another_process(self):
        deployment = Split(workers=1, worker_arguments=("--dp-size", "3", *FAST))
        self.addCleanup(deployment.close)
        for i in range(6):
            ask(deployment.http, f"story {i}")
        self.assertEqual(deployment.http.metric("stator_router_active_requests"), 0)

    def test_an_engine_without_ranks_says_so(self):
        self.assertIn("engine.dp_size", refused_start("--engine", "cpu", "--dp-size", "2"))


class FaultsTest(unittest.TestCase):
    def deploy(self, *faults: str) -> Split:
        """A healthy worker and one with faults; a frontend that does not wait long."""
        deployment = Split("--frontend-stall-timeout", "1s", "--router", "round_robin", workers=1, worker_arguments=FAST)
        self.addCleanup(deployment.close)
        self.healthy = [said(ask(deployment.http, f"story {i}")) for i in range(6)]
        self.faulty = Stator("worker", str(MODEL_DIR), "--engine", "sim", *deployment.discovery, *FAST, *faults)
        deployment.workers.append(self.faulty)
        deployment.wait_for_workers(2)
        return deployment

    def assert_answers(self, deployment: Split) -> None:
        for i, expected in enumerate(self.healthy):
            self.assertEqual(said(ask(deployment.http, f"story {i}")), expected)

    def test_refused_requests_go_elsewhere(self):
        self.assert_answers(self.deploy("--sim-fault-refuse", "1"))

    def test_requests_that_fail_go_on_elsewhere(self):
        deployment = self.deploy("--sim-fault-fail", "1", "--sim-fault-after-tokens", "3")
        self.assert_answers(deployment)
        self.assertGreater(deployment.http.metric("dynamo_frontend_model_migration_total"), 0)

    def test_requests_that_hang_go_on_elsewhere(self):
        deployment = self.deploy("--sim-fault-hang", "1", "--sim-fault-after-tokens", "3")
        self.assert_answers(deployment)
        self.assertGreater(deployment.http.metric("dynamo_frontend_model_migration_total"), 0)

    def test_a_frozen_worker_loses_its_requests_to_another(self):
        deployment = self.deploy("--sim-fault-freeze-after-tokens", "3", "--sim-fault-freeze-time", "20s")
        self.assert_answers(deployment)
        self.assertGreater(deployment.http.metric("dynamo_frontend_model_migration_total"), 0)

    def test_a_worker_that_dies_is_replaced(self):
        deployment = self.deploy("--sim-fault-die-after-tokens", "3")
        self.assert_answers(deployment)
        self.assertEqual(eventually(self.faulty.process.poll, "the worker's death"), -signal.SIGKILL)

    def test_faults_of_more_than_all_requests_are_refused(self):
        said_ = refused_start("--engine", "sim", "--sim-fault-fail", "0.8", "--sim-fault-hang", "0.3")
        self.assertIn("sim_fault.hang", said_)


if __name__ == "__main__":
    unittest.main()
