#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tool calls, reasoning and structured output through the official OpenAI clients.

The simulated engine says what models of each family write (--sim-reply), so that everything above it is the real thing.
"""

import contextlib
import json
import pathlib
import subprocess
import tempfile
import unittest

import openai

from stator_process import MODEL, ROOT, DeploymentTest, Serve, Split, Stator, clean_environment, eventually
from tool_formats import CLOCK, FAMILIES, TEXT, THOUGHT, TOOLS, WEATHER, Family

NODE_SCRIPT = pathlib.Path(__file__).with_name("tool_calls_client.mjs")
NODE_CLIENT = ROOT / "build" / "test-node" / "node_modules" / "openai" / "index.mjs"
QUESTION = [{"role": "user", "content": "What is the weather in Zürich?"}]
HERMES = next(family for family in FAMILIES if family.tools == "hermes")

WEATHER_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
# What the tests below say to bring up each reply; the one found last in the prompt counts.
REPLIES = [
    {"reply": HERMES.reply},
    {"when": "<tool_response>", "reply": "<think>\nSunny.\n</think>\nIt is sunny in Zürich."},
    {"when": "one call", "reply": WEATHER_CALL},
    {"when": "required call", "reply": '[{"name": "get_weather", "parameters": {"city": "Zürich"}}, '
                                       '{"name": "get_time", "parameters": {"zone": "Europe/Zurich"}}]'},
    {"when": "named call", "reply": '{"city": "Zürich", "days": 2}'},
    {"when": "an object", "reply": '{"city": "Zürich", "days": 2}'},
    {"when": "only words", "reply": "I see a <tool_cat> and 2 < 3."},
    {"when": "broken call", "reply": 'Before.<tool_call>\n{"name": "get_weather", oops\n</tool_call>After.'},
    {"when": "cut call", "reply": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich'},
]


def ask(content: str) -> dict:
    return {"messages": [{"role": "user", "content": content}]}


@contextlib.contextmanager
def reply_file(text: str, suffix: str = ".txt"):
    with tempfile.NamedTemporaryFile("w", suffix=suffix, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield file.name


def parser_flags(family: Family, reply_path: str) -> list[str]:
    return ["--tool-call-parser", family.tools, "--reasoning-parser", family.reasoning,
            "--sim-reply", reply_path, "--sim-speedup", "0"]


class Streamed:
    """A stream put together as a careful client does it, checking the shape of every chunk."""

    def __init__(self, case: unittest.TestCase, chunks, choice: int = 0):
        self.content = self.reasoning = ""
        self.calls: list[dict] = []
        self.finish = None
        self.roles = 0
        for chunk in chunks:
            for part in chunk.choices:
                if part.index == choice:
                    self._add(case, part)

    def _add(self, case, part):
        case.assertIsNone(self.finish, "nothing may follow the finish reason")
        delta = part.delta
        self.roles += delta.role is not None
        self.content += delta.content or ""
        self.reasoning += getattr(delta, "reasoning_content", None) or ""
        for call in delta.tool_calls or []:
            if call.index == len(self.calls):
                case.assertTrue(call.id and call.type == "function" and call.function.name, "the first piece names the call")
                case.assertEqual(call.function.arguments, "")
                self.calls.append({"id": call.id, "name": call.function.name, "arguments": ""})
            else:
                case.assertEqual(call.index, len(self.calls) - 1, "calls come one after the other")
                case.assertIsNone(call.id)
                case.assertIsNone(call.function.name)
                self.calls[call.index]["arguments"] += call.function.arguments
        self.finish = part.finish_reason or self.finish


class EveryFamily(unittest.TestCase):
    """The same answer in the spelling of each family."""

    def test_calls_and_reasoning_reach_the_client(self):
        for family in FAMILIES:
            with self.subTest(family=family.tools), reply_file(family.reply) as path:
                deployment = Serve(*parser_flags(family, path))
                self.addCleanup(deployment.close)
                eventually(lambda: deployment.http.request("GET", "/health")[0] == 200, "healthy")
                client = openai.OpenAI(base_url=deployment.frontend.url + "/v1", api_key="unused", max_retries=0, timeout=120)
                with client:
                    self._check(family, client)
                deployment.close()

    def _check(self, family, client):
        asked = {"model": MODEL, "messages": QUESTION, "tools": TOOLS} | family.asked
        unary = client.chat.completions.create(**asked)
        choice = unary.choices[0]
        calls = choice.message.tool_calls
        self.assertEqual([call.function.name for call in calls], ["get_weather", "get_time"])
        self.assertEqual([json.loads(call.function.arguments) for call in calls], [WEATHER, CLOCK])
        self.assertEqual(choice.message.content, family.text)
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(len({call.id for call in calls}), 2)
        reasoning = getattr(choice.message, "reasoning_content", None)
        self.assertEqual(reasoning, THOUGHT if family.reasons else None)
        self.assertEqual(unary.usage.completion_tokens_details.reasoning_tokens > 0, family.reasons)

        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        streamed = Streamed(self, chunks)
        self.assertEqual(streamed.roles, 1)
        self.assertEqual([(call["name"], call["arguments"]) for call in streamed.calls],
                         [(call.function.name, call.function.arguments) for call in calls])
        self.assertEqual(streamed.content, family.text or "")
        self.assertEqual(streamed.reasoning, THOUGHT if family.reasons else "")
        self.assertEqual(streamed.finish, "tool_calls")
        self.assertEqual(chunks[-1].usage.completion_tokens, unary.usage.completion_tokens)
        self.assertEqual(chunks[-1].usage.completion_tokens_details, unary.usage.completion_tokens_details)
        if family.tools == "kimi_k2":
            self.assertEqual([call.id for call in calls], ["functions.get_weather:0", "functions.get_time:1"])
        if family.tools == "mistral":
            self.assertTrue(all(len(call.id) == 9 and call.id.isalnum() for call in calls))

        with client.chat.completions.stream(**asked) as stream:
            helped = stream.get_final_completion().choices[0].message
        self.assertEqual([json.loads(call.function.arguments) for call in helped.tool_calls], [WEATHER, CLOCK])


class ToolCalls:
    """Everything else, with hermes and qwen3."""

    def setUp(self):
        self.client = openai.OpenAI(
            base_url=self.deployment.frontend.url + "/v1", api_key="unused", max_retries=0, timeout=120)
        self.addCleanup(self.client.close)

    def chat(self, **fields):
        return self.client.chat.completions.create(**{"model": MODEL, "messages": QUESTION, "tools": TOOLS} | fields)

    def stream(self, **fields):
        return Streamed(self, self.chat(stream=True, **fields))

    # tool_choice

    def test_without_tools_or_with_none_calls_are_text(self):
        raw = HERMES.reply[HERMES.reply.index(TEXT):]
        for fields in ({"tools": openai.omit}, {"tool_choice": "none"}):
            choice = self.chat(**fields).choices[0]
            self.assertIsNone(choice.message.tool_calls)
            self.assertEqual(choice.message.content, raw)
            self.assertEqual(choice.message.reasoning_content, THOUGHT)
            self.assertEqual(choice.finish_reason, "stop")
            self.assertEqual(self.stream(**fields).content, raw)

    def test_a_required_call_is_read_from_plain_json(self):
        for parallel, names in ((True, ["get_weather", "get_time"]), (False, ["get_weather"])):
            fields = ask("required call") | {"tool_choice": "required", "parallel_tool_calls": parallel}
            choice = self.chat(**fields).choices[0]
            self.assertEqual([call.function.name for call in choice.message.tool_calls], names)
            self.assertEqual(json.loads(choice.message.tool_calls[0].function.arguments), {"city": "Zürich"})
            self.assertEqual((choice.finish_reason, choice.message.content), ("tool_calls", None))
            streamed = self.stream(**fields)
            self.assertEqual([call["name"] for call in streamed.calls], names)
            self.assertEqual((streamed.finish, streamed.content), ("tool_calls", ""))

    def test_a_named_call_takes_its_name_from_the_request_and_finishes_as_stop(self):
        fields = ask("named call") | {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
        choice = self.chat(**fields).choices[0]
        call, = choice.message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Zürich", "days": 2}))
        self.assertEqual(choice.finish_reason, "stop")
        streamed = self.stream(**fields)
        self.assertEqual(streamed.calls[0]["arguments"], call.function.arguments)
        self.assertEqual(streamed.finish, "stop")

    def test_without_parallel_calls_only_the_first_is_surfaced(self):
        choice = self.chat(parallel_tool_calls=False).choices[0]
        self.assertEqual([call.function.name for call in choice.message.tool_calls], ["get_weather"])
        self.assertEqual(len(self.stream(parallel_tool_calls=False).calls), 1)

    # conversation

    def test_a_tool_result_turn_ends_the_loop(self):
        messages = list(QUESTION)
        answer = self.chat(messages=messages).choices[0].message
        messages.append(answer.model_dump(exclude_none=True))  # reasoning_content goes along, as agents send it
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in answer.tool_calls]
        last = self.chat(messages=messages).choices[0]
        self.assertEqual(last.message.content, "It is sunny in Zürich.")
        self.assertEqual(last.message.reasoning_content, "Sunny.")
        self.assertEqual(last.finish_reason, "stop")

    def test_history_may_carry_leaked_thinking_parts_and_reasoning(self):
        answer = self.chat(messages=[*QUESTION, {
            "role": "assistant", "reasoning": "Hm.",
            "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "text", "text": "Yes."}]},
            {"role": "user", "content": "only words"}])
        self.assertEqual(answer.choices[0].message.content, "I see a <tool_cat> and 2 < 3.")

    # text that only looks like markers

    def test_text_that_only_looks_like_a_marker_is_text(self):
        self.assertEqual(self.chat(**ask("only words")).choices[0].message.content, "I see a <tool_cat> and 2 < 3.")
        self.assertEqual(self.stream(**ask("only words")).content, "I see a <tool_cat> and 2 < 3.")

    def test_a_malformed_call_is_removed_and_counted(self):
        counted = lambda: self.http.metric("stator_frontend_parser_recoveries_total", parser="hermes")
        before = counted()
        choice = self.chat(**ask("broken call")).choices[0]
        self.assertIsNone(choice.message.tool_calls)
        self.assertEqual(choice.message.content, "Before.After.")
        self.assertEqual(choice.finish_reason, "stop")
        eventually(lambda: counted() > before, "the recovery is counted")

    # ends

    def test_a_call_cut_by_max_tokens_finishes_as_length(self):
        whole = self.chat(**ask("one call"))
        for used in range(8, whole.usage.completion_tokens - 6, 5):
            unary = self.chat(**ask("one call"), max_tokens=used)
            self.assertEqual(unary.choices[0].finish_reason, "length")
            self.assertEqual(unary.usage.completion_tokens, used)
            self.assertEqual(self.stream(**ask("one call"), max_tokens=used).finish, "length")
            self.assertIn(unary.choices[0].message.content, ("", None))

    def test_a_call_that_the_model_leaves_open_finishes_as_length(self):
        choice = self.chat(**ask("cut call")).choices[0]
        self.assertEqual(choice.finish_reason, "length")
        self.assertEqual(self.stream(**ask("cut call")).finish, "length")

    def test_stop_strings_end_reasoning_content_and_calls_and_never_leak(self):
        thought = self.chat(stop="two tools").choices[0]
        self.assertEqual(thought.message.reasoning_content, THOUGHT[:THOUGHT.index("two tools")])
        self.assertEqual((thought.message.content, thought.finish_reason), ("", "stop"))
        self.assertEqual(self.stream(stop="two tools").reasoning, thought.message.reasoning_content)
        text = self.chat(stop=["look", "never"]).choices[0]
        self.assertEqual((text.message.content, text.finish_reason), ("Let me ", "stop"))
        self.assertEqual(self.stream(stop="look").content, "Let me ")
        streamed = self.stream(stop="am See")
        self.assertNotIn("am See", json.dumps(streamed.calls))

    def test_choices_have_their_own_parsers(self):
        unary = self.chat(n=3)
        self.assertEqual([len(choice.message.tool_calls) for choice in unary.choices], [2, 2, 2])
        self.assertEqual(len({call.id for choice in unary.choices for call in choice.message.tool_calls}), 6)
        chunks = list(self.chat(n=3, stream=True))
        for index in range(3):
            streamed = Streamed(self, chunks, index)
            self.assertEqual((len(streamed.calls), streamed.reasoning, streamed.content), (2, THOUGHT, TEXT))

    def test_logprobs_reproduce_the_raw_output(self):
        raw = lambda entries: bytes(b for entry in entries for b in entry.bytes).decode()
        unary = self.chat(logprobs=True, top_logprobs=1).choices[0].logprobs.content
        self.assertTrue(raw(unary).startswith(HERMES.reply))
        chunks = [c for chunk in self.chat(logprobs=True, top_logprobs=1, stream=True) for c in chunk.choices]
        streamed = [e for choice in chunks if choice.logprobs for e in choice.logprobs.content]
        self.assertEqual([e.token for e in streamed], [e.token for e in unary])
        for choice in chunks:  # no chunk only because of log-probabilities
            delta = choice.delta.model_dump(exclude_none=True)
            self.assertTrue(delta or choice.finish_reason)

    # structured output

    def test_a_schema_is_parsed_into_the_clients_model(self):
        import pydantic

        class Trip(pydantic.BaseModel):
            city: str
            days: int

        answer = self.client.chat.completions.parse(
            model=MODEL, **ask("an object"), response_format=Trip).choices[0].message
        self.assertEqual(answer.parsed, Trip(city="Zürich", days=2))
        tool = openai.pydantic_function_tool(Trip)
        fields = ask("required call") | {"messages": [{"role": "user", "content": "named call"}]}
        parsed = self.client.chat.completions.parse(
            model=MODEL, **fields, tools=[tool], tool_choice={"type": "function", "function": {"name": "Trip"}})
        self.assertEqual(parsed.choices[0].message.tool_calls[0].function.parsed_arguments, Trip(city="Zürich", days=2))

    def test_every_spelling_of_a_shape_is_accepted(self):
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        for extra in ({"guided_json": schema}, {"guided_regex": "[a-z{}:\"]+"}, {"guided_choice": ["a", "b"]},
                      {"guided_grammar": "root ::= \"a\""}, {"structured_outputs": {"json": schema}},
                      {"response_format": {"type": "json_object"}}):
            answer = self.chat(**ask("an object"), tools=openai.omit, extra_body=extra)
            self.assertEqual(json.loads(answer.choices[0].message.content), {"city": "Zürich", "days": 2})

    def test_errors_name_the_field(self):
        cases = [
            ({"tool_choice": "required", "tools": openai.omit}, "tool_choice"),
            ({"tool_choice": {"type": "function", "function": {"name": "absent"}}}, "tool_choice"),
            ({"tools": [{"type": "function", "function": {"name": "bad name"}}]}, "tools[0].function.name"),
            ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]}, "tools[0].function.parameters"),
            ({"extra_body": {"guided_regex": "("}}, "guided_regex"),
            ({"extra_body": {"guided_regex": "a", "guided_choice": ["b"]}}, "guided_choice"),
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "what"}}}},
             "response_format.json_schema.schema"),
            ({"messages": [*QUESTION, {"role": "assistant", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "not json"}}]}]},
             "messages[1].tool_calls[0].function.arguments"),
        ]
        for fields, param in cases:
            for stream in (False, True):
                with self.subTest(param=param, stream=stream), self.assertRaises(openai.BadRequestError) as raised:
                    self.chat(stream=stream, **fields)
                self.assertEqual(raised.exception.body["param"], param)

    # metrics, the Node client

    def test_calls_and_reasoning_tokens_are_counted(self):
        calls = self.http.metric("stator_frontend_tool_calls_total", model=MODEL)
        tokens = self.http.metric("stator_frontend_reasoning_tokens_total", model=MODEL)
        used = self.chat().usage.completion_tokens_details.reasoning_tokens
        eventually(lambda: self.http.metric("stator_frontend_tool_calls_total", model=MODEL) == calls + 2, "two calls more")
        self.assertEqual(self.http.metric("stator_frontend_reasoning_tokens_total", model=MODEL), tokens + used)

    def test_every_check_of_the_node_client_passes(self):
        self.assertTrue(NODE_CLIENT.exists(), "scripts/setup.sh test installs the Node client")
        done = subprocess.run(
            ["node", "--test", "--test-reporter=tap", str(NODE_SCRIPT)], capture_output=True, text=True, timeout=120,
            env=clean_environment(
                STATOR_URL=self.deployment.frontend.url, STATOR_MODEL=MODEL, STATOR_OPENAI_MODULE=str(NODE_CLIENT),
                STATOR_TOOLS=json.dumps(TOOLS), STATOR_EXPECTED=json.dumps(
                    {"calls": [WEATHER, CLOCK], "text": TEXT, "thought": THOUGHT})))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# fail 0", done.stdout)


class _WithReplies:
    """Starts a deployment whose replies live as long as it does."""

    @classmethod
    def deploy(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        path = stack.enter_context(
            reply_file("".join(json.dumps(reply, ensure_ascii=False) + "\n" for reply in REPLIES), ".jsonl"))
        return cls.make(parser_flags(HERMES, path))


class ToolCallsServe(_WithReplies, ToolCalls, DeploymentTest):
    make = staticmethod(lambda flags: Serve(*flags))


class ToolCallsSplit(_WithReplies, ToolCalls, DeploymentTest):
    """The worker's flags reach the frontend in its record."""
    make = staticmethod(lambda flags: Split(worker_arguments=tuple(flags)))


class Choosing(unittest.TestCase):
    def test_dynamos_flags_and_the_other_field_name_work(self):
        with reply_file(HERMES.reply) as path:
            deployment = Serve("--dyn-tool-call-parser", "hermes", "--dyn-reasoning-parser", "qwen3", "--sim-reply", path,
                               "--frontend-reasoning-field", "reasoning")
            self.addCleanup(deployment.close)
            _, answer = deployment.http.post(
                "/v1/chat/completions", {"model": MODEL, "messages": QUESTION, "tools": TOOLS})
        message = answer["choices"][0]["message"]
        self.assertEqual(message["reasoning"], THOUGHT)
        self.assertNotIn("reasoning_content", message)
        self.assertEqual(len(message["tool_calls"]), 2)

    def test_an_engine_of_our_own_follows_grammars(self):
        deployment = Serve("--tool-call-parser", "hermes")
        self.addCleanup(deployment.close)
        ask_for = {"model": MODEL, "messages": QUESTION, "max_tokens": 100}
        status, answer = deployment.http.post(
            "/v1/chat/completions", ask_for | {"tool_choice": "required", "tools": TOOLS})
        self.assertEqual(status, 200, answer)
        for call in answer["choices"][0]["message"]["tool_calls"]:
            self.assertIsInstance(json.loads(call["function"]["arguments"]), dict)
        status, answer = deployment.http.post(
            "/v1/chat/completions", ask_for | {"response_format": {"type": "json_object"}})
        self.assertEqual(status, 200, answer)
        self.assertIsInstance(json.loads(answer["choices"][0]["message"]["content"]), dict)

    def test_a_family_from_a_file_is_used(self):
        spec = {"kind": "tools", "name": "house", "body": "json_calls",
                "markers": {"section_begin": ["[[call]]"], "section_end": ["[[/call]]"]}}
        with reply_file(json.dumps(spec), ".json") as spec_path, \
                reply_file('[[call]]{"name": "f", "arguments": {"a": 1}}[[/call]]') as path:
            deployment = Serve("--parser-spec", spec_path, "--tool-call-parser", "house", "--sim-reply", path)
            self.addCleanup(deployment.close)
            _, answer = deployment.http.post(
                "/v1/chat/completions", {"model": MODEL, "messages": QUESTION, "tools": TOOLS})
        self.assertEqual(answer["choices"][0]["message"]["tool_calls"][0]["function"], {"name": "f", "arguments": '{"a": 1}'})

    def test_an_unknown_family_stops_the_start(self):
        stator = Stator("serve", str(ROOT / "models" / "demo"), "--engine", "sim", "--port", "0",
                        "--tool-call-parser", "hermse", announce=False)
        self.addCleanup(stator.close)
        self.assertNotEqual(stator.wait(), 0)
        self.assertIn("hermse", stator.log())
        self.assertIn("hermes", stator.log())


if __name__ == "__main__":
    unittest.main()
