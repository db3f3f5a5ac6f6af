#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What coding agents and other servers' clients send beside the work: tools of a provider, cache_control, names of vLLM and SGLang, pins that
mean nothing."""

import json
import unittest

import anthropic
import openai

from stator_process import MODEL, Http, Serve

HI = [{"role": "user", "content": "Hi"}]
LONG = "You help with software engineering tasks, carefully and in small steps. " * 12
SMALL_CACHE = ("--sim-speedup", "0", "--workers", "1", "--block-size", "16", "--kv-blocks", "160", "--max-model-len", "2048")


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Serve(*SMALL_CACHE)
        cls.addClassCleanup(cls.served.close)
        cls.http = Http(cls.served.frontend.port)
        cls.anthropic = anthropic.Anthropic(base_url=cls.served.frontend.url, api_key="x", max_retries=0)
        cls.openai = openai.OpenAI(base_url=cls.served.frontend.url + "/v1", api_key="x", max_retries=0)

    def post(self, path, body, headers=None):
        status, got, text = self.http.request("POST", path, {"model": MODEL} | body, headers)
        return status, {name.lower(): value for name, value in got.items()}, json.loads(text)

    # Codex

    def test_codex_is_answered_although_it_offers_tools_that_nobody_runs_here(self):
        tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "web_search", "external_web_access": False}]
        body = {"input": "Hi", "max_output_tokens": 4, "tools": tools}
        self.assertEqual(self.post("/v1/responses", body)[0], 501)
        status, headers, answer = self.post("/v1/responses", body, {"originator": "codex_exec", "Content-Type": "application/json"})
        self.assertEqual((status, headers["x-stator-ignored-fields"]), (200, "tools.web_search"))
        self.assertEqual(answer["object"], "response")

    # cache_control

    def turn(self, marked: bool, text: str) -> anthropic.types.Usage:
        system = {"type": "text", "text": text} | ({"cache_control": {"type": "ephemeral"}} if marked else {})
        return self.anthropic.messages.create(model=MODEL, max_tokens=2, system=[system], messages=HI).usage

    def flood(self):
        """Other prompts, more than the cache holds."""
        for i in range(8):
            self.openai.completions.create(model=MODEL, prompt=list(range(i * 300, i * 300 + 330)), max_tokens=1)

    def test_a_marked_prompt_outlives_others_in_the_cache(self):
        marked, other = LONG, LONG.replace("small", "large")
        self.turn(True, marked)
        self.turn(False, other)
        self.flood()
        self.assertGreater(self.turn(True, marked).cache_read_input_tokens, 100)
        self.assertLess(self.turn(False, other).cache_read_input_tokens, 100)
        self.assertEqual(self.http.metric("stator_engine_kept_prefixes"), 1)

    # Names of other servers

    def test_names_of_other_servers_are_understood_or_refused(self):
        ask = {"messages": HI, "max_tokens": 2}
        status, headers, _ = self.post("/v1/chat/completions", ask | {"data_parallel_rank": 0, "thinking_token_budget": 9})
        self.assertEqual((status, headers.get("x-stator-ignored-fields")), (200, "max_thinking_tokens"))
        self.assertEqual(self.post("/v1/chat/completions", ask | {"data_parallel_rank": 7})[0], 404)
        for field in ({"lora_path": "poet"}, {"logits_processors": ["x"]}, {"custom_logit_processor": "x"}):
            status, headers, answer = self.post("/v1/chat/completions", ask | field)
            self.assertEqual((status, headers["x-should-retry"], answer["error"]["param"]), (501, "false", *field))

    def test_hints_that_mean_nothing_here_are_named(self):
        for fields, headers, named in (
                ({"nvext": {"prefill_worker_id": 7}}, {}, "nvext.prefill_worker_id"), ({"nvext": {"prefill_dp_rank": 0}}, {}, "nvext.prefill_dp_rank"),
                ({"nvext": {"annotations": ["request_id", "colour"]}}, {}, "nvext.annotations"),
                ({}, {"x-dynamo-prefill-instance-id": "7", "Content-Type": "application/json"}, "x-stator-prefill-instance-id")):
            status, got, _ = self.post("/v1/chat/completions", {"messages": HI, "max_tokens": 2} | fields, headers or None)
            self.assertEqual((status, got.get("x-stator-ignored-fields")), (200, named))


if __name__ == "__main__":
    unittest.main()
