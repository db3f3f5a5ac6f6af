#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Further published clients, unchanged, against `stator serve`: only the base URL is configured. Run by scripts/test_real_clients.sh."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
os.environ.update(OPENAI_API_KEY="unused", HAYSTACK_TELEMETRY_ENABLED="False")

from stator_process import MODEL, Serve  # noqa: E402

QUESTION = "What is a KV cache?"
KNOWN = "keys and values"  # the demo model's answer has it
ASK = [{"role": "user", "content": QUESTION}]


class Texts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Serve(engine="cpu")
        cls.addClassCleanup(cls.served.close)
        cls.root = cls.served.frontend.url
        cls.v1 = cls.root + "/v1"

    def test_llama_index(self):
        from llama_index.llms.openai_like import OpenAILike
        model = OpenAILike(model=MODEL, api_base=self.v1, api_key="unused", is_chat_model=True, max_tokens=40)
        self.assertIn(KNOWN, model.complete(QUESTION).text)
        self.assertIn(KNOWN, "".join(piece.delta or "" for piece in model.stream_complete(QUESTION)))

    def test_hugging_face_hub(self):
        from huggingface_hub import InferenceClient
        client = InferenceClient(base_url=self.v1, api_key="unused")
        self.assertIn(KNOWN, client.chat_completion(ASK, model=MODEL, max_tokens=40).choices[0].message.content)
        pieces = client.chat_completion(ASK, model=MODEL, max_tokens=40, stream=True)
        self.assertIn(KNOWN, "".join(piece.choices[0].delta.content or "" for piece in pieces))

    def test_haystack(self):
        from haystack.components.generators.chat import OpenAIChatGenerator
        from haystack.dataclasses import ChatMessage
        from haystack.utils import Secret
        generator = OpenAIChatGenerator(api_key=Secret.from_token("unused"), model=MODEL, api_base_url=self.v1)
        self.assertIn(KNOWN, generator.run([ChatMessage.from_user(QUESTION)])["replies"][0].text)

    def test_mistral(self):
        from mistralai.client import Mistral
        client = Mistral(api_key="unused", server_url=self.root)
        self.assertIn(KNOWN, client.chat.complete(model=MODEL, messages=ASK, max_tokens=40).choices[0].message.content)
        pieces = client.chat.stream(model=MODEL, messages=ASK, max_tokens=40)
        self.assertIn(KNOWN, "".join(piece.data.choices[0].delta.content or "" for piece in pieces))


class Numbers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Serve("--sim-speedup", "0")
        cls.addClassCleanup(cls.served.close)
        cls.root = cls.served.frontend.url

    def test_llama_index_embeddings(self):
        from llama_index.embeddings.openai_like import OpenAILikeEmbedding
        model = OpenAILikeEmbedding(model_name=MODEL, api_base=self.root + "/v1", api_key="unused")
        self.assertEqual(len(model.get_text_embedding("hi")), 384)
        self.assertEqual(len(model.get_text_embedding_batch(["a", "b"])), 2)

    def test_cohere_rerank(self):
        import cohere
        for client in (cohere.ClientV2(api_key="unused", base_url=self.root), cohere.Client(api_key="unused", base_url=self.root)):
            answer = client.rerank(model=MODEL, query="q", documents=["a", "b", "c"], top_n=2)
            self.assertEqual(len(answer.results), 2)

    def test_langchain_cohere_rerank(self):
        from langchain_cohere import CohereRerank
        ranker = CohereRerank(model=MODEL, cohere_api_key="unused", base_url=self.root)
        self.assertEqual({row["index"] for row in ranker.rerank(["a", "b"], "q")}, {0, 1})


if __name__ == "__main__":
    unittest.main()
