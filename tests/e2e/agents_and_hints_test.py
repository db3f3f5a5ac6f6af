#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What coding agents and other servers' clients send beside the work: tools of a provider, cache_control, names of vLLM and SGLang, pins that
mean nothing; taints, a template and a way to think that workers bring."""

import json
import tempfile
import unittest

import anthropic
import openai

from stator_process import MODEL, MODEL_DIR, Http, Serve, Split, Stator

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


class Taints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = Split("--shards", "1", workers=0)
        cls.addClassCleanup(cls.fleet.close)
        cls.workers = {}
        for name in ("east", "west"):
            worker = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0", *cls.fleet.discovery,
                            "--taints", f"zone={name}, fast")
            cls.addClassCleanup(worker.kill)
            cls.workers[name] = worker.ready["worker_id"]
        cls.http = cls.fleet.http
        cls.fleet.wait_for_workers(2)

    def who(self, **constraints):
        status, answer = self.http.post("/v1/chat/completions", {
            "model": MODEL, "messages": HI, "max_tokens": 1,
            "nvext": {"extra_fields": ["worker_id"], "routing_constraints": constraints}})
        return answer["nvext"]["worker_id"]["decode_worker_id"] if status == 200 else status

    def test_requests_go_where_they_demand(self):
        for name in ("east", "west", "east"):
            for _ in range(3):
                self.assertEqual(self.who(required_taints=[f"zone={name}", "fast"]), int(self.workers[name]))
        self.assertEqual(self.who(required_taints=["zone=north"]), 503)
        self.assertEqual(self.who(preferred_taints={"zone=west": 1.0}), int(self.workers["west"]))


class WorkersTemplate(unittest.TestCase):
    def test_the_workers_template_and_its_way_to_think(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if enable_thinking %}<think>{% endif %}")
            file.flush()
            served = Serve("--sim-speedup", "0", "--custom-jinja-template", file.name, "--dyn-default-thinking-mode", "enabled")
            self.addCleanup(served.close)

            def prompt(**fields):
                status, _, text = Http(served.frontend.port).request("POST", "/v1/chat/completions", {
                    "model": MODEL, "messages": HI, "max_tokens": 1, "stream": True, "nvext": {"annotations": ["formatted_prompt"]}} | fields)
                self.assertEqual(status, 200, text)
                return json.loads(text.decode().split("event: formatted_prompt\ndata: ")[1].split("\n")[0])
            self.assertEqual(prompt(), "<user>Hi<think>")
            self.assertEqual(prompt(chat_template_kwargs={"enable_thinking": False}), "<user>Hi")
            self.assertEqual(prompt(thinking=False), "<user>Hi")


if __name__ == "__main__":
    unittest.main()
