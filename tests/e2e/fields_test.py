#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No field is accepted and dropped: each has an effect, is refused by name, or is named in x-stator-ignored-fields."""

import json
import unittest
import uuid

import openai

from stator_process import MODEL, DeploymentTest, Serve

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
QUESTION = [{"role": "user", "content": "What is a KV cache?"}]


class Fields(DeploymentTest):
    @classmethod
    def deploy(cls):
        return Serve("--sim-speedup", "0", "--workers", "2")

    def chat(self, headers=None, **fields):
        status, got, body = self.http.request(
            "POST", CHAT, {"model": MODEL, "messages": QUESTION, "max_tokens": 6} | fields, headers)
        return status, got, json.loads(body) if not fields.get("stream") else body.decode()

    def complete(self, **fields):
        status, answer = self.http.post(COMPLETIONS, {"model": MODEL, "prompt": "one two three four", "max_tokens": 2} | fields)
        self.assertEqual(status, 200, answer)
        return answer

    def ignored(self, **fields):
        status, headers, body = self.chat(**fields)
        self.assertEqual(status, 200, body)
        return headers.get("x-stator-ignored-fields")

    def test_what_has_no_effect_is_named(self):
        for name, value in (("metadata", {"a": "b"}), ("store", True), ("service_tier", "flex"), ("user", "u"),
                            ("prediction", {"type": "content", "content": "x"}), ("length_penalty", 1.0),
                            ("mm_processor_kwargs", {}), ("media_io_kwargs", {}), ("audio", {"voice": "x"})):
            self.assertEqual(self.ignored(**{name: value}), name)
        self.assertIsNone(self.ignored(store=False, service_tier="auto", modalities=["text"]))
        self.assertEqual(self.ignored(nvext={"dp_rank": 0, "request_timestamp_ms": 1.0}), "nvext.request_timestamp_ms")

    def test_what_would_change_the_answer_is_refused_and_not_tried_again(self):
        before = self.http.metric("dynamo_frontend_requests_total", status="error")
        cases = ({"modalities": ["text", "audio"]}, {"bad_words": ["x"]}, {"allowed_token_ids": [5]}, {"kv_transfer_params": {}},
                 {"nvext": {"extra_fields": ["routed_experts"]}},
                 {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]})
        with openai.OpenAI(base_url=self.deployment.frontend.url + "/v1", api_key="x", max_retries=2) as client:
            for fields in cases:
                with self.assertRaises(openai.APIStatusError) as caught:
                    client.chat.completions.create(
                        model=MODEL, **{"messages": QUESTION} | {k: v for k, v in fields.items() if k == "messages"},
                        extra_body={k: v for k, v in fields.items() if k != "messages"})
                self.assertEqual(caught.exception.status_code, 400 if "messages" in fields else 501)
                self.assertIn(caught.exception.body["param"].split("[")[0].split(".")[0], fields)
        self.assertEqual(self.http.metric("dynamo_frontend_requests_total", status="error") - before, len(cases))

    def test_refusals_count_for_their_model(self):
        labels = {"model": MODEL, "request_type": "stream", "status": "error", "error_type": "validation"}
        before = self.http.metric("dynamo_frontend_requests_total", **labels)
        self.assertEqual(self.chat(stream=True, logit_bias={"4000000": 1})[0], 400)
        self.assertEqual(self.http.metric("dynamo_frontend_requests_total", **labels), before + 1)

    def test_prompts_are_truncated_and_marked_as_asked(self):
        whole = self.complete()["usage"]["prompt_tokens"]
        self.assertGreater(whole, 3)
        self.assertEqual(self.complete(truncate_prompt_tokens=3)["usage"]["prompt_tokens"], 3)
        self.assertEqual(self.complete(truncate_prompt_tokens=1000)["usage"]["prompt_tokens"], whole)
        self.assertLess(self.complete(prompt="word " * 20000, truncate_prompt_tokens=-1)["usage"]["prompt_tokens"], 20000)
        self.assertEqual(self.complete(prompt=[5, 6, 7, 8], truncate_prompt_tokens=2)["usage"]["prompt_tokens"], 2)
        status, answer = self.http.post(COMPLETIONS, {"model": MODEL, "prompt": "x", "truncate_prompt_tokens": 0})
        self.assertEqual((status, answer["error"]["param"]), (400, "truncate_prompt_tokens"))

    def test_token_ids_of_the_answer_come_when_asked_for(self):
        wish = {"extra_fields": ["completion_token_ids"]}
        whole = self.chat(nvext=wish, seed=7, temperature=0)[2]
        ids = whole["nvext"]["completion_token_ids"]
        self.assertEqual(len(ids), whole["usage"]["completion_tokens"])
        status, text = self.http.post("/detokenize", {"model": MODEL, "tokens": ids})
        self.assertEqual((status, text["prompt"]), (200, whole["choices"][0]["message"]["content"]))
        chunks = [json.loads(line[6:]) for line in self.chat(nvext=wish, temperature=0, stream=True)[2].splitlines()
                  if line.startswith("data: {")]
        streamed = [token for chunk in chunks for token in (chunk.get("nvext") or {}).get("completion_token_ids", [])]
        self.assertEqual(streamed, ids)

    def test_a_dry_run_says_who_would_answer_and_generates_nothing(self):
        before = self.http.metric("dynamo_frontend_output_tokens_total")
        _, _, answer = self.chat(nvext={"annotations": ["query_instance_id:"]})
        self.assertIn(answer["nvext"]["worker_id"]["decode_worker_id"], self.deployment.worker_ids())
        self.assertEqual(len(answer["nvext"]["token_ids"]), answer["usage"]["prompt_tokens"])
        self.assertEqual((answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]), ("", 0))
        streamed = self.chat(nvext={"annotations": ["query_instance_id:kv"]}, stream=True)[2]
        self.assertIn('"decode_worker_id"', streamed)
        self.assertTrue(streamed.endswith("data: [DONE]\n\n"))
        self.assertEqual(self.http.metric("dynamo_frontend_output_tokens_total"), before)

    def test_timing_says_when_the_request_came_and_how_long_it_waited(self):
        timing = self.chat(nvext={"extra_fields": ["timing"]})[2]["nvext"]["timing"]
        self.assertGreater(timing["request_received_ms"], 1.6e12)
        for name in ("prefill_wait_time_ms", "prefill_time_ms", "ttft_ms", "total_time_ms"):
            self.assertGreaterEqual(timing[name], 0, name)

    def test_request_ids_of_clients_are_kept(self):
        own = str(uuid.uuid4())
        _, headers, answer = self.chat(headers={"x-dynamo-request-id": own})
        self.assertEqual((headers["x-request-id"], answer["id"]), (own, "chatcmpl-" + own))
        _, headers, _ = self.chat(headers={"x-request-id": own}, model="nope")
        self.assertEqual(headers["x-request-id"], own)


if __name__ == "__main__":
    unittest.main()
