#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Structured output in our own engines: what a client asks for is what the answer is, token by token.

STATOR_SCHEMAS=1000 tries so many random schemas instead of a few.
"""

from __future__ import annotations

import json
import os
import random
import re
import unittest

import jsonschema
import openai
import pydantic
from stator_process import MODEL, DeploymentTest, Serve

SCHEMAS = int(os.environ.get("STATOR_SCHEMAS", "12"))
QUESTION = [{"role": "user", "content": "What is a KV cache?"}]


class RandomSchemas:
    """Schemas of every keyword that `structured` accepts, with values in reach."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def schema(self, depth: int = 3) -> dict:
        makers = [self.string, self.number, self.integer, self.choice, self.simple]
        if depth > 0:
            makers += [self.object, self.object, self.array, self.any_of, self.all_of]
        return self.random.choice(makers)(depth - 1)

    def root(self) -> dict:
        schema = self.object(3)
        if self.random.random() < 0.2:
            schema["properties"]["next"] = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
        if self.random.random() < 0.2:
            schema["$defs"] = {"part": self.schema(1)}
            schema["properties"]["part"] = {"$ref": "#/$defs/part"}
        return schema

    def simple(self, _: int) -> dict:
        return {"type": self.random.choice(["boolean", "null", ["boolean", "null"], ["integer", "null"]])}

    def choice(self, _: int) -> dict:
        values = ["a", "b \"c\"", 1, 2.5, None, True, {"k": [1, "x"]}, "äö", []]
        picked = self.random.sample(values, self.random.randint(1, 4))
        return {"const": picked[0]} if self.random.random() < 0.3 else {"enum": picked}

    def string(self, _: int) -> dict:
        kind = self.random.randrange(4)
        if kind == 0:
            least = self.random.randint(0, 6)
            return {"type": "string", "minLength": least, "maxLength": least + self.random.randint(0, 30)}
        if kind == 1:
            return {"type": "string", "pattern": self.random.choice(
                ["^[a-z]{2,5}$", "^(yes|no)$", r"^\d{3}-\d{4}$", "^[A-Z][a-z]+( [A-Z][a-z]+)*$", "^\\w+@\\w+$"])}
        if kind == 2:
            return {"type": "string", "format": self.random.choice(
                ["date", "time", "date-time", "uuid", "ipv4", "email", "hostname", "duration", "json-pointer"])}
        return {"type": "string"}

    def number(self, _: int) -> dict:
        low = round(self.random.uniform(-100, 100), 2)
        schema: dict = {"type": "number"}
        if self.random.random() < 0.5:
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.random.random() < 0.5:
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = low + self.random.randint(1, 50)
        if self.random.random() < 0.2:
            schema["multipleOf"] = 0.5
        return schema

    def integer(self, _: int) -> dict:
        low = self.random.randint(-1000, 1000)
        schema: dict = {"type": "integer"}
        if self.random.random() < 0.5:
            schema["minimum"] = low
        if self.random.random() < 0.5:
            schema["maximum"] = low + self.random.randint(10, 500)
        if self.random.random() < 0.2:
            schema["multipleOf"] = self.random.randint(2, 9)
        return schema

    def object(self, depth: int) -> dict:
        names = self.random.sample(["name", "age", "city", "x-y", "größe", "a b", "items"], self.random.randint(0, 4))
        schema: dict = {"type": "object", "properties": {name: self.schema(depth) for name in names}}
        schema["required"] = [name for name in names if self.random.random() < 0.5]
        if self.random.random() < 0.2:
            schema["additionalProperties"] = self.random.choice([False, self.schema(0)])
        return schema

    def array(self, depth: int) -> dict:
        schema: dict = {"type": "array", "items": self.schema(depth)}
        if self.random.random() < 0.6:
            schema["minItems"] = self.random.randint(0, 2)
            schema["maxItems"] = schema["minItems"] + self.random.randint(0, 3)
        if self.random.random() < 0.2:
            schema["prefixItems"] = [self.schema(0), self.schema(0)]
            schema.pop("maxItems", None)
        return schema

    def any_of(self, depth: int) -> dict:
        return {"anyOf": [self.schema(depth) for _ in range(self.random.randint(1, 3))]}

    def all_of(self, _: int) -> dict:
        return {"allOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 9}]}


class GuidedOutput(DeploymentTest):
    engine = "cpu"

    @classmethod
    def deploy(cls) -> Serve:
        return Serve(engine=cls.engine)

    def setUp(self) -> None:
        self.client = openai.OpenAI(base_url=self.deployment.frontend.url + "/v1", api_key="none", max_retries=0)

    def chat(self, **fields):
        return self.client.chat.completions.create(
            **{"model": MODEL, "messages": QUESTION, "max_tokens": 300} | fields)

    def content(self, **extra) -> str:
        return self.chat(extra_body=extra).choices[0].message.content

    def test_every_answer_follows_its_random_schema(self):
        for seed in range(SCHEMAS):
            schema = RandomSchemas(seed).root()
            answer = self.chat(max_tokens=700, seed=seed, temperature=1.0, response_format={
                "type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
            text = answer.choices[0].message.content
            with self.subTest(seed=seed, schema=schema, text=text):
                jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.FormatChecker())

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


class SimulatedOutput(GuidedOutput):
    """The simulated engine says anything at all, as far as the grammar lets it."""
    engine = "sim"


if __name__ == "__main__":
    unittest.main()
