#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token ids in, token ids out, as vLLM and SGLang spell it; readiness; the service's own description."""

import json
import unittest

from stator_process import MODEL, Serve, both_deployments


def events(body: bytes) -> list[dict]:
    lines = [line[6:] for line in body.decode().split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", lines
    return [json.loads(line) for line in lines[:-1]]


class TokenApi:
    def setUp(self):
        self.http = self.deployment.http

    def tokens(self, text):
        return self.http.post("/tokenize", {"model": MODEL, "prompt": text})[1]["tokens"]

    def completion(self, prompt, **fields):
        status, answer = self.http.post("/v1/completions", {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 8} | fields)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]

    def test_vllm_gives_the_tokens_of_the_completion(self):
        prompt = self.tokens("The router")
        status, answer = self.http.post("/inference/v1/generate", {
            "request_id": "r-1", "token_ids": prompt, "sampling_params": {"temperature": 0, "max_tokens": 8, "logprobs": 1}})
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["request_id"], "generate-tokens-r-1")
        choice = answer["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual(len(choice["token_ids"]), 8)
        self.assertEqual([e["token_id"] for e in choice["logprobs"]["content"]], choice["token_ids"])
        self.assertEqual(answer["usage"]["prompt_tokens"], len(prompt))
        text = self.http.post("/detokenize", {"model": MODEL, "tokens": choice["token_ids"]})[1]["prompt"]
        self.assertEqual(text, self.completion(prompt)["text"])

        status, _, body = self.http.request("POST", "/inference/v1/generate", {
            "model": MODEL, "token_ids": prompt, "stream": True, "stream_options": {"include_usage": True},
            "sampling_params": {"temperature": 0, "max_tokens": 8}})
        self.assertEqual(status, 200)
        chunks = events(body)
        self.assertEqual([t for c in chunks for choice in c["choices"] for t in choice["token_ids"]], choice["token_ids"])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 8)

    def test_sglang_gives_the_same(self):
        prompt = self.tokens("The router")
        wanted = self.completion(prompt)["text"]
        status, answer = self.http.post("/generate", {"input_ids": prompt, "rid": "r", "sampling_params": {"temperature": 0, "max_new_tokens": 8}})
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["text"], wanted)
        self.assertEqual(len(answer["output_ids"]), 8)
        self.assertEqual(answer["meta_info"]["finish_reason"], {"type": "length", "length": 8})
        self.assertEqual(answer["meta_info"]["id"], "r")
        _, _, body = self.http.request("POST", "/generate", {"text": "The router", "stream": True, "sampling_params": {"temperature": 0, "max_new_tokens": 8}})
        chunks = events(body)
        self.assertEqual(chunks[-1]["text"], wanted)
        self.assertEqual(chunks[-1]["output_ids"], answer["output_ids"])
        for earlier, later in zip(chunks, chunks[1:]):
            self.assertTrue(later["text"].startswith(earlier["text"]))

    def test_errors_name_the_field(self):
        for path, body, field in (("/inference/v1/generate", {}, "token_ids"), ("/generate", {}, "input_ids"),
                                  ("/inference/v1/generate", {"token_ids": [1], "sampling_params": {"top_p": 7}}, "sampling_params.top_p")):
            status, answer = self.http.post(path, body)
            self.assertEqual((status, answer["error"]["param"]), (400, field), answer)

    def test_readiness(self):
        self.assertEqual(self.http.get("/ready"), (200, {"status": "ready"}))
        status, answer = self.http.get(f"/v1/models/{MODEL}/ready")
        self.assertEqual(status, 200)
        self.assertTrue(answer["ready"])
        self.assertEqual(answer["namespaces"][0]["present"], ["aggregated"])
        self.assertEqual(self.http.get("/v1/models/absent/ready")[0], 404)
        self.assertEqual(self.http.get(f"/health?model={MODEL}")[0], 200)
        self.assertEqual(self.http.get("/health?model=absent")[0], 404)

    def test_the_description_is_complete(self):
        status, document = self.http.get("/openapi.json")
        self.assertEqual(status, 200)
        self.assertTrue(document["openapi"].startswith("3."))
        for path, methods in document["paths"].items():
            for method in methods:  # each documented route is there
                status, _, _ = self.http.request(method.upper(), path.replace("{id}", MODEL), {} if method == "post" else None)
                self.assertNotEqual(status, 405, f"{method} {path}")
        _, health = self.http.get("/health")
        for path in health["endpoints"]:
            self.assertIn(path, document["paths"])
        status, headers, page = self.http.request("GET", "/docs")
        self.assertEqual((status, headers["content-type"]), (200, "text/html; charset=utf-8"))
        self.assertIn(b"/v1/embeddings", page)


both_deployments(TokenApi, globals(), serve=lambda: Serve("--sim-speedup", "0"))


if __name__ == "__main__":
    unittest.main()
