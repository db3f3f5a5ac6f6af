#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every engine server must be like behind Stator, whichever it is and whether it is real.

    conformance.py --stator URL --engine URL --dialect vllm|sglang|trtllm|llamacpp|openai [--vocabulary 32000]

One server behind one frontend; nobody else asks either. What Stator answers is compared with what the server says when asked
directly, one request at a time, greedily, with prompts of token ids (of text, where a server takes nothing else).
tests/e2e/engine_conformance_test.py runs the same against the fake servers.
"""

from __future__ import annotations

import argparse
import http.client
import json
import pathlib
import random
import sys
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from stator_process import Http, eventually  # noqa: E402

MODEL = "m"
# What a server cannot do must be refused by this name; what is not listed must work.
REFUSED = {
    "vllm": (),
    "sglang": (),
    "trtllm": ("logprobs",),
    "llamacpp": ("min_tokens", "cache_salt"),
    "openai": ("logprobs", "min_tokens", "ignore_eos", "stop_token_ids", "cache_salt"),
}
OPTIONS = {"logprobs": {"logprobs": 2}, "min_tokens": {"min_tokens": 4}, "ignore_eos": {"ignore_eos": True},
           "stop_token_ids": {"stop_token_ids": [7]}, "cache_salt": {"cache_salt": "a tenant"}, "top_k": {"top_k": 5}}
KNOWS_CACHED = ("vllm", "sglang")
WORDS = "cache key value token block prompt route worker engine stream batch layer head page memory queue model".split()


class Conformance:
    """The checks. A unittest.TestCase that mixes them in sets these, and starts the servers."""

    dialect = "vllm"
    stator_url = ""
    engine_url = ""
    vocabulary = 32_000

    def prompt(self, length: int, seed: int = 0) -> list[int] | str:
        source = random.Random(f"{length}/{seed}")
        if self.dialect == "openai":
            return " ".join(source.choices(WORDS, k=length))
        return [source.randrange(min(300, self.vocabulary // 2), self.vocabulary) for _ in range(length)]

    def http(self, url: str) -> Http:
        return Http(urllib.parse.urlsplit(url).port)

    def ask(self, url: str, prompt: list[int] | str, **fields) -> dict:
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 12, "temperature": 0} | fields
        status, _, answer = self.http(url).request("POST", "/v1/completions", body, timeout_s=300)
        self.assertEqual(status, 200, answer)
        return json.loads(answer)

    def stream(self, url: str, prompt: list[int] | str, **fields) -> tuple[str, str, dict]:
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 12, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}} | fields
        status, _, answer = self.http(url).request("POST", "/v1/completions", body, timeout_s=300)
        self.assertEqual(status, 200, answer)
        text, finish, usage = "", "", {}
        lines = [line[6:] for line in answer.decode().splitlines() if line.startswith("data: ")]
        self.assertEqual(lines[-1], "[DONE]")
        for line in lines[:-1]:
            chunk = json.loads(line)
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                text += choice["text"]
                finish = choice["finish_reason"] or finish
        return text, finish, usage

    def error(self, prompt: list[int] | str, **fields) -> tuple[int, str]:
        status, answer = self.http(self.stator_url).post("/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 8} | fields)
        return status, answer["error"]["message"] if status != 200 else ""

    def metric(self, name: str, **labels: str) -> float:
        return self.http(self.stator_url).metric(name, **labels)

    def test_the_text_is_the_engines_own_in_one_piece_and_streamed(self):
        for i, length in enumerate((1, 2, 31, 32, 33, 150, 400)):
            with self.subTest(tokens=length):
                prompt = self.prompt(length)
                expected = self.ask(self.engine_url, prompt, max_tokens=5 + i)
                whole = self.ask(self.stator_url, prompt, max_tokens=5 + i)
                text, finish, usage = self.stream(self.stator_url, prompt, max_tokens=5 + i)
                choice = expected["choices"][0]
                self.assertTrue(choice["text"])
                self.assertEqual((whole["choices"][0]["text"], whole["choices"][0]["finish_reason"]),
                                 (choice["text"], choice["finish_reason"]))
                self.assertEqual((text, finish), (choice["text"], choice["finish_reason"]))
                for counted in (whole["usage"], usage):
                    self.assertEqual(counted["prompt_tokens"], expected["usage"]["prompt_tokens"])
                    self.assertEqual(counted["completion_tokens"], expected["usage"]["completion_tokens"])

    def test_a_stop_string_never_leaks(self):
        prompt = self.prompt(40)
        whole = self.ask(self.engine_url, prompt, max_tokens=24)["choices"][0]["text"]
        stop = whole[len(whole) // 2:len(whole) // 2 + 3]

        for text, finish in (self.stream(self.stator_url, prompt, max_tokens=24, stop=[stop])[:2],
                             (lambda choice: (choice["text"], choice["finish_reason"]))(
                                 self.ask(self.stator_url, prompt, max_tokens=24, stop=[stop])["choices"][0])):
            self.assertEqual((text, finish), (whole[:whole.index(stop)], "stop"))

    def test_a_seed_repeats_and_n_answers_are_told_apart(self):
        prompt = self.prompt(24)
        first, again = (self.ask(self.stator_url, prompt, temperature=1.0, seed=5, n=2) for _ in range(2))
        said = [sorted((choice["index"], choice["text"]) for choice in answer["choices"]) for answer in (first, again)]
        self.assertEqual([index for index, _ in said[0]], [0, 1])
        if self.keeps_seeds():
            self.assertEqual(said[0], said[1])

    def keeps_seeds(self) -> bool:
        if self.dialect != "sglang":
            return True
        return self.http(self.engine_url).get("/server_info")[1].get("enable_deterministic_inference", True)

    def test_what_it_cannot_do_is_refused_by_name_and_the_rest_works(self):
        for name, fields in OPTIONS.items():
            with self.subTest(name):
                before = self.metric("stator_adapter_refused_total")
                status, message = self.error(self.prompt(8), **fields)
                if name in REFUSED[self.dialect]:
                    self.assertIn(status, (400, 501), message)
                    self.assertIn(name, message)
                    self.assertGreater(self.metric("stator_adapter_refused_total"), before)
                else:
                    self.assertEqual(status, 200, message)

    def test_log_probabilities_are_the_engines(self):
        if "logprobs" in REFUSED[self.dialect]:
            return self.assertIn(self.error(self.prompt(8), logprobs=2)[0], (400, 501))
        prompt = self.prompt(20)
        answer = self.ask(self.stator_url, prompt, logprobs=2, max_tokens=6)["choices"][0]["logprobs"]
        self.assertEqual(len(answer["token_logprobs"]), 6)
        self.assertTrue(all(logprob <= 0 for logprob in answer["token_logprobs"]), answer)
        for logprob, top in zip(answer["token_logprobs"], answer["top_logprobs"]):
            self.assertLessEqual(logprob, max(top.values()) + 1e-6)  # greedy: the likeliest one
            self.assertGreaterEqual(logprob, max(top.values()) - 1e-6)
        expected = self.ask(self.engine_url, prompt, logprobs=2, max_tokens=6)["choices"][0]["logprobs"]
        if "token_logprobs" in expected:  # llama.cpp has a form of its own
            for ours, theirs in zip(answer["token_logprobs"], expected["token_logprobs"]):
                self.assertAlmostEqual(ours, theirs, delta=0.02)
        return None

    def test_a_prompt_is_scored_where_the_engine_can(self):
        prompt = self.prompt(24)
        asked = {"echo": True, "logprobs": 1, "max_tokens": 1}
        if self.dialect not in ("vllm", "sglang"):
            return self.assertEqual(self.error(prompt, **asked)[0], 501)
        choice = self.ask(self.stator_url, prompt, return_tokens_as_token_ids=True, **asked)["choices"][0]
        scored = choice["logprobs"]
        self.assertEqual(scored["tokens"][:-1], [f"token_id:{token}" for token in prompt])
        for part in ("token_logprobs", "top_logprobs", "text_offset"):
            self.assertEqual(len(scored[part]), len(prompt) + 1, part)
        self.assertEqual((scored["token_logprobs"][0], scored["top_logprobs"][0]), (None, None))
        for token, logprob, top in list(zip(scored["tokens"], scored["token_logprobs"], scored["top_logprobs"]))[1:]:
            self.assertEqual(top[token], logprob)
            self.assertLessEqual(logprob, max(top.values()))
        self.assertEqual(self.stream(self.stator_url, prompt, **asked)[0], choice["text"])
        if self.dialect == "vllm":
            expected = self.ask(self.engine_url, prompt, **asked)["choices"][0]["logprobs"]["token_logprobs"]
            for ours, theirs in zip(scored["token_logprobs"][1:], expected[1:]):
                self.assertAlmostEqual(ours, theirs, delta=0.05)
        return None

    def test_tokens_outside_the_vocabulary_never_reach_it(self):
        if self.dialect == "openai":
            return  # it never sees ids
        refused = self.metric("stator_adapter_refused_total")
        for token in (self.vocabulary + 100_000, 2**31 - 1):
            status, message = self.error([5, token])
            self.assertEqual(status, 400, message)
        self.assertEqual(self.ask(self.engine_url, self.prompt(4))["choices"][0]["index"], 0)
        self.assertGreaterEqual(self.metric("stator_adapter_refused_total"), refused)

    def test_a_prompt_that_is_too_long_is_a_clients_mistake(self):
        limit = self.http(self.stator_url).get("/v1/models")[1]["data"][0]["context_window"]
        self.assertGreater(limit, 0)
        status, message = self.error(self.prompt(limit + 1))
        self.assertEqual(status, 400, message)

    def test_a_client_that_leaves_ends_the_engines_work(self):
        endless = {"model": MODEL, "prompt": self.prompt(16), "max_tokens": 400, "temperature": 0, "stream": True}
        if "ignore_eos" not in REFUSED[self.dialect]:
            endless["ignore_eos"] = True
        before = self.metric("stator_adapter_cancelled_total")
        connection = http.client.HTTPConnection("127.0.0.1", urllib.parse.urlsplit(self.stator_url).port, timeout=300)
        connection.request("POST", "/v1/completions", json.dumps(endless), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        answer.readline()
        connection.sock.close()
        connection.close()

        eventually(lambda: self.metric("stator_adapter_cancelled_total") > before, "the connection to the engine is closed")
        eventually(lambda: self.metric("stator_engine_running_requests") == 0, "the engine has stopped", 60)
        self.assertEqual(self.metric("stator_router_active_requests"), 0)

    def test_a_prompt_asked_again_is_cached_and_the_router_knows(self):
        prompt = self.prompt(300, seed=random.randrange(1 << 30))
        self.ask(self.stator_url, prompt)

        def known() -> dict | None:
            answer = self.ask(self.stator_url, prompt)
            receipt = self.http(self.stator_url).get(f"/receipts/{answer['id']}")[1]
            return (answer, receipt) if receipt["best_overlap_blocks"] * receipt["block_size"] > 200 else None

        answer, _ = eventually(known, "the router counts on what it was told, or guesses", 30)
        if self.dialect in KNOWS_CACHED:
            self.assertGreater((answer["usage"]["prompt_tokens_details"] or {})["cached_tokens"], 200)
            self.assertEqual(self.metric("stator_router_index_workers", trust="exact"), 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stator", required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--dialect", required=True, choices=sorted(REFUSED))
    parser.add_argument("--vocabulary", type=int, default=32_000)
    arguments = parser.parse_args()

    class Real(Conformance, unittest.TestCase):
        dialect, vocabulary = arguments.dialect, arguments.vocabulary
        stator_url, engine_url = arguments.stator, arguments.engine

    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(Real))
    failed = [test.id().split(".")[-1] for test, _ in result.failures + result.errors]
    print(f"{result.testsRun - len(set(failed))} of {result.testsRun} conformance checks passed" + "".join(f"; failed: {name}" for name in failed))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
