#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The router under more load than its workers take: waiting, order, shedding, busy thresholds, who may serve what."""

import concurrent.futures
import json
import socket
import unittest

from stator_process import MODEL, DeploymentTest, Serve, Split, eventually

CHAT = "/v1/chat/completions"
QUEUE_LENGTH = 2
# Workers that stand still are waited for as long as a test likes.
PATIENT = ("--frontend-accept-timeout", "1h", "--frontend-stall-timeout", "1h")
WORKER = ("--sim-speedup", "1", "--engine-prefix-caching", "false")
PENDING = "dynamo_frontend_router_queue_pending_requests"
SHED = "dynamo_frontend_router_queue_backpressure_total"


def chat_body(text: str = "What is a KV cache, and why would anybody want more than one of them?", **fields) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 2, "temperature": 0} | fields


def held_workers(*frontend_arguments: str, workers: int = 1) -> Split:
    return Split(*PATIENT, *frontend_arguments, workers=workers, worker_arguments=WORKER, lease_ttl="1h")


class QueueTest(DeploymentTest):
    """Workers stand still from `hold` to `release`: what runs there runs for as long as the test needs it to."""

    def setUp(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(16)
        self.addCleanup(self.pool.shutdown)
        self.addCleanup(self.release)  # before the pool's threads are waited for

    def hold(self):
        for worker in self.deployment.workers:
            worker.freeze()

    def release(self):
        for worker in self.deployment.workers:
            if worker.alive():
                worker.thaw()

    def send(self, headers: dict | None = None, **fields) -> concurrent.futures.Future:
        """One chat in the background: (status, headers, body)."""
        return self.pool.submit(self.http.request, "POST", CHAT, chat_body(**fields), headers)

    def wait_until_busy(self):
        eventually(lambda: self.http.metric("stator_router_active_requests") > 0, "a request runs")

    def wait_for_pending(self, count: int):
        eventually(lambda: self.http.metric(PENDING) == count, f"{count} requests wait")

    def assert_shed(self, answer: tuple, reason: str):
        status, headers, body = answer
        self.assertEqual(status, 503, body)
        self.assertTrue(headers["Retry-After"])
        self.assertIn(reason, json.loads(body)["error"]["message"])


class FullQueue(QueueTest):
    @classmethod
    def deploy(cls):
        return held_workers("--shards", "2", "--router-queue-threshold", "0", "--router-queue-requests-max", str(QUEUE_LENGTH))

    def fill_the_queue(self) -> list[concurrent.futures.Future]:
        """One that runs and as many as may wait, the newest last. The worker is held."""
        self.hold()
        sent = [self.send()]
        self.wait_until_busy()
        for count in range(1, QUEUE_LENGTH + 1):
            sent.append(self.send())
            self.wait_for_pending(count)
        return sent

    def test_requests_wait_then_are_served_and_those_beyond_the_queue_are_shed(self):
        shed_before = self.http.metric(SHED, reason="request_limit")
        first, *waiting = self.fill_the_queue()
        self.assertGreater(self.http.metric("dynamo_frontend_router_queue_pending_isl_tokens"), 0)
        self.assertGreater(self.http.metric("stator_router_queue_pending_bytes"), 0)
        self.assert_shed(self.send().result(), "request_limit")
        self.release()
        for answer in [first, *waiting]:
            self.assertEqual(answer.result()[0], 200, answer.result()[2])
        self.assertEqual(self.http.metric(SHED, reason="request_limit"), shed_before + 1)
        self.assertEqual(self.http.metric(PENDING), 0)
        _, receipt = self.http.get("/receipts/" + json.loads(waiting[-1].result()[2])["id"])
        self.assertGreater(receipt["queued_ms"], 0)

    def test_in_a_full_queue_the_lowest_priority_gives_way(self):
        displaced_before = self.http.metric(SHED, reason="displaced")
        first, *waiting = self.fill_the_queue()
        urgent = self.send({"x-stator-request-strict-priority": "1"})
        self.assert_shed(waiting.pop().result(), "more important requests")
        self.release()
        for answer in [first, urgent, *waiting]:
            self.assertEqual(answer.result()[0], 200, answer.result()[2])
        self.assertEqual(self.http.metric(SHED, reason="displaced"), displaced_before + 1)
        self.assertEqual(self.http.metric(PENDING), 0)

    def test_a_client_that_leaves_the_queue_frees_its_place(self):
        self.hold()
        first = self.send()
        self.wait_until_busy()
        body = json.dumps(chat_body()).encode()
        with socket.create_connection(("127.0.0.1", self.deployment.frontend.port)) as leaver:
            leaver.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                           % (CHAT.encode(), len(body), body))
            self.wait_for_pending(1)
        self.wait_for_pending(0)
        self.release()
        self.assertEqual(first.result()[0], 200)

    def test_a_higher_priority_overtakes(self):
        self.hold()
        first = self.send()
        self.wait_until_busy()
        futures = []
        for priority in ("0", "1"):
            futures.append(self.send({"x-stator-request-strict-priority": priority}))
            self.wait_for_pending(len(futures))
        self.release()
        for future in [first, *futures]:
            self.assertEqual(future.result()[0], 200)
        # When each was given to the worker, by the router's clock: a prefill lies between.
        ids = [json.loads(future.result()[2])["id"] for future in futures]
        late, urgent = (self.http.get(f"/receipts/{id_}")[1]["time_unix_ms"] for id_ in ids)
        self.assertLess(urgent, late)

    def test_the_clients_own_deadline_ends_the_wait(self):
        self.hold()
        first = self.send()
        self.wait_until_busy()
        status, _, _ = self.send({"x-request-timeout-ms": "50"}).result()
        self.release()
        self.assertEqual(status, 504)
        self.assertEqual(first.result()[0], 200)


class LongWait(QueueTest):
    @classmethod
    def deploy(cls):
        return held_workers("--router-queue-threshold", "0", "--router-queue-wait-max", "200ms")

    def test_who_waits_too_long_is_shed(self):
        self.hold()
        first = self.send()
        self.wait_until_busy()
        self.assert_shed(self.send().result(), "queue_wait_max")
        self.release()
        self.assertEqual(self.http.metric(SHED, reason="wait_limit"), 1)
        self.assertEqual(self.http.metric("dynamo_frontend_model_rejection_total", model=MODEL, endpoint="chat_completions"), 1)
        self.assertEqual(first.result()[0], 200)


class PatientWait(QueueTest):
    @classmethod
    def deploy(cls):
        # Half a second of prefill per request: ten in a row take longer than the limit, and one by itself never does.
        return Serve("--workers", "1", "--router-queue-threshold", "0", "--frontend-stream-idle-timeout", "4s",
                     "--sim-prefill-token-us", "8000", "--engine-prefix-caching", "false", "--max-num-batched-tokens", "4096")

    def release(self):
        pass

    def test_a_wait_for_a_worker_is_no_silence_of_the_worker(self):
        sent = [self.send() for _ in range(12)]
        for answer in sent:
            self.assertEqual(answer.result()[0], 200, answer.result()[2])


class BusyThreshold(QueueTest):
    """Thresholds hold in modes that look at no cache, too."""

    @classmethod
    def deploy(cls):
        return held_workers("--router", "round_robin", "--router-active-prefill-tokens-threshold", "0", workers=2)

    def test_when_all_workers_are_beyond_it_requests_are_refused(self):
        self.hold()
        running = []
        for count in (1, 2):
            running.append(self.send())
            eventually(lambda count=count: self.http.metric("stator_router_active_requests") == count, "it runs")
        self.assert_shed(self.send().result(), "busy thresholds")
        self.assertEqual(self.http.metric("stator_router_refusals_total", reason="all_busy"), 1)
        self.release()
        for answer in running:
            self.assertEqual(answer.result()[0], 200)

    def test_they_change_while_the_frontend_runs(self):
        status, all_models = self.http.get("/busy_threshold")
        self.assertEqual((status, all_models["thresholds"][0]["active_prefill_tokens_threshold"]), (200, 0))
        self.addCleanup(self.http.post, "/busy_threshold", {"model": MODEL, "active_prefill_tokens_threshold": 0})
        status, changed = self.http.post("/busy_threshold", {"model": MODEL, "active_prefill_tokens_threshold": -1})
        self.assertEqual((status, changed["active_prefill_tokens_threshold"]), (200, None))
        self.hold()
        running = [self.send() for _ in range(3)]
        eventually(lambda: self.http.metric("stator_router_active_requests") == 3, "all three run on two workers")
        for worker in self.deployment.worker_ids():
            self.assertGreater(
                self.http.metric("dynamo_frontend_worker_active_prefill_tokens", worker_id=f"{worker}"), 0)
        self.release()
        for answer in running:
            self.assertEqual(answer.result()[0], 200)
        self.assertEqual(self.http.post("/busy_threshold", {"model": "nobody"})[0], 404)

    def test_the_request_may_say_which_workers(self):
        for worker in self.deployment.worker_ids():
            for header in ("x-stator-allowed-worker-ids", "x-dynamo-allowed-worker-ids"):
                status, _, body = self.http.request(
                    "POST", CHAT, chat_body(nvext={"extra_fields": ["worker_id"]}), {header: f"{worker}"})
                self.assertEqual(status, 200, body)
                self.assertEqual(json.loads(body)["nvext"]["worker_id"]["decode_worker_id"], worker)
        self.assertEqual(self.http.request("POST", CHAT, chat_body(), {"x-stator-allowed-worker-ids": "77"})[0], 503)
        self.assertEqual(self.http.request("POST", CHAT, chat_body(), {"x-stator-allowed-worker-ids": "all"})[0], 400)


class BrownOut(QueueTest):
    """One worker with one prompt to compute is beyond the threshold of most."""

    @classmethod
    def deploy(cls):
        return held_workers("--router-active-prefill-tokens-threshold", "60", "--router-brown-out-step", "1",
                            "--frontend-overload-status", "529")

    def test_the_lowest_priorities_are_refused_first(self):
        self.hold()
        running = [self.send(text="x" * 60)]
        self.wait_until_busy()
        queued = self.http.metric("dynamo_frontend_worker_active_prefill_tokens")
        self.assertTrue(60 < queued <= 120, queued)
        for headers in ({"x-stator-request-priority": "-1"}, {}):
            status, answer_headers, body = self.send(headers).result()
            self.assertEqual(status, 529, body)
            self.assertTrue(answer_headers["Retry-After"])
            self.assertIn("for requests of this priority", json.loads(body)["error"]["message"])
        self.assertEqual(self.http.metric("stator_router_refusals_total", reason="brown_out"), 2)
        running.append(self.send({"x-stator-request-strict-priority": "1"}))
        eventually(lambda: self.http.metric("stator_router_active_requests") == 2, "the more important one is let in")
        self.release()
        for answer in running:
            self.assertEqual(answer.result()[0], 200, answer.result()[2])


class LostWorker(QueueTest):
    @classmethod
    def deploy(cls):
        return Split(*PATIENT, "--frontend-migration-wait", "200ms", "--router-queue-threshold", "0", workers=1, worker_arguments=WORKER)

    def test_nobody_waits_for_a_worker_that_died(self):
        self.hold()
        first = self.send()
        self.wait_until_busy()
        second = self.send()
        self.wait_for_pending(1)
        self.deployment.workers[0].kill()
        for answer in (first, second):
            self.assertEqual(answer.result()[0], 503, answer.result()[2])
        self.assertEqual(self.http.metric(PENDING), 0)


if __name__ == "__main__":
    unittest.main()
