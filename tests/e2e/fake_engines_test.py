#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator sim-server` as SGLang (against recorded traffic), llama.cpp and TensorRT-LLM (against their descriptions)."""

import json
import socket
import threading
import unittest

import openai

import engine_recordings as recordings
from stator_process import MODEL_DIR, Http, Stator, eventually
from zmq_wire import Events

RECORDED = recordings.STREAMS / "sglang-0.5.23"
# Like the recorded server: pages of 16 tokens, 4,096 tokens of cache, context of 1,024.
SGLANG = ("--dialect", "sglang", "--block-size", "16", "--kv-blocks", "256", "--max-model-len", "1024",
          "--sim-speedup", "0", "--served-model-name", "m")
LEFT_OUT = {
    "abort-disconnect": "cut by the client",
    "error-token-out-of-range": "the server ends: see test_foreign_tokens_end_the_process",
    "info-metrics": "names are compared in test_what_it_says_about_itself_is_what_was_recorded",
    "info-server_info": "556 members: those the fake has are compared there",
    "info-model_info": "the same",
}


def prompt_of(length: int, first: int = 1000) -> list[int]:
    return [1] + [first + i for i in range(length - 1)]


class FakeTest(unittest.TestCase):
    maxDiff = None

    def server(self, *arguments: str) -> Stator:
        server = Stator("sim-server", "--host", "127.0.0.1", "--port", "0", *arguments)
        self.addCleanup(server.close)
        return server

    def post(self, server: Stator, path: str, body: dict) -> dict:
        status, answer = Http(server.port).post(path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def stream(self, server: Stator, path: str, body: dict) -> list:
        return recordings.frames(Http(server.port).request("POST", path, body | {"stream": True})[2])


@unittest.skipUnless(RECORDED.exists(), f"no recordings at {RECORDED}")
class SglangRecorded(FakeTest):
    def answer(self, name: str) -> bytes:
        return (RECORDED / "http" / f"{name}.resp.http").read_bytes()

    def test_every_exchange_has_the_recorded_shape(self):
        server = self.server(*SGLANG)
        names = sorted(p.name.removesuffix(".req.http") for p in (RECORDED / "http").glob("*.req.http"))
        self.assertFalse(set(LEFT_OUT) - set(names), "left out, but not recorded")
        names.sort(key=lambda n: n == "generate-stream")
        # The recorded order: first a cold cache, then hits.
        for name in ["generate-stream"] + [n for n in names if n not in LEFT_OUT and n != "generate-stream"]:
            with self.subTest(name):
                if name == "flush-cache":
                    continue  # forgets what the hits below need; done last
                self.compare(server, name)
        self.compare(server, "flush-cache")

    def compare(self, server: Stator, name: str) -> None:
        line, headers, body = recordings.read_request(RECORDED / "http" / f"{name}.req.http")
        fake = recordings.parse_response(recordings.send(server.port, line, headers, body))
        real = recordings.parse_response(self.answer(name))
        self.assertEqual(recordings.response_shape(fake), recordings.response_shape(real), name)
        if name.startswith("error-"):
            self.assertEqual(json.loads(fake["body"]), json.loads(real["body"]))

    def test_what_it_says_about_itself_is_what_was_recorded(self):
        server = self.server(*SGLANG)
        for name, path in (("info-server_info", "/server_info"), ("info-model_info", "/model_info")):
            fake = Http(server.port).get(path)[1]
            real = json.loads(recordings.parse_response(self.answer(name))["body"])
            for key in fake.keys() - {"incremental_streaming_output", "kv_events"}:
                self.assertIn(key, real, name)
                if fake[key] is not None and real[key] is not None:
                    self.assertEqual(recordings.shape(fake[key]), recordings.shape(real[key]), key)
        self.assertEqual(set(Http(server.port).get("/server_info")[1]["kv_events"]), set(real_kv_events(self)))
        page = Http(server.port).request("GET", "/metrics")[2].decode()
        real = recordings.parse_response(self.answer("info-metrics"))["body"].decode()
        mine = recordings.families(page, "sglang:")
        self.assertFalse(mine - recordings.families(real, "sglang:"), "names that SGLang 0.5.23 does not have")
        self.assertGreater(len(mine), 12)


def real_kv_events(test: SglangRecorded) -> dict:
    return json.loads(recordings.parse_response(test.answer("info-server_info"))["body"])["kv_events"]


class Sglang(FakeTest):
    def generate(self, server: Stator, prompt: list[int], tokens: int = 8, **fields) -> dict:
        return self.post(server, "/generate", {
            "input_ids": prompt, "sampling_params": {"max_new_tokens": tokens, "temperature": 0}} | fields)

    def test_streams_are_cumulative_unless_told_otherwise(self):
        body = {"input_ids": prompt_of(20), "sampling_params": {"max_new_tokens": 5, "temperature": 0}}
        *chunks, done = self.stream(self.server(*SGLANG), "/generate", body)
        self.assertEqual(done, "[DONE]")
        ids = chunks[-1]["output_ids"]
        self.assertEqual([c["output_ids"] for c in chunks], [ids[:i + 1] for i in range(5)])
        *chunks, _ = self.stream(self.server(*SGLANG, "--incremental"), "/generate", body)
        self.assertEqual([c["output_ids"] for c in chunks], [[i] for i in ids])

    def test_foreign_tokens_end_the_process(self):
        server = self.server(*SGLANG)
        reply = recordings.send(server.port, "POST /generate HTTP/1.1", {}, b'{"input_ids":[1,70000]}')
        self.assertEqual(reply, b"")
        self.assertEqual(server.wait(), -9)

    def test_events_are_signed_and_a_flush_is_told_at_once(self):
        server = self.server(*SGLANG)
        events = Events(server.ready["events"][0])
        self.addCleanup(events.close)
        fresh = iter(range(5000, 30000, 64))

        def provoke() -> list[int]:
            prompt = prompt_of(64, next(fresh))
            self.generate(server, prompt, 1)
            return prompt
        events.wait_until_heard(provoke)
        prompt = prompt_of(50)
        self.generate(server, prompt, 1)
        topic, _, (_, (store,), rank) = events.next()
        self.assertEqual((topic, rank, store["token_ids"], store["block_size"]), ("kv-events", 0, prompt[:48], 16))
        self.assertEqual(list(store), ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size",
                                       "lora_id", "medium"])
        hit = self.generate(server, prompt, 1)
        self.assertEqual(hit["meta_info"]["cached_tokens"], 48)
        seen = []
        for first in range(40):
            self.generate(server, prompt_of(200, 2000 + 250 * first), 1)
        while (message := events.next(3.0)) is not None:
            seen += message[2][1]
        hashes = [h for e in seen for h in e["block_hashes"]]
        self.assertLess(min(hashes), 0, "signed")
        removed = [e for e in seen if e["type"] == "BlockRemoved"]
        self.assertGreater(max(len(e["block_hashes"]) for e in removed), 1)
        Http(server.port).request("POST", "/flush_cache")
        self.assertEqual([e["type"] for e in events.next()[2][1]], ["AllBlocksCleared"])

    def test_abort_ends_a_request(self):
        server = self.server(*SGLANG, "--speedup", "1")
        answers = []
        body = {"rid": "r-1", "input_ids": prompt_of(20), "sampling_params": {"max_new_tokens": 900}}
        thread = threading.Thread(target=lambda: answers.append(Http(server.port).post("/generate", body)))
        thread.start()
        http_ = Http(server.port)
        eventually(lambda: http_.metric("sglang:generation_tokens_total") >= 2, "some tokens")
        http_.request("POST", "/abort_request", {"rid": "r-1"})
        thread.join()
        self.assertEqual(answers[0][1]["meta_info"]["finish_reason"]["type"], "abort")

    def test_both_legs_wait_for_each_other(self):
        prefill = self.server(*SGLANG, "--role", "prefill")
        decode = self.server(*SGLANG, "--role", "decode")
        room = {"bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.ready["bootstrap_port"], "bootstrap_room": 7}
        expected = self.generate(self.server(*SGLANG), prompt_of(50))["output_ids"]
        for first, second in ((prefill, decode), (decode, prefill)):
            answers = {}

            def ask(server: Stator) -> None:
                answers[server.port] = self.generate(server, prompt_of(50), **room)

            early = threading.Thread(target=ask, args=(first,))
            early.start()
            early.join(0.3)
            self.assertTrue(early.is_alive(), "one leg alone does not finish")
            ask(second)
            early.join()
            self.assertEqual(answers[decode.port]["output_ids"], expected)
            self.assertEqual(answers[prefill.port]["output_ids"], expected[:1])
        self.assertEqual(Http(room["bootstrap_port"]).get(
            "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1")[1]["page_size"], 16)

    def test_a_leg_that_never_comes_is_an_error(self):
        decode = self.server(*SGLANG, "--role", "decode", "--handoff-timeout", "200ms")
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            status, _ = Http(decode.port).post("/generate", {
                "input_ids": prompt_of(20), "bootstrap_host": "127.0.0.1", "bootstrap_port": port - 1,
                "bootstrap_room": 1})
        self.assertEqual(status, 500)
        prefill = self.server(*SGLANG, "--role", "prefill", "--bootstrap-wait", "200ms")
        status, answer = Http(prefill.port).post("/generate", {
            "input_ids": prompt_of(20), "bootstrap_host": "127.0.0.1", "bootstrap_room": 1})
        self.assertEqual(status, 500)
        self.assertIn("bootstrap", answer["error"]["message"])


class Llamacpp(FakeTest):
    SERVER = ("--dialect", "llamacpp", "--max-model-len", "256", "--slots", "2", "--sim-speedup", "0")
    BODY = {"prompt": [1, 5, 9, 33, 77, 101], "n_predict": 2, "temperature": 0, "return_tokens": True}

    def test_completion_streams_as_described(self):
        server = self.server(*self.SERVER)
        first, second, last = self.stream(server, "/completion", self.BODY)
        self.assertEqual(list(first), ["index", "content", "tokens", "stop", "id_slot", "tokens_predicted",
                                       "tokens_evaluated"])
        self.assertEqual([first["tokens_predicted"], second["tokens_predicted"]], [1, 2])
        self.assertEqual((last["stop"], last["stop_type"], last["tokens"], last["tokens_cached"]),
                         (True, "limit", [], 7))
        whole = self.post(server, "/completion", self.BODY | {"n_probs": 2})
        self.assertEqual(whole["tokens"], first["tokens"] + second["tokens"])
        self.assertEqual(len(whole["completion_probabilities"][0]["top_logprobs"]), 2)
        self.assertEqual(self.post(server, "/completion", self.BODY | {"stop": [whole["content"][3:6]]})["stop_type"],
                         "word")

    def test_tokens_appear_only_when_asked_for(self):
        body = {k: v for k, v in self.BODY.items() if k != "return_tokens"}
        self.assertEqual(self.post(self.server(*self.SERVER), "/completion", body)["tokens"], [])

    def test_slots_props_and_text(self):
        server = self.server(*self.SERVER)
        http_ = Http(server.port)
        self.assertEqual(http_.get("/health")[1], {"status": "ok"})
        self.assertEqual([s["n_ctx"] for s in http_.get("/slots")[1]], [256, 256])
        self.assertEqual(http_.get("/props")[1]["total_slots"], 2)
        ids = self.post(server, "/tokenize", {"content": "Hello"})["tokens"]
        self.assertEqual(self.post(server, "/detokenize", {"tokens": ids})["content"], "Hello")
        self.post(server, "/completion", self.BODY)
        self.assertEqual(http_.metric("llamacpp:tokens_predicted_total"), 2)

    def test_errors_have_code_message_and_type(self):
        http_ = Http(self.server(*self.SERVER).port)
        for body in ({"prompt": [1], "n_predict": "many"}, {"prompt": [70000]}, {}):
            status, answer = http_.post("/completion", body)
            self.assertEqual((status, list(answer["error"])), (400, ["code", "message", "type"]))
        status, answer = Http(self.server(*self.SERVER, "--startup-delay", "30s").port).get("/health")
        self.assertEqual((status, answer["error"]["message"]), (503, "Loading model"))


class Trtllm(FakeTest):
    SERVER = ("--dialect", "trtllm", "--block-size", "32", "--kv-blocks", "48", "--max-model-len", "1024",
              "--sim-speedup", "0")

    def complete(self, server: Stator, prompt: list[int], **fields) -> dict:
        return self.post(server, "/v1/completions", {
            "model": "m", "prompt": prompt, "max_tokens": 8, "temperature": 0, "detokenize": False} | fields)

    def test_events_are_drained_by_reading(self):
        server = self.server(*self.SERVER)
        prompt = prompt_of(70)
        self.complete(server, prompt)
        events = eventually(lambda: self.post(server, "/kv_cache_events", {}), "events")
        self.assertEqual([e["data"]["type"] for e in events], ["created", "stored"])
        self.assertEqual([e["event_id"] for e in events], [0, 1])
        stored = events[1]["data"]
        self.assertIsNone(stored["parent_hash"])
        self.assertEqual([t["token_id"] for b in stored["blocks"] for t in b["tokens"]], prompt[:64])
        self.assertEqual(self.post(server, "/kv_cache_events", {}), [])
        for first in range(30):
            self.complete(server, prompt_of(200, 2000 + 250 * first), max_tokens=1)
        later = self.post(server, "/kv_cache_events", {})
        self.assertEqual([e["event_id"] for e in later], list(range(2, 2 + len(later))))
        self.assertIn("removed", {e["data"]["type"] for e in later})

    def test_statistics_are_a_drained_list(self):
        server = self.server(*self.SERVER)
        self.complete(server, prompt_of(70))
        (record,) = Http(server.port).get("/metrics")[1]
        self.assertEqual(record["kvCacheStats"]["maxNumBlocks"], 48)
        self.assertEqual(Http(server.port).get("/metrics")[1], [])

    def test_hand_offs_are_opaque_and_good_once(self):
        context, generation = self.server(*self.SERVER), self.server(*self.SERVER)
        prompt = prompt_of(70)
        expected = self.complete(self.server(*self.SERVER), prompt)["choices"][0]["token_ids"]
        first = self.complete(context, prompt, disaggregated_params={"request_type": "context_only"})
        params = first["choices"][0]["disaggregated_params"]
        self.assertEqual(params["first_gen_tokens"], expected[:1])
        self.assertEqual(first["prompt_token_ids"], prompt)
        params |= {"request_type": "generation_only"}
        self.assertEqual(self.complete(generation, prompt, disaggregated_params=params)["choices"][0]["token_ids"],
                         expected)
        self.assertNotEqual(self.complete(generation, prompt, disaggregated_params=params)["choices"][0]["token_ids"],
                            expected)

    def test_unknown_members_are_refused(self):
        status, answer = Http(self.server(*self.SERVER).port).post("/v1/completions", {
            "prompt": [5], "return_token_ids": True})
        self.assertEqual(status, 400)
        self.assertIn("return_token_ids", answer["message"])


class OfficialClient(FakeTest):
    def test_completions_and_chat_of_every_dialect(self):
        messages = [{"role": "user", "content": "What is a KV cache?"}]
        for dialect in ("sglang", "trtllm", "llamacpp"):
            with self.subTest(dialect):
                server = self.server("--dialect", dialect, "--model-dir", str(MODEL_DIR), "--served-model-name",
                                     "demo", "--sim-speedup", "0")
                client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=120)
                self.addCleanup(client.close)
                self.assertEqual([m.id for m in client.models.list().data], ["demo"])
                whole = client.completions.create(model="demo", prompt="The router", max_tokens=12, temperature=0)
                self.assertTrue(whole.choices[0].text)
                self.assertEqual(whole.usage.completion_tokens, 12)
                chat = client.chat.completions.create(model="demo", messages=messages, max_tokens=12, temperature=0)
                stream = list(client.chat.completions.create(
                    model="demo", messages=messages, max_tokens=12, temperature=0, stream=True,
                    stream_options={"include_usage": True}))
                self.assertEqual("".join(c.choices[0].delta.content or "" for c in stream if c.choices),
                                 chat.choices[0].message.content)
                self.assertEqual(stream[-1].usage.completion_tokens, 12)
                with self.assertRaises(openai.BadRequestError):
                    client.completions.create(model="demo", prompt=[])

    def test_another_method_is_told_the_right_one(self):
        for dialect, path, method, allowed in (
                ("vllm", "/v1/completions", "GET", "POST"), ("sglang", "/v1/chat/completions", "GET", "POST"),
                ("sglang", "/generate", "DELETE", "POST, PUT"), ("sglang", "/v1/models", "POST", "GET"),
                ("trtllm", "/v1/completions", "GET", "POST"), ("trtllm", "/v1/models", "POST", "GET")):
            with self.subTest(dialect=dialect, path=path):
                server = self.server("--dialect", dialect)
                status, headers, body = Http(server.port).request(method, path)
                self.assertEqual((status, headers["allow"]), (405, allowed))
                self.assertEqual(json.loads(body), {"detail": "Method Not Allowed"})
                self.assertEqual(Http(server.port).request(method, "/v1/nothing")[0], 404)

    def test_lists_of_texts_and_echo(self):
        for dialect in ("sglang", "trtllm", "llamacpp"):
            with self.subTest(dialect):
                server = self.server("--dialect", dialect, "--model-dir", str(MODEL_DIR), "--served-model-name",
                                     "demo", "--sim-speedup", "0")
                client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=120)
                self.addCleanup(client.close)

                def texts(prompt, **more) -> list[str]:
                    options = {"model": "demo", "prompt": prompt, "max_tokens": 4, "temperature": 0} | more
                    whole = [choice.text for choice in client.completions.create(**options).choices]
                    streamed = [""] * len(whole)
                    for chunk in client.completions.create(**options, stream=True):
                        for choice in chunk.choices:
                            streamed[choice.index] += choice.text
                    self.assertEqual(streamed, whole)
                    return whole

                prompts = ["The router", "A worker"]
                alone = [texts(prompt)[0] for prompt in prompts]
                self.assertEqual(texts(prompts), alone)
                repeated = ["", ""] if dialect == "llamacpp" else prompts  # llama.cpp has no echo
                self.assertEqual(texts(prompts, echo=True), [p + text for p, text in zip(repeated, alone)])
                self.assertEqual(texts(prompts[0], echo=True), [repeated[0] + alone[0]])


if __name__ == "__main__":
    unittest.main()
