#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/reference/conformance.md says of every route which fields it has, which clients were run against it and which tests hold it.
Fields come from /openapi.json. `conformance_test.py --write` writes the page anew."""

import sys
import tempfile
import unittest

from stator_process import ROOT, Serve

PAGE = ROOT / "docs" / "reference" / "conformance.md"
TESTS = ROOT / "tests"
HEAD = """# Routes, fields, clients, tests

One row per route: the fields of its body (struck out: refused by name) or its parameters, whose clients were run against it unchanged
([versions](clients.md)), and which tests hold it (`tests/e2e/NAME_test.py`; with `real:` `tests/real_clients/`, by `scripts/test_real_clients.sh`).
What becomes of a field is said on the pages of the protocols; unknown fields are named in `x-stator-ignored-fields`.
Written by `tests/e2e/conformance_test.py --write` from `/openapi.json`.

"""
FRAMEWORKS = "litellm, langchain-openai, pydantic-ai, openai-agents, instructor"
POOLS = "openapi, embeddings, pooling_servers, encoder_models"
# By route: clients, tests.
CHAT = (f"openai (Python, Node), ai, {FRAMEWORKS}, llama-index, huggingface_hub, haystack, mistralai",
        "openai_client, node_client, node_helpers, ai_sdk, frameworks, tool_calls, fields, field_table, nvext_table, http_api, real:more_clients")
RESPONSES = (f"openai (Python, Node), ai, {FRAMEWORKS}, Codex",
             "responses, node_helpers, ai_sdk, frameworks, websocket, agents_and_hints, real:coding_agents")
STORED = ("openai (Python, Node)", "responses")
BATCHES = ("openai (Python, Node)", "batches, node_helpers")
ANTHROPIC = ("anthropic (Python, Node), ai, litellm, langchain-anthropic, Claude Code, claude-agent-sdk",
             "anthropic_client, coding_agent, ai_sdk, frameworks, real:coding_agents")
KSERVE = ("tritonclient (HTTP)", "kserve")
RERANK = ("cohere, langchain-cohere", "embeddings, encoder_models, real:more_clients")
HELD: dict[tuple[str, str], tuple[str, str]] = {
    ("/v1/chat/completions", "post"): CHAT,
    ("/v1/completions", "post"): ("openai (Python, Node), ai, litellm, lm-eval", "openai_client, node_client, ai_sdk, fields, field_table, nvext_table, http_api"),
    ("/v1/responses", "post"): RESPONSES, ("/v1/responses/compact", "post"): STORED, ("/v1/responses/input_tokens", "post"): STORED,
    ("/v1/responses/{id}", "get"): STORED, ("/v1/responses/{id}", "delete"): STORED, ("/v1/responses/{id}/cancel", "post"): STORED,
    ("/v1/responses/{id}/input_items", "get"): STORED,
    ("/v1/messages", "post"): ANTHROPIC, ("/v1/messages/count_tokens", "post"): ("anthropic (Python, Node)", "anthropic_client"),
    ("/v1/embeddings", "post"): ("openai (Python), ai, langchain-openai, llama-index", f"{POOLS}, ai_sdk, frameworks, real:more_clients"),
    ("/v1/models", "get"): ("openai, anthropic (Python, Node)", "openai_client, anthropic_client, engine_control"),
    ("/v1/models/{id}", "get"): ("openai, anthropic (Python, Node)", "openai_client, anthropic_client, engine_control"),
    ("/v1/models/{id}/ready", "get"): ("–", "http_api, dynamo_move_in"),
    ("/v1/rerank", "post"): RERANK, ("/v2/rerank", "post"): RERANK, ("/rerank", "post"): RERANK,
    ("/inference/v1/generate", "post"): ("–", "token_api"), ("/generate", "post"): ("–", "token_api, other_servers"),
    **{(path, "post"): ("–", "other_servers") for path in ("/", "/generate_stream", "/embed", "/embed_all", "/predict", "/similarity", "/v2/embed")},
    **{(path, "get"): ("–", "other_servers") for path in ("/info", "/version", "/ping")},
    ("/tokenize", "post"): ("–", "http_api, tokenize"), ("/detokenize", "post"): ("–", "http_api, tokenize"),
    ("/receipts/{id}", "get"): ("–", "receipts"), ("/busy_threshold", "get"): ("–", "queue, openapi"), ("/busy_threshold", "post"): ("–", "queue, openapi"),
    ("/metrics", "get"): ("Prometheus", "dynamo_dashboards, dynamo_metrics, dashboards"),
}
PREFIXES = [("/v1/files", BATCHES), ("/v1/batches", BATCHES), ("/v2", KSERVE)]
POOLED = ("–", POOLS)


def held(path: str, method: str) -> tuple[str, str]:
    if (path, method) in HELD:
        return HELD[(path, method)]
    for prefix, row in PREFIXES:
        if path.startswith(prefix):
            return row
    return POOLED if method == "post" else ("–", "openapi, http_api")


def fields(operation: dict, schemas: dict) -> str:
    bodies = operation.get("requestBody", {}).get("content", {})
    if not bodies:
        return ", ".join(f"`{parameter['name']}`" for parameter in operation.get("parameters", []))
    schema = next(iter(bodies.values()))["schema"]

    def whole(of: dict) -> dict:
        return schemas[of["$ref"].rsplit("/", 1)[1]] if "$ref" in of else of

    schema = whole(schema)
    refused = set(schema.get("x-stator-refused", []))
    names = {name for form in [schema, *map(whole, schema.get("anyOf", []))] for name in form.get("properties", {})}
    return ", ".join(f"~~`{name}`~~" if name in refused else f"`{name}`" for name in sorted(names | refused))


def page(openapi: dict) -> str:
    out, seen = HEAD + "| Route | Fields | Clients | Tests |\n|---|---|---|---|\n", {}
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            named = fields(operation, openapi["components"]["schemas"])
            route = f"{method.upper()} `{path}`"
            said = f"as {seen[named]}" if named.count(",") > 3 and named in seen else named or "–"
            seen.setdefault(named, f"`{path}`")
            clients, tests = held(path, method)
            out += f"| {route} | {said} | {clients} | {tests} |\n"
    return out + ("\ngRPC: `inference.GRPCInferenceService` by tritonclient (gRPC), `kserve`. WebSockets: `GET /v1/responses` by openai (Python) and "
                  "`websockets`, `websocket`.\nHTTP/2: curl, nghttp, httpx, h2spec: `http2`, `scripts/test_http2.sh`.\n")


def read_openapi() -> dict:
    with tempfile.TemporaryDirectory() as folder:
        served = Serve("--batches-folder", folder)
        try:
            return served.http.get("/openapi.json")[1]
        finally:
            served.close()


class Conformance(unittest.TestCase):
    def test_the_page_is_what_the_server_says(self):
        self.assertEqual(PAGE.read_text(), page(read_openapi()), "run: tests/e2e/conformance_test.py --write")

    def test_every_test_it_names_is_there(self):
        for row in PAGE.read_text().splitlines():
            if row.startswith("| ") and not row.startswith("| Route"):
                for name in row.rstrip(" |").rsplit("|", 1)[1].strip().split(", "):
                    folder, name = ("real_clients", name.removeprefix("real:")) if name.startswith("real:") else ("e2e", name)
                    self.assertTrue((TESTS / folder / f"{name}_test.py").is_file(), f"{name} in {row}")


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(read_openapi()))
    else:
        unittest.main()
