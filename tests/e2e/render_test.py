#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator render`: the body of a chat request in, its prompt out."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from gguf_file import gguf
from stator_process import BINARY, MODEL_DIR, clean_environment

TEMPLATE = ("{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
            "{% if tools %}<{{ tools|length }}>{% endif %}{{ mood }}{{ enable_thinking }}"
            "{% if add_generation_prompt %}[assistant]{% endif %}")
BODY = {"messages": [{"role": "user", "content": "Grüße"}]}


class Render(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.template = self.folder / "template.jinja"
        self.template.write_text(TEMPLATE)

    def run_render(self, *arguments, body=BODY):
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        return subprocess.run([BINARY, "render", *map(str, arguments)], input=text.encode(),
                              env=clean_environment(HOME=str(self.folder)), capture_output=True, timeout=300)

    def assert_prompt(self, expected, *arguments, body=BODY):
        done = self.run_render(*arguments, body=body)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.decode(), expected)

    def assert_fails(self, status, names, *arguments, body=BODY):
        done = self.run_render(*arguments, body=body)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(names, done.stderr.decode())
        self.assertEqual(done.stdout, b"")

    def test_prompt_has_no_added_newline(self):
        self.assert_prompt("[user]Grüße[assistant]", "--template", self.template)

    def test_special_tokens_come_from_the_tokenizer_config(self):
        config = self.folder / "tokenizer_config.json"
        config.write_text(json.dumps({"bos_token": {"content": "<s>"}, "chat_template": TEMPLATE}))
        self.assert_prompt("<s>[user]Grüße[assistant]", "--template", self.template, "--tokenizer-config", config)
        self.assert_prompt("<s>[user]Grüße[assistant]", "--template", config)
        self.assert_prompt("<s>[user]Grüße[assistant]", "--template", self.folder / "tokenizer_config.json")

    def test_numbers_beyond_a_double_are_infinite(self):
        self.template.write_text("{{ x }} {{ x|tojson }}")
        body = '{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"x": -1e999}}'
        self.assert_prompt("-inf -Infinity", "--template", self.template, body=body)

    def test_request_switches_reach_the_template(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        kwargs = {"mood": "calm"}
        self.assert_prompt("[user]Grüße<1>calmTrue[assistant]", "--template", self.template,
                           body={**BODY, "tools": tools, "chat_template_kwargs": kwargs, "reasoning_effort": "low"})
        self.assert_prompt("[user]GrüßeFalse", "--template", self.template,
                           body={**BODY, "tools": tools, "tool_choice": "none", "thinking": {"type": "disabled"},
                                 "add_generation_prompt": False})

    def test_final_message_is_continued(self):
        body = {"messages": [*BODY["messages"], {"role": "assistant", "content": "Hallo "}],
                "continue_final_message": True}
        self.assert_prompt("[user]Grüße[assistant]Hallo ", "--template", self.template, body=body)

    def test_model_folder_and_built_in_formats(self):
        done = self.run_render("--template", MODEL_DIR)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Grüße", done.stdout.decode())
        self.assert_prompt("<｜begin▁of▁sentence｜><｜User｜>Grüße<｜Assistant｜><think>", "--template", "deepseek_v3_2")
        self.assertTrue(self.run_render("--template", "harmony").stdout.endswith(b"<|start|>assistant"))

    def test_failures_name_what_is_wrong(self):
        self.template.write_text("{{ raise_exception('roles must alternate') }}")
        self.assert_fails(1, "roles must alternate", "--template", self.template)
        self.template.write_text("a\n{{ 1/0 }}")
        self.assert_fails(1, "line 2", "--template", self.template)
        self.template.write_text("{% if %}")
        self.assert_fails(1, "line 1", "--template", self.template)
        self.template.write_text(TEMPLATE)
        self.assert_fails(1, "standard input", "--template", self.template, body="{")
        self.assert_fails(1, "messages", "--template", self.template, body="[]")
        self.assert_fails(1, "empty", "--template", self.template, body=" \n")
        self.assert_fails(1, "byte order mark", "--template", self.template, body="\ufeff{}")
        self.assert_fails(1, "expected a value", "--template", self.template, body="hello")
        self.assert_fails(1, "128 levels", "--template", self.template, body='{"messages": ' + "[" * 10000)
        self.template.write_text("{{ messages[9].content }}")
        self.assert_fails(1, "list object has no element 9", "--template", self.template)
        self.template.write_bytes(b"a\xff")
        self.assert_fails(2, "not UTF-8", "--template", self.template)
        self.assert_fails(2, "chat_template.jinja", "--template", self.folder)
        self.assert_fails(2, "--template")

    def test_named_templates_are_chosen_by_the_request(self):
        config = self.folder / "tokenizer_config.json"
        config.write_text(json.dumps({"chat_template": [{"name": "default", "template": "D"},
                                                        {"name": "tool_use", "template": "T"}]}))
        self.assert_prompt("D", "--template", self.folder)
        self.assert_prompt("T", "--template", self.folder,
                           body={**BODY, "tools": [{"type": "function", "function": {"name": "f"}}]})

    def test_gguf_files_bring_their_template(self):
        special = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"]}
        file = self.folder / "model.gguf"
        file.write_bytes(gguf({"tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}"} | special))
        self.assert_prompt("<s>Grüße", "--template", file)
        self.assert_prompt("<s>Grüße", "--template", self.folder)
        file.write_bytes(gguf(special))
        self.assert_fails(2, "has no chat_template", "--template", file)
        file.write_bytes(b"GGUF")
        self.assert_fails(2, "model.gguf", "--template", file)


if __name__ == "__main__":
    unittest.main()
