#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/openapi.json against the server that it describes: every operation is called, well and badly, and every answer is documented: its status,
its content type, its shape; every body that was accepted fits the schema of the request."""

import json
import tempfile
import unittest

import httpx
from jsonschema import Draft202012Validator
from stator_process import MODEL, Serve, eventually

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}}
TENSOR = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["a"]}
# Bodies that are accepted.
GOOD = {
    "/busy_threshold": [{"model": MODEL, "active_decode_blocks_threshold": None}],
    "/v1/chat/completions": [
        {"model": MODEL, "messages": HI, "max_tokens": 3, "logprobs": True, "top_logprobs": 2, "n": 2, "seed": 1, "user": "u", "stop": ["x"], "metadata": {}},
        {"model": MODEL, "max_completion_tokens": 40, "tools": [TOOL], "tool_choice": "required", "stream_options": None,
         "messages": [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, *HI,
                      {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                      {"role": "tool", "tool_call_id": "1", "content": "done"}]},
        {"model": MODEL, "messages": HI, "max_tokens": 40, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}},
        {"model": MODEL, "messages": HI, "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}},
    ],
    "/v1/completions": [{"model": MODEL, "prompt": ["a", "b"], "max_tokens": 3, "logprobs": 1, "echo": True}, {"model": MODEL, "prompt": [1, 2], "max_tokens": 3, "stream": True}],
    "/tokenize": [{"model": MODEL, "prompt": ""}, {"model": MODEL, "messages": HI, "return_token_strs": True}],
    "/detokenize": [{"model": MODEL, "tokens": [1, 2]}],
    "/v1/embeddings": [{"model": MODEL, "input": ["a", "b"], "encoding_format": "base64"}, {"model": MODEL, "input": [1, 2], "dimensions": 4}],
    "/v1/messages": [{"model": MODEL, "max_tokens": 3, "messages": HI, "system": "s", "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"}},
                     {"model": MODEL, "max_tokens": 3, "messages": HI, "stream": True, "thinking": {"type": "enabled", "budget_tokens": 1024}}],
    "/v1/messages/count_tokens": [{"model": MODEL, "messages": HI}],
    "/v1/responses": [{"model": MODEL, "input": "a", "max_output_tokens": 16, "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}},
                      {"model": MODEL, "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}], "max_output_tokens": 16, "stream": True}],
    "/v1/responses/compact": [{"model": MODEL, "input": "a", "max_output_tokens": 4}],
    "/v1/responses/input_tokens": [{"model": MODEL, "input": "a"}],
    "/inference/v1/generate": [{"token_ids": [1], "sampling_params": {"max_tokens": 2, "logprobs": 1}}],
    "/generate": [{"text": "a", "sampling_params": {"max_new_tokens": 2}}, {"input_ids": [1], "sampling_params": {"max_new_tokens": 2}, "stream": True}, {"inputs": "a", "parameters": {"details": True}}],
    "/generate_stream": [{"inputs": "a", "parameters": {"max_new_tokens": 2}}],
    "/": [{"inputs": "a", "parameters": {"max_new_tokens": 2}, "stream": False}],
    "/embed": [{"inputs": "a"}, {"inputs": ["a", "b"], "truncate": True}],
    "/embed_all": [{"inputs": "a"}],
    "/predict": [{"inputs": "a", "raw_scores": True}, {"inputs": [["a"], ["b"]]}],
    "/similarity": [{"inputs": {"source_sentence": "a", "sentences": ["b"]}}],
    "/v2/embed": [{"model": MODEL, "texts": ["a"], "embedding_types": ["float", "ubinary"], "input_type": "search_query", "truncate": "NONE"}],
    "/v2/models/{id}/generate": [{"text_input": "a", "max_tokens": 2}],
    "/v2/models/{id}/generate_stream": [{"text_input": "a", "max_tokens": 2}],
    "/v2/models/{id}/infer": [{"inputs": [TENSOR]}, {"inputs": [TENSOR], "outputs": [{"name": "text_output", "parameters": {"binary_data": True}}]}],
}
RANKED = {"model": MODEL, "query": "a", "documents": ["b", {"text": "c"}]}
for prefix in ("", "/v1"):
    GOOD |= {f"{prefix}/rerank": [RANKED | {"return_documents": True}, {"query": "a", "texts": ["b"]}], f"{prefix}/score": [{"model": MODEL, "text_1": "a", "text_2": ["b"]}],
             f"{prefix}/classify": [{"model": MODEL, "input": "a"}], f"{prefix}/pooling": [{"model": MODEL, "messages": HI}, {"model": MODEL, "input": "a", "encoding_format": "bytes"}]}
GOOD["/v2/rerank"] = [RANKED]
QUERIES = {"/health": ["model=absent"], "/receipts/{id}": ["format=text"], "/v1/files": ["limit=1&order=asc", "order=up", "limit=0"], "/v1/batches": ["limit=1", "after=x"],
           "/v1/responses/{id}/input_items": ["limit=1&order=asc", "limit=1000"], "/v1/responses/{id}": ["stream=true&starting_after=1", "starting_after=x"]}


class OpenApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        deployment = Serve("--sim-speedup", "0", "--batches-folder", folder.name)
        cls.addClassCleanup(deployment.close)
        cls.client = httpx.Client(base_url=deployment.frontend.url, timeout=60)
        cls.addClassCleanup(cls.client.close)
        cls.document = cls.client.get("/openapi.json").json()

    def fits(self, value: object, schema: dict) -> None:
        errors = list(Draft202012Validator({**schema, "components": self.document["components"]}).iter_errors(value))
        self.assertEqual([f"{list(error.path)}: {error.message[:300]}" for error in errors], [])

    def ask(self, method: str, path: str, name: str = MODEL, query: str = "", **fields) -> httpx.Response:
        """Calls an operation and holds its answer against the document."""
        answer = self.client.request(method, path.replace("{id}", name) + ("?" + query if query else ""), **fields)
        responses = self.document["paths"][path][method.lower()]["responses"]
        documented = responses.get(str(answer.status_code), responses["default"])["content"]
        kind = answer.headers["content-type"].split(";")[0]
        with self.subTest(method=method, path=path, name=name, query=query, status=answer.status_code, fields=str(fields)[:200]):
            self.assertIn(kind, documented)
            if kind == "application/json":
                self.fits(answer.json(), documented[kind].get("schema", {}))
        return answer

    def operations(self, method: str) -> list[str]:
        return [path for path, operations in self.document["paths"].items() if method.lower() in operations]

    def test_it_is_a_document(self):
        self.assertEqual(self.document["openapi"], "3.1.0")
        for shape in self.document["components"]["schemas"].values():
            Draft202012Validator.check_schema(shape)

    def test_bodies_that_are_accepted_fit_and_so_do_the_answers(self):
        missing = set(self.operations("POST")) - set(GOOD) - {"/v1/files", "/v1/batches", "/v1/batches/{id}/cancel", "/v1/responses/{id}/cancel"}
        self.assertEqual(missing, set(), "add a body here")
        for path, bodies in GOOD.items():
            schema = self.document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
            for body in bodies:
                self.fits(body, schema)
                self.assertEqual(self.ask("POST", path, json=body).status_code, 200, (path, body))

    def test_bad_bodies_are_refused_as_documented(self):
        for path in self.operations("POST"):
            for fields in ({}, {"content": b"{", "headers": {"content-type": "application/json"}}, {"json": []}, {"json": {}}, {"json": {"model": 1}}, {"json": {"model": "absent"}},
                           {"content": b"x", "headers": {"content-type": "text/plain"}}):
                self.assertGreaterEqual(self.ask("POST", path, "absent", **fields).status_code, 400, (path, fields))

    def test_questions(self):
        for path in self.operations("GET"):
            for name in (MODEL, "absent", "last"):
                for query in ("", *QUERIES.get(path, [])):
                    self.assertNotEqual(self.ask("GET", path, name, query).status_code, 500)
        self.ask("GET", "/v1/models/{id}", f"{MODEL}/ready")
        anthropic = {"anthropic-version": "2023-06-01"}
        self.ask("GET", "/v1/models", headers=anthropic)
        self.ask("GET", "/v1/models/{id}", headers=anthropic)

    def test_objects_from_their_making_to_their_end(self):
        made = self.ask("POST", "/v1/responses", json={"model": MODEL, "input": "a", "max_output_tokens": 16}).json()["id"]
        background = self.ask("POST", "/v1/responses", json={"model": MODEL, "input": "a", "max_output_tokens": 900, "background": True}).json()["id"]
        self.assertEqual(self.ask("POST", "/v1/responses/{id}/cancel", background).status_code, 200)
        self.ask("POST", "/v1/responses/{id}/cancel", made)
        for query in ("", "limit=1&order=asc"):
            self.assertEqual(self.ask("GET", "/v1/responses/{id}/input_items", made, query).status_code, 200)
        follow = self.ask("POST", "/v1/responses", json={"model": MODEL, "input": "a", "max_output_tokens": 16, "background": True}).json()["id"]
        eventually(lambda: self.ask("GET", "/v1/responses/{id}", follow).json()["status"] not in ("queued", "in_progress"), "it is made")
        self.assertEqual(self.ask("GET", "/v1/responses/{id}", follow, "stream=true").headers["content-type"].split(";")[0], "text/event-stream")
        self.assertEqual(self.ask("GET", "/receipts/{id}", made).status_code, 200)
        self.assertEqual(self.ask("DELETE", "/v1/responses/{id}", made).status_code, 200)
        line = json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": MODEL, "prompt": "a", "max_tokens": 2}})
        file = self.ask("POST", "/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", line)}).json()["id"]
        body = {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h", "metadata": {"a": "b"}}
        self.fits(body, self.document["paths"]["/v1/batches"]["post"]["requestBody"]["content"]["application/json"]["schema"])
        batch = self.ask("POST", "/v1/batches", json=body).json()["id"]
        for path, name in (("/v1/files", ""), ("/v1/files/{id}", file), ("/v1/files/{id}/content", file), ("/v1/batches", ""), ("/v1/batches/{id}", batch)):
            self.assertEqual(self.ask("GET", path, name).status_code, 200)
        self.ask("POST", "/v1/batches/{id}/cancel", batch)
        self.ask("DELETE", "/v1/files/{id}", file)

    def test_other_methods(self):
        for path, operations in self.document["paths"].items():
            answer = self.client.request("PATCH", path.replace("{id}", MODEL))
            self.assertEqual(answer.status_code, 405, path)
            self.assertTrue({method.upper() for method in operations} <= set(answer.headers["allow"].split(", ")), (path, answer.headers["allow"]))


if __name__ == "__main__":
    unittest.main()
