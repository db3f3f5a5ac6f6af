#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Responses API through OpenAI's clients: create, stream, parse, tools, chains, background, cancel, input items.

The simulated engine says what a model with tools and reasoning writes (--sim-reply), so that everything above it is the real thing.
"""

import json
import pathlib
import subprocess
import tempfile
import unittest

import openai
import pydantic

from stator_process import MODEL, ROOT, DeploymentTest, Serve, Stator, clean_environment, eventually

NODE_SCRIPT = pathlib.Path(__file__).with_name("responses_client.mjs")
NODE_CLIENT = ROOT / "build" / "test-node" / "node_modules" / "openai" / "index.mjs"
CALL = '<think>\nI need a tool.\n</think>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
CODE = 'print("hé")\nx = 1\\'
CODE_CALL = "<tool_call>\n" + json.dumps({"name": "run_code", "arguments": {"input": CODE}}) + "\n</tool_call>"
REPLIES = [
    {"when": "Summarize our conversation", "reply": "<think>\nShort.\n</think>\nThey like tea."},
    {"when": "printed hé", "reply": "<think>\nDone.\n</think>\nIt ran."},
    {"when": "run it", "reply": CODE_CALL},
    {"reply": "<think>\nEasy.\n</think>\nHello \"you\"."},
    {"when": "weather", "reply": CALL},
    {"when": "sunny", "reply": "<think>\nDone.\n</think>\nIt is sunny in Zürich."},
    {"when": "an object", "reply": '{"city": "Zürich", "days": 2}'},
    {"when": "for long", "reply": "<think>\nHm.\n</think>\n" + "word " * 4000},
]
TOOLS = [{"type": "function", "name": "get_weather", "description": "Forecast", "strict": None,
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]


class Forecast(pydantic.BaseModel):
    city: str
    days: int


def serve(*arguments: str) -> Serve:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8", delete=False) as file:
        file.writelines(json.dumps(reply, ensure_ascii=False) + "\n" for reply in REPLIES)
    return Serve("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3", "--sim-reply", file.name, *arguments)


def client_of(deployment) -> openai.OpenAI:
    return openai.OpenAI(base_url=deployment.frontend.url + "/v1", api_key="unused", max_retries=0, timeout=60)


class ResponsesClient(DeploymentTest):
    @classmethod
    def deploy(cls):
        return serve("--sim-speedup", "0")

    def setUp(self):
        self.client = client_of(self.deployment)
        self.addCleanup(self.client.close)

    def create(self, text="Hi", **fields):
        return self.client.responses.create(**{"model": MODEL, "input": text} | fields)

    # One response

    def test_unary_has_items_and_usage(self):
        answer = self.create(metadata={"a": "b"}, instructions="Be brief.")
        self.assertEqual([answer.object, answer.status, answer.model], ["response", "completed", MODEL])
        self.assertEqual([item.type for item in answer.output], ["reasoning", "message"])
        self.assertEqual(answer.output_text, 'Hello "you".')
        self.assertEqual(answer.output[0].content[0].text, "Easy.")
        self.assertEqual(answer.metadata, {"a": "b"})
        self.assertEqual(answer.instructions, "Be brief.")
        self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)
        self.assertGreater(answer.usage.output_tokens_details.reasoning_tokens, 0)
        self.assertIsNone(answer.error)

    def test_stream_has_every_event_once_and_in_order(self):
        events = list(self.create(stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        kinds = [event.type for event in events]
        self.assertEqual(kinds[:2], ["response.created", "response.in_progress"])
        self.assertEqual(kinds[-1], "response.completed")
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        thought = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
        self.assertEqual((thought, text), ("Easy.", events[-1].response.output_text))
        added = [event.item.id for event in events if event.type == "response.output_item.added"]
        done = [event.item.id for event in events if event.type == "response.output_item.done"]
        self.assertEqual(added, done)
        self.assertEqual(done, [item.id for item in events[-1].response.output])

    def test_reasoning_summary_replaces_its_text(self):
        answer = self.create(reasoning={"effort": "low", "summary": "auto"})
        self.assertEqual(answer.output[0].summary[0].text, "Easy.")
        self.assertIsNone(answer.output[0].content)
        self.assertEqual(answer.reasoning.effort, "low")

    def test_the_limit_makes_it_incomplete(self):
        answer = self.create(max_output_tokens=3)
        self.assertEqual((answer.status, answer.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        events = list(self.create(max_output_tokens=3, stream=True))
        self.assertEqual(events[-1].type, "response.incomplete")

    def test_logprobs_of_the_text(self):
        answer = self.create(include=["message.output_text.logprobs"], top_logprobs=2)
        part = answer.output[-1].content[0]
        self.assertTrue(part.logprobs)
        self.assertEqual(len(part.logprobs[0].top_logprobs), 2)

    def test_parse_gives_a_typed_answer(self):
        parsed = self.client.responses.parse(model=MODEL, input="an object, please", text_format=Forecast)
        self.assertEqual(parsed.output_parsed, Forecast(city="Zürich", days=2))

    def test_the_stream_helper_accumulates(self):
        with self.client.responses.stream(model=MODEL, input="Hi") as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_response().output_text, 'Hello "you".')

    def test_counts_input_tokens(self):
        counted = self.client.responses.input_tokens.count(model=MODEL, input="Hi")
        self.assertEqual(counted.input_tokens, self.create().usage.input_tokens)

    # Tools

    def test_tool_loop_over_input(self):
        items = [{"role": "user", "content": "What is the weather?"}]
        first = self.create(items, tools=TOOLS)
        call = first.output[-1]
        self.assertEqual((call.type, call.name, json.loads(call.arguments)), ("function_call", "get_weather", {"city": "Zürich"}))
        items += first.output
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
        self.assertEqual(self.create(items, tools=TOOLS).output_text, "It is sunny in Zürich.")

    def test_tool_loop_over_previous_response(self):
        events = list(self.create("What is the weather?", tools=TOOLS, stream=True))
        pieces = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
        call = events[-1].response.output[-1]
        self.assertEqual(pieces, call.arguments)
        second = self.create([{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}], tools=TOOLS,
                             previous_response_id=events[-1].response.id)
        self.assertEqual(second.output_text, "It is sunny in Zürich.")
        self.assertEqual(second.previous_response_id, events[-1].response.id)

    def test_custom_tools_take_free_text(self):
        grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
        tools = [*TOOLS, {"type": "custom", "name": "run_code", "description": "Runs Python.", "format": grammar}]
        events = list(self.create("Please run it", tools=tools, stream=True))
        whole = events[-1].response
        call = whole.output[-1]
        self.assertEqual((call.type, call.name, call.input), ("custom_tool_call", "run_code", CODE))
        pieces = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
        done = [event for event in events if event.type == "response.custom_tool_call_input.done"]
        self.assertEqual(("".join(pieces), [event.input for event in done]), (CODE, [CODE]))
        self.assertGreater(len(pieces), 1)
        output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "printed hé"}
        self.assertEqual(self.create([output], tools=tools, previous_response_id=whole.id).output_text, "It ran.")
        written = self.create([{"role": "user", "content": "Please run it"}, *whole.output, output], tools=tools)
        self.assertEqual(written.output_text, "It ran.")
        forced = self.client.responses.with_raw_response.create(
            model=MODEL, input="Please run it", tools=tools, tool_choice={"type": "custom", "name": "run_code"}, max_output_tokens=4)
        self.assertEqual(forced.headers["x-stator-ignored-fields"], "tools.format")
        spaces = [{"type": "namespace", "name": "shell", "description": "x", "tools": [tools[1]]}]
        self.assertEqual(self.create("Hi", tools=spaces).output_text, 'Hello "you".')
        for wrong in ({"syntax": "bnf"}, {"definition": ""}, {"type": "json"}):
            with self.assertRaises(openai.BadRequestError) as refused:
                self.create(tools=[tools[1] | {"format": grammar | wrong}])
            self.assertEqual(refused.exception.param, "tools[0].format." + next(iter(wrong)))

    def test_a_compacted_conversation_goes_on(self):
        first = self.create("I like tea")
        turns = [*first.output, {"role": "user", "content": [{"type": "input_text", "text": "A lot"}]}]
        made = self.client.responses.compact(model=MODEL, input=turns, previous_response_id=first.id, instructions="Be brief.")
        self.assertEqual((made.object, [item.type for item in made.output]), ("response.compaction", ["message", "message", "compaction"]))
        self.assertEqual([(item.role, item.content[0].text) for item in made.output[:2]], [("user", "I like tea"), ("user", "A lot")])
        self.assertEqual(made.usage.total_tokens, made.usage.input_tokens + made.usage.output_tokens)
        summary = {"role": "assistant", "content": "Summary of the conversation so far:\n\nThey like tea."}
        more = {"role": "user", "content": "And now?"}
        after = self.create([*made.output, more])
        written = self.create([*made.output[:2], summary, more])
        self.assertEqual(after.usage.input_tokens, written.usage.input_tokens)
        self.assertEqual(self.client.responses.compact(model=MODEL, input="I like tea").output[-1].type, "compaction")
        for body, param in (({"stream": True}, "stream"), ({"background": True}, "background"), ({"temperature": 3}, "temperature")):
            status, error = self.http.post("/v1/responses/compact", {"model": MODEL, "input": "x"} | body)
            self.assertEqual((status, error["error"]["param"]), (400, param))
        with self.assertRaises(openai.BadRequestError) as foreign:
            self.create([{"type": "compaction", "encrypted_content": "gAAAA"}, more])
        self.assertEqual(foreign.exception.param, "input[0].encrypted_content")

    def test_reasoning_travels_encoded_when_nothing_is_stored(self):
        fields = {"tools": TOOLS, "store": False, "include": ["reasoning.encrypted_content"]}
        first = self.create("What is the weather?", **fields)
        kept = first.output[0]
        self.assertTrue(kept.encrypted_content)
        call = first.output[-1]
        again = [{"role": "user", "content": "What is the weather?"},
                 {"type": "reasoning", "id": kept.id, "summary": [], "encrypted_content": kept.encrypted_content}, call,
                 {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
        full = self.create([again[0], *first.output, again[3]], **fields)
        self.assertEqual(self.create(again, **fields).usage.input_tokens, full.usage.input_tokens)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)

    # What is stored

    def test_a_chain_is_the_same_prompt_as_its_items(self):
        first = self.create()
        second = self.create("And you?", previous_response_id=first.id)
        whole = self.create([{"role": "user", "content": "Hi"}, *first.output, {"role": "user", "content": "And you?"}])
        self.assertEqual(second.usage.input_tokens, whole.usage.input_tokens)
        self.assertGreater(second.usage.input_tokens_details.cached_tokens, 0)
        listed = list(self.client.responses.input_items.list(second.id, order="asc", limit=2))
        self.assertEqual([item.type for item in listed], ["message", "reasoning", "message", "message"])
        self.assertEqual(listed[0].content[0].text, "Hi")

    def test_retrieve_and_delete(self):
        made = self.create()
        self.assertEqual(self.client.responses.retrieve(made.id).to_dict(), made.to_dict())
        self.client.responses.delete(made.id)
        with self.assertRaises(openai.NotFoundError) as gone:
            self.client.responses.retrieve(made.id)
        self.assertIn(made.id, str(gone.exception))
        with self.assertRaises(openai.BadRequestError) as broken:
            self.create(previous_response_id=made.id)
        self.assertEqual(broken.exception.param, "previous_response_id")

    def test_item_references(self):
        first = self.create()
        item = first.output[-1]
        answer = self.create([{"type": "item_reference", "id": item.id}, {"role": "user", "content": "And?"}])
        written = self.create([item, {"role": "user", "content": "And?"}])
        self.assertEqual(answer.usage.input_tokens, written.usage.input_tokens)

    def test_another_tenant_sees_nothing(self):
        made = self.client.with_options(default_headers={"x-tenant-id": "alice"}).responses.create(model=MODEL, input="Hi")
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(made.id)

    # Background

    def test_background_can_be_fetched_and_followed(self):
        made = self.create(background=True)
        self.assertEqual(made.status, "queued")
        done = eventually(lambda: (r := self.client.responses.retrieve(made.id)).status == "completed" and r, "completed")
        self.assertEqual(done.output_text, 'Hello "you".')
        events = list(self.client.responses.retrieve(made.id, stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertIn("response.queued", [event.type for event in events])
        rest = list(self.client.responses.retrieve(made.id, stream=True, starting_after=4))
        self.assertEqual([event.to_dict() for event in rest], [event.to_dict() for event in events[5:]])
        self.assertEqual(self.client.responses.cancel(made.id).status, "completed")

    def test_background_stream_outlives_its_client(self):
        stream = self.create(background=True, stream=True)
        identity = next(iter(stream)).response.id
        stream.close()
        eventually(lambda: self.client.responses.retrieve(identity).status == "completed", "completed without a client")

    # Errors

    def test_errors_come_before_any_200_in_openais_shape(self):
        golden = {
            "input": {},
            "tools[0].type": {"input": "x", "tools": [{"type": "web_search"}]},
            "input[0].content[0]": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "conversation": {"input": "x", "conversation": "conv_1"},
            "temperature": {"input": "x", "temperature": 3},
            "previous_response_id": {"input": "x", "previous_response_id": "resp_no"},
            "background": {"input": "x", "background": True, "store": False},
        }
        for param, body in golden.items():
            for stream in (False, True):
                with self.subTest(param=param, stream=stream):
                    status, headers, raw = self.http.request("POST", "/v1/responses", body | {"model": MODEL, "stream": stream})
                    error = json.loads(raw)["error"]
                    self.assertIn(status, (400, 501))
                    self.assertEqual(error["param"], param)
                    self.assertTrue(status == 400 or headers["x-should-retry"] == "false")
        self.assertEqual(self.http.post("/v1/responses", {"model": "nope", "input": "x"})[0], 404)
        self.assertEqual(self.http.request("PUT", "/v1/responses/resp_1")[0], 405)
        self.assertEqual(self.http.get("/v1/responses/resp_1/nothing")[0], 404)
        self.assertEqual(self.http.get("/v1/responses/resp_1?stream=true&starting_after=x")[0], 400)

    def test_ignored_fields_are_named(self):
        raw = self.client.responses.with_raw_response.create(model=MODEL, input="Hi", truncation="auto", text={"verbosity": "low"})
        self.assertEqual(raw.headers["x-stator-ignored-fields"].split(","), ["text.verbosity", "truncation"])

    def test_what_a_coding_agent_sends(self):
        body = json.loads(pathlib.Path(__file__).with_name("responses_agent.json").read_text(encoding="utf-8"))
        status, _, raw = self.http.request("POST", "/v1/responses", body | {"model": MODEL})
        self.assertEqual(status, 200, raw)
        events = [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: ")]
        self.assertEqual(events[-1]["type"], "response.completed")
        self.assertEqual(events[-1]["response"]["output"][-1]["name"], "get_weather")

    # Other clients

    def test_node(self):
        run = subprocess.run(["node", "--test", str(NODE_SCRIPT)], capture_output=True, text=True, check=False, timeout=60,
                             env=clean_environment(STATOR_URL=self.deployment.frontend.url, STATOR_MODEL=MODEL,
                                                   STATOR_OPENAI_MODULE=str(NODE_CLIENT)))
        self.assertEqual(run.returncode, 0, run.stdout[-4000:] + run.stderr[-2000:])


class Cancelling(DeploymentTest):
    """With an engine that takes its time."""

    @classmethod
    def deploy(cls):
        return serve()

    def test_cancel_ends_a_background_response(self):
        with client_of(self.deployment) as client:
            made = client.responses.create(model=MODEL, input="talk for long", background=True)
            self.assertEqual(client.responses.cancel(made.id).status, "cancelled")
            self.assertEqual(client.responses.retrieve(made.id).status, "cancelled")
            eventually(self.deployment.idle, "the engine works no more")

    def test_what_was_written_before_a_cancel_is_kept(self):
        with client_of(self.deployment) as client:
            said = ""
            for event in client.responses.create(model=MODEL, input="talk for long", background=True, stream=True):
                if event.type == "response.created":
                    name = event.response.id
                said += event.delta if event.type == "response.output_text.delta" else ""
                if said.count("word") >= 3:
                    break
            client.responses.cancel(name)
            kept = client.responses.retrieve(name)
            self.assertEqual([(item.type, item.status) for item in kept.output], [("reasoning", "completed"), ("message", "incomplete")])
            self.assertTrue(kept.output_text.startswith(said), kept.output_text)
            more = client.responses.create(model=MODEL, input="Hi", previous_response_id=name, max_output_tokens=1)
            self.assertGreater(more.usage.input_tokens, 20)


class SharedFolder(unittest.TestCase):
    def test_frontends_find_cancel_and_continue_what_others_store(self):
        with tempfile.TemporaryDirectory() as folder:
            one, other = (serve("--responses-shared-folder", folder) for _ in range(2))
            self.addCleanup(one.close)
            self.addCleanup(other.close)
            with client_of(one) as here, client_of(other) as there:
                made = here.responses.create(model=MODEL, input="Hi", max_output_tokens=4)
                self.assertEqual(there.responses.retrieve(made.id).to_dict(), made.to_dict())
                more = there.responses.create(model=MODEL, input="And?", previous_response_id=made.id, max_output_tokens=4)
                self.assertGreater(more.usage.input_tokens, made.usage.input_tokens)
                items = list(here.responses.input_items.list(more.id, order="asc"))
                self.assertEqual([item.role for item in items if item.type == "message"], ["user", "assistant", "user"])

                long = here.responses.create(model=MODEL, input="talk for long", background=True)
                self.assertIn(there.responses.retrieve(long.id).status, ("queued", "in_progress"))
                there.responses.cancel(long.id)
                eventually(lambda: there.responses.retrieve(long.id).status == "cancelled", "the cancel is passed on")
                one.frontend.kill()
                there.responses.delete(made.id)
                with self.assertRaises(openai.NotFoundError):
                    there.responses.retrieve(made.id)
                self.assertEqual(there.responses.retrieve(more.id).status, "incomplete")


class Durable(unittest.TestCase):
    def test_survives_kill_9(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = ("--sim-speedup", "0", "--responses-folder", folder)
            first = serve(*arguments)
            self.addCleanup(first.close)
            with client_of(first) as client:
                eventually(lambda: first.http.request("GET", "/health")[0] == 200, "healthy")
                made = client.responses.create(model=MODEL, input="Hi")
            first.frontend.kill()
            second = serve(*arguments)
            self.addCleanup(second.close)
            with client_of(second) as client:
                eventually(lambda: second.http.request("GET", "/health")[0] == 200, "healthy")
                self.assertEqual(client.responses.retrieve(made.id).to_dict(), made.to_dict())
                more = client.responses.create(model=MODEL, input="And?", previous_response_id=made.id)
                self.assertGreater(more.usage.input_tokens, made.usage.input_tokens)


if __name__ == "__main__":
    unittest.main()
