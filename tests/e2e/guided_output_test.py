#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Structured output in our own engines: what a client asks for is what the answer is, token by token.

STATOR_SCHEMAS=1000 tries so many random schemas instead of a few; `bench/cpu_engine/schemas.py` does it with a random model and says more.
"""

from __future__ import annotations

import json
import os
import re
import unittest

import jsonschema
import openai
import pydantic
from random_schemas import FORMAT_CHECKER, RandomSchemas
from stator_process import MODEL, DeploymentTest, Serve

SCHEMAS = int(os.environ.get("STATOR_SCHEMAS", "40"))
QUESTION = [{"role": "user", "content": "What is a KV cache?"}]


class GuidedOutput(DeploymentTest):
    engine = "cpu"
    schemas = SCHEMAS

    @classmethod
    def deploy(cls) -> Serve:
        return Serve("--sim-speedup", "0", engine=cls.engine)

    def setUp(self) -> None:
        self.client = openai.OpenAI(base_url=self.deployment.frontend.url + "/v1", api_key="none", max_retries=0)

    def chat(self, **fields):
        return self.client.chat.completions.create(
            **{"model": MODEL, "messages": QUESTION, "max_tokens": 300} | fields)

    def content(self, **extra) -> str:
        return self.chat(extra_body=extra).choices[0].message.content

    def test_every_answer_follows_its_random_schema(self):
        for seed in range(self.schemas):
            schema = RandomSchemas(seed).root()
            answer = self.chat(max_tokens=250, seed=seed, temperature=seed % 2, response_format={
                "type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
            text = answer.choices[0].message.content
            with self.subTest(seed=seed, schema=schema, text=text):
                jsonschema.validate(json.loads(text), schema, format_checker=FORMAT_CHECKER)

    def test_every_notation_is_followed(self):
        self.assertRegex(self.content(guided_regex="[0-9]{3}-[a-z]{4}"), "^[0-9]{3}-[a-z]{4}$")
        self.assertIn(self.content(guided_choice=["red", "dark green"]), ["red", "dark green"])
        self.assertRegex(self.content(guided_grammar='root ::= "x" [0-9]+ "y"'), "^x[0-9]+y$")
        self.assertRegex(self.content(guided_grammar='start: "x" /[0-9]{2}/ ("," /[ab]/)*'), "^x[0-9]{2}(,[ab])*$")
        self.assertIsInstance(json.loads(self.chat(response_format={"type": "json_object"}).choices[0].message.content),
                              dict)
        tag = {"type": "structural_tag", "format": {
            "type": "tag", "begin": "<n>", "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
            "end": "</n>"}}
        self.assertRegex(self.content(structured_outputs={"structural_tag": json.dumps(tag)}), r"^<n>-?\d+</n>$")

    def test_a_pydantic_class_is_parsed(self):
        class Person(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=30)
            age: int
            tags: list[str] = pydantic.Field(max_length=2)

        answer = self.client.chat.completions.parse(
            model=MODEL, messages=QUESTION, response_format=Person, max_tokens=300)
        self.assertIsInstance(answer.choices[0].message.parsed, Person)

    def test_calls_are_required(self):
        tools = [{"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}}}
            for name in ("weather", "time")]
        for choice in ("required", {"type": "function", "function": {"name": "time"}}):
            calls = self.chat(tools=tools, tool_choice=choice).choices[0].message.tool_calls
            self.assertGreaterEqual(len(calls), 1)
            for call in calls:
                self.assertIn(call.function.name, ("weather", "time"))
                self.assertIsInstance(json.loads(call.function.arguments)["city"], str)

    def test_only_allowed_tools_are_called(self):
        tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
                 for name in ("weather", "time", "send")]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "function", "function": {"name": "time"}}]}}
        for seed in range(4):
            calls = self.chat(tools=tools, tool_choice=choice, seed=seed, temperature=1.0).choices[0].message.tool_calls
            self.assertEqual({call.function.name for call in calls}, {"time"})
        choice["allowed_tools"]["mode"] = "auto"
        self.assertTrue(self.chat(tools=tools, tool_choice=choice, max_tokens=5).choices)
        choice["allowed_tools"]["tools"][0]["function"]["name"] = "other"
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat(tools=tools, tool_choice=choice)
        self.assertEqual(refused.exception.param, "tool_choice")

    def test_it_works_with_choices_logprobs_and_streams(self):
        answer = self.chat(n=3, temperature=1.0, logprobs=True, extra_body={"guided_regex": "[0-9]{2}"})
        for choice in answer.choices:
            self.assertRegex(choice.message.content, "^[0-9]{2}$")
            self.assertEqual(choice.finish_reason, "stop")
            tokens = "".join(entry.token for entry in choice.logprobs.content)
            self.assertEqual(re.sub(r"<\|\w+\|>$", "", tokens), choice.message.content)
        parts = self.chat(stream=True, extra_body={"guided_regex": "[a-z]{5,9}"})
        text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        self.assertRegex(text, "^[a-z]{5,9}$")

    def test_an_answer_is_whole_within_few_tokens(self):
        schema = {"type": "object", "properties": {"story": {"type": "string"}, "n": {"type": "integer"}},
                  "required": ["story", "n"]}
        for tokens in (24, 40, 80):
            answer = self.chat(max_tokens=tokens, temperature=1.0, seed=tokens, extra_body={"guided_json": schema})
            jsonschema.validate(json.loads(answer.choices[0].message.content), schema)

    def test_what_can_never_end_is_refused_with_its_place(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.content(guided_grammar='root ::= "a" b\nb ::= "x" b')
        self.assertIn("line 2, column 1", str(refused.exception))
        with self.assertRaises(openai.APIStatusError):
            self.content(guided_grammar='root ::= ((("a"{99999}){99999}){99999}){99999}')


class TokenFilters(DeploymentTest):
    """allowed_token_ids and bad_words, as vLLM means them."""

    @classmethod
    def deploy(cls) -> Serve:
        return Serve("--prompt-lookup", "4", engine="cpu")

    def complete(self, **extra):
        with openai.OpenAI(base_url=self.deployment.frontend.url + "/v1", api_key="none", max_retries=0) as client:
            return client.completions.create(model=MODEL, prompt="What is a KV cache? " * 3, max_tokens=24,
                                             temperature=0, extra_body={"ignore_eos": True} | extra, logprobs=2).choices[0]

    def ids(self, **extra) -> list[int]:
        texts = self.complete(return_tokens_as_token_ids=True, **extra).logprobs.tokens
        return [int(text.removeprefix("token_id:")) for text in texts]

    def test_only_allowed_tokens_come(self):
        free = self.ids()
        allowed = sorted(set(free))[::2]
        self.assertLessEqual(set(self.ids(allowed_token_ids=allowed)), set(allowed))
        plain, bound = self.complete(), self.complete(allowed_token_ids=allowed)
        self.assertEqual(plain.logprobs.top_logprobs[0].items() & bound.logprobs.top_logprobs[0].items(),
                         plain.logprobs.top_logprobs[0].items() & bound.logprobs.top_logprobs[0].items())

    def tokens_of(self, text: str) -> list[int]:
        return self.http.post("/tokenize", {"model": MODEL, "prompt": text, "add_special_tokens": False})[1]["tokens"]

    def test_bad_words_do_not_come(self):
        free = self.complete()
        words = [text[1:] for text in free.logprobs.tokens if re.fullmatch(" [a-z]+", text)]
        word = next(word for word in words if len(self.tokens_of(word)) == len(self.tokens_of(" " + word)) == 1)
        ids = self.ids(bad_words=[word])  # other tokens may still spell it, as with vLLM
        self.assertFalse({self.tokens_of(word)[0], self.tokens_of(" " + word)[0]} & set(ids))
        self.assertEqual(self.complete(bad_words=["never said before"]).text, free.text)


class SimulatedOutput(GuidedOutput):
    """The simulated engine says anything at all, as far as the grammar lets it."""
    engine = "sim"
    schemas = SCHEMAS // 4


if __name__ == "__main__":
    unittest.main()
