#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frameworks that agents are written with, unchanged, against `stator serve models/demo`: only the base URL is configured.

They have an environment of their own, build/client-venv (scripts/setup.sh test).
"""

import os
import unittest

os.environ.update(OPENAI_API_KEY="unused", ANTHROPIC_API_KEY="unused", OPENAI_AGENTS_DISABLE_TRACING="1", LITELLM_LOCAL_MODEL_COST_MAP="True")

import instructor  # noqa: E402
import litellm  # noqa: E402
import openai  # noqa: E402
from agents import Agent as OpenAIAgent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled  # noqa: E402
from langchain_anthropic import ChatAnthropic  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAIEmbeddings  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from pydantic_ai import Agent  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel as PydanticResponsesModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

from stator_process import Serve  # noqa: E402

QUESTION = "What is a KV cache?"
KNOWN = "keys and values"  # the demo model's answer has it


class Trip(BaseModel):
    city: str
    days: int


class Frameworks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Serve(engine="cpu")
        cls.root = f"http://127.0.0.1:{cls.served.frontend.port}"
        cls.v1 = cls.root + "/v1"
        set_tracing_disabled(True)

    @classmethod
    def tearDownClass(cls):
        cls.served.close()

    def test_litellm(self):
        ask = dict(messages=[{"role": "user", "content": QUESTION}], max_tokens=40, api_key="unused")
        self.assertIn(KNOWN, litellm.completion(model="openai/demo", api_base=self.v1, **ask).choices[0].message.content)
        pieces = litellm.completion(model="openai/demo", api_base=self.v1, stream=True, **ask)
        self.assertIn(KNOWN, "".join(piece.choices[0].delta.content or "" for piece in pieces))
        self.assertIn(KNOWN, litellm.completion(model="anthropic/demo", api_base=self.root, **ask).choices[0].message.content)
        answer = litellm.responses(model="openai/demo", api_base=self.v1, api_key="unused", input=QUESTION, max_output_tokens=40)
        self.assertIn(KNOWN, answer.output[0].content[0].text)

    def test_langchain_openai(self):
        chat = ChatOpenAI(model="demo", base_url=self.v1, max_tokens=40)
        self.assertIn(KNOWN, chat.invoke(QUESTION).content)
        self.assertIn(KNOWN, "".join(piece.content for piece in chat.stream(QUESTION)))
        self.assertIn(KNOWN, str(ChatOpenAI(model="demo", base_url=self.v1, use_responses_api=True).invoke(QUESTION).content))
        self.assertIsInstance(chat.with_structured_output(Trip).invoke("Paris for 3 days"), Trip)

    def test_langchain_openai_embeddings(self):
        served = Serve("--task", "embed")
        try:
            ask = OpenAIEmbeddings(model="demo", base_url=f"http://127.0.0.1:{served.frontend.port}/v1", check_embedding_ctx_length=False)
            vectors = ask.embed_documents(["one text", "another"])
            self.assertEqual(len(vectors), 2)
            self.assertNotEqual(vectors[0], vectors[1])
        finally:
            served.close()

    def test_langchain_anthropic(self):
        chat = ChatAnthropic(model="demo", base_url=self.root, max_tokens=40)
        self.assertIn(KNOWN, chat.invoke(QUESTION).content)
        self.assertIn(KNOWN, "".join(str(piece.content) for piece in chat.stream(QUESTION)))

    def test_pydantic_ai(self):
        provider = OpenAIProvider(base_url=self.v1, api_key="unused")
        for model in (OpenAIChatModel, PydanticResponsesModel):
            self.assertIn(KNOWN, Agent(model("demo", provider=provider)).run_sync(QUESTION).output)

    def test_openai_agents(self):
        client = openai.AsyncOpenAI(base_url=self.v1, api_key="unused")
        for model in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
            agent = OpenAIAgent(name="helper", model=model("demo", client))
            self.assertIn(KNOWN, Runner.run_sync(agent, QUESTION).final_output)

    def test_instructor(self):
        client = openai.OpenAI(base_url=self.v1, api_key="unused")
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
            trip = instructor.from_openai(client, mode=mode).chat.completions.create(
                model="demo", response_model=Trip, max_tokens=80, messages=[{"role": "user", "content": "Paris for 3 days"}])
            self.assertIsInstance(trip, Trip)


if __name__ == "__main__":
    unittest.main()
