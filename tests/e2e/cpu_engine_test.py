#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CPU engine from outside: LoRA adapters, sleep, guesses from the prompt, types of the KV cache."""

import concurrent.futures
import json
import pathlib
import random
import struct
import tempfile
import unittest

from stator_process import MODEL_DIR, Http, Stator, eventually

CONFIG = json.loads((MODEL_DIR / "config.json").read_text())
PROMPT = "Question: What is a KV cache?\nAnswer:"
LISTS = "one two three four one two three four one two three four one two"


def adapter(folder: pathlib.Path, seed: int, rank: int = 4, **config: object) -> pathlib.Path:
    """A PEFT folder with random matrices for the query and down projections of every layer."""
    draw, tensors, data = random.Random(seed), {}, b""
    hidden, heads = CONFIG["hidden_size"], CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    sizes = {"self_attn.q_proj": (heads, hidden), "mlp.down_proj": (hidden, CONFIG["intermediate_size"])}
    for layer in range(CONFIG["num_hidden_layers"]):
        for module, (outputs, inputs) in sizes.items():
            for half, shape in (("lora_A", (rank, inputs)), ("lora_B", (outputs, rank))):
                count = shape[0] * shape[1]
                body = struct.pack(f"<{count}f", *(draw.gauss(0, 0.2) for _ in range(count)))
                tensors[f"base_model.model.model.layers.{layer}.{module}.{half}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(body)]}
                data += body
    header = json.dumps(tensors).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "bias": "none", "target_modules": list(sizes)} | config))
    return folder


NUMBERS = {"type": "array", "items": {"type": "object", "properties": {"name": {"enum": ["one", "two"]}, "value": {"type": "integer"}},
                                      "required": ["name", "value"]}, "minItems": 3}


class CpuEngine(unittest.TestCase):
    settings: tuple[str, ...] = ()

    def serve(self, *settings: str) -> tuple[Http, Http]:
        stator = Stator("serve", str(MODEL_DIR), "--host", "127.0.0.1", "--port", "0", "--system-port", "0",
                        "--workers", "1", *settings)
        self.addCleanup(stator.close)
        return Http(stator.port), Http(stator.ready["system_port"])

    def folder(self) -> pathlib.Path:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def ask(self, http: Http, model: str = "demo", status: int = 200, **body: object) -> str:
        got, answer = http.post("/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 24,
                                                    "temperature": 0} | body)
        self.assertEqual(got, status, answer)
        return answer["choices"][0]["text"] if status == 200 else answer["error"]["message"]


class Lora(CpuEngine):
    def test_adapters_are_models_side_by_side_and_come_and_go(self):
        folder = self.folder()
        a, b = adapter(folder / "a", 1), adapter(folder / "b", 2, rank=8)
        http, system = self.serve("--lora-modules", f"first={a}")
        models = lambda: {row["id"]: row.get("parent") for row in http.get("/v1/models")[1]["data"]}
        self.assertEqual(models(), {"demo": None, "first": "demo"})
        status, told = system.post("/v1/loras", {"lora_name": "second", "lora_path": str(b)})
        self.assertEqual(status, 200, told)
        eventually(lambda: models() == {"demo": None, "first": "demo", "second": "demo"}, "it is listed")

        names = ["demo", "first", "second"]
        alone = {name: self.ask(http, name) for name in names}
        self.assertEqual(len(set(alone.values())), 3, alone)
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            together = list(pool.map(lambda name: (name, self.ask(http, name)), names * 3))
        self.assertEqual({text for name, text in together if name == "first"}, {alone["first"]})
        self.assertEqual(dict(together), alone, "the same in one batch, with cached prefixes")

        self.assertEqual(system.request("DELETE", "/v1/loras/first")[0], 200)
        eventually(lambda: "first" not in models(), "it is gone")
        self.ask(http, "first", status=404)
        # Another adapter under a name that was used before: nothing of the old one is left.
        status, told = system.post("/v1/load_lora_adapter", {"lora_name": "first", "lora_path": str(b)})
        self.assertEqual(status, 200, told)
        eventually(lambda: "first" in models(), "it is back")
        self.assertEqual(self.ask(http, "first"), alone["second"])
        self.assertEqual(self.ask(http), alone["demo"])
        self.assertEqual(system.get("/v1/loras")[1]["count"], 2)

    def test_adapters_of_a_folder_load_on_first_use(self):
        folder = self.folder()
        known, shelf = adapter(folder / "known", 1), folder / "shelf"
        shelf.mkdir()
        for i, name in enumerate(("one", "two", "three")):
            adapter(shelf / name, i + 1)
        (shelf / "broken").mkdir()
        (shelf / "broken" / "adapter_config.json").write_text("{}")
        http, system = self.serve("--lora-modules", f"known={known}", "--lora-folder", str(shelf), "--max-loras", "2")
        listed = [row["id"] for row in http.get("/v1/models")[1]["data"] if row.get("parent") == "demo"]
        self.assertEqual(listed, ["broken", "known", "one", "three", "two"])
        texts = {name: self.ask(http, name) for name in ("one", "two", "three", "one", "known")}
        self.assertEqual(texts["one"], texts["known"], "the same matrices, whichever way they came")
        self.assertEqual(len(set(texts.values())), 3, "each has room, one after the other")
        self.assertEqual({self.ask(http, "two"), self.ask(http, "demo:two")}, {texts["two"]})
        self.ask(http, "broken", status=404)
        adapter(shelf / "late", 7)
        eventually(lambda: "late" in [row["id"] for row in http.get("/v1/models")[1]["data"]], "a new folder is a new model")
        self.assertNotIn(self.ask(http, "late"), texts.values())
        self.assertEqual(system.request("DELETE", "/v1/loras/late")[0], 200)
        self.ask(http, "late")

    def test_what_cannot_be_computed_is_refused_by_name(self):
        folder = self.folder()
        _, system = self.serve("--max-loras", "1", "--max-lora-rank", "4")
        for name, config, rank, said in (
                ("mismatch", {"r": 3}, 4, "rank 4"), ("large", {}, 5, "--max-lora-rank 4"),
                ("dora", {"use_dora": True}, 4, "use_dora"), ("bias", {"bias": "all"}, 4, "bias 'all'"),
                ("saved", {"modules_to_save": ["lm_head"]}, 4, "modules_to_save")):
            with self.subTest(name):
                path = adapter(folder / name, 1, rank, **config)
                status, told = system.post("/v1/loras", {"lora_name": name, "lora_path": str(path)})
                self.assertGreaterEqual(status, 400, told)
                self.assertIn(said, told["workers"][0]["message"])
        good = str(adapter(folder / "good", 1))
        load = lambda name, path=good: system.post("/v1/loras", {"lora_name": name, "lora_path": path})
        self.assertEqual(load("nowhere", str(folder / "none"))[0], 404)
        self.assertIn("name of the model", load("demo")[1]["workers"][0]["message"])
        self.assertEqual(load("good")[0], 200)
        self.assertIn("loaded already", load("good")[1]["workers"][0]["message"])
        self.assertIn("--max-loras", load("more")[1]["workers"][0]["message"])
        self.assertEqual(system.post("/v1/unload_lora_adapter", {"lora_name": "more"})[0], 404)


class Sleep(CpuEngine):
    def test_it_sleeps_when_idle_and_wakes_with_the_same_answers(self):
        http, system = self.serve()
        before = self.ask(http)
        self.assertEqual(system.post("/engine/sleep", {"level": 2})[0], 501)
        self.assertEqual(system.post("/engine/sleep", {})[0], 200)
        self.assertEqual(system.get("/health")[1]["workers"][0]["state"], "asleep")
        eventually(lambda: http.post("/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 1})[0] in (404, 503),
                   "nobody serves")
        self.assertEqual(system.post("/engine/wake_up", {})[0], 200)
        eventually(lambda: http.post("/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 1})[0] == 200,
                   "it serves again")
        self.assertEqual(self.ask(http), before)


class SameAnswers(CpuEngine):
    """Settings that may change speed, never text."""

    def answers(self, http: Http) -> list[str]:
        requests = [{}, {"prompt": LISTS, "max_tokens": 60}, {"prompt": LISTS, "temperature": 1, "seed": 7},
                    {"prompt": LISTS, "max_tokens": 40, "repetition_penalty": 1.2, "ignore_eos": True},
                    {"guided_regex": "(one|two|three)( (one|two|three)){8}", "prompt": LISTS},
                    {"guided_json": NUMBERS, "prompt": LISTS, "temperature": 1, "seed": 3, "max_tokens": 90}]
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(lambda body: self.ask(http, **body), requests))

    def test_guesses_and_budgets_change_no_text(self):
        plain, _ = self.serve()
        guessing, _ = self.serve("--prompt-lookup", "8", "--prompt-lookup-match", "1", "--prefill-budget", "16",
                                 "--threads", "2")
        self.assertEqual(self.answers(guessing), self.answers(plain))

    def test_each_type_of_the_kv_cache_serves(self):
        for kind in ("f16", "int8"):
            with self.subTest(kind):
                http, _ = self.serve("--kv-cache-type", kind)
                first = self.ask(http)
                self.assertTrue(first)
                self.assertEqual(self.ask(http), first, "also from the prefix cache")

    def test_a_scored_prompt_tells_what_a_generated_token_told(self):
        """As evaluation harnesses ask for choices: `echo` with `logprobs`, also where the prompt is in the prefix cache."""
        http, _ = self.serve()

        def complete(**body: object) -> dict:
            status, answer = http.post("/v1/completions", {"model": "demo", "temperature": 0, "logprobs": 1} | body)
            self.assertEqual(status, 200, answer)
            return answer["choices"][0]

        long = PROMPT * 8
        for _ in range(2):  # the second time most of it is cached
            generated = complete(prompt=long, max_tokens=3)
            for max_tokens in (0, 1):
                scored = complete(prompt=long + generated["text"], max_tokens=max_tokens, echo=True)
                logprobs = scored["logprobs"]["token_logprobs"]
                asked = logprobs[:-1] if max_tokens else logprobs
                self.assertIsNone(asked[0])
                self.assertEqual(asked[-3:], generated["logprobs"]["token_logprobs"])
                self.assertEqual("".join(scored["logprobs"]["tokens"]), scored["text"])


if __name__ == "__main__":
    unittest.main()
