#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two frontends over the same workers: each counts what the other sent, and forgets one that was killed."""

import concurrent.futures
import pathlib
import tempfile
import unittest

from authority import Authority
from stator_process import MODEL, Http, Split, eventually

CHAT = "/v1/chat/completions"
# A prompt takes seconds to compute, so that requests are there to be seen.
SLOW_PREFILL = ("--sim-prefill-token-us", "150000", "--engine-prefix-caching", "false")
PREFILL = "dynamo_frontend_worker_active_prefill_tokens"


def chat(text: str) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 1, "temperature": 0}


class Replicas(unittest.TestCase):
    def setUp(self):
        self.deployment = Split("--router-replica-sync", "true", "--router-replica-sync-expiry", "5s",
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

    def test_two_that_start_hear_of_each_other_at_the_first_question(self):
        for asked, other in ((self.first_http, self.other_http), (self.other_http, self.first_http)):
            self.send(asked, "one two three four five six seven eight")
            eventually(lambda other=other: other.metric("stator_router_replica_events_total") > 0, "the other one hears of it")
        for http, process in ((self.first_http, self.deployment.frontend), (self.other_http, self.other)):
            self.assertEqual(http.metric("stator_router_replica_call_failures_total"), 0)
            self.assertNotIn("no news of another router", process.log())

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


class Tls(unittest.TestCase):
    """Bookings are told only to whom the certificates say so; everything else goes on."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-replica-tls-")
        self.addCleanup(folder.cleanup)
        self.ca = Authority(pathlib.Path(folder.name), "ca")
        self.forger = Authority(pathlib.Path(folder.name), "forger")
        self.deployment = Split(*self.router(self.ca, "first", "DNS:routers.stator"), workers=1,
                                worker_arguments=self.ca.options("worker", "IP:127.0.0.1"))
        self.addCleanup(self.deployment.close)
        self.first = self.deployment.http
        self.deployment.wait_for_workers(1)

    def router(self, authority: Authority, name: str, *san: str) -> tuple[str, ...]:
        return ("--router-replica-sync", "true", "--router-replica-sync-tls-name", "routers.stator",
                "--rpc-tls-allowed-callers", "routers.stator", *authority.options(name, *san))

    def join(self, *arguments: str) -> Http:
        self.other = self.deployment.start_frontend(*arguments)
        self.addCleanup(self.other.close)
        http = Http(self.other.port)
        for each in (self.first, http):
            eventually(lambda each=each: each.metric("stator_router_replica_peers") == 1, "they found each other")
        return http

    def test_routers_of_one_authority_and_name_hear_of_each_other(self):
        http = self.join()
        eventually(lambda: http.metric("stator_router_replica_snapshots_total") == 1, "it asked, and was answered")
        self.assertEqual(self.first.request("POST", CHAT, chat("hello"))[0], 200)
        eventually(lambda: http.metric("stator_router_replica_events_total") >= 3, "booked, computed, ended")
        self.assertEqual(http.metric("stator_router_replica_refused_callers_total"), 0)

    def test_replaced_files_are_read_without_a_restart(self):
        trust = self.ca.options("unused", "DNS:unused")[4:]
        first_files = self.forger.options("second", "DNS:routers.stator", "IP:127.0.0.1")[:4]
        http = self.join("--router-replica-sync", "true", "--router-replica-sync-tls-name", "routers.stator",
                         "--rpc-tls-allowed-callers", "routers.stator", *first_files, *trust)
        eventually(lambda: self.first.metric("stator_router_replica_call_failures_total") >= 2, "it is not believed")
        self.ca.options("second", "DNS:routers.stator", "IP:127.0.0.1")
        for each in (http, self.first):
            eventually(lambda each=each: each.metric("stator_router_replica_snapshots_total") >= 1, "it asked, and was answered")

    def check_refused(self, http: Http):
        """The other one does not learn anything, and says once why; the first one serves."""
        eventually(lambda: http.metric("stator_router_replica_call_failures_total") >= 3, "it asks again and again")
        self.assertEqual(http.metric("stator_router_replica_snapshots_total"), 0)
        self.assertEqual(self.other.log().count("no news of another router"), 1)
        self.assertEqual(self.first.request("POST", CHAT, chat("hello"))[0], 200)

    def test_one_that_is_not_on_the_list_is_refused_and_counted(self):
        http = self.join(*self.router(self.ca, "stranger", "DNS:somebody.stator"))
        self.check_refused(http)
        self.assertGreaterEqual(self.first.metric("stator_router_replica_refused_callers_total"), 3)
        self.assertEqual(self.deployment.frontend.log().count("another router is not allowed to ask"), 1)

    def test_one_certified_by_somebody_else_is_refused(self):
        self.check_refused(self.join(*self.router(self.forger, "forged", "DNS:routers.stator")))

    def test_one_without_a_certificate_is_refused(self):
        self.check_refused(self.join("--router-replica-sync", "true"))


if __name__ == "__main__":
    unittest.main()
