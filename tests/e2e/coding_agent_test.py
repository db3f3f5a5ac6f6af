#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A session as Claude Code and its agent SDK hold it with a server: their bodies, headers and order of requests.

The shapes were written down from what the client sends; the model's part is scripted (--sim-reply).
"""

import http.client
import json
import unittest
import uuid

from anthropic_client_test import serve_replies
from stator_process import MODEL, DeploymentTest


class Agent:
    """What one process of the client sends."""

    def __init__(self, http):
        self.http = http
        self.session = str(uuid.uuid4())
        self.calls = 0

    def headers(self):
        return {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "claude-cli/2.1.37 (external, cli)",
                "X-Api-Key": "unused", "Anthropic-Version": "2023-06-01", "X-App": "cli",
                "Anthropic-Beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
                "Anthropic-Dangerous-Direct-Browser-Access": "true", "X-Stainless-Retry-Count": "0", "X-Stainless-Timeout": "600",
                "X-Claude-Code-Session-Id": self.session}

    def body(self, messages, **fields):
        self.calls += 1
        nonce = uuid.uuid4().hex[:5]
        cache = {"cache_control": {"type": "ephemeral"}}
        return {
            "model": MODEL, "max_tokens": 300, "stream": True, "messages": messages,
            "system": [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.37.{nonce}; cc_entrypoint=cli; cch={nonce};"},
                       {"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude.", **cache},
                       {"type": "text", "text": "You help with software engineering tasks. " * 12, **cache}],
            "tools": [{"name": "get_weather", "description": "Reads a thing", "input_schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": False,
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}],
            "metadata": {"user_id": json.dumps({"device_id": "d", "account_uuid": "", "session_id": self.session})},
            "thinking": {"type": "adaptive"}, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "medium"}} | fields

    def send(self, messages, **fields):
        """The events, as (name, data)."""
        status, headers, answer = self.http.request("POST", "/v1/messages?beta=true", self.body(messages, **fields), self.headers())
        if status != 200:
            raise AssertionError(f"{status}: {answer}")
        events = []
        for frame in answer.decode().split("\n\n"):
            if frame:
                name, data = frame.split("\n", 1)
                events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        return headers, events


def content_of(events):
    """The blocks, put together as the client does it."""
    blocks = []
    for name, data in events:
        if name == "content_block_start":
            blocks.append(dict(data["content_block"]) | {"json": ""})
        elif name == "content_block_delta":
            delta, block = data["delta"], blocks[data["index"]]
            field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "json"}
            block[field[delta["type"]]] += delta.get("text", delta.get("thinking", delta.get("signature", delta.get("partial_json"))))
    for block in blocks:
        if text := block.pop("json"):
            block["input"] = json.loads(text)
    return blocks


class CodingAgent(DeploymentTest):
    @classmethod
    def deploy(cls):
        return serve_replies("--workers", "2")

    def test_a_session_goes_round_its_loop_and_keeps_its_cache(self):
        agent = Agent(self.http)
        # At its start the client asks whether it may, with one token, and counts its tools.
        status, quota = self.http.post("/v1/messages?beta=true", {
            "model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}],
            "metadata": {"user_id": "user_0_account__session_" + agent.session}}, agent.headers())
        self.assertEqual((status, quota["stop_reason"]), (200, "max_tokens"))
        counted = self.http.post("/v1/messages/count_tokens?beta=true", {
            "model": MODEL, "messages": [{"role": "user", "content": "foo"}], "tools": agent.body([])["tools"]}, agent.headers())
        self.assertEqual(counted[0], 200)
        self.assertGreater(counted[1]["input_tokens"], 20)

        turns = [{"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>\nAs you answer, you can use the following context.\n</system-reminder>\n"},
            {"type": "text", "text": "How is the weather?", "cache_control": {"type": "ephemeral"}}]}]
        headers, events = agent.send(turns)
        self.assertEqual(headers["x-stator-ignored-fields"], "context_management")
        self.assertEqual([name for name, _ in events[:2]] + [events[-1][0]], ["message_start", "ping", "message_stop"])
        content = content_of(events)
        self.assertEqual([block["type"] for block in content], ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual(events[-2][1]["delta"]["stop_reason"], "tool_use")

        turns.append({"role": "assistant", "content": content})
        turns.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": block["id"], "content": [{"type": "text", "text": "sunny"}]}
            for block in content if block["type"] == "tool_use"]})
        _, events = agent.send(turns)
        start = events[0][1]["message"]["usage"]
        self.assertGreater(start["cache_read_input_tokens"], 100, "the second turn begins as the first one did")
        self.assertEqual(content_of(events), [{"type": "text", "text": "It is sunny."}])
        self.assertEqual(events[-2][1]["delta"]["stop_reason"], "end_turn")

    def test_a_stream_that_the_user_stops_is_cancelled(self):
        agent = Agent(self.http)
        connection = http.client.HTTPConnection("127.0.0.1", self.http.port, timeout=30)
        connection.request("POST", "/v1/messages?beta=true",
                           json.dumps(agent.body([{"role": "user", "content": "think long"}])).encode(), agent.headers())
        response = connection.getresponse()
        self.assertTrue(response.read1(64).startswith(b"event: message_start"))
        connection.close()


if __name__ == "__main__":
    unittest.main()
