#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator tokenize`: text to ids and back, line by line, and what it says about bad input."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from stator_process import BINARY, clean_environment

MODELS = pathlib.Path(__file__).parents[2] / "src/stator/tokenizer/testdata/models"
LLAMA = MODELS / "llama3.json"


class Tokenize(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_tokenize(self, *arguments, text=""):
        data = text if isinstance(text, bytes) else text.encode()
        return subprocess.run([BINARY, "tokenize", *map(str, arguments)], env=clean_environment(HOME=str(self.folder)),
                              input=data, capture_output=True, timeout=300)

    def lines(self, *arguments, text):
        done = self.run_tokenize("--tokenizer", LLAMA, *arguments, text=text)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.decode().splitlines()]

    def test_a_text_becomes_one_line_of_ids(self):
        (answer,) = self.lines(text="two\nlines <|end|>")
        (plain,) = self.lines("--no-special", text="two\nlines <|end|>")
        begin = self.lines("--decode", text=json.dumps(answer["tokens"][:1]))[0]["text"]
        self.assertEqual(begin, "<|begin|>")
        self.assertLess(len(answer["tokens"]), len(plain["tokens"]))
        self.assertEqual(list(plain), ["tokens"])

    def test_every_line_is_a_text_of_its_own_and_comes_back(self):
        texts = ["", "Hello", " äöü \U0001F600\u2028", "a\nb\t\u0000"]
        answers = self.lines("--jsonl", "--no-special", text="".join(json.dumps(t) + "\n" for t in texts))
        self.assertEqual(len(answers), len(texts))
        self.assertEqual(answers[0], {"tokens": []})
        back = self.lines("--decode", text="".join(json.dumps(a) + "\n" for a in answers))
        self.assertEqual([b["text"] for b in back], texts)

    def test_decoding_can_leave_out_special_tokens(self):
        ids = self.lines(text="Hello<|end|>")[0]["tokens"]
        self.assertEqual(self.lines("--decode", text=json.dumps(ids))[0]["text"], "<|begin|>Hello<|end|>")
        self.assertEqual(self.lines("--decode", "--no-special", text=json.dumps(ids))[0]["text"], "Hello")

    def test_decode_as_a_stream(self):
        for text in ("Hello, world", "\u6771\u4eac \U0001f600!", ""):
            ids = self.lines("--no-special", text=text)[0]["tokens"]
            for cut in (ids, ids[:-1]):  # the end may be within a character
                deltas = self.lines("--decode", "--stream", text=json.dumps(cut))[0]["deltas"]
                self.assertEqual(len(deltas), len(cut) + 1)
                self.assertEqual("".join(deltas), self.lines("--decode", text=json.dumps(cut))[0]["text"])

    def test_bad_lines_are_named(self):
        cases = [(["--jsonl"], '"a"\n"\\ud800"\n', "line 2"), (["--jsonl"], "5\n", "line 1"), (["--jsonl"], '"a\n', "line 1"),
                 (["--decode"], "[1]\n[-1]\n", "line 2"), (["--decode"], "{}\n", "line 1"), (["--decode"], "[4294967296]\n", "line 1"),
                 (["--decode"], "[" * 5000 + "\n", "line 1"), (["--decode"], "[99999999]\n", "99999999"),
                 (["--jsonl"], "[1]\n", "one per line"), (["--jsonl"], "\n", "one per line")]
        for flags, text, named in cases:
            done = self.run_tokenize("--tokenizer", LLAMA, *flags, text=text)
            self.assertEqual(done.returncode, 1, (flags, text, done.stderr))
            self.assertIn(named, done.stderr.decode())

    def test_invalid_utf8_is_read_as_replacement_characters(self):
        self.assertEqual(self.lines("--no-special", text=b"a\xffb"), self.lines("--no-special", text="a\ufffdb"))

    def test_the_path_must_lead_to_a_vocabulary(self):
        done = self.run_tokenize(text="x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--tokenizer", done.stderr.decode())
        done = self.run_tokenize("--tokenizer", self.folder, text="x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tokenizer.json", done.stderr.decode())
        broken = self.folder / "broken.gguf"
        broken.write_bytes(b"GGUF\x03\x00\x00\x00")
        done = self.run_tokenize("--tokenizer", broken, text="x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("broken.gguf", done.stderr.decode())

    def test_help_has_an_example(self):
        done = self.run_tokenize("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("stator tokenize --tokenizer", done.stdout.decode())


if __name__ == "__main__":
    unittest.main()
