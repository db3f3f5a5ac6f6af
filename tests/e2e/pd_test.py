#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode in different servers: every stream is what one server alone would say, whoever dies on the way."""

import contextlib
import http.client
import json
import re
import tempfile
import threading
import unittest

from stator_process import MODEL_DIR, Http, Stator, eventually

PROMPT = "the cache of the router " * 20
FAST = ("--engine-poll-interval", "100ms")


def free_events() -> tuple[str, ...]:
    return ("--event-endpoint", "tcp://127.0.0.1:0", "--event-replay-endpoint", "tcp://127.0.0.1:0")


def ask(port: int, prompt: str = PROMPT, max_tokens: int = 24, **fields) -> dict:
    """The stream of a greedy completion: its text, finish and usage, or the error."""
    body = {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}, "nvext": {"extra_fields": ["worker_id"]}} | fields
    seen = {"text": {}, "finish": None, "usage": None, "error": None, "workers": None, "logprobs": []}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            return seen | {"error": (answer.status, answer.read().decode())}
        for raw in answer:
            line = raw.decode().strip()
            if not line.startswith("data:") or line == "data: [DONE]":
                continue
            chunk = json.loads(line[5:])
            seen["error"] = chunk.get("error") or seen["error"]
            seen["workers"] = (chunk.get("nvext") or {}).get("worker_id") or seen["workers"]
            seen["usage"] = chunk.get("usage") or seen["usage"]
            for choice in chunk.get("choices", []):
                seen["text"][choice["index"]] = seen["text"].get(choice["index"], "") + (choice.get("text") or "")
                seen["finish"] = choice.get("finish_reason") or seen["finish"]
                if choice.get("logprobs"):
                    seen["logprobs"] += choice["logprobs"]["token_logprobs"]
    finally:
        connection.close()
    return seen


def said(answer: dict) -> tuple:
    """What must not depend on who said it."""
    usage = answer["usage"] or {}
    return (answer["text"], answer["finish"], usage.get("prompt_tokens"), usage.get("completion_tokens"), answer["error"])


class Fleet(unittest.TestCase):
    """One prefill and one decode server, each with its worker process, a frontend, and a server that does everything."""

    dialect = "vllm"
    frontend: tuple[str, ...] = ()
    side: tuple[str, ...] = ()
    lease = ()
    speedup = "0"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="stator-pd-")
        self.addCleanup(folder.cleanup)
        self.discovery = ("--discovery", f"file:{folder.name}", "--discovery-lease-ttl", "10s")
        # Its tokens do not depend on the dialect it speaks.
        self.alone = self.start("sim-server", *self.engine_arguments("aggregated", "vllm"))
        self.engines = {role: [self.start_engine(role)] for role in ("prefill", "decode")}
        self.workers = {role: [self.start_worker(role, engines[0])] for role, engines in self.engines.items()}
        self.stator = self.start("frontend", "--host", "127.0.0.1", "--port", "0", *self.discovery, *self.frontend)
        self.http = Http(self.stator.port)
        eventually(lambda: len(self.http.get("/health")[1].get("instances", [])) == 2, "both workers")
        self.expected = said(ask(self.alone.port))
        self.assertTrue(self.expected[0])

    def start(self, *arguments: str) -> Stator:
        process = Stator(*arguments)
        self.addCleanup(process.close)
        return process

    def engine_arguments(self, role: str, dialect: str) -> tuple[str, ...]:
        return ("--dialect", dialect, "--model-dir", str(MODEL_DIR), "--served-model-name", "m", "--port", "0", "--role", role,
                "--speedup", self.speedup, "--handoff-timeout", "10s", *free_events(), *self.lease)

    def start_engine(self, role: str) -> Stator:
        return self.start("sim-server", *self.engine_arguments(role, self.dialect))

    def start_worker(self, role: str, engine: Stator) -> Stator:
        return self.start("worker", str(MODEL_DIR), "--engine", self.dialect, "--url", engine.url, "--role", role, "--model-name", "m",
                          *FAST, *self.discovery, *self.worker_arguments())

    def worker_arguments(self) -> tuple[str, ...]:
        return ()

    def fault(self, role: str, **fields) -> None:
        status, answer = Http(self.engines[role][0].port).post("/fault", fields)
        self.assertLess(status, 300, answer)

    def ended(self, *outcomes: str) -> float:
        return sum(self.http.metric("stator_frontend_handoff_seconds_count", outcome=outcome) for outcome in outcomes)

    def wait_until_ended(self, count: int, *outcomes: str) -> None:
        eventually(lambda: self.ended(*outcomes) == count, f"{count} hand-offs that ended as {outcomes}")

    def stop_while_the_prompt_is_fetched(self) -> threading.Thread:
        """The decode server stands still, its prompt is computed, and the prefill worker is told to go."""
        self.engines["decode"][0].freeze()
        self.answers: list[dict] = []
        client = threading.Thread(target=lambda: self.answers.append(ask(self.stator.port)))
        client.start()
        giver = Http(self.engines["prefill"][0].port)
        eventually(lambda: giver.metric("vllm:request_success_total", finished_reason="length") == 1, "it is computed")
        eventually(lambda: self.http.metric("stator_router_active_requests") == 1, "the decode worker was asked")
        self.workers["prefill"][0].terminate()
        eventually(lambda: "prompts may still be fetched" in self.workers["prefill"][0].log(), "it waits")
        return client

    def check(self, **fields) -> dict:
        answer = ask(self.stator.port, **fields)
        self.assertEqual(said(answer), said(ask(self.alone.port, **fields)))
        return answer

    def tearDown(self) -> None:
        eventually(lambda: self.http.metric("stator_router_active_requests") == 0, "nothing is booked any more")
        self.assertTrue(self.stator.alive(), self.stator.log()[-4000:])


class Vllm(Fleet):
    """Prefill first, then decode; and what follows when somebody dies."""

    def external_hits(self) -> float:
        return Http(self.engines["decode"][0].port).metric("vllm:external_prefix_cache_hits_total")

    def test_streams_are_those_of_one_server_and_the_prompt_comes_from_the_other(self):
        for i, length in enumerate((1, 2, 15, 16, 17, 200)):
            prompt = [300 + (i * 37 + k * k) % 500 for k in range(length)]
            answer = self.check(prompt=prompt, max_tokens=2 + i)
            self.assertNotEqual(answer["workers"]["prefill_worker_id"], answer["workers"]["decode_worker_id"])
        self.assertEqual(self.external_hits(), 1 + 2 + 15 + 16 + 17 + 200)
        self.wait_until_ended(6, "used")
        self.assertEqual(self.http.metric("stator_router_disaggregation_total", path="split"), 6)
        self.assertEqual(self.http.metric("dynamo_component_router_kv_transfer_estimated_latency_seconds_count"), 6)

    def test_a_prefill_worker_stays_until_its_last_prompt_was_fetched(self):
        client = self.stop_while_the_prompt_is_fetched()
        self.engines["decode"][0].thaw()
        client.join()

        self.assertEqual(said(self.answers[0]), self.expected)
        self.wait_until_ended(1, "used")
        self.assertGreater(self.external_hits(), 0)
        self.assertEqual(self.workers["prefill"][0].wait(), 0)

    def test_what_clients_ask_for_holds_over_the_seam(self):
        whole = ask(self.alone.port)["text"][0]
        stopped = ask(self.stator.port, stop=[whole[10:14]], ignore_eos=False)
        self.assertEqual((stopped["text"][0], stopped["finish"]), (whole[:whole.index(whole[10:14])], "stop"))
        self.check(logprobs=2)
        self.check(temperature=0.9, seed=7)
        self.check(min_tokens=3)
        with self.subTest("a prompt is scored by who answers"):
            used = self.ended("used")
            scored = self.check(echo=True, logprobs=1)
            self.assertEqual(len(scored["logprobs"]), scored["usage"]["total_tokens"])
            self.assertEqual(self.ended("used"), used)
        with self.subTest("one token needs nobody else"):
            used = self.ended("used")
            self.check(max_tokens=1)
            self.assertEqual(self.ended("used"), used)

    def test_prompts_are_routed_to_who_has_them(self):
        self.engines["prefill"].append(self.start_engine("prefill"))
        self.workers["prefill"].append(self.start_worker("prefill", self.engines["prefill"][1]))
        eventually(lambda: len(self.http.get("/health")[1]["instances"]) == 3, "three workers")
        first = ask(self.stator.port)["workers"]["prefill_worker_id"]
        eventually(lambda: self.http.metric("stator_router_index_blocks") > 0, "the events are known")
        for _ in range(4):
            self.assertEqual(ask(self.stator.port)["workers"]["prefill_worker_id"], first)

    def test_the_prefill_engine_dies_with_the_prompt(self):
        self.fault("prefill", kind="die", after_tokens=0)
        self.check()
        self.wait_until_ended(1, "prefill_lost")

    def test_the_prefill_worker_dies_with_the_prompt(self):
        self.fault("prefill", kind="hang", after_tokens=0)
        engine = Http(self.engines["prefill"][0].port)

        def kill():
            eventually(lambda: engine.get("/fault")[1] == {"faults": []}, "the prompt has met the fault")
            self.workers["prefill"][0].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        self.check()
        killer.join()
        self.wait_until_ended(1, "prefill_lost")

    def test_the_prefill_engine_dies_before_its_prompt_is_fetched(self):
        prefill, decode = self.engines["prefill"][0], self.engines["decode"][0]
        decode.freeze()
        answers: list[dict] = []
        client = threading.Thread(target=lambda: answers.append(ask(self.stator.port)))
        try:
            client.start()
            eventually(lambda: Http(prefill.port).metric("vllm:request_success_total") == 1, "the prompt is computed")
            prefill.kill()
        finally:
            decode.thaw()
        client.join()
        self.assertEqual(said(answers[0]), self.expected)
        self.wait_until_ended(1, "not_taken", "giver_gone")

    def test_a_dead_side_channel_is_a_prompt_computed_twice(self):
        self.fault("decode", kind="status", status=500, path="/v1/completions")
        self.check()
        self.wait_until_ended(1, "not_taken")
        self.assertEqual(self.http.metric("stator_frontend_suspended_workers"), 0)

    def test_the_decode_engine_dies_before_its_first_token(self):
        self.engines["decode"].append(self.start_engine("decode"))
        self.workers["decode"].append(self.start_worker("decode", self.engines["decode"][1]))
        eventually(lambda: len(self.http.get("/health")[1]["instances"]) == 3, "three workers")
        for engine in self.engines["decode"]:
            Http(engine.port).post("/fault", {"kind": "close", "after_tokens": 0, "path": "/v1/completions"})
        for _ in range(4):
            self.check()

    def test_the_decode_worker_dies_after_some_tokens(self):
        self.engines["decode"].append(self.start_engine("decode"))
        self.workers["decode"].append(self.start_worker("decode", self.engines["decode"][1]))
        eventually(lambda: len(self.http.get("/health")[1]["instances"]) == 3, "three workers")
        for engine in self.engines["decode"]:
            Http(engine.port).post("/fault", {"kind": "slow", "delay_ms": 40, "times": 0})
        answers: list[dict] = []
        client = threading.Thread(target=lambda: answers.append(ask(self.stator.port, max_tokens=80)))
        client.start()
        eventually(lambda: self.ended("used") == 1, "decoding")
        busy = next(worker for worker in self.workers["decode"]
                    if self.http.metric("stator_router_worker_active_requests", worker_id=worker.ready["worker_id"]))
        busy.kill()
        client.join()
        self.assertEqual(said(answers[0]), said(ask(self.alone.port, max_tokens=80)))
        self.assertEqual(self.ended("used"), 2, "the new worker got a prompt of its own, not the old one's")

    def test_without_prefill_workers_the_decode_worker_does_everything(self):
        self.workers["prefill"][0].kill()
        eventually(lambda: len(self.http.get("/health")[1]["instances"]) == 1, "one worker")
        self.check()
        self.assertEqual(self.external_hits(), 0)

    def test_prefill_workers_alone_do_not_serve(self):
        self.workers["decode"][0].kill()
        eventually(lambda: self.http.get("/v1/models")[1]["data"] == [], "the model is not ready")

    def test_a_client_that_leaves_leaves_nothing_behind(self):
        self.fault("prefill", kind="slow", delay_ms=300)
        connection = http.client.HTTPConnection("127.0.0.1", self.stator.port, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": PROMPT, "max_tokens": 50}),
                           {"Content-Type": "application/json"})
        eventually(lambda: self.http.metric("stator_router_disaggregation_total", path="split") == 1, "the prompt is asked for")
        connection.close()
        self.wait_until_ended(1, "abandoned", "used")
        for engines in self.engines.values():
            eventually(lambda port=engines[0].port: Http(port).metric("vllm:num_requests_running") == 0, "nothing runs")


class Queue(Fleet):
    """Prompts wait for a prefill worker with room, and the client's stream does not show it."""

    frontend = ("--router-queue-threshold", "0")

    def test_prompts_wait_for_the_prefill_worker(self):
        engine = self.engines["prefill"][0]
        engine.freeze()
        prompts = [PROMPT + word for word in ("first", "second", "third")]
        answers: dict[str, dict] = {}
        clients = []
        try:
            for waiting, prompt in enumerate(prompts):
                clients.append(threading.Thread(target=lambda prompt=prompt: answers.update({prompt: ask(self.stator.port, prompt)})))
                clients[-1].start()
                eventually(lambda: self.http.metric("stator_router_active_requests") == 1, "one is booked")
                eventually(lambda waiting=waiting: self.pending("prefill") == waiting, "the others wait")
            self.assertEqual(self.pending("decode"), 0)
        finally:
            engine.thaw()
        for client in clients:
            client.join()
        for prompt in prompts:
            self.assertEqual(said(answers[prompt]), said(ask(self.alone.port, prompt)))
        self.wait_until_ended(len(prompts), "used")
        self.assertEqual(self.pending("prefill"), 0)

    def test_one_that_waits_for_a_prefill_worker_that_dies_runs_whole(self):
        engine = self.engines["prefill"][0]
        engine.freeze()
        answers: list[dict] = []
        clients = [threading.Thread(target=lambda: answers.append(ask(self.stator.port))) for _ in range(2)]
        for client in clients:
            client.start()
        eventually(lambda: self.pending("prefill") == 1, "one waits")
        self.workers["prefill"][0].kill()
        engine.thaw()
        for client in clients:
            client.join()
        self.assertEqual([said(answer) for answer in answers], [self.expected] * 2)

    def pending(self, pool: str) -> float:
        return self.http.metric("dynamo_frontend_router_queue_pending_requests", worker_type=pool)


class TwoFrontends(Fleet):
    """What frontends know of prefill workers beyond what each has done itself."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="stator-pd-snapshot-")
        self.addCleanup(folder.cleanup)
        self.frontend = ("--router-replica-sync", "true", "--router-snapshot", f"{folder.name}/index", "--lame-duck", "0s")
        super().setUp()

    def start_frontend(self) -> Stator:
        return self.start("frontend", "--host", "127.0.0.1", "--port", "0", *self.discovery, *self.frontend)

    def test_one_hears_of_the_others_prompts(self):
        other = Http(self.start_frontend().port)
        eventually(lambda: other.metric("stator_router_replica_peers") == 1, "they found each other")
        engine = self.engines["prefill"][0]
        engine.freeze()
        client = threading.Thread(target=lambda: ask(self.stator.port))
        client.start()
        try:
            for name in ("stator_router_worker_active_requests", "dynamo_frontend_worker_active_prefill_tokens"):
                eventually(lambda name=name: other.metric(name, worker_type="prefill") > 0, "it knows of the prompt")
            self.assertEqual(other.metric("dynamo_frontend_worker_active_decode_blocks", worker_type="prefill"), 0)
        finally:
            engine.thaw()
        client.join()
        eventually(lambda: other.metric("stator_router_active_requests") == 0, "and of its end")

    def test_a_restarted_one_knows_what_prefill_workers_hold(self):
        self.check()
        eventually(lambda: self.http.metric("stator_router_index_blocks") > 0, "the events are known")
        self.stator.terminate()
        self.assertEqual(self.stator.wait(), 0)
        for worker in (self.workers["prefill"][0], self.engines["prefill"][0]):
            worker.freeze()  # it cannot tell again
        try:
            self.stator = self.start_frontend()
            eventually(lambda: self.stator.log().count("index restored from the snapshot") == 2, "both parts")
        finally:
            for worker in (self.workers["prefill"][0], self.engines["prefill"][0]):
                worker.thaw()
        restored = [int(blocks) for blocks in re.findall(r"index restored from the snapshot.*blocks=(\d+)", self.stator.log())]
        self.assertTrue(all(restored), restored)
        self.http = Http(self.stator.port)
        eventually(lambda: len(self.http.get("/health")[1].get("instances", [])) == 2, "both workers")
        self.check()


class ShortLease(Fleet):
    """A hand-off that might be stale is never used: a stale one would give other tokens and no error."""

    lease = ("--handoff-lease", "1s")

    def worker_arguments(self) -> tuple[str, ...]:
        return ("--engine-handoff-lease", "1s")

    def test_a_prefill_worker_does_not_wait_for_a_taker_longer_than_its_lease(self):
        client = self.stop_while_the_prompt_is_fetched()
        self.assertEqual(self.workers["prefill"][0].wait(), 0)
        self.engines["decode"][0].thaw()
        client.join()
        self.assertEqual(said(self.answers[0]), self.expected)

    def test_a_frontend_that_stood_still_starts_over(self):
        self.fault("prefill", kind="slow", delay_ms=3000)
        answers: list[dict] = []
        client = threading.Thread(target=lambda: answers.append(ask(self.stator.port)))
        client.start()
        eventually(lambda: self.http.metric("stator_router_disaggregation_total", path="split") == 1, "the prompt is asked for")
        self.stator.freeze()
        prefill = Http(self.engines["prefill"][0].port)
        try:
            eventually(lambda: prefill.metric("vllm:nixl_num_kv_expired_reqs_total") == 1, "the lease is over")
        finally:
            self.stator.thaw()
        client.join()
        self.assertEqual(said(answers[0]), self.expected)
        self.wait_until_ended(1, "too_late")
        self.assertEqual(prefill.metric("vllm:nixl_num_notifications_after_expiry_total"), 0)


class Shared(Fleet):
    """Storage that both servers see: no hand-off to lose, no lease, and a prefill worker may leave at once."""

    def worker_arguments(self) -> tuple[str, ...]:
        return ("--handoff", "shared")

    def test_streams_are_those_of_one_server_and_both_were_asked(self):
        for i, length in enumerate((2, 1, 17, 100)):
            prompt = [300 + k * k % 500 for k in range(length)]
            answer = self.check(prompt=prompt, max_tokens=3 + i)
            self.assertNotEqual(answer["workers"]["prefill_worker_id"], answer["workers"]["decode_worker_id"])
        self.wait_until_ended(4, "used")
        giver = Http(self.engines["prefill"][0].port)
        self.assertEqual(giver.metric("vllm:request_success_total"), 4)
        self.assertEqual(giver.metric("vllm:kv_cache_usage_perc"), 0, "nothing is kept for anybody")

    def test_a_prefill_worker_leaves_at_once(self):
        self.check()
        self.workers["prefill"][0].terminate()
        self.assertEqual(self.workers["prefill"][0].wait(), 0)
        self.assertNotIn("prompts may still be fetched", self.workers["prefill"][0].log())
        self.check(max_tokens=9)

    def test_the_prefill_engine_dies_with_the_prompt(self):
        self.fault("prefill", kind="die", after_tokens=0)
        self.check()
        self.wait_until_ended(1, "prefill_lost")


class Trtllm(Fleet):
    dialect = "trtllm"

    def test_streams_are_those_of_one_server(self):
        for length in (1, 17, 100):
            prompt = [300 + k * k % 500 for k in range(length)]
            answer = self.check(prompt=prompt)
            self.assertNotEqual(answer["workers"]["prefill_worker_id"], answer["workers"]["decode_worker_id"])
        self.wait_until_ended(3, "used")


class Sglang(Fleet):
    """Both servers at once."""

    dialect = "sglang"

    def start_worker(self, role: str, engine: Stator) -> Stator:
        # What it is there for it says itself.
        return self.start("worker", str(MODEL_DIR), "--engine", self.dialect, "--url", engine.url, "--model-name", "m", *FAST,
                          *self.discovery)

    def test_streams_are_those_of_one_server(self):
        for length in (1, 17, 100):
            prompt = [300 + k * k % 500 for k in range(length)]
            answer = self.check(prompt=prompt, max_tokens=length)
            self.assertNotEqual(answer["workers"]["prefill_worker_id"], answer["workers"]["decode_worker_id"])
        self.wait_until_ended(3, "used")

    def test_a_prompt_is_not_scored_where_nobody_does_everything(self):
        status, body = ask(self.stator.port, echo=True, logprobs=1)["error"]
        self.assertEqual(status, 501)
        self.assertIn("echo", body)

    def test_without_a_prefill_worker_there_is_no_model(self):
        self.workers["prefill"][0].kill()
        eventually(lambda: self.http.get("/v1/models")[1]["data"] == [], "the model is not ready")

    def test_the_prefill_worker_dies_and_another_one_takes_over(self):
        self.fault("prefill", kind="hang", after_tokens=0)
        answers: list[dict] = []
        client = threading.Thread(target=lambda: answers.append(ask(self.stator.port)))
        client.start()
        eventually(lambda: self.http.metric("stator_router_disaggregation_total", path="split") == 1, "both are asked")
        self.engines["prefill"].append(self.start_engine("prefill"))
        self.workers["prefill"].append(self.start_worker("prefill", self.engines["prefill"][1]))
        eventually(lambda: len(self.http.get("/health")[1]["instances"]) == 3, "three workers")
        self.workers["prefill"][0].kill()
        client.join()
        self.assertEqual(said(answers[0]), self.expected)


class OneProcess(unittest.TestCase):
    """`stator serve` with both servers: two commands of the recipe."""

    def test_roles_are_a_list_like_the_urls(self):
        with contextlib.ExitStack() as stack:
            engines = [Stator("sim-server", "--model-dir", str(MODEL_DIR), "--served-model-name", "m", "--port", "0", "--speedup", "0",
                              "--role", role, *free_events()) for role in ("prefill", "decode")]
            for engine in engines:
                stack.callback(engine.close)
            stator = Stator("serve", str(MODEL_DIR), "--engine", "vllm", "--url", ",".join(e.url for e in engines), "--role",
                            "prefill,decode", "--model-name", "m", "--host", "127.0.0.1", "--port", "0", *FAST)
            stack.callback(stator.close)
            eventually(lambda: len(Http(stator.port).get("/health")[1].get("instances", [])) == 2, "both workers")
            answer = ask(stator.port)
            self.assertIsNone(answer["error"])
            self.assertNotEqual(answer["workers"]["prefill_worker_id"], answer["workers"]["decode_worker_id"])
            self.assertEqual(Http(stator.port).metric("stator_frontend_handoff_seconds_count", outcome="used"), 1)


if __name__ == "__main__":
    unittest.main()
