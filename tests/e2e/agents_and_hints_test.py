#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What coding agents and other servers' clients send beside the work: tools of a provider, names of vLLM and SGLang, pins that mean nothing."""

import json
import unittest

from stator_process import MODEL, Http, Serve

HI = [{"role": "user", "content": "Hi"}]


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Serve("--sim-speedup", "0")
        cls.addClassCleanup(cls.served.close)
        cls.http = Http(cls.served.frontend.port)

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
