#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official Anthropic Python client, against a model that says what the test wants (--sim-reply) and against the demo model."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import anthropic

from stator_process import MODEL, ROOT, DeploymentTest, Serve, both_deployments, clean_environment, eventually

NODE_SCRIPT = pathlib.Path(__file__).with_name("anthropic_client.mjs")
NODE_CLIENT = ROOT / "build" / "test-node" / "node_modules" / "@anthropic-ai" / "sdk" / "index.mjs"

TOOLS = [{"name": "get_weather", "description": "Weather of a city", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}\n</tool_call>'
# The last `when` that the prompt contains decides.
REPLIES = [
    {"reply": "Hello there, friend."},
    {"when": "weather", "reply": f"<think>\nI need the weather.\n</think>\nLet me look.\n{CALL}\n{CALL}"},
    {"when": "only one", "reply": CALL + CALL},
    {"when": "any tool", "reply": '[{"name": "get_weather", "parameters": {"city": "Zürich"}}]'},
    {"when": "that tool", "reply": '{"city": "Zürich", "days": 3}'},
    {"when": "as an object", "reply": '{"city": "Zürich"}'},
    {"when": "cut off", "reply": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich'},
    {"when": "think long", "reply": "<think>\n" + "one two three four five six seven eight nine ten " * 4 + "\n</think>\nDone."},
    {"when": "<tool_response>", "reply": "It is sunny."},
    {"when": "Error: no such city", "reply": "That city does not exist."},
]


def serve_replies(*more: str) -> Serve:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("".join(json.dumps(reply) + "\n" for reply in REPLIES))
        file.flush()
        return Serve("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3", "--sim-reply", file.name,
                     "--sim-speedup", "0", *more)


class ScriptedModel(DeploymentTest):
    @classmethod
    def deploy(cls):
        return serve_replies()

    def setUp(self):
        self.client = anthropic.Anthropic(base_url=self.deployment.frontend.url, api_key="unused", max_retries=0, timeout=60)
        self.addCleanup(self.client.close)

    def ask(self, text, **fields):
        return self.client.messages.create(
            **{"model": MODEL, "max_tokens": 400, "messages": [{"role": "user", "content": text}]} | fields)

    def stream(self, text, **fields):
        return self.client.messages.stream(
            **{"model": MODEL, "max_tokens": 400, "messages": [{"role": "user", "content": text}]} | fields)

    # Messages

    def test_a_message_has_text_and_usage(self):
        message = self.ask("Hi")
        self.assertEqual((message.type, message.role, message.model), ("message", "assistant", MODEL))
        self.assertRegex(message.id, "^msg_[0-9a-f]{32}$")
        self.assertEqual([(b.type, b.text) for b in message.content], [("text", "Hello there, friend.")])
        self.assertEqual((message.stop_reason, message.stop_sequence), ("end_turn", None))
        self.assertGreater(message.usage.output_tokens, 0)
        self.assertEqual(message.usage.cache_creation_input_tokens, 0)

    def test_max_tokens_and_stop_sequences_say_so(self):
        self.assertEqual(self.ask("Hi", max_tokens=2).stop_reason, "max_tokens")
        message = self.ask("Hi", stop_sequences=["zzz", ", friend"])
        self.assertEqual(message.content[0].text, "Hello there")
        self.assertEqual((message.stop_reason, message.stop_sequence), ("stop_sequence", ", friend"))
        with self.stream("Hi", stop_sequences=[", friend"]) as stream:
            final = stream.get_final_message()
        self.assertEqual((final.stop_reason, final.stop_sequence), ("stop_sequence", ", friend"))

    def test_thinking_text_and_calls_come_in_the_models_order(self):
        message = self.ask("the weather", tools=TOOLS, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2048)
        self.assertEqual([b.type for b in message.content], ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual(message.content[0].thinking.strip(), "I need the weather.")
        self.assertTrue(message.content[0].signature)
        self.assertEqual(message.content[1].text.strip(), "Let me look.")
        self.assertEqual(message.content[2].input, {"city": "Zürich", "days": 2})
        self.assertRegex(message.content[2].id, "^toolu_[A-Za-z0-9]+$")
        self.assertNotEqual(message.content[2].id, message.content[3].id)
        self.assertEqual(message.stop_reason, "tool_use")

    def test_a_stream_is_the_same_message_event_by_event(self):
        fields = {"tools": TOOLS, "thinking": {"type": "adaptive"}}
        whole = self.ask("the weather", **fields)
        with self.stream("the weather", **fields) as stream:
            events = list(stream)
            final = stream.get_final_message()
        self.assertEqual([b.type for b in final.content], [b.type for b in whole.content])
        for a, b in zip(final.content, whole.content):
            self.assertEqual(a.model_dump(exclude={"id"}), b.model_dump(exclude={"id"}))
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        kinds = [event.type for event in events]
        self.assertEqual((kinds[0], kinds[-1]), ("message_start", "message_stop"))
        self.assertTrue({"thinking", "signature", "text", "input_json", "content_block_start", "content_block_stop",
                         "message_delta"} <= set(kinds), kinds)
        self.assertEqual("".join(e.thinking for e in events if e.type == "thinking"), final.content[0].thinking)
        self.assertEqual("".join(e.text for e in events if e.type == "text"), final.content[1].text)
        start = events[0].message.usage
        self.assertEqual(start.input_tokens + start.cache_read_input_tokens,
                         final.usage.input_tokens + final.usage.cache_read_input_tokens)

    def test_blocks_never_overlap(self):
        raw = list(self.ask("the weather", tools=TOOLS, stream=True))
        opened = None
        count = 0
        for event in raw:
            if event.type == "content_block_start":
                self.assertIsNone(opened)
                self.assertEqual(event.index, count)
                opened = event.index
            elif event.type == "content_block_delta":
                self.assertEqual(event.index, opened)
            elif event.type == "content_block_stop":
                self.assertEqual(event.index, opened)
                opened, count = None, count + 1
        self.assertEqual((opened, count), (None, 4))

    def test_a_thinking_budget_is_kept(self):
        whole = self.ask("think long", thinking={"type": "adaptive"})
        self.assertEqual([b.type for b in whole.content], ["thinking", "text"])
        self.assertEqual(whole.content[1].text.strip(), "Done.")
        for stream in (False, True):
            fields = {"thinking": {"type": "enabled", "budget_tokens": 5}}
            if stream:
                with self.stream("think long", **fields) as events:
                    message = events.get_final_message()
            else:
                message = self.ask("think long", **fields)
            self.assertEqual(message.content[0].type, "thinking")
            self.assertTrue(whole.content[0].thinking.startswith(message.content[0].thinking.strip()))
            self.assertLess(len(message.content[0].thinking), 40)
            self.assertEqual(message.content[1].type, "text")
            self.assertEqual(message.stop_reason, "end_turn")
        status, chat = self.http.post("/v1/chat/completions", {
            "model": MODEL, "messages": [{"role": "user", "content": "think long"}], "nvext": {"max_thinking_tokens": 7}})
        self.assertEqual(status, 200)
        self.assertLessEqual(chat["usage"]["completion_tokens_details"]["reasoning_tokens"], 7)
        self.assertTrue(chat["choices"][0]["message"]["content"])

    # Tools

    def test_tool_choice_is_obeyed(self):
        message = self.ask("any tool", tools=TOOLS, tool_choice={"type": "any"})
        self.assertEqual([(b.type, b.input) for b in message.content], [("tool_use", {"city": "Zürich"})])
        message = self.ask("that tool", tools=TOOLS, tool_choice={"type": "tool", "name": "get_weather"})
        self.assertEqual([(b.name, b.input) for b in message.content], [("get_weather", {"city": "Zürich", "days": 3})])
        self.assertEqual(message.stop_reason, "tool_use")
        message = self.ask("only one", tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
        self.assertEqual(len([b for b in message.content if b.type == "tool_use"]), 1)
        message = self.ask("only one", tools=TOOLS, tool_choice={"type": "none"})
        self.assertNotIn("tool_use", [b.type for b in message.content])

    def test_results_of_tools_are_read(self):
        call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Zürich"}}

        def after(result):
            return self.ask("", tools=TOOLS, messages=[
                {"role": "user", "content": "How is it?"}, {"role": "assistant", "content": [call]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"} | result]}]).content[0].text
        self.assertEqual(after({"content": "sunny"}), "It is sunny.")
        self.assertEqual(after({"content": [{"type": "text", "text": "sun"}, {"type": "text", "text": "wind"}]}), "It is sunny.")
        self.assertEqual(after({"content": "no such city", "is_error": True}), "That city does not exist.")
        self.assertEqual(after({}), "It is sunny.")

    def test_a_call_that_was_cut_off_is_still_readable(self):
        message = self.ask("cut off", tools=TOOLS, max_tokens=20)
        self.assertEqual(message.stop_reason, "max_tokens")

    def test_an_answer_that_was_begun_is_continued(self):
        def tokens(*messages):
            return self.client.messages.count_tokens(model=MODEL, messages=list(messages)).input_tokens
        question = {"role": "user", "content": "Hi"}
        begun = tokens(question, {"role": "assistant", "content": "The answer is"})
        self.assertLess(begun, tokens(question, {"role": "assistant", "content": "The answer is"}, question))
        self.assertTrue(self.ask("", messages=[question, {"role": "assistant", "content": "The answer is"}]).content)

    def test_structured_outputs_are_json(self):
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
        message = self.ask("as an object", output_config={"format": {"type": "json_schema", "schema": schema}})
        self.assertEqual(json.loads(message.content[0].text), {"city": "Zürich"})

    # Counting

    def test_counted_tokens_are_those_of_the_message(self):
        for fields in ({}, {"system": "Be brief."}, {"system": [{"type": "text", "text": "Be brief."}]}, {"tools": TOOLS},
                       {"tools": TOOLS, "tool_choice": {"type": "none"}}):
            with self.subTest(**fields):
                messages = [{"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]}]
                counted = self.client.messages.count_tokens(model=MODEL, messages=messages, **fields).input_tokens
                usage = self.ask("", messages=messages, **fields).usage
                self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)
                with self.stream("", messages=messages, **fields) as stream:
                    start = next(iter(stream)).message.usage
                self.assertEqual(counted, start.input_tokens + start.cache_read_input_tokens)

    # Prefix caches

    def test_billing_headers_of_coding_agents_do_not_spoil_the_cache(self):
        long_text = "You are an assistant who answers carefully. " * 20

        def ask(nonce):
            return self.ask("Hi", system=[
                {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.{nonce}; cch={nonce};"},
                {"type": "text", "text": long_text, "cache_control": {"type": "ephemeral"}}]).usage
        ask(11)
        second = ask(22222)
        self.assertGreater(second.cache_read_input_tokens, 0)
        line = self.client.messages.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], system="x-anthropic-billing-header: cch=1;\n" + long_text)
        self.assertEqual(line.input_tokens, second.input_tokens + second.cache_read_input_tokens)

    # Fields

    def test_fields_without_effect_are_named(self):
        raw = self.client.messages.with_raw_response.create(
            model=MODEL, max_tokens=4, messages=[{"role": "user", "content": [
                {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}],
            service_tier="auto", metadata={"user_id": "u"}, extra_headers={"anthropic-beta": "context-1m-2025-08-07"})
        self.assertEqual(raw.headers["x-stator-ignored-fields"], "service_tier")
        self.assertTrue(raw.headers["request-id"])
        self.assertEqual(raw.headers["request-id"], raw.headers["x-request-id"])

    # Errors

    def test_errors_are_typed(self):
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.ask("Hi", model="claude-nope")
        self.assertEqual(caught.exception.body["type"], "error")
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
        self.assertTrue(caught.exception.request_id)
        for fields in ({"messages": []}, {"max_tokens": 0}, {"messages": [{"role": "robot", "content": "x"}]},
                       {"tool_choice": {"type": "any"}}, {"messages": [{"role": "user", "content": ""}]},
                       {"thinking": {"type": "enabled"}}):
            with self.subTest(**fields), self.assertRaises(anthropic.BadRequestError) as caught:
                self.ask("Hi", **fields)
            self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")

    def test_what_is_not_built_is_refused_by_name_and_not_tried_again(self):
        client = self.client.with_options(max_retries=2)
        before = self.http.metric("dynamo_frontend_requests_total", endpoint="anthropic_messages", status="error")
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
        for fields, name, status in (({"messages": [{"role": "user", "content": [image]}]}, "messages[0].content[0]", 400),
                                     ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type", 501)):
            with self.assertRaises(anthropic.APIStatusError) as caught:
                client.messages.create(**{"model": MODEL, "max_tokens": 4, "messages": [
                    {"role": "user", "content": "Hi"}]} | fields)
            self.assertEqual(caught.exception.status_code, status)
            self.assertIn(name, caught.exception.body["error"]["message"])
        after = self.http.metric("dynamo_frontend_requests_total", endpoint="anthropic_messages", status="error")
        self.assertEqual(after - before, 2)

    def test_every_error_on_its_routes_has_its_shape(self):
        for method, path, status, kind in (("GET", "/v1/messages", 405, "invalid_request_error"),
                                           ("POST", "/v1/messages/x", 404, "not_found_error"),
                                           ("POST", "/v1/messages", 415, "invalid_request_error")):
            got, _, body = self.http.request(method, path, b"{}")
            self.assertEqual(got, status)
            self.assertEqual(json.loads(body)["error"]["type"], kind, path)
        got, _, body = self.http.request("POST", "/v1/messages_beta", b"{}")
        self.assertEqual((got, json.loads(body)["code"]), (404, 404))
        got, _, body = self.http.request("POST", "/v1/messages", b"", {
            "Content-Type": "application/json", "Content-Length": str(1 << 40)})
        self.assertEqual((got, json.loads(body)["error"]["type"]), (413, "request_too_large"))

    # Models

    def test_models_come_in_the_clients_shape(self):
        models = self.client.models.list().data
        self.assertEqual([(m.id, m.type) for m in models], [(MODEL, "model")])
        model = self.client.models.retrieve(MODEL)
        self.assertEqual((model.id, model.display_name), (MODEL, MODEL))
        self.assertGreater(model.created_at.year, 2000)
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client.models.retrieve("nope")
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
        self.assertEqual(self.http.get(f"/v1/models/{MODEL}")[1]["object"], "model")
        self.assertEqual(self.http.get("/v1/models/nope")[1]["code"], 404)


    # The client for Node.js

    def test_every_check_of_the_node_client_passes(self):
        self.assertTrue(NODE_CLIENT.exists(), "scripts/setup.sh test installs the Node client")
        done = subprocess.run(
            ["node", "--test", "--test-reporter=tap", str(NODE_SCRIPT)], capture_output=True, text=True, timeout=120,
            env=clean_environment(
                STATOR_URL=self.deployment.frontend.url, STATOR_MODEL=MODEL, STATOR_ANTHROPIC_MODULE=str(NODE_CLIENT)))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# fail 0", done.stdout)
        self.assertIn("# pass 5", done.stdout)


class FullServer(DeploymentTest):
    @classmethod
    def deploy(cls):
        return Serve("--frontend-inflight-max", "1", "--shards", "1", "--sim-step-us", "20000")

    def test_a_full_server_is_overloaded_in_anthropics_words(self):
        question = [{"role": "user", "content": "Hi"}]
        with anthropic.Anthropic(base_url=self.deployment.frontend.url, api_key="x", max_retries=0) as client:
            with client.messages.create(model=MODEL, max_tokens=64, messages=question, stream=True,
                                        extra_body={"ignore_eos": True}) as stream:
                self.assertEqual(next(iter(stream)).type, "message_start")
                for streamed in (False, True):
                    with self.assertRaises(anthropic.OverloadedError) as caught:
                        client.messages.create(model=MODEL, max_tokens=4, messages=question, stream=streamed)
                    self.assertEqual(caught.exception.status_code, 529)
                    self.assertEqual(caught.exception.body["error"]["type"], "overloaded_error")
                    self.assertTrue(caught.exception.response.headers["retry-after"])
        body = {"model": MODEL, "messages": question, "max_tokens": 1}
        eventually(lambda: self.http.post("/v1/chat/completions", body)[0] == 200, "room again once the stream is left")


class RealModel:
    """The demo model, greedy, in both ways to deploy."""

    def test_messages_and_chat_say_the_same(self):
        question = {"role": "user", "content": "What is a KV cache?"}
        with anthropic.Anthropic(base_url=self.deployment.frontend.url, api_key="x", max_retries=0) as client:
            message = client.messages.create(model=MODEL, max_tokens=12, messages=[question], extra_body={"temperature": 0})
            with client.messages.stream(model=MODEL, max_tokens=12, messages=[question], extra_body={"temperature": 0}) as stream:
                streamed = "".join(stream.text_stream)
        status, chat = self.http.post("/v1/chat/completions", {
            "model": MODEL, "max_tokens": 12, "messages": [question], "temperature": 0})
        self.assertEqual(status, 200)
        self.assertEqual(message.content[0].text, chat["choices"][0]["message"]["content"])
        self.assertEqual(message.content[0].text, streamed)
        self.assertEqual(message.usage.output_tokens, 12)


both_deployments(RealModel, globals())

if __name__ == "__main__":
    unittest.main()
