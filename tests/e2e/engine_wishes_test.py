#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an engine can do and others cannot is passed to it: which tokens and words an answer may have, scored prompts, gaps to fill."""

import json
import pathlib
import shutil
import tempfile
import unittest

import openai

from stator_process import MODEL_DIR, Http, Stator, eventually

FOLDER = tempfile.TemporaryDirectory(prefix="stator-gap-")


def tearDownModule():
    FOLDER.cleanup()


def make_gap_model() -> pathlib.Path:
    """The tests' model, with the tokens of one that was trained to fill gaps."""
    model = pathlib.Path(FOLDER.name) / "gap"
    shutil.copytree(MODEL_DIR, model)
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    first = max(token["id"] for token in tokenizer["added_tokens"]) + 1
    like = tokenizer["added_tokens"][-1]
    names = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    tokenizer["added_tokens"] += [like | {"id": first + i, "content": name} for i, name in enumerate(names)]
    path.write_text(json.dumps(tokenizer))
    config = json.loads((model / "config.json").read_text()) | {"vocab_size": first + len(names)}
    (model / "config.json").write_text(json.dumps(config))
    return model


class Vllm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        model = make_gap_model()
        cls.server = Stator("sim-server", "--dialect", "vllm", "--model-dir", str(model), "--served-model-name", "m",
                            "--host", "127.0.0.1", "--port", "0", "--sim-speedup", "0")
        cls.addClassCleanup(cls.server.close)
        cls.stator = Stator("serve", str(model), "--engine", "vllm", "--url", cls.server.url, "--host", "127.0.0.1", "--port", "0",
                            "--engine-poll-interval", "100ms")
        cls.addClassCleanup(cls.stator.close)
        cls.http = Http(cls.stator.port)
        eventually(lambda: cls.http.request("GET", "/health")[0] == 200, "healthy")
        cls.client = openai.OpenAI(base_url=f"{cls.stator.url}/v1", api_key="none", max_retries=0)
        cls.addClassCleanup(cls.client.close)

    def complete(self, prompt="What is a KV cache?", extra_body=None, **fields):
        return self.client.completions.create(
            **{"model": "m", "prompt": prompt, "max_tokens": 12, "temperature": 0} | fields, extra_body=extra_body)

    def tokens(self, text: str) -> list[int]:
        return self.http.post("/tokenize", {"model": "m", "prompt": text, "add_special_tokens": False})[1]["tokens"]

    def test_only_allowed_tokens_come(self):
        allowed = self.tokens(" one two three")
        extra = {"allowed_token_ids": allowed, "nvext": {"extra_fields": ["completion_token_ids"]}}
        for answer in (self.complete(extra_body=extra), self.client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hi"}], max_tokens=12, extra_body=extra)):
            ids = answer.model_extra["nvext"]["completion_token_ids"]
            self.assertEqual(len(ids), 12)
            self.assertLessEqual(set(ids), set(allowed))

    def test_bad_words_do_not_come(self):
        word = self.complete().choices[0].text.split()[0]
        self.assertNotIn(word, self.complete(extra_body={"bad_words": [word]}).choices[0].text)

    def test_a_prompt_is_scored_and_nothing_written(self):
        prompt = "one two three four"
        answer = self.complete(prompt, echo=True, logprobs=1, max_tokens=0)
        self.assertEqual((answer.choices[0].text, answer.choices[0].finish_reason), (prompt, "length"))
        self.assertEqual(answer.usage.completion_tokens, 0)
        scores = answer.choices[0].logprobs
        self.assertEqual("".join(scores.tokens), prompt)
        self.assertIsNone(scores.token_logprobs[0])
        self.assertTrue(all(value <= 0 for value in scores.token_logprobs[1:]))
        self.assertEqual(self.complete(prompt, max_tokens=0).choices[0].text, "")
        streamed = [chunk.choices[0].text for chunk in self.complete(prompt, echo=True, max_tokens=0, stream=True) if chunk.choices]
        self.assertEqual("".join(streamed), prompt)

    def test_a_suffix_makes_the_prompt_a_gap(self):
        asked = self.complete("def f(a):\n", suffix="\n    return b", extra_body={"nvext": {"annotations": ["query_instance_id:"]}})
        status, text = self.http.post("/detokenize", {"model": "m", "tokens": asked.model_extra["nvext"]["token_ids"]})
        self.assertEqual(status, 200)
        self.assertEqual(text["prompt"], "<|fim_prefix|>def f(a):\n<|fim_suffix|>\n    return b<|fim_middle|>")
        self.assertTrue(self.complete("a", suffix="b").choices[0].text)


class Others(unittest.TestCase):
    """Engines and models that cannot do it say so by name, and are not asked again."""

    def test_refusals_name_the_field(self):
        stator = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0", "--host", "127.0.0.1", "--port", "0")
        self.addCleanup(stator.close)
        http = Http(stator.port)
        eventually(lambda: http.request("GET", "/health")[0] == 200, "healthy")
        model = http.get("/v1/models")[1]["data"][0]["id"]
        for fields in ({"allowed_token_ids": [5]}, {"bad_words": ["x"]}, {"suffix": "x"}):
            status, body = http.post("/v1/completions", {"model": model, "prompt": "a", "max_tokens": 2} | fields)
            self.assertEqual((status, body["error"]["param"]), (501, next(iter(fields))))
        status, body = http.post("/v1/completions", {"model": model, "prompt": "a", "max_tokens": 0, "echo": True})
        self.assertEqual((status, body["choices"][0]["text"], body["usage"]["completion_tokens"]), (200, "a", 0))


if __name__ == "__main__":
    unittest.main()
