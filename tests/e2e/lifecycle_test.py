#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that come, go and die: loss of workers in mid-stream, restarts, draining."""

import http.client
import json
import threading
import unittest

from stator_process import MODEL, Http, Serve, Split, eventually

CHAT = "/v1/chat/completions"


def chat_body(**fields):
    return {"model": MODEL, "messages": [{"role": "user", "content": "What is a KV cache?"}], "max_tokens": 4,
            "temperature": 0} | fields


class Stream:
    """A chat stream read event by event."""

    def __init__(self, port: int, body: dict, headers: dict | None = None):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.connection.request(
            "POST", CHAT, json.dumps(body | {"stream": True}), {"Content-Type": "application/json"} | (headers or {}))
        self.response = self.connection.getresponse()

    def events(self):
        """(event name or None, data text), without comments, until the stream ends."""
        name = None
        for raw in self.response:
            line = raw.decode().rstrip("\n").rstrip("\r")
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                yield name, line[5:].strip()
                name = None

    def close(self):
        self.response.close()
        self.connection.close()

    def skip(self, count: int):
        events = self.events()
        for _ in range(count):
            next(events)
        return events


class LifecycleTest(unittest.TestCase):
    def stream(self, port: int, body: dict, headers: dict | None = None) -> Stream:
        stream = Stream(port, body, headers)
        self.addCleanup(stream.close)
        return stream


class Startup(LifecycleTest):
    def serve(self, startup_time: str) -> Serve:
        serve = Serve("--sim-speedup", "0", "--sim-startup-time", startup_time)
        self.addCleanup(serve.close)
        return serve

    def test_a_simulated_worker_gets_nothing_before_it_has_started(self):
        serve = self.serve("1h")

        self.assertEqual(serve.http.request("POST", CHAT, chat_body())[0], 503)

    def test_it_serves_once_it_has(self):
        serve = self.serve("100ms")

        eventually(lambda: serve.http.request("POST", CHAT, chat_body())[0] == 200, "an answer")


class WorkersOfOneProcess(LifecycleTest):
    def deploy(self, engine: str) -> Split:
        split = Split("--router", "round_robin", workers=0, engine=engine, worker_arguments=("--workers", "3"))
        self.addCleanup(split.close)
        split.workers.append(split.start_worker())
        split.wait_for_workers(3)
        return split

    def test_simulated_and_cpu_workers_share_a_process(self):
        for engine in ("sim", "cpu"):
            split = self.deploy(engine)
            served = set()

            def all_have_served(split=split, served=served):
                status, answer = split.http.post(CHAT, chat_body(nvext={"extra_fields": ["worker_id"]}, max_tokens=1))
                self.assertEqual(status, 200, answer)
                served.add(answer["nvext"]["worker_id"]["decode_worker_id"])
                return len(served) == 3

            eventually(all_have_served, f"three {engine} workers serve")
            split.workers[0].terminate()
            self.assertEqual(split.workers[0].wait(), 0, split.workers[0].log())

    def test_fifty_workers_are_listed(self):
        split = Split(workers=0, worker_arguments=("--workers", "50"))
        self.addCleanup(split.close)
        split.workers.append(split.start_worker())
        split.wait_for_workers(50)
        self.assertEqual(split.http.post(CHAT, chat_body())[0], 200)


class WorkerLoss(LifecycleTest):
    def deploy(self, *arguments, **fields):
        deployment = Split(*arguments, **fields)
        self.addCleanup(deployment.close)
        return deployment

    @staticmethod
    def header_of(worker) -> dict:
        return {"x-stator-worker-instance-id": worker.ready["worker_id"]}

    def test_streams_of_a_killed_worker_get_an_error_event_and_others_run_on(self):
        deployment = self.deploy()
        victim, survivor = deployment.workers
        port = deployment.frontend.port
        lost = self.stream(port, chat_body(max_tokens=1500), self.header_of(victim))
        kept = self.stream(port, chat_body(max_tokens=300), self.header_of(survivor))
        events = lost.skip(3)
        kept_events = kept.skip(3)
        victim.kill()
        rest = list(events)
        errors = [json.loads(data) for name, data in rest if data != "[DONE]" and "error" in data]
        self.assertEqual(len(errors), 1, rest[-3:])
        text = json.dumps(errors[0])
        self.assertIn("retry", text)
        self.assertIn('"code": 503', text)
        kept_rest = [data for _, data in kept_events]
        self.assertEqual(kept_rest[-1], "[DONE]")
        self.assertNotIn("error", "".join(kept_rest))
        # New requests succeed at once, on the worker that is left.
        status, answer = deployment.http.post(CHAT, chat_body(nvext={"extra_fields": ["worker_id"]}))
        self.assertEqual(status, 200, answer)
        self.assertEqual(str(answer["nvext"]["worker_id"]["decode_worker_id"]), survivor.ready["worker_id"])
        eventually(deployment.idle, "idle")

    def test_unary_requests_of_a_killed_worker_are_retried_or_503_never_200_with_an_error(self):
        deployment = self.deploy()
        results = []

        def ask():
            results.append(deployment.http.post(CHAT, chat_body(max_tokens=200)))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        eventually(lambda: deployment.http.metric("stator_router_active_requests") >= 8 or results, "running")
        deployment.workers[0].kill()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 8)
        for status, answer in results:
            self.assertIn(status, (200, 503))
            self.assertEqual("error" in answer, status != 200)
        self.assertIn(200, [status for status, _ in results])
        eventually(deployment.idle, "idle")

    def test_requests_without_a_token_yet_are_retried_on_the_other_worker(self):
        # One sequence at a time: the second request of a worker waits, so its loss can be made good.
        deployment = self.deploy(worker_arguments=("--max-num-seqs", "1"))
        victim = deployment.workers[0]
        running = self.stream(deployment.frontend.port, chat_body(max_tokens=1500), self.header_of(victim))
        events = running.skip(2)
        # Not pinned, but equal prompt blocks and an idle peer decide where it goes; fill both workers.
        other = self.stream(deployment.frontend.port, chat_body(max_tokens=60), self.header_of(deployment.workers[1]))
        other_events = other.skip(2)
        results = []
        waiting = [threading.Thread(target=lambda: results.append(deployment.http.post(CHAT, chat_body()))) for _ in range(4)]
        for thread in waiting:
            thread.start()
        eventually(lambda: deployment.http.metric("stator_router_active_requests") >= 5 or results, "waiting")
        victim.kill()
        for thread in waiting:
            thread.join()
        self.assertEqual([status for status, _ in results], [200] * 4)
        self.assertIn("error", "".join(data for _, data in events))
        self.assertEqual([data for _, data in other_events][-1], "[DONE]")
        eventually(deployment.idle, "idle")

    def test_a_worker_started_in_place_of_a_killed_one_is_used(self):
        deployment = self.deploy(workers=1)
        deployment.workers.pop().close()
        eventually(lambda: deployment.http.request("GET", "/health")[0] == 503, "unhealthy without workers")
        status, answer = deployment.http.post(CHAT, chat_body())
        self.assertIn(status, (404, 503), answer)
        self.assertIn("error", answer)
        deployment.workers.append(deployment.start_worker())
        deployment.wait_for_workers(1)
        self.assertEqual(deployment.http.post(CHAT, chat_body())[0], 200)

    def test_health_is_503_before_the_first_worker_and_200_after(self):
        deployment = self.deploy(workers=0)
        status, health = deployment.http.get("/health")
        self.assertEqual((status, health["stage"]), (503, "waiting_for_workers"))
        self.assertEqual(deployment.http.get("/live")[0], 200)
        self.assertEqual(deployment.http.get("/v1/models")[1]["data"], [])
        self.assertEqual(deployment.http.post(CHAT, chat_body())[0], 404)
        deployment.workers.append(deployment.start_worker())
        deployment.wait_for_workers(1)
        self.assertEqual(deployment.http.get("/health")[0], 200)
        self.assertEqual(deployment.http.post(CHAT, chat_body())[0], 200)

    def test_workers_serve_a_restarted_frontend(self):
        deployment = self.deploy()
        before = deployment.http.post(CHAT, chat_body(max_tokens=8))[1]
        self.stream(deployment.frontend.port, chat_body(max_tokens=1500)).skip(2)
        deployment.frontend.close()
        deployment.frontend = deployment.start_frontend()
        deployment.wait_for_workers(2)
        status, after = deployment.http.post(CHAT, chat_body(max_tokens=8))
        self.assertEqual(status, 200)
        self.assertEqual(after["choices"][0]["message"], before["choices"][0]["message"])
        eventually(deployment.idle, "idle")

    def test_two_frontends_share_the_workers(self):
        deployment = self.deploy()
        second = deployment.start_frontend()
        self.addCleanup(second.close)
        eventually(lambda: len(Http(second.port).get("/health")[1].get("instances", [])) == 2, "both workers")
        answers = [Http(port).post(CHAT, chat_body(max_tokens=8)) for port in (deployment.frontend.port, second.port)]
        self.assertEqual([status for status, _ in answers], [200, 200])
        self.assertEqual(answers[0][1]["choices"], answers[1][1]["choices"])

    def test_a_worker_drains_on_sigterm_and_new_requests_go_elsewhere(self):
        deployment = self.deploy()
        leaving, staying = deployment.workers
        running = self.stream(deployment.frontend.port, chat_body(max_tokens=150), self.header_of(leaving))
        events = running.skip(2)
        leaving.terminate()
        status, answer = deployment.http.post(CHAT, chat_body(nvext={"extra_fields": ["worker_id"]}))
        self.assertEqual(status, 200, answer)
        rest = [data for _, data in events]
        self.assertEqual(rest[-1], "[DONE]")
        self.assertNotIn('"error"', "".join(rest))
        self.assertEqual(leaving.wait(), 0, leaving.log())
        deployment.wait_for_workers(1)
        status, answer = deployment.http.post(CHAT, chat_body(nvext={"extra_fields": ["worker_id"]}))
        self.assertEqual(str(answer["nvext"]["worker_id"]["decode_worker_id"]), staying.ready["worker_id"])


class Draining(LifecycleTest):
    def check_drain(self, deployment):
        self.addCleanup(deployment.close)
        frontend = deployment.frontend
        running = self.stream(frontend.port, chat_body(max_tokens=200))
        events = running.skip(2)
        idle = http.client.HTTPConnection("127.0.0.1", frontend.port, timeout=120)
        self.addCleanup(idle.close)
        idle.connect()
        frontend.terminate()
        eventually(lambda: self.refuses(frontend.port), "new requests are refused")
        # Whether it still runs depends on the machine; that it is not cut off does not.
        rest = [data for _, data in events]
        self.assertEqual(rest[-1], "[DONE]")
        self.assertNotIn('"error"', "".join(rest))
        self.assertEqual(frontend.wait(), 0, frontend.log())
        self.assertNotIn("ERROR", frontend.log().upper().replace("ERRORS", ""))

    @staticmethod
    def refuses(port: int) -> bool:
        try:
            return Http(port).request("POST", CHAT, chat_body())[0] == 503
        except ConnectionError:
            return True

    def test_serve_finishes_its_stream_and_exits_0(self):
        self.check_drain(Serve("--lame-duck", "0s"))

    def test_a_frontend_finishes_its_stream_and_exits_0(self):
        self.check_drain(Split("--lame-duck", "0s"))

    def test_a_second_signal_ends_draining(self):
        deployment = Serve("--lame-duck", "0s")
        self.addCleanup(deployment.close)
        stream = self.stream(deployment.frontend.port, chat_body(max_tokens=1900))
        rest = stream.skip(2)
        deployment.frontend.terminate()
        eventually(lambda: self.refuses(deployment.frontend.port), "draining")
        deployment.frontend.terminate()
        data = [text for _, text in rest]
        self.assertEqual(data[-1], "[DONE]")
        self.assertIn("shutting down", data[-2])
        self.assertEqual(deployment.frontend.wait(), 0)

    def test_idle_processes_end_at_once(self):
        deployment = Split("--lame-duck", "0s")
        self.addCleanup(deployment.close)
        for process in [*deployment.workers, deployment.frontend]:
            process.terminate()
        self.assertEqual([p.wait() for p in [*deployment.workers, deployment.frontend]], [0, 0, 0])


if __name__ == "__main__":
    unittest.main()
