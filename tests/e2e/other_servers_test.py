#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clients of vLLM, SGLang, Cohere and Hugging Face's servers ask beside OpenAI's API: fields, routes, models that are not named."""

import base64
import json
import struct
import unittest

from stator_process import MODEL, DeploymentTest, Serve

HI = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}},
                                                                        "required": ["city"], "additionalProperties": False}}}
         for name in ("get_weather", "get_time")]


def allowed(mode, *names):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": n}} for n in names]}}


def frames(body: bytes) -> list[dict]:
    return [json.loads(line[5:]) for line in body.decode().splitlines() if line.startswith("data:") and "[DONE]" not in line]


class Fields(DeploymentTest):
    """Of vLLM, over the CPU engine."""

    @classmethod
    def deploy(cls):
        return Serve("--reasoning-parser", "qwen3", engine="cpu")

    def setUp(self):
        self.http = self.deployment.http

    def ask(self, path="/v1/chat/completions", **fields):
        body = {"model": MODEL, "max_tokens": 48, "temperature": 0} | ({"messages": HI} if "chat" in path else {}) | fields
        status, answer = self.http.post(path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def stream(self, path, body):
        status, _, data = self.http.request("POST", path, {"model": MODEL, "max_tokens": 12, "temperature": 0, "stream": True} | body)
        self.assertEqual(status, 200, data)
        return frames(data)

    def test_token_ids_stand_beside_the_text(self):
        prompt = self.http.post("/tokenize", {"messages": HI})[1]["tokens"]
        whole = self.ask(max_tokens=12, return_token_ids=True)
        self.assertEqual(whole["prompt_token_ids"], prompt)
        ids = whole["choices"][0]["token_ids"]
        self.assertEqual(len(ids), whole["usage"]["completion_tokens"])
        chunks = self.stream("/v1/chat/completions", {"messages": HI, "return_token_ids": True})
        self.assertEqual(chunks[0]["prompt_token_ids"], prompt)
        self.assertTrue(all("prompt_token_ids" not in chunk for chunk in chunks[1:]))
        self.assertEqual([i for chunk in chunks for i in chunk["choices"][0]["token_ids"]], ids)
        self.assertEqual("".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks), whole["choices"][0]["message"]["content"])
        self.assertNotIn("token_ids", json.dumps(self.ask(max_tokens=2)))

    def test_token_ids_of_completions_are_in_their_choices(self):
        both = self.ask("/v1/completions", prompt=[[5, 6], [7, 8, 9]], max_tokens=4, return_token_ids=True)
        self.assertEqual([choice["prompt_token_ids"] for choice in both["choices"]], [[5, 6], [7, 8, 9]])
        self.assertEqual(sum(len(choice["token_ids"]) for choice in both["choices"]), both["usage"]["completion_tokens"])
        chunks = self.stream("/v1/completions", {"prompt": [5, 6], "max_tokens": 4, "return_token_ids": True})
        self.assertEqual(chunks[0]["choices"][0]["prompt_token_ids"], [5, 6])
        self.assertEqual([i for chunk in chunks for i in chunk["choices"][0]["token_ids"]], both["choices"][0]["token_ids"])

    def test_a_prompt_is_cut_at_the_side_that_is_asked_for(self):
        for side, kept in (("left", [7, 8]), ("right", [5, 6])):
            answer = self.ask("/v1/completions", prompt=[5, 6, 7, 8], max_tokens=1, truncate_prompt_tokens=2, truncation_side=side, return_token_ids=True)
            self.assertEqual(answer["choices"][0]["prompt_token_ids"], kept)

    def test_a_model_that_does_not_reason_keeps_to_the_shape(self):
        # The model has no token that opens reasoning, so its answers have the shape from their first token on.
        for choice in ("required", {"type": "function", "function": {"name": "get_time"}}):
            calls = self.ask(tools=TOOLS, tool_choice=choice)["choices"][0]["message"]["tool_calls"]
            self.assertEqual(list(json.loads(calls[0]["function"]["arguments"])), ["city"])
        answer = self.ask(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["red", "blue"]}}})
        self.assertIn(json.loads(answer["choices"][0]["message"]["content"]), ("red", "blue"))

    def test_only_allowed_tools_are_called(self):
        calls = self.ask(tools=TOOLS, tool_choice=allowed("required", "get_time"))["choices"][0]["message"]["tool_calls"]
        self.assertEqual({call["function"]["name"] for call in calls}, {"get_time"})
        self.ask(tools=TOOLS, tool_choice=allowed("auto", "get_weather"), max_tokens=2)
        for wrong in (allowed("auto", "absent"), allowed("some", "get_time"), {"type": "allowed_tools"}):
            status, answer = self.http.post("/v1/chat/completions", {"model": MODEL, "messages": HI, "tools": TOOLS, "tool_choice": wrong})
            self.assertEqual((status, answer["error"]["param"].split(".")[0]), (400, "tool_choice"), answer)


class Routes(DeploymentTest):
    """Of Cohere and Hugging Face's servers, over the simulated engine, which does everything."""

    @classmethod
    def deploy(cls):
        return Serve("--sim-speedup", "0", "--sim-vector-width", "16")

    def setUp(self):
        self.http = self.deployment.http

    def post(self, path, body, status=200):
        got, answer = self.http.post(path, body)
        self.assertEqual(got, status, answer)
        return answer

    def test_cohere_embed(self):
        answer = self.post("/v2/embed", {"model": MODEL, "texts": ["a", "b c"], "embedding_types": ["float", "base64", "binary", "ubinary"]})
        vectors = answer["embeddings"]["float"]
        self.assertEqual([len(v) for v in vectors], [16, 16])
        self.assertEqual(answer["texts"], ["a", "b c"])
        self.assertEqual(answer["meta"]["api_version"]["version"], "2")
        self.assertGreater(answer["meta"]["billed_units"]["input_tokens"], 0)
        raw = struct.unpack("<16f", base64.b64decode(answer["embeddings"]["base64"][0]))
        self.assertEqual([round(x, 5) for x in raw], [round(x, 5) for x in vectors[0]])
        signs = [sum((x > 0) << (7 - i) for i, x in enumerate(vectors[0][at:at + 8])) for at in (0, 8)]
        self.assertEqual(answer["embeddings"]["ubinary"][0], signs)
        self.assertEqual(answer["embeddings"]["binary"][0], [s - 128 for s in signs])
        openai = self.post("/v1/embeddings", {"model": MODEL, "input": ["a"]})["data"][0]["embedding"]
        self.assertEqual(openai, vectors[0])
        part = self.post("/v2/embed", {"model": MODEL, "inputs": [{"content": [{"type": "text", "text": "a"}]}], "output_dimension": 8})
        self.assertEqual(len(part["embeddings"]["float"][0]), 8)

    def test_cohere_embed_cuts_or_refuses_long_texts(self):
        long = "alpha " * 40_000
        ends = {side: self.post("/v2/embed", {"model": MODEL, "texts": [long + "omega " * 9], "truncate": side})["embeddings"]["float"]
                for side in ("START", "END")}
        self.assertNotEqual(ends["START"], ends["END"])
        self.post("/v2/embed", {"model": MODEL, "texts": [long], "truncate": "NONE"}, 400)
        for wrong in ({}, {"texts": []}, {"texts": ["a"], "input_type": "nonsense"}, {"texts": ["a"], "embedding_types": ["int4"]}, {"texts": ["a"], "truncate": "x"}):
            self.post("/v2/embed", {"model": MODEL} | wrong, 400)

    def test_text_embeddings_inference(self):
        one = self.post("/embed", {"inputs": "hello"})
        self.assertEqual([len(one), len(one[0])], [1, 16])
        self.assertEqual(self.post("/embed", {"inputs": ["hello", "you"], "truncate": True})[0], one[0])
        tokens = self.post("/embed_all", {"inputs": "hello you"})
        self.assertEqual(len(tokens[0][0]), 16)
        likely = self.post("/predict", {"inputs": "hello"})
        self.assertEqual(sorted((p["score"] for p in likely), reverse=True), [p["score"] for p in likely])
        self.assertAlmostEqual(sum(p["score"] for p in likely), 1, places=4)
        self.assertEqual(self.post("/predict", {"inputs": [["hello"], ["you"]]})[0], likely)
        self.post("/predict", {"inputs": ["a", "b"]}, 400)
        alike = self.post("/similarity", {"inputs": {"source_sentence": "a b", "sentences": ["a b", "x y z"]}})
        self.assertAlmostEqual(alike[0], 1, places=4)
        self.assertLess(alike[1], 0.9)
        ranks = self.post("/rerank", {"query": "a b", "texts": ["x", "a b"], "return_text": True})
        self.assertEqual([(r["index"], r["text"]) for r in ranks], [(1, "a b"), (0, "x")])
        self.assertNotIn("text", self.post("/rerank", {"query": "a b", "texts": ["x"]})[0])

    def test_unlike_texts_have_scores_of_their_own(self):
        scores = [r["relevance_score"] for r in self.post("/rerank", {"query": "alpha", "documents": ["one", "two", "three"]})["results"]]
        self.assertEqual(len(set(scores)), 3)
        self.assertTrue(all(0 < s < 1 for s in scores), scores)

    def test_text_generation_inference(self):
        wanted = self.post("/v1/completions", {"model": MODEL, "prompt": "Hi", "max_tokens": 6, "temperature": 0})["choices"][0]["text"]
        ask = {"inputs": "Hi", "parameters": {"max_new_tokens": 6, "details": True, "return_full_text": True}}
        for path in ("/generate", "/"):
            answer = self.post(path, ask)
            self.assertEqual(answer["generated_text"], "Hi" + wanted)
            self.assertEqual((answer["details"]["finish_reason"], answer["details"]["generated_tokens"]), ("length", 6))
            self.assertEqual(len(answer["details"]["tokens"]), 6)
        for path, body in (("/generate_stream", ask), ("/generate", ask | {"stream": True})):
            status, headers, data = self.http.request("POST", path, body)
            self.assertEqual((status, headers["content-type"].split(";")[0]), (200, "text/event-stream"))
            events = frames(data)
            self.assertEqual([event["index"] for event in events], list(range(1, 7)))
            self.assertEqual("".join(event["token"]["text"] for event in events), wanted)
            self.assertEqual([event["generated_text"] for event in events], [None] * 5 + ["Hi" + wanted])
            self.assertEqual(events[-1]["details"]["generated_tokens"], 6)
        for wrong in ({"inputs": ""}, {"inputs": 1}, {"inputs": "a", "parameters": {"max_new_tokens": 0}}, {"inputs": "a", "parameters": {"grammar": {"type": "x"}}}):
            self.post("/generate", wrong, 400)

    def test_servers_of_one_model_do_not_ask_which(self):
        self.assertEqual(self.post("/tokenize", {"prompt": "hi"})["token_strs"], None)
        self.post("/detokenize", {"tokens": [5]})
        self.post("/score", {"text_1": "a", "text_2": "b"})
        self.post("/classify", {"input": "a"})
        self.post("/v1/embeddings", {"input": "a"}, 400)
        self.post("/v1/chat/completions", {"messages": HI}, 400)
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        self.post("/tokenize", {"messages": [{"role": "user", "content": [image]}]}, 501)

    def test_what_they_are_asked_about_themselves(self):
        self.assertRegex(self.http.get("/version")[1]["version"], r"^\d+\.\d+")
        self.assertEqual(self.http.get("/ping")[0], 200)
        info = self.http.get("/info")[1]
        self.assertEqual((info["model_id"], info["max_total_tokens"] > 0), (MODEL, True))
        model = self.http.get(f"/v1/models/{MODEL}")[1]
        self.assertEqual((model["root"], model["max_model_len"]), (MODEL, info["max_total_tokens"]))


if __name__ == "__main__":
    unittest.main()
