# SPDX-License-Identifier: Apache-2.0
"""What is asked of each engine: names, routes and bodies. Prompts are made-up ids, the same on every run."""

from __future__ import annotations

import random
from collections.abc import Iterator

DIALECTS = ("vllm", "sglang", "trtllm", "llamacpp")
MESSAGES = [{"role": "user", "content": "What is the weather in Oslo?"}]
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}}, "required": ["city"]}}}
USAGE = {"include_usage": True}


def prompt(length: int, vocab_size: int, seed: int = 0) -> list[int]:
    draw = random.Random(f"{length}/{seed}")
    return [1] + [draw.randrange(300, vocab_size) for _ in range(length - 1)]


def get(name: str, path: str) -> dict:
    return {"name": name, "method": "GET", "path": path}


def post(name: str, path: str, body: object, **more) -> dict:
    return {"name": name, "method": "POST", "path": path, "body": body, **more}


def http_requests(dialect: str, model: str, vocab_size: int) -> list[dict]:
    ids = prompt(40, vocab_size)
    return {"vllm": vllm, "sglang": sglang, "trtllm": trtllm, "llamacpp": llamacpp}[dialect](model, ids)


def openai(model: str, ids: list[int], **extra) -> list[dict]:
    """The requests every engine with OpenAI routes takes."""
    text = {"model": model, "prompt": ids, "max_tokens": 8, "temperature": 0} | extra
    chat = {"model": model, "messages": MESSAGES, "max_tokens": 6, "temperature": 0}
    completions, chats = "/v1/completions", "/v1/chat/completions"
    return [
        get("info-v1-models", "/v1/models"),
        get("info-health", "/health"),
        get("info-metrics", "/metrics"),
        post("completions-nonstream", completions, text),
        post("completions-stream", completions, text | {"stream": True, "stream_options": USAGE}),
        post("completions-logprobs", completions, text | {"logprobs": 2}),
        post("completions-text-prompt", completions, text | {"prompt": "Hello world"}),
        post("completions-stop-string", completions, text | {"stop": ["e", "a"]}),
        post("chat-nonstream", chats, chat),
        post("chat-stream", chats, chat | {"stream": True, "stream_options": USAGE}),
        post("chat-logprobs", chats, chat | {"logprobs": True, "top_logprobs": 1}),
        post("error-bad-json", completions, '{"model": "x", '),
        post("error-type", completions, text | {"max_tokens": "many"}),
        post("error-temperature", completions, text | {"temperature": -1}),
        post("error-empty-prompt", completions, text | {"prompt": []}),
        get("error-404", "/no/such/path"),
        post("abort-disconnect-stream", completions, text | {"max_tokens": 500, "ignore_eos": True, "stream": True},
             cut_after=1500),
    ]


def vllm(model: str, ids: list[int]) -> list[dict]:
    text = {"model": model, "prompt": ids, "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    generate = {"model": model, "token_ids": ids, "sampling_params": {"temperature": 0.0, "max_tokens": 6, "logprobs": 1}}
    path = "/v1/completions"
    return openai(model, ids, return_token_ids=True) + [
        *(get(f"info-{p}", f"/{p}") for p in ("version", "load", "kv_event_sources", "is_sleeping")),
        post("tokenize-text", "/tokenize", {"model": model, "prompt": "Hello world", "return_token_strs": True}),
        post("detokenize", "/detokenize", {"model": model, "tokens": ids[:3]}),
        post("completions-n2-stream", path, text | {"n": 2, "temperature": 1.0, "seed": 5, "stream": True}),
        post("completions-prompt-logprobs", path, text | {"prompt": ids[:5], "prompt_logprobs": 1}),
        post("completions-stream-interval", path, text | {"stream": True, "stream_interval": 4}),
        post("completions-choice", path, text | {"structured_outputs": {"choice": ["yes", "no"]}}),
        post("chat-tools-required", "/v1/chat/completions", {
            "model": model, "messages": MESSAGES, "tools": [TOOL], "tool_choice": "required", "max_tokens": 60}),
        post("generate-stream", "/inference/v1/generate", generate | {"stream": True, "stream_options": USAGE}),
        post("generate-nonstream", "/inference/v1/generate", generate),
        post("error-unknown-model", path, text | {"model": "no-such-model"}),
        post("error-logprobs-too-many", path, text | {"logprobs": 100}),
        post("error-dp-rank", path, text, headers={"X-data-parallel-rank": "99"}),
        post("prefill-leg", path, text | {"max_tokens": 1, "kv_transfer_params": {
            "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
            "remote_host": None, "remote_port": None}}),
    ]


def sglang(model: str, ids: list[int]) -> list[dict]:
    # No id outside the vocabulary: it ends a server on a CPU.
    def body(**fields) -> dict:
        sampling = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}
        return {"input_ids": ids, "sampling_params": sampling} | fields
    return openai(model, ids) + [
        *(get(f"info-{p.replace('/', '-')}", f"/{p}") for p in ("model_info", "server_info", "v1/loads")),
        post("generate-stream", "/generate", body(rid="r-1", stream=True)),
        post("generate-nonstream", "/generate", body(rid="r-2", return_logprob=True, top_logprobs_num=2,
                                                     logprob_start_len=36)),
        post("generate-regex", "/generate", body(sampling_params={"max_new_tokens": 30, "temperature": 0,
                                                                 "regex": "(yes|no)"})),
        post("error-no-input", "/generate", {"sampling_params": {}}),
        post("abort-request-unknown", "/abort_request", {"rid": "none"}),
        post("flush-cache", "/flush_cache", None),
    ]


def trtllm(model: str, ids: list[int]) -> list[dict]:
    text = {"model": model, "prompt": ids, "max_tokens": 8, "temperature": 0, "detokenize": False}
    return openai(model, ids) + [
        get("info-version", "/version"),
        post("kv-cache-events", "/kv_cache_events", {}),
        post("completions-token-ids", "/v1/completions", text),
        post("context-leg", "/v1/completions", text | {
            "max_tokens": 1, "disaggregated_params": {"request_type": "context_only"}}),
        post("error-unknown-member", "/v1/completions", text | {"no_such_member": 1}),
    ]


def llamacpp(model: str, ids: list[int]) -> list[dict]:
    body = {"prompt": ids, "n_predict": 8, "temperature": 0, "return_tokens": True}
    return openai(model, ids) + [
        *(get(f"info-{p}", f"/{p}") for p in ("props", "slots")),
        post("tokenize", "/tokenize", {"content": "Hello world"}),
        post("detokenize", "/detokenize", {"tokens": ids[:3]}),
        post("completion-stream", "/completion", body | {"stream": True}),
        post("completion-nonstream", "/completion", body | {"n_probs": 2}),
        post("error-n-predict", "/completion", body | {"n_predict": "many"}),
    ]


def one(dialect: str, model: str, ids: list[int], **fields) -> dict:
    """A request that stores the prompt's blocks."""
    if dialect == "sglang":
        return post("", "/generate", {"input_ids": ids, "sampling_params": {"max_new_tokens": 1}} | fields)
    return post("", "/v1/completions", {"model": model, "prompt": ids, "max_tokens": 1} | fields)


def warm_ups(dialect: str, model: str, vocab_size: int) -> Iterator[dict]:
    for seed in range(1000, 2000):
        yield one(dialect, model, prompt(64, vocab_size, seed))


def event_script(dialect: str, model: str, vocab_size: int) -> list[dict]:
    """Steps that provoke KV events, in this order."""
    first = prompt(100, vocab_size)
    clear = post("", "/flush_cache", None) if dialect == "sglang" else post("", "/reset_prefix_cache", None)
    steps = [
        ("01-store-100-tokens", [one(dialect, model, first)]),
        ("02-continuation", [one(dialect, model, first + prompt(64, vocab_size, 1)[1:])]),
        ("03-prefix-hit", [one(dialect, model, first)]),
        ("04-cache-salt", [one(dialect, model, first, cache_salt="stator-salt:abc")]),
        ("05-many-prompts", [one(dialect, model, prompt(500, vocab_size, s)) for s in range(12)]),
        ("06-clear", [clear]),
        ("07-store-after-clear", [one(dialect, model, prompt(64, vocab_size, 2))]),
    ]
    return [{"name": name, "requests": requests} for name, requests in steps]
