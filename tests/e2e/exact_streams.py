# SPDX-License-Identifier: Apache-2.0
"""Streams that can be compared token by token: what tests of faults ask for, and what a client can see of the answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time

from stator_process import MODEL

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class Answer:
    """One streamed answer: what a client can see of it, and when its tokens came."""

    def __init__(self):
        self.events: list[str] = []
        self.status = 0
        self.error = ""
        self.arrivals: list[float] = []

    def visible(self) -> dict:
        """What the client got, choice by choice, however it was cut into chunks and in whatever order choices came."""
        seen: dict = {}
        for data in self.events:
            if data == "[DONE]":
                continue
            chunk = json.loads(data)
            for choice in chunk["choices"]:
                into = seen.setdefault(choice["index"], {"text": "", "logprobs": {}, "finish": None})
                delta = choice.get("delta") or {}
                into["text"] += (delta.get("content") or "") + (choice.get("text") or "")
                for name, per_token in (choice.get("logprobs") or {}).items():
                    into["logprobs"].setdefault(name, []).extend(per_token or [])
                into["finish"] = choice.get("finish_reason") or into["finish"]
            if chunk.get("usage"):
                # Not what the cache had: that depends on where the request ran.
                seen["usage"] = {k: chunk["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")}
        return seen


def ask(port: int, path: str, body: dict) -> Answer:
    answer = Answer()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", path, json.dumps(body | {"stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer.status = response.status
        for raw in response:
            line = raw.decode().strip()
            if line.startswith("event: error"):
                answer.error = line
            if line.startswith("data:"):
                answer.events.append(line[5:].strip())
                answer.arrivals.append(time.monotonic())
    except (OSError, http.client.HTTPException) as e:
        answer.error = repr(e)
    finally:
        connection.close()
    if answer.status != 200 or not answer.events or answer.events[-1] != "[DONE]" or '"error"' in answer.events[-2]:
        answer.error = answer.error or f"{answer.status}: {answer.events[-2:]}"
    return answer


def bodies(max_tokens: int) -> list[tuple[str, dict]]:
    """Requests that differ in everything a seam could break."""
    def chat(text: str, **fields):
        return CHAT, {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens,
                      "ignore_eos": True} | fields
    usage = {"include_usage": True}
    return [
        chat("What is a KV cache?", temperature=0, stream_options=usage),
        chat("Write about rivers.", temperature=0.9, seed=7, logprobs=True, top_logprobs=3),
        chat("Tell me a story of a lighthouse, please.", temperature=1.2, top_p=0.9, seed=11, n=2),
        chat("Count the stars.", temperature=0.8, top_k=40, seed=3, frequency_penalty=0.7, presence_penalty=0.5,
             stream_options=usage | {"continuous_usage_stats": True}),
        chat("Say it again.", temperature=0, repetition_penalty=1.3, min_tokens=max_tokens // 2, logprobs=True),
        (COMPLETIONS, {"model": MODEL, "prompt": ["Once upon a time", "In the beginning"], "max_tokens": max_tokens,
                       "temperature": 0.7, "seed": 5, "ignore_eos": True, "echo": True}),
        (COMPLETIONS, {"model": MODEL, "prompt": "The quick brown", "max_tokens": max_tokens, "temperature": 0.7, "seed": 9,
                       "ignore_eos": True, "logprobs": 2}),
    ]


@contextlib.contextmanager
def load(port: int, kinds: list[tuple[str, dict]], streams: int):
    """Keeps `streams` streams running until the block ends; collects (kind, answer) of all that ended."""
    answers: list[tuple[int, Answer]] = []
    running = threading.Event()
    running.set()

    def client(first: int):
        kind = first
        while running.is_set():
            answers.append((kind % len(kinds), ask(port, *kinds[kind % len(kinds)])))
            kind += 1

    threads = [threading.Thread(target=client, args=(i,)) for i in range(streams)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        running.clear()
        for thread in threads:
            thread.join()
