#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator parse`: the events and the message of a recorded output, for every golden of the parsers and any cutting."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from stator_process import BINARY, clean_environment

GOLDENS = pathlib.Path(__file__).parents[2] / "src/stator/parsers/testdata/goldens"
HERMES = '<think>\nThe time?\n</think>\nLet me see.\n<tool_call>\n{"name": "now", "arguments": {"zone": "é"}}\n</tool_call>'


class Parse(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_parse(self, *arguments, text=""):
        return subprocess.run([BINARY, "parse", *arguments], env=clean_environment(HOME=str(self.folder)),
                              input=text.encode(), capture_output=True, timeout=300)

    def parse(self, *arguments, text):
        done = self.run_parse(*arguments, text=text)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines[:-1], lines[-1]

    def test_events_and_message(self):
        events, last = self.parse("--family", "hermes", "--reasoning", "qwen3", text=HERMES)
        self.assertEqual([event["event"] for event in events], ["reasoning", "text", "call_begin", "arguments", "call_end"])
        self.assertEqual(events[2]["name"], "now")
        self.assertRegex(events[2]["id"], r"^call_[A-Za-z0-9]{24}$")
        message = last["message"]
        self.assertEqual(last["event"], "message")
        self.assertEqual(last["finish_reason"], "tool_calls")
        self.assertEqual(message["role"], "assistant")
        self.assertEqual(message["reasoning_content"], "The time?")
        self.assertEqual(message["content"], "Let me see.\n")
        self.assertEqual(message["tool_calls"], [{"id": events[2]["id"], "type": "function",
                                                  "function": {"name": "now", "arguments": '{"zone": "é"}'}}])

    def test_deltas_join_to_the_message_however_the_text_is_cut(self):
        arguments = ["--family", "hermes", "--reasoning", "qwen3"]
        _, whole = self.parse(*arguments, text=HERMES)
        for chunks in (2, 7, 1000):
            events, last = self.parse(*arguments, "--chunks", str(chunks), text=HERMES)
            self.assertEqual(last, whole)
            joined = "".join(event["delta"] for event in events if event["event"] == "arguments")
            self.assertEqual(joined, '{"zone": "é"}')

    def test_a_family_may_be_one_of_reasoning_alone(self):
        _, last = self.parse("--family", "deepseek-r1", text="Hm.</think>Yes.")
        self.assertEqual((last["message"]["reasoning_content"], last["message"]["content"]), ("Hm.", "Yes."))

    def test_every_golden_gives_its_message(self):
        seen = 0
        for path in sorted(GOLDENS.glob("*.json")):
            golden = json.loads(path.read_text())
            for case in golden["cases"]:
                if "text" not in case or not set(case) <= {"name", "text", "content", "calls", "end", "finish", "recoveries"}:
                    continue
                if "start" in golden or case.get("end", "stop") != "stop":
                    continue
                tools = self.folder / "tools.json"
                tools.write_text(json.dumps(golden.get("tools", [])))
                arguments = ["--family", golden["family"], "--reasoning", golden.get("reasoning", "none")]
                arguments += ["--tools", str(tools)] if golden.get("tools") else []
                _, last = self.parse(*arguments, text=case["text"])
                with self.subTest(family=path.stem, case=case["name"]):
                    self.assertEqual(last["message"]["content"] or "", case.get("content", ""))
                    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in last["message"]["tool_calls"]]
                    self.assertEqual(calls, [(call["name"], call["arguments"]) for call in case.get("calls", [])])
                    seen += 1
        self.assertGreater(seen, 100)

    def test_required_and_named_calls_as_guided_json(self):
        _, last = self.parse("--tool-choice", "required", text='[{"name": "f", "parameters": {"a": 1}}]')
        self.assertEqual(last["message"]["tool_calls"][0]["function"], {"name": "f", "arguments": '{"a": 1}'})
        _, last = self.parse("--family", "hermes", "--tool-choice", "f", text='{"a": 1}')
        self.assertEqual(last["message"]["tool_calls"][0]["function"], {"name": "f", "arguments": '{"a": 1}'})

    def test_a_spec_file_adds_a_family(self):
        spec = self.folder / "mine.json"
        spec.write_text(json.dumps({"kind": "tools", "name": "mine", "body": "json_calls",
                                    "markers": {"section_begin": "<<", "section_end": ">>"}}))
        _, last = self.parse("--spec", str(spec), "--family", "MINE", text='a <<{"name": "f", "arguments": {}}>> b')
        self.assertEqual(last["message"]["content"], "a  b")
        self.assertEqual(len(last["message"]["tool_calls"]), 1)

    def test_list_names_the_families(self):
        done = self.run_parse("--list")
        self.assertEqual(done.returncode, 0)
        for name in ("hermes", "qwen3_coder", "deepseek_v3_1"):
            self.assertIn(name, done.stdout.decode())

    def test_mistakes_are_named(self):
        broken = self.folder / "broken.json"
        broken.write_text('{"kind": "tools", "name": "x", "body": "nonsense"}')
        for arguments, name in ((["--family", "nope"], "nope"), (["--reasoning", "nope"], "nope"), (["--chunks", "0"], "--chunks"),
                                (["--tools", "/nowhere"], "--tools"), (["--spec", str(broken)], "nonsense"),
                                (["--finish", "x"], "--finish"), (["--start-in-reasoning"], "--reasoning")):
            done = self.run_parse(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(name, done.stderr.decode())
            self.assertEqual(done.stdout, b"")
        done = subprocess.run([BINARY, "parse"], env=clean_environment(HOME=str(self.folder)), input=b"\xff", capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
