#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two frontends over the same workers: each counts what the other sent, and forgets one that was killed."""

import concurrent.futures
import unittest

from stator_process import MODEL, Http, Split, eventually

CHAT = "/v1/chat/completions"
# A prompt takes seconds to compute, so that requests are there to be seen.
SLOW_PREFILL = ("--sim-prefill-token-us", "60000", "--engine-prefix-caching", "false")
PREFILL = "dynamo_frontend_worker_active_prefill_tokens"


def chat(text: str) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 1, "temperature": 0}


class Replicas(unittest.TestCase):
    def setUp(self):
        self.deployment = Split("--router-replica-sync", "true", "--router-replica-sync-expiry", "2s",
                                workers=2, worker_arguments=SLOW_PREFILL)
        self.addCleanup(self.deployment.close)
        self.other = self.deployment.start_frontend()
        self.addCleanup(self.other.close)
        self.first_http, self.other_http = self.deployment.http, Http(self.other.port)
        eventually(lambda: self.other_http.request("GET", "/health")[0] == 200, "the second frontend is healthy")
        for http in (self.first_http, self.other_http):
            eventually(lambda http=http: http.metric("stator_router_replica_peers") == 1, "they found each other")
        self.pool = concurrent.futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def send(self, http: Http, text: str) -> concurrent.futures.Future:
        return self.pool.submit(http.request, "POST", CHAT, chat(text))

    def test_each_sees_the_load_of_the_other_and_routes_around_it(self):
        first = self.send(self.first_http, "one two three four five six seven eight")
        eventually(lambda: self.other_http.metric(PREFILL) > 0, "the other frontend knows of it")
        self.assertEqual(self.other_http.metric("stator_router_replica_bookings"), 1)
        second = self.send(self.other_http, "something else that is about as long as that")
        eventually(lambda: self.other_http.metric("stator_router_worker_active_requests") == 2, "both are counted")
        for worker in self.deployment.worker_ids():
            self.assertEqual(self.other_http.metric("stator_router_worker_active_requests", worker_id=f"{worker}"), 1,
                             "it chose the worker that the first frontend left free")
        for answer in (first, second):
            self.assertEqual(answer.result()[0], 200)
        for http in (self.first_http, self.other_http):
            eventually(lambda http=http: http.metric("stator_router_active_requests") == 0, "all load is given back")
        self.assertEqual(self.other_http.metric("stator_router_replica_divergences_total"), 0)

    def test_a_frontend_that_starts_late_gets_what_is_there(self):
        running = self.send(self.first_http, "one two three four five six seven eight nine ten")
        eventually(lambda: self.first_http.metric(PREFILL) > 0, "it runs")
        third = self.deployment.start_frontend()
        self.addCleanup(third.close)
        http = Http(third.port)
        eventually(lambda: http.metric("stator_router_replica_bookings") == 1 and http.metric(PREFILL) > 0,
                   "the newcomer has the booking")
        self.assertGreaterEqual(http.metric("stator_router_replica_snapshots_total"), 1)
        self.assertEqual(running.result()[0], 200)

    def test_the_load_of_a_killed_frontend_is_forgotten(self):
        self.send(self.other_http, "one two three four five six seven eight")
        eventually(lambda: self.first_http.metric("stator_router_replica_bookings") == 1, "the first knows of it")
        self.other.kill()
        eventually(lambda: self.first_http.metric("stator_router_replica_bookings") == 0, "it is forgotten")
        self.assertEqual(self.first_http.metric("stator_router_active_requests"), 0)
        self.assertEqual(self.first_http.metric("stator_router_replica_expiries_total"), 1)


if __name__ == "__main__":
    unittest.main()
