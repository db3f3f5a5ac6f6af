#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator sim-server --dialect vllm`: against traffic recorded from vLLM 0.32, and by what it promises on its own."""

import json
import threading
import time
import unittest

import openai

import engine_recordings as recordings
from stator_process import MODEL_DIR, Http, Stator, eventually
from zmq_wire import DEALER, Events, Socket, unpack

RECORDED = recordings.STREAMS / "vllm-0.32"
# Like the recorded server: 32-token blocks, 48 of them, 1,024 tokens of context, vocabulary of 32,000.
LIKE_RECORDED = ("--dialect", "vllm", "--block-size", "32", "--kv-blocks", "48", "--max-model-len", "1024",
                 "--sim-speedup", "0", "--served-model-name", "m")
# Recorded exchanges the fake does not reproduce, with the reason.
LEFT_OUT = {
    "info-openapi.json": "the schema of 100 routes is not part of the wire format",
    "messages-stream": "Anthropic's protocol: no adapter uses it",
    "responses-stream": "/v1/responses: no adapter uses it",
    "info-metrics": "values differ; names are compared in test_metrics_have_the_recorded_names",
    "lora-metrics": "the same",
    "abort-disconnect-stream": "cut by the client: see test_a_client_that_leaves_frees_the_engine",
    "scale-out-disabled": "another configuration: see test_other_configurations",
    "error-priority-not-enabled": "a plain completion of a server without priorities",
    "error-lora-not-enabled": "the fake always has adapters",
}
LORA_ORDER = ["lora-load", "lora-load-again", "lora-load-missing", "lora-models", "lora-completion", "lora-unload",
              "lora-unload-again", "lora-after-unload"]


def start(*arguments: str) -> Stator:
    return Stator("sim-server", "--host", "127.0.0.1", "--port", "0", *arguments)


def prompt_of(length: int, first: int = 1000) -> list[int]:
    return [1] + [first + i for i in range(length - 1)]


class FakeTest(unittest.TestCase):
    def server(self, *arguments: str) -> Stator:
        server = start(*(arguments or LIKE_RECORDED))
        self.addCleanup(server.close)
        return server

    def complete(self, server: Stator, prompt: list[int], **fields) -> dict:
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "return_token_ids": True} | fields
        status, answer = Http(server.port).post("/v1/completions", body)
        self.assertEqual(status, 200, answer)
        return answer

    def tokens(self, server: Stator, prompt: list[int], **fields) -> list[int]:
        return self.complete(server, prompt, **fields)["choices"][0]["token_ids"]


@unittest.skipUnless(RECORDED.exists(), f"no recordings at {RECORDED}")
class Recorded(FakeTest):
    maxDiff = None

    def compare(self, port: int, path, body: bytes | None = None) -> dict:
        name = path.name.removesuffix(".req.http")
        line, headers, recorded_body = recordings.read_request(path)
        fake = recordings.parse_response(recordings.send(port, line, headers, body or recorded_body))
        real = recordings.parse_response((path.parent / f"{name}.resp.http").read_bytes())
        self.assertEqual(recordings.response_shape(fake), recordings.response_shape(real), name)
        return fake

    def test_every_exchange_has_the_recorded_shape(self):
        server = self.server()
        names = sorted(p.name.removesuffix(".req.http") for p in (RECORDED / "http").glob("*.req.http"))
        self.assertFalse(set(LEFT_OUT) - set(names), "left out, but not recorded")
        plain = [n for n in names if n not in LEFT_OUT and n not in LORA_ORDER]
        for name in plain + LORA_ORDER:
            with self.subTest(name):
                path = RECORDED / "http" / f"{name}.req.http"
                self.compare(server.port, path, self.with_own_stop(server, name, path))

    def with_own_stop(self, server: Stator, name: str, path) -> bytes | None:
        """Stops are about what the model says, and ours says something else."""
        if not name.startswith("completions-stop-") or name == "completions-stream-interval":
            return None
        body = json.loads(recordings.read_request(path)[2])
        said = self.complete(server, body["prompt"], max_tokens=8)["choices"][0]
        if "stop_token_ids" in body:
            return json.dumps(body | {"stop_token_ids": said["token_ids"][2:3]}).encode()
        text = Http(server.port).post("/detokenize", {"tokens": said["token_ids"][5:6]})[1]["prompt"]
        return json.dumps(body | {"stop": [text.strip()]}).encode()

    def test_errors_have_the_recorded_words(self):
        server = self.server()
        for path in sorted((RECORDED / "http").glob("*error*.req.http")):
            name = path.name.removesuffix(".req.http")
            if name in LEFT_OUT or name in ("error-negative-token", "error-unknown-field-ignored"):
                continue  # pydantic lists every alternative of a union; the fake only the one that matters
            with self.subTest(name):
                line, headers, body = recordings.read_request(path)
                fake = recordings.parse_response(recordings.send(server.port, line, headers, body))
                real = recordings.parse_response((path.parent / f"{name}.resp.http").read_bytes())
                self.assertEqual(json.loads(fake["body"]), json.loads(real["body"]))

    def test_other_configurations(self):
        server = self.server(*LIKE_RECORDED, "--no-scale-out")
        self.compare(server.port, RECORDED / "http" / "scale-out-disabled.req.http")

    def test_metrics_have_the_recorded_names(self):
        server = self.server()
        self.complete(server, prompt_of(40))
        _, _, page = Http(server.port).request("GET", "/metrics")
        real = (RECORDED / "http" / "info-metrics.resp.http").read_text(errors="replace")
        mine = recordings.families(page.decode(), "vllm:")
        self.assertFalse(mine - recordings.families(real, "vllm:"), "names that vLLM 0.32 does not have")
        self.assertGreater(len(mine), 25)

    def test_hand_offs_have_the_recorded_shape(self):
        prefill, decode = self.server(), self.server()
        for tag in ("pd-200", "pd-192-aligned", "pd-40-short", "pd-nonstream", "pd-generate"):
            with self.subTest(tag):
                first = self.compare(prefill.port, RECORDED / "pd" / f"{tag}.1-prefill.req.http")
                path = RECORDED / "pd" / f"{tag}.2-decode.req.http"
                body = json.loads(recordings.read_request(path)[2])
                body["kv_transfer_params"] = json.loads(first["body"])["kv_transfer_params"]
                self.compare(decode.port, path, json.dumps(body).encode())

    def test_the_handshake_has_the_recorded_shape(self):
        server = self.server()
        socket = Socket(DEALER, f"tcp://127.0.0.1:{server.ready['side_port']}")
        self.addCleanup(socket.close)
        socket.send(b"", b"\x93\xc4\x0cget_meta_msg\x00\x00")
        _, payload, clock = socket.receive()
        handshake = unpack(payload)
        self.assertEqual(set(handshake), {"compatibility_hash", "agent_metadata_bytes"})
        self.assertEqual(unpack(handshake["agent_metadata_bytes"])["engine_id"], server.ready["engine_id"])
        self.assertIsInstance(unpack(clock), float)


class Tokens(FakeTest):
    def test_depend_on_everything_before_them_and_on_nothing_else(self):
        server, other = self.server(), self.server()
        prompt = prompt_of(300)
        whole = self.tokens(server, prompt, max_tokens=16)
        self.assertEqual(self.tokens(server, prompt, max_tokens=16), whole, "with a warm cache")
        self.assertEqual(self.tokens(other, prompt, max_tokens=16), whole, "on another server")
        self.assertEqual(self.tokens(other, prompt + whole[:7], max_tokens=9), whole[7:], "continued elsewhere")
        self.assertNotEqual(self.tokens(server, [2] + prompt[1:], max_tokens=16), whole)
        self.assertNotEqual(self.tokens(self.server(*LIKE_RECORDED, "--seed", "1"), prompt, max_tokens=16), whole)

    def test_stream_equals_the_whole_answer(self):
        server = self.server()
        whole = self.complete(server, prompt_of(50), max_tokens=20, stop=["zz"])["choices"][0]
        _, _, body = Http(server.port).request("POST", "/v1/completions", {
            "prompt": prompt_of(50), "max_tokens": 20, "temperature": 0, "stop": ["zz"], "stream": True,
            "return_token_ids": True})
        chunks = [f for f in recordings.frames(body) if isinstance(f, dict)]
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks), whole["text"])
        self.assertEqual([t for c in chunks for t in c["choices"][0]["token_ids"]], whole["token_ids"])

    def test_a_client_that_leaves_frees_the_engine(self):
        server = self.server(*LIKE_RECORDED[:-4], "--sim-speedup", "1", "--served-model-name", "m")
        line = "POST /v1/completions HTTP/1.1"
        import socket
        body = json.dumps({"prompt": prompt_of(40), "max_tokens": 900, "stream": True, "ignore_eos": True}).encode()
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(f"{line}\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        self.assertTrue(connection.recv(1000))
        running = lambda: Http(server.port).metric("vllm:num_requests_running")
        eventually(lambda: running() == 1, "running")
        connection.close()
        eventually(lambda: running() == 0, "aborted")
        self.assertEqual(Http(server.port).metric("vllm:request_success_total", finished_reason="abort"), 0)

    def test_aborted_requests_end_with_what_they_have(self):
        server = self.server(*LIKE_RECORDED[:-4], "--sim-speedup", "1")
        answers = []
        body = {"request_id": "r-1", "token_ids": prompt_of(40), "sampling_params": {"max_tokens": 900}}
        thread = threading.Thread(target=lambda: answers.append(Http(server.port).post("/inference/v1/generate", body)))
        thread.start()
        http_ = Http(server.port)
        eventually(lambda: http_.metric("vllm:generation_tokens_total") >= 3, "some tokens")
        http_.request("POST", "/inference/v1/abort_requests", {"request_ids": ["r-1"]})
        thread.join()
        status, answer = answers[0]
        self.assertEqual((status, answer["choices"][0]["finish_reason"]), (200, "abort"))


class KvEvents(FakeTest):
    def listen(self, server: Stator, rank: int = 0) -> Events:
        events = Events(server.ready["events"][rank])
        self.addCleanup(events.close)
        fresh = iter(range(5000, 30000, 64))
        headers = {"X-data-parallel-rank": str(rank)}

        def provoke() -> list[int]:
            prompt = prompt_of(64, next(fresh))
            Http(server.port).request("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1}, headers)
            return prompt
        events.wait_until_heard(provoke)
        return events

    def test_stores_carry_tokens_parents_and_owners(self):
        server = self.server()
        events = self.listen(server)
        prompt = prompt_of(100)
        self.complete(server, prompt, max_tokens=1)
        topic, sequence, (_, (store,), rank) = events.next()
        self.assertEqual((topic, rank), ("kv-events", 0))
        self.assertEqual(store["token_ids"], prompt[:96])
        self.assertIsNone(store["parent_block_hash"])
        answer = self.complete(server, prompt + prompt_of(27, 7000), max_tokens=40)
        generated = answer["choices"][0]["token_ids"]
        self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 96)
        self.complete(server, prompt_of(64), cache_salt="stator-salt:abc", session_id="s-1", max_tokens=1)
        stores = []
        while not stores or "session_id" not in stores[-1]:  # how steps share batches is chance
            _, later, (_, batch, _) = events.next()
            sequence += 1
            self.assertEqual(later, sequence)
            stores += batch
        *decoded, salted = stores
        self.assertEqual(decoded[0]["parent_block_hash"], store["block_hashes"][-1])
        self.assertEqual([t for s in decoded for t in s["token_ids"]],
                         (prompt + prompt_of(27, 7000) + generated)[96:160])
        self.assertEqual(salted["extra_keys"], [["stator-salt:abc"], None])
        self.assertEqual(salted["session_id"], "s-1")
        self.assertNotEqual(salted["block_hashes"][0], store["block_hashes"][0])

    def test_hashes_say_what_is_cached(self):
        """The hit counter is what the events promise."""
        server = self.server()
        events = self.listen(server)
        cached: set[int] = set()
        for first in range(1000, 4000, 500):
            self.complete(server, prompt_of(500, first), max_tokens=1)
        stored = {}
        while (message := events.next(3.0)) is not None:
            for event in message[2][1]:
                if event["type"] == "BlockStored":
                    cached.update(event["block_hashes"])
                    stored[tuple(event["token_ids"][:2])] = event["block_hashes"]
                elif event["type"] == "BlockRemoved":
                    self.assertEqual(len(event["block_hashes"]), 1)
                    cached.difference_update(event["block_hashes"])
        self.assertLessEqual(len(cached), 48)
        for first in range(1000, 4000, 500):
            hashes = stored[(1, first)]
            expected = 0
            while expected < len(hashes) and hashes[expected] in cached:
                expected += 1
            hit = self.complete(server, prompt_of(500, first), max_tokens=1)
            self.assertEqual(hit["usage"]["prompt_tokens_details"]["cached_tokens"], 32 * expected)
            break  # the request itself changes the cache

    def test_a_reset_is_told_with_the_next_batch(self):
        server = self.server()
        events = self.listen(server)
        status, answer = Http(server.port).post("/reset_prefix_cache", {})
        self.assertEqual((status, answer), (200, {"success": True}))
        self.assertIsNone(events.next(0.5))
        self.complete(server, prompt_of(64), max_tokens=1)
        self.assertEqual([e["type"] for e in events.next()[2][1]], ["AllBlocksCleared", "BlockStored"])

    def test_forms_of_older_releases(self):
        server = self.server(*LIKE_RECORDED, "--release", "old", "--event-hash", "bytes")
        events = self.listen(server)
        self.complete(server, prompt_of(64), max_tokens=1)
        _, _, (_, (event,), _) = events.next()
        self.assertEqual(event[0], "BlockStored")
        self.assertEqual([len(h) for h in event[1]], [32, 32])
        status, answer = Http(server.port).post("/v1/completions", {"prompt": [], "model": "nope"})
        self.assertEqual((status, answer["object"]), (404, "error"))
        self.assertGreaterEqual(Http(server.port).metric("vllm:gpu_cache_usage_perc"), 0)

    def test_ranks_have_their_own_caches_and_ports(self):
        server = self.server(*LIKE_RECORDED, "--dp-size", "2")
        second = self.listen(server, 1)
        first = self.listen(server, 0)
        while second.next(0.2) is not None:
            pass
        Http(server.port).post("/v1/completions", {"prompt": prompt_of(64), "max_tokens": 1},
                               {"X-data-parallel-rank": "1"})
        self.assertEqual(second.next()[2][2], 1)
        self.assertIsNone(first.next(0.3))
        sources = Http(server.port).get("/kv_event_sources")[1]
        self.assertEqual([sources[r]["endpoint"] for r in "01"], [e["endpoint"] for e in server.ready["events"]])

    def test_lost_and_repeated_batches(self):
        server = self.server()
        events = self.listen(server)
        http_ = Http(server.port)
        http_.post("/fault", {"kind": "drop_events"})
        self.complete(server, prompt_of(64, 100), max_tokens=1)
        self.complete(server, prompt_of(64, 200), max_tokens=1)
        _, sequence, batch = events.next()
        self.assertEqual(batch[1][0]["token_ids"], prompt_of(64, 200))
        missed = events.replay(sequence - 1)
        self.assertEqual([int.from_bytes(m[-2], "big") for m in missed[:-1]], [sequence - 1, sequence])
        self.assertEqual(unpack(missed[0][-1])[1][0]["token_ids"], prompt_of(64, 100))
        http_.post("/fault", {"kind": "delay_replay", "delay_ms": 300})
        asked = time.monotonic()
        self.assertEqual(events.replay(sequence - 1), missed)
        self.assertGreaterEqual(time.monotonic() - asked, 0.3)
        http_.post("/fault", {"kind": "duplicate_events"})
        self.complete(server, prompt_of(64, 300), max_tokens=1)
        self.assertEqual(events.next()[1], events.next()[1])
        http_.post("/fault", {"kind": "restart_sequence"})
        self.complete(server, prompt_of(64, 400), max_tokens=1)
        self.assertEqual(events.next()[1], 0)
        http_.post("/fault", {"kind": "block_size", "value": 16})
        self.complete(server, prompt_of(64, 500), max_tokens=1)
        self.assertEqual(events.next()[2][1][0]["block_size"], 16)
        _, _, page = http_.request("GET", "/metrics")
        self.assertIn(b'block_size="16"', page)


class HandOffs(FakeTest):
    LEASED = (*LIKE_RECORDED, "--handoff-timeout", "300ms")

    def prefill(self, server: Stator, prompt: list[int]) -> dict:
        return self.complete(server, prompt, max_tokens=1, kv_transfer_params={
            "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
            "remote_block_ids": None, "remote_host": None, "remote_port": None})["kv_transfer_params"]

    def test_right_tokens_once_wrong_ones_later(self):
        prefill, decode, alone = self.server(), self.server(), self.server()
        prompt = prompt_of(200)
        expected = self.tokens(alone, prompt, max_tokens=12)
        params = self.prefill(prefill, prompt)
        usage = Http(prefill.port).metric("vllm:kv_cache_usage_perc")
        self.assertGreaterEqual(usage, 7 / 48, "the blocks of the hand-off are pinned")
        self.assertEqual(self.tokens(decode, prompt, max_tokens=12, kv_transfer_params=params), expected)
        self.assertEqual(Http(decode.port).metric("vllm:external_prefix_cache_hits_total"), 200)
        self.assertEqual(Http(prefill.port).metric("vllm:kv_cache_usage_perc"), 0)
        stale = self.tokens(decode, prompt, max_tokens=12, kv_transfer_params=params)
        self.assertEqual(len(stale), 12)
        self.assertNotEqual(stale, expected)

    def test_a_lease_ends(self):
        prefill, decode = self.server(), self.server()
        prompt = prompt_of(40)
        params = self.prefill(prefill, prompt)
        Http(prefill.port).post("/fault", {"kind": "expire_handoffs"})
        self.assertEqual(Http(prefill.port).metric("vllm:nixl_num_kv_expired_reqs_total"), 1)
        self.assertNotEqual(self.tokens(decode, prompt, kv_transfer_params=params), self.tokens(decode, prompt))
        self.assertEqual(Http(prefill.port).metric("vllm:nixl_num_notifications_after_expiry_total"), 1)

    def test_unreachable_or_foreign_prefill_is_an_error(self):
        prefill, decode = self.server(), self.server(*self.LEASED)
        prompt = prompt_of(40)
        params = self.prefill(prefill, prompt)
        for broken in ({"remote_port": 1}, {"remote_engine_id": "00000000-0000-0000-0000-000000000000"}):
            status, answer = Http(decode.port).post("/v1/completions", {
                "prompt": prompt, "max_tokens": 4, "kv_transfer_params": params | broken})
            self.assertEqual(status, 500)
            self.assertEqual(answer["error"]["type"], "InternalServerError")


class Faults(FakeTest):
    BODY = {"prompt": prompt_of(40), "max_tokens": 8, "temperature": 0, "stream": True, "return_token_ids": True}

    def post(self, server: Stator, timeout_s: float = 120.0) -> bytes:
        return recordings.send(server.port, "POST /v1/completions HTTP/1.1", {}, json.dumps(self.BODY).encode(),
                               timeout_s)

    def chunks(self, raw: bytes) -> list:
        return recordings.frames(recordings.parse_response(raw)["body"])

    def test_status_garbage_and_close(self):
        server = self.server()
        http_ = Http(server.port)
        http_.post("/fault", {"kind": "status", "status": 503, "path": "/v1/completions"})
        self.assertEqual(recordings.parse_response(self.post(server))["status"], 503)
        http_.post("/fault", {"kind": "garbage"})
        garbage = recordings.parse_response(self.post(server))
        self.assertEqual(garbage["status"], 200)
        self.assertRaises(ValueError, json.loads, garbage["body"].decode(errors="replace"))
        http_.post("/fault", {"kind": "close", "after_tokens": 3})
        raw = self.post(server)
        self.assertEqual(sum(len(c["choices"][0]["token_ids"]) for c in self.chunks(raw)), 3)
        self.assertFalse(raw.endswith(b"0\r\n\r\n"), "the end of a whole answer")
        self.assertEqual(len(self.chunks(self.post(server))), 9)  # and all is well again
        self.assertEqual(http_.get("/fault")[1], {"faults": []})

    def test_hang_then_the_client_gives_up(self):
        server = self.server()
        Http(server.port).post("/fault", {"kind": "hang", "after_tokens": 2})
        with self.assertRaises(TimeoutError):
            self.post(server, 0.5)
        self.assertEqual(len(self.chunks(self.post(server))), 9)

    def test_slow_tokens_come_one_by_one(self):
        server = self.server()
        Http(server.port).post("/fault", {"kind": "slow", "delay_ms": 30})
        begin = time.monotonic()
        self.assertEqual(len(self.chunks(self.post(server))), 9)
        self.assertGreaterEqual(time.monotonic() - begin, 8 * 0.03)

    def test_die(self):
        server = self.server()
        Http(server.port).post("/fault", {"kind": "die", "after_tokens": 2})
        self.post(server)
        self.assertEqual(server.wait(), -9)

    def test_restart_on_the_same_port(self):
        server = self.server()
        engine = server.ready["engine_id"]
        Http(server.port).post("/fault", {"kind": "restart", "after_tokens": 2, "delay_ms": 50})
        self.assertLess(len(self.chunks(self.post(server))), 9)
        eventually(lambda: Http(server.port).get("/fault")[1] == {"faults": []}, "back on the port")
        answer = self.complete(server, prompt_of(40), max_tokens=1, kv_transfer_params={"do_remote_decode": True})
        self.assertNotEqual(answer["kv_transfer_params"]["remote_engine_id"], engine)
        self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_start_up_takes_its_time(self):
        server = self.server(*LIKE_RECORDED, "--startup-delay", "3s")
        self.assertEqual(Http(server.port).request("GET", "/health")[0], 503)
        eventually(lambda: Http(server.port).request("GET", "/health")[0] == 200, "loaded")

    def test_sleep_and_wake(self):
        server = self.server()
        http_ = Http(server.port)
        http_.request("POST", "/sleep?level=1")
        self.assertEqual(http_.get("/is_sleeping")[1], {"is_sleeping": True})
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.tokens(server, prompt_of(40))))
        thread.start()
        http_.request("POST", "/wake_up")
        thread.join()
        self.assertEqual(len(answers), 1)

    def test_open_requests_and_choices_are_bounded(self):
        server = self.server(*LIKE_RECORDED, "--requests-max", "1")
        http_ = Http(server.port)
        http_.post("/fault", {"kind": "hang", "after_tokens": 1})
        with self.assertRaises(TimeoutError):
            self.post(server, 0.3)
        eventually(lambda: http_.get("/load")[1] == {"server_load": 0}, "the client that left is forgotten")
        http_.post("/fault", {"kind": "hang"})
        thread = threading.Thread(target=lambda: self.assertRaises(TimeoutError, self.post, server, 3))
        thread.start()
        eventually(lambda: http_.get("/load")[1] == {"server_load": 1}, "one is open")
        self.assertEqual(http_.request("POST", "/v1/completions", self.BODY)[0], 503)
        self.assertEqual(http_.request("GET", "/health")[0], 200)
        _, _, page = http_.request("GET", "/fault/metrics")
        self.assertIn(b"\nstator_fake_requests_refused_total 1\n", page)
        thread.join()
        status, answer = Http(self.server().port).post("/v1/completions", {"prompt": [5], "n": 1025})
        self.assertEqual(status, 400)
        self.assertIn("at most 1024", answer["error"]["message"])

    def test_bad_faults_are_explained(self):
        server = self.server()
        status, answer = Http(server.port).post("/fault", {"kind": "explode"})
        self.assertEqual(status, 400)
        self.assertIn("kind", answer["error"])


class OfficialClient(FakeTest):
    def setUp(self):
        server = self.server("--dialect", "vllm", "--model-dir", str(MODEL_DIR), "--served-model-name", "demo",
                             "--sim-speedup", "0")
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=120)
        self.addCleanup(self.client.close)

    def test_models_completions_and_chat(self):
        self.assertEqual([m.id for m in self.client.models.list().data], ["demo"])
        whole = self.client.completions.create(model="demo", prompt="The router", max_tokens=12, temperature=0,
                                               logprobs=2)
        self.assertTrue(whole.choices[0].text)
        self.assertEqual(len(whole.choices[0].logprobs.tokens), 12)
        messages = [{"role": "user", "content": "What is a KV cache?"}]
        chat = self.client.chat.completions.create(model="demo", messages=messages, max_tokens=12, temperature=0)
        stream = list(self.client.chat.completions.create(
            model="demo", messages=messages, max_tokens=12, temperature=0, stream=True,
            stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in stream if c.choices),
                         chat.choices[0].message.content)
        self.assertEqual(stream[-1].usage.completion_tokens, 12)

    def test_tools_and_structured_output(self):
        tool = {"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}}}
        chat = self.client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "Oslo?"}], tools=[tool], tool_choice="required")
        call = chat.choices[0].message.tool_calls[0]
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("weather", {"city": "Oslo"}))
        choice = self.client.completions.create(
            model="demo", prompt="yes or no", extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
        self.assertIn(choice.choices[0].text, ["yes", "no"])

    def test_response_formats_are_followed(self):
        schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
        for response_format, expected in (({"type": "json_object"}, {}),
                                          ({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, {"count": 0})):
            chat = self.client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "How many?"}],
                                                       response_format=response_format)
            self.assertEqual(json.loads(chat.choices[0].message.content), expected)
            self.assertEqual(chat.choices[0].finish_reason, "stop")

    def test_errors_are_the_client_s(self):
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="nope", prompt="x")
        with self.assertRaises(openai.BadRequestError):
            self.client.completions.create(model="demo", prompt="x", max_tokens=0)


if __name__ == "__main__":
    unittest.main()
