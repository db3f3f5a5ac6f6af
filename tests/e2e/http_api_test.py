#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The HTTP interface beyond what the OpenAI clients use: health, metrics, tokens, routing, receipts, terminal clients."""

import gzip
import json
import subprocess
import unittest

from stator_process import BINARY, MODEL, both_deployments, clean_environment

CHAT = "/v1/chat/completions"


def chat_body(**fields):
    return {"model": MODEL, "max_tokens": 4, "temperature": 0,
            "messages": [{"role": "user", "content": "What is a KV cache?"}]} | fields


class HttpApi:
    def cli(self, *arguments, stdin=None):
        return subprocess.run(
            [BINARY, *arguments, "--url", self.deployment.frontend.url], input=stdin, env=clean_environment(),
            capture_output=True, text=True, timeout=300)

    # Health and metrics

    def test_health_names_two_instances_and_live_is_200(self):
        status, health = self.http.get("/health")
        self.assertEqual((status, health["status"]), (200, "healthy"))
        self.assertEqual(len(set(self.deployment.worker_ids())), 2)
        self.assertEqual(self.http.get("/live")[0], 200)

    def test_metrics_count_requests_under_the_names_dashboards_read(self):
        before = self.http.metric("dynamo_frontend_requests_total", model=MODEL)
        self.http.post(CHAT, chat_body())
        self.assertEqual(self.http.metric("dynamo_frontend_requests_total", model=MODEL), before + 1)
        self.assertEqual(self.http.metric("dynamo_frontend_inflight_requests"), 0)
        self.assertGreaterEqual(self.http.metric("stator_router_decisions_total"), 1)

    def test_head_is_answered_without_a_body(self):
        status, _, body = self.http.request("HEAD", "/v1/models")
        self.assertEqual((status, body), (200, b""))

    def test_a_wrong_method_is_told_the_right_one(self):
        status, headers, _ = self.http.request("GET", CHAT)
        self.assertEqual((status, headers["allow"]), (405, "POST"))
        status, headers, _ = self.http.request("DELETE", "/v1/models")
        self.assertEqual((status, headers["allow"]), (405, "GET, HEAD"))

    def test_a_body_in_another_encoding_is_refused_by_its_name(self):
        body = gzip.compress(json.dumps(chat_body()).encode())
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        status, _, answer = self.http.request("POST", CHAT, body, headers)
        self.assertEqual(status, 415)
        self.assertIn("Content-Encoding: gzip", json.loads(answer)["error"]["message"])
        self.assertEqual(self.http.post(CHAT, chat_body(), {"Content-Encoding": "identity"})[0], 200)

    # Annotations

    def test_annotations_stand_before_a_streams_first_chunk(self):
        names = ["request_id", "formatted_prompt", "token_ids", "worker_instance_id"]
        status, _, body = self.http.request("POST", CHAT, chat_body(stream=True, nvext={"annotations": names}))
        self.assertEqual(status, 200)
        frames = body.decode().split("\n\n")
        events = {}
        while frames[0].startswith("event: "):
            name, data = frames.pop(0).split("\n")
            events[name.removeprefix("event: ")] = json.loads(data.removeprefix("data: "))
        self.assertEqual(set(events), set(names))
        chunk = json.loads(frames[0].removeprefix("data: "))
        self.assertEqual(chunk["id"], "chatcmpl-" + events["request_id"])
        self.assertIn("What is a KV cache?", events["formatted_prompt"])
        _, tokens = self.http.post("/tokenize", {"model": MODEL, "messages": chat_body()["messages"]})
        self.assertEqual(events["token_ids"], tokens["tokens"])
        self.assertIn(events["worker_instance_id"], self.deployment.worker_ids())
        self.assertFalse(any(frame.startswith("event:") for frame in frames))

    # Tokens

    def test_tokenize_and_detokenize_are_each_others_inverse(self):
        status, tokens = self.http.post(
            "/tokenize", {"model": MODEL, "prompt": "A block has 16 tokens.", "return_token_strs": True})
        self.assertEqual(status, 200)
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        self.assertEqual(len(tokens["token_strs"]), tokens["count"])
        self.assertEqual(tokens["max_model_len"], 2048)
        status, text = self.http.post("/detokenize", {"model": MODEL, "tokens": tokens["tokens"]})
        self.assertEqual((status, text["prompt"]), (200, "A block has 16 tokens."))

    def test_tokenize_renders_a_conversation_as_chat_does(self):
        _, tokens = self.http.post("/tokenize", {"model": MODEL, "messages": chat_body()["messages"]})
        _, answer = self.http.post(CHAT, chat_body())
        self.assertEqual(tokens["count"], answer["usage"]["prompt_tokens"])

    def test_detokenize_refuses_a_token_outside_the_vocabulary(self):
        status, error = self.http.post("/detokenize", {"model": MODEL, "tokens": [10 ** 6]})
        self.assertEqual((status, error["error"]["param"]), (400, "tokens"))

    # Routing

    def test_a_routing_header_pins_the_worker(self):
        for worker in self.deployment.worker_ids():
            for header in ("x-stator-worker-instance-id", "x-dynamo-worker-instance-id", "x-worker-instance-id"):
                status, answer = self.http.post(
                    CHAT, chat_body(nvext={"extra_fields": ["worker_id"]}), {header: str(worker)})
                self.assertEqual(status, 200)
                self.assertEqual(answer["nvext"]["worker_id"]["decode_worker_id"], worker)

    def test_a_repeated_prompt_goes_to_the_worker_that_has_its_blocks(self):
        messages = [{"role": "user", "content": "Tell me everything about routing. " * 30}]
        body = chat_body(messages=messages, nvext={"extra_fields": ["worker_id"]})
        _, first = self.http.post(CHAT, body)
        _, second = self.http.post(CHAT, body)
        self.assertEqual(first["nvext"], second["nvext"])
        self.assertGreater(second["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_timing_is_reported_when_asked_for(self):
        _, answer = self.http.post(CHAT, chat_body(nvext={"extra_fields": ["timing"]}))
        timing = answer["nvext"]["timing"]
        self.assertLessEqual(timing["ttft_ms"], timing["total_time_ms"])

    # Receipts

    def test_each_answer_has_a_routing_receipt(self):
        _, answer = self.http.post(CHAT, chat_body())
        status, receipt = self.http.get(f"/receipts/{answer['id']}")
        self.assertEqual(status, 200)
        self.assertEqual(receipt, self.http.get("/receipts/last")[1])
        self.assertEqual(len(receipt["candidates"]), 2)
        self.assertEqual(self.http.get("/receipts/chatcmpl-unknown")[0], 404)

    def test_the_newest_receipt_is_not_for_strangers(self):
        _, answer = self.http.post(CHAT, chat_body())
        forwarded = {"X-Forwarded-For": "198.51.100.7"}
        status, _, body = self.http.request("GET", "/receipts/last", headers=forwarded)
        self.assertEqual(status, 403)
        self.assertNotIn(answer["id"].removeprefix("chatcmpl-"), body.decode())
        self.assertEqual(self.http.request("GET", f"/receipts/{answer['id']}", headers=forwarded)[0], 200)

    def test_lists_that_every_worker_is_compared_with_are_bounded(self):
        ids = ",".join(str(i) for i in range(1, 1026))
        self.assertEqual(self.http.post(CHAT, chat_body(), {"x-stator-allowed-worker-ids": ids})[0], 400)
        taints = {"required_taints": [f"t{i}" for i in range(1025)]}
        status, answer = self.http.post(CHAT, chat_body(nvext={"routing_constraints": taints}))
        self.assertEqual(status, 400)
        self.assertIn("1024", answer["error"]["message"])

    def test_explain_last_prints_the_receipt_for_people_and_for_scripts(self):
        self.http.post(CHAT, chat_body())
        text = self.cli("explain", "last")
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertGreater(len(text.stdout.splitlines()), 2)
        as_json = self.cli("explain", "last", "--json")
        self.assertEqual(json.loads(as_json.stdout), self.http.get("/receipts/last")[1])

    # Terminal

    def test_chat_answers_a_question_from_standard_input(self):
        answer = self.cli("chat", "--max-tokens", "8", "--temperature", "0", stdin="What is a KV cache?\n")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        _, expected = self.http.post(CHAT, chat_body(max_tokens=8))
        self.assertIn(expected["choices"][0]["message"]["content"].strip(), answer.stdout)

    # Answer headers

    def test_ignored_fields_are_named_in_a_header(self):
        _, headers, _ = self.http.request("POST", CHAT, chat_body(surprise=1))
        self.assertIn("surprise", headers["x-stator-ignored-fields"])


both_deployments(HttpApi, globals())

if __name__ == "__main__":
    unittest.main()
