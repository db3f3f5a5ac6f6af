#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Embeddings, rerank, score, classify and pooling over simulated workers, asked by the official OpenAI client and by plain HTTP in the shapes of
Jina, Cohere and vLLM; in one process and in several."""

import base64
import json
import math
import struct
import threading
import unittest

import openai

from stator_process import MODEL, Serve, Split, both_deployments, eventually

FAST = ("--sim-speedup", "0")
WIDTH = 384


def length(vector) -> float:
    return math.sqrt(sum(x * x for x in vector))


def cosine(a, b) -> float:
    return sum(x * y for x, y in zip(a, b)) / (length(a) * length(b))


class Pooling:
    """Whatever the deployment."""

    def setUp(self):
        self.http = self.deployment.http
        self.client = openai.OpenAI(base_url=self.deployment.frontend.url + "/v1", api_key="unused", max_retries=0, timeout=120)
        self.addCleanup(self.client.close)

    def post(self, path, **body):
        return self.http.post(path, {"model": MODEL, **body})

    def ok(self, path, **body):
        status, answer = self.post(path, **body)
        self.assertEqual(status, 200, answer)
        return answer

    def refused(self, path, param, **body):
        status, answer = self.post(path, **body)
        self.assertEqual(status, 400, answer)
        self.assertEqual(answer["error"]["param"], param, answer)
        return answer["error"]["message"]

    # OpenAI

    def test_the_client_asks_for_base64_and_gets_numbers(self):
        answer = self.client.embeddings.create(model=MODEL, input="a text")  # encoding_format base64 by default
        self.assertEqual(answer.object, "list")
        self.assertEqual(answer.model, MODEL)
        vector = answer.data[0].embedding
        self.assertEqual(len(vector), WIDTH)
        self.assertAlmostEqual(length(vector), 1, places=5)
        floats = self.client.embeddings.create(model=MODEL, input="a text", encoding_format="float")
        self.assertEqual([struct.unpack("f", struct.pack("f", x))[0] for x in floats.data[0].embedding], list(vector))
        self.assertGreater(answer.usage.prompt_tokens, 0)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens)

    def test_every_form_of_input_gives_the_same_vector(self):
        _, tokens = self.http.post("/tokenize", {"model": MODEL, "prompt": "one two three"})
        ids = tokens["tokens"]
        wanted = self.client.embeddings.create(model=MODEL, input="one two three").data[0].embedding
        for given in (["one two three"], ids, [ids]):
            answer = self.client.embeddings.create(model=MODEL, input=given)
            self.assertEqual(answer.data[0].embedding, wanted, given)

    def test_a_large_batch_keeps_its_order(self):
        texts = [f"text number {i}" for i in range(2048)]
        answer = self.client.embeddings.create(model=MODEL, input=texts)
        self.assertEqual([item.index for item in answer.data], list(range(2048)))
        for i in (0, 1, 127, 128, 1000, 2047):
            alone = self.client.embeddings.create(model=MODEL, input=texts[i]).data[0].embedding
            self.assertEqual(answer.data[i].embedding, alone, i)

    def test_fewer_dimensions_are_a_unit_vector_again(self):
        whole = self.client.embeddings.create(model=MODEL, input="abc").data[0].embedding
        part = self.client.embeddings.create(model=MODEL, input="abc", dimensions=16).data[0].embedding
        self.assertEqual(len(part), 16)
        self.assertAlmostEqual(length(part), 1, places=5)
        self.assertAlmostEqual(cosine(part, whole[:16]), 1, places=5)

    def test_errors_name_the_field(self):
        path = "/v1/embeddings"
        self.refused(path, "input")
        self.refused(path, "input", input="")
        self.refused(path, "input[1]", input=["a", ""])
        self.refused(path, "input", input=["a"] * 2049)
        self.refused(path, "input", input=[1, 10_000_000])
        self.refused(path, "encoding_format", input="a", encoding_format="hex")
        self.assertIn("384", self.refused(path, "dimensions", input="a", dimensions=385))
        self.assertIn("maximum context length", self.refused(path, "input", input="word " * 40_000))
        status, answer = self.http.post(path, {"model": "absent", "input": "a"})
        self.assertEqual((status, answer["error"]["param"]), (404, "model"))

    def test_truncation_is_asked_for(self):
        answer = self.ok("/v1/embeddings", input="word " * 40_000, truncate_prompt_tokens=-1)
        whole = answer["usage"]["prompt_tokens"]
        self.assertGreater(whole, 1000)
        self.assertEqual(self.ok("/v1/embeddings", input="word " * 100, truncate_prompt_tokens=7)["usage"]["prompt_tokens"], 7)

    # Rerank

    def test_rerank_sorts_by_relevance(self):
        documents = ["nothing alike", "what is a cache", "a cache is what is asked"]
        answer = self.ok("/v1/rerank", query="what is a cache", documents=documents, top_n=2)
        self.assertEqual(len(answer["results"]), 2)
        self.assertEqual(answer["results"][0]["index"], 1)
        self.assertEqual(answer["results"][0]["document"], {"text": documents[1]})
        scores = [r["relevance_score"] for r in answer["results"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertTrue(answer["id"].startswith("rerank-"))
        # Cohere's second version never sends documents back; the first one and Jina take objects.
        cohere = self.ok("/v2/rerank", query="what is a cache", documents=documents, max_tokens_per_doc=4096)
        self.assertNotIn("document", cohere["results"][0])
        self.assertEqual(cohere["meta"]["api_version"]["version"], "2")
        jina = self.ok("/rerank", query="what is a cache", documents=[{"text": d} for d in documents], return_documents=False)
        self.assertEqual([r["index"] for r in jina["results"]], [r["index"] for r in cohere["results"]])
        self.refused("/rerank", "query", documents=documents)
        self.refused("/rerank", "documents", query="q")

    # vLLM

    def test_score_one_to_many_and_many_to_many(self):
        answer = self.ok("/score", text_1="a cache", text_2=["a cache", "zebra"])
        self.assertEqual([d["object"] for d in answer["data"]], ["score", "score"])
        self.assertGreater(answer["data"][0]["score"], answer["data"][1]["score"])
        pairs = self.ok("/v1/score", text_1=["a cache", "zebra"], text_2=["a cache", "zebra"])
        self.assertAlmostEqual(pairs["data"][0]["score"], pairs["data"][1]["score"])
        self.refused("/score", "text_1", text_1=["a", "b"], text_2=["c", "d", "e"])

    def test_classify(self):
        answer = self.ok("/classify", input=["one", "two"])
        for item in answer["data"]:
            self.assertEqual(item["num_classes"], 3)
            self.assertAlmostEqual(sum(item["probs"]), 1, places=5)
            self.assertEqual(item["label"], f"LABEL_{item['probs'].index(max(item['probs']))}")

    def test_pooling_in_every_encoding(self):
        numbers = self.ok("/pooling", input="some words here")["data"][0]["data"]
        text = self.ok("/pooling", input="some words here", encoding_format="base64")["data"][0]["data"]
        self.assertEqual(len(base64.b64decode(text)), 4 * WIDTH)
        rows = self.ok("/pooling", input="some words here", task="token_embed")
        self.assertEqual(len(rows["data"][0]["data"]), rows["usage"]["prompt_tokens"])
        _, headers, body = self.http.request("POST", "/pooling", {"model": MODEL, "input": ["some words here", "b"], "encoding_format": "bytes"})
        self.assertEqual(headers["content-type"], "application/octet-stream")
        first = json.loads(headers["metadata"])["data"][0]
        self.assertEqual(first["shape"], [WIDTH])
        self.assertEqual(list(struct.unpack(f"<{WIDTH}f", body[first["start"]:first["end"]])),
                         [struct.unpack("f", struct.pack("f", x))[0] for x in numbers])
        self.refused("/pooling", "task", input="a", task="dance")

    # Around it

    def test_ignored_fields_are_named_and_metrics_count(self):
        before = self.http.metric("dynamo_frontend_requests_total", endpoint="embeddings", status="success") or 0
        status, headers, _ = self.http.request("POST", "/v1/embeddings", {"model": MODEL, "input": "a", "colour": "red"})
        self.assertEqual(status, 200)
        self.assertEqual(headers["x-stator-ignored-fields"], "colour")
        self.ok("/v1/embeddings", input="a")
        self.assertGreater(self.http.metric("dynamo_frontend_requests_total", endpoint="embeddings", status="success"), before)
        self.assertEqual(self.http.metric("stator_router_active_requests"), 0)

    def test_chat_goes_on_beside_it(self):
        status, answer = self.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], max_tokens=4)
        self.assertEqual(status, 200, answer)


both_deployments(Pooling, globals(), serve=lambda: Serve(*FAST), split=lambda: Split(worker_arguments=FAST))


class WhatModelsCannotDo(unittest.TestCase):
    def test_a_generating_model_refuses_embeddings_and_a_pooling_one_chat(self):
        cases = (("generate", "/v1/embeddings", {"input": "a"}),
                 ("generate", "/rerank", {"query": "a", "documents": ["b"]}),
                 ("generate", "/classify", {"input": "a"}),
                 ("embed", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
                 ("embed", "/v1/completions", {"prompt": "a"}),
                 ("embed", "/classify", {"input": "a"}),
                 ("score", "/v1/embeddings", {"input": "a"}))
        for task in ("generate", "embed", "score"):
            deployment = Serve("--workers", "1", "--task", task, *FAST)
            self.addCleanup(deployment.close)
            for wanted, path, body in cases:
                if wanted != task:
                    continue
                status, answer = deployment.http.post(path, {"model": MODEL, **body})
                self.assertEqual(status, 400, (task, path, answer))
                self.assertEqual(answer["error"]["param"], "model")
                self.assertIn("it can: " + task, answer["error"]["message"])
            if task == "embed":  # scores are made from its vectors
                status, answer = deployment.http.post("/score", {"model": MODEL, "text_1": "a b", "text_2": ["a b", "c"]})
                self.assertEqual(status, 200, answer)
                self.assertAlmostEqual(answer["data"][0]["score"], 1, places=5)


class LostWorkers(unittest.TestCase):
    def test_a_part_whose_worker_dies_goes_to_another(self):
        deployment = Split(workers=2, worker_arguments=("--sim-speedup", "0.02"))
        self.addCleanup(deployment.close)
        answers = []
        ask = threading.Thread(target=lambda: answers.append(
            deployment.http.post("/v1/embeddings", {"model": MODEL, "input": ["some text of a few words"] * 512})))
        ask.start()
        eventually(lambda: deployment.http.metric("dynamo_frontend_inflight_requests") == 1, "the request runs")
        deployment.workers[0].process.kill()
        ask.join()
        status, answer = answers[0]
        self.assertEqual(status, 200, answer)
        self.assertEqual(len(answer["data"]), 512)


if __name__ == "__main__":
    unittest.main()
