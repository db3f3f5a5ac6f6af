#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engine servers that pool: a Stator in front of another one, which it takes for an OpenAI-compatible server, for vLLM and for llama-server.
What the client gets is what the server behind says."""

import unittest

from stator_process import MODEL, Serve

FAST = ("--sim-speedup", "0")


class Servers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.upstream = Serve(*FAST)

    @classmethod
    def tearDownClass(cls):
        cls.upstream.close()

    def front(self, kind, *arguments):
        front = Serve("--url", self.upstream.frontend.url, *arguments, engine=kind)
        self.addCleanup(front.close)
        return front.http

    def same(self, front, path, **body):
        wanted = self.upstream.http.post(path, {"model": MODEL, **body})
        got = front.post(path, {"model": MODEL, **body})
        self.assertEqual(wanted[0], 200, wanted)
        self.assertEqual(got[0], 200, got)
        for answer in (wanted[1], got[1]):
            answer.pop("id", None)
            answer.pop("created", None)
        self.assertEqual(got[1], wanted[1])

    def test_openai_compatible(self):
        front = self.front("openai")
        self.same(front, "/v1/embeddings", input=["one text", "another"])
        self.same(front, "/v1/embeddings", input=["one text"], dimensions=8, encoding_format="base64")
        self.same(front, "/v1/rerank", query="one text", documents=["text one", "nothing", "one text more"])
        status, answer = front.post("/classify", {"model": MODEL, "input": "a"})
        self.assertEqual(status, 400, answer)
        status, answer = front.post("/score", {"model": MODEL, "text_1": ["a", "b"], "text_2": ["c", "d"]})
        self.assertEqual(status, 400, answer)
        self.assertIn("one query", answer["error"]["message"])

    def test_vllm(self):
        front = self.front("vllm", "--task", "embed")
        self.same(front, "/v1/embeddings", input=["one text", "another"])
        self.same(front, "/pooling", input="one text", task="token_embed")
        self.assertEqual(front.post("/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "a"}]})[0], 400)
        score = self.front("vllm", "--task", "score")
        self.same(score, "/score", text_1=["a b", "c"], text_2=["b a", "d"])
        classify = self.front("vllm", "--task", "classify")
        self.assertEqual(classify.post("/classify", {"model": MODEL, "input": ["x y"]})[1]["data"][0]["probs"],
                         self.upstream.http.post("/classify", {"model": MODEL, "input": ["x y"]})[1]["data"][0]["probs"])

    def test_a_server_that_goes_is_told_as_such(self):
        upstream = Serve(*FAST)
        front = Serve("--url", upstream.frontend.url, engine="openai")
        self.addCleanup(front.close)
        upstream.close()
        status, answer = front.http.post("/v1/embeddings", {"model": MODEL, "input": "a"})
        self.assertEqual(status, 503, answer)


if __name__ == "__main__":
    unittest.main()
