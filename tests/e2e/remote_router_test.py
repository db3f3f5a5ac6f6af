#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A frontend whose workers are chosen by `stator router --select`, which finds them itself; and what happens without it."""

import unittest

from free_ports import free_port
from stator_process import MODEL, Http, Split, Stator, eventually

CHAT = "/v1/chat/completions"
# What dashboards and planners of the reference system read of a router. It has no shared cache, so those names are not there.
METRICS = """
dynamo_component_router_requests_started_total dynamo_component_router_requests_total
dynamo_component_router_time_to_first_token_seconds dynamo_component_router_inter_token_latency_seconds
dynamo_component_router_input_sequence_tokens dynamo_component_router_output_sequence_tokens
dynamo_component_router_kv_hit_rate dynamo_component_router_non_max_overlap_selections_total
dynamo_component_router_overlap_blocks_lost dynamo_component_router_worker_registered
dynamo_component_router_kv_event_source_mismatch_workers
dynamo_component_router_remote_indexer_query_failures_total dynamo_component_router_remote_indexer_write_failures_total
dynamo_router_overhead_scheduling_ms dynamo_router_overhead_indexer_find_matches_ms dynamo_router_overhead_total_ms
dynamo_frontend_router_queue_pending_requests dynamo_frontend_router_queue_pending_isl_tokens
dynamo_frontend_router_queue_pending_cached_tokens dynamo_frontend_router_queue_backpressure_total
dynamo_frontend_worker_active_decode_blocks dynamo_frontend_worker_active_prefill_tokens
dynamo_component_kv_cache_events_applied kv_cache_event_warnings
stator_router_cached_tokens_expected_total stator_router_cached_tokens_found_total
""".split()
OUTCOMES = "stator_router_remote_decisions_total"


class RemoteRouter(unittest.TestCase):
    def setUp(self):
        self.deployment = Split(workers=2, worker_arguments=("--sim-speedup", "0"))
        self.addCleanup(self.deployment.close)
        self.router = self.start_router(str(free_port()))
        self.frontend = Stator("frontend", "--host", "127.0.0.1", "--port", "0", *self.deployment.discovery,
                               "--router-url", f"http://127.0.0.1:{self.router.port}", "--router-url-timeout", "60s")
        self.addCleanup(self.frontend.close)
        self.http = Http(self.frontend.port)
        eventually(lambda: len(self.http.get("/health")[1].get("instances", [])) == 2, "the frontend's workers")

    def start_router(self, port: str) -> Stator:
        router = Stator("router", "--select", "--host", "127.0.0.1", "--port", port, "--threads", "2", *self.deployment.discovery)
        self.addCleanup(router.close)
        eventually(lambda: Http(router.port).get("/ready")[1].get("schedulable_workers") == 2, "the router's workers")
        return router

    def ask(self, text: str, headers: dict | None = None) -> dict:
        """The receipt."""
        status, answer = self.http.post(
            CHAT, {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": text}]}, headers)
        self.assertEqual(status, 200, answer)
        return self.http.get(f"/receipts/{answer['id']}")[1]

    def test_it_chooses_by_what_it_knows_and_gets_its_bookings_back(self):
        router = Http(self.router.port)
        text = "Once upon a time there was a router. " * 30
        first = self.ask(text)
        self.assertEqual(first["reason"], "chosen by the router that was asked")
        eventually(lambda: sum(len(dump["events"]) for dump in router.get("/dump")[1].values()) > 0, "it follows the events")
        for _ in range(4):
            again = self.ask(text)
            self.assertEqual(again["chosen"], first["chosen"], "where the prefix is")
            self.assertGreater(again["best_overlap_blocks"], 3)
        self.assertEqual(self.http.metric(OUTCOMES, outcome="followed"), 5)
        expected = self.http.metric("stator_router_cached_tokens_expected_total")
        self.assertGreater(expected, 0)
        self.assertGreaterEqual(self.http.metric("stator_router_cached_tokens_found_total"), expected, "never too much")
        eventually(lambda: self.http.metric("stator_router_remote_bookings") == 0, "no booking is left here")
        eventually(lambda: all(load["potential_decode_blocks"] == 0 and load["potential_prefill_tokens"] == 0
                               for load in router.get("/loads")[1][0]["loads"]), "nor there")

    def test_metrics_have_the_names_that_dashboards_read(self):
        self.ask("Hello.")
        text = self.http.request("GET", "/metrics")[2].decode()
        kinds = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
        self.assertEqual([name for name in METRICS if name not in kinds], [])

    def test_a_router_that_is_killed_costs_no_request_and_is_used_again(self):
        self.ask("Is anybody there?")
        port = str(self.router.port)
        self.router.kill()
        for number in range(6):
            receipt = self.ask(f"Question {number}. " + "And so on. " * 10)
            self.assertNotIn("was asked", receipt["reason"])
        self.assertEqual(self.http.metric(OUTCOMES, outcome="silent"), 6)
        self.assertGreater(self.http.metric("dynamo_component_router_remote_indexer_query_failures_total"), 0)

        self.router = self.start_router(port)
        followed = self.http.metric(OUTCOMES, outcome="followed")
        eventually(lambda: self.ask("Welcome back.") and self.http.metric(OUTCOMES, outcome="followed") > followed, "asked again")

    def test_a_request_that_names_its_worker_asks_nobody(self):
        worker = self.http.get("/health")[1]["instances"][0]["instance_id"]
        receipt = self.ask("Directly, please.", {"x-stator-worker-instance-id": str(worker)})
        self.assertEqual(receipt["reason"], "named by the request")
        self.assertEqual(self.http.metric(OUTCOMES), 0)

    def test_a_worker_that_dies_is_no_longer_chosen(self):
        self.ask("Hello.")
        self.deployment.workers[0].kill()
        eventually(lambda: Http(self.router.port).get("/ready")[1]["schedulable_workers"] == 1, "the router has noticed")
        for number in range(4):
            self.ask(f"Question {number}.")


class Refused(unittest.TestCase):
    def test_a_url_that_is_none_is_named(self):
        process = Stator("frontend", "--port", "0", "--discovery", "file:/tmp/stator-unused", "--router-url", "pigeon:7",
                         announce=False)
        self.addCleanup(process.close)
        self.assertNotEqual(process.wait(), 0)
        self.assertIn("--router-url", process.log())


if __name__ == "__main__":
    unittest.main()
