#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks real engine servers through Stator and directly, and compares: greedy text must be equal.

    equality.py --stator URL --direct URL [--dialect vllm|sglang] [--prompts 200] [--report FILE]

Each prompt is asked directly and through Stator, as a completion and as a chat, in one piece and streamed; then with
log-probabilities, with a stop string taken from the answer, and with a tool in the prompt. (A forced call is not compared: Stator
asks for arguments that fit the tool's schema, vLLM by itself only for the frame around them.) One request at a time, because a
CPU's arithmetic may depend on the batch. Exits 1 if anything differs.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time

import openai

WORDS = ("cache key value token block prompt route worker engine stream batch layer head page memory queue model weight score "
         "index prefix suffix hash chain lease event shard loop timer thread").split()
PARAMETERS = {"type": "object", "required": ["city", "days"], "additionalProperties": False,
              "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "enum": [1, 2]}}}
FUNCTION = {"name": "book", "description": "Books a room.", "parameters": PARAMETERS}
# With every member that the server knows: those that a tool lacks it adds as null, where Stator gives the chat template what the
# client sent.
TOOLS = {"vllm": {"type": "function", "function": FUNCTION},
         "sglang": {"type": "function", "function": FUNCTION, "defer_loading": None}}


class Side:
    """One server as the official client sees it."""

    def __init__(self, url: str, model: str, dialect: str):
        self.tool = TOOLS[dialect]
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)
        self.model = model

    def completion(self, prompt: str, **fields) -> dict:
        answer = self.client.completions.create(model=self.model, prompt=prompt, temperature=0, **fields)
        choice = answer.choices[0]
        return {"text": choice.text, "finish": choice.finish_reason, "tokens": answer.usage.completion_tokens,
                "prompt_tokens": answer.usage.prompt_tokens}

    def completion_stream(self, prompt: str, **fields) -> dict:
        text, finish = "", None
        for chunk in self.client.completions.create(model=self.model, prompt=prompt, temperature=0, stream=True, **fields):
            for choice in chunk.choices:
                text += choice.text
                finish = choice.finish_reason or finish
        return {"text": text, "finish": finish}

    def chat(self, prompt: str, **fields) -> dict:
        answer = self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": prompt}], temperature=0, **fields)
        choice = answer.choices[0]
        out = {"text": choice.message.content, "finish": choice.finish_reason, "tokens": answer.usage.completion_tokens,
               "prompt_tokens": answer.usage.prompt_tokens}
        if choice.logprobs is not None:
            # SGLang decodes each token alone, which loses the space before it.
            out["logprobs"] = [[entry.token.strip(), round(entry.logprob, 2), len(entry.top_logprobs)] for entry in choice.logprobs.content]
        if choice.message.tool_calls:
            out["calls"] = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls]
        return out

    def chat_stream(self, prompt: str, **fields) -> dict:
        text, finish = "", None
        for chunk in self.client.chat.completions.create(
                model=self.model, messages=[{"role": "user", "content": prompt}], temperature=0, stream=True, **fields):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
        return {"text": text, "finish": finish}


def prompts(count: int) -> list[str]:
    source = random.Random(7)
    return [f"{i} " + " ".join(source.choices(WORDS, k=source.randint(3, 120))) for i in range(count)]


def ask(side: Side, kind: str, prompt: str, length: int, stop: str | None) -> dict:
    if kind == "logprobs":
        return side.chat(prompt, max_tokens=length, logprobs=True, top_logprobs=3)
    if kind == "stop":
        return side.completion(prompt, max_tokens=length, stop=[stop])
    if kind == "tools":
        return side.chat(prompt, max_tokens=length, tools=[side.tool])
    return getattr(side, kind)(prompt, max_tokens=length)


def alike(expected: dict, got: dict) -> bool:
    """Equal but for tokens that are a part of a character: Stator shows U+FFFD and the bytes, vLLM nothing, and the whole with the last part."""
    theirs, ours = expected.get("logprobs") or [], got.get("logprobs") or []
    for mine, other in zip(ours, theirs):
        if "\ufffd" in mine[0]:
            other[0] = mine[0]
    return expected == got


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stator", required=True)
    parser.add_argument("--direct", required=True)
    parser.add_argument("--model", default="m")
    parser.add_argument("--dialect", choices=TOOLS, default="vllm", help="whose way of writing tools both are asked in")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--every", type=int, default=5, help="logprobs, stop and tools for every so many-th prompt")
    parser.add_argument("--report")
    arguments = parser.parse_args()
    ours, direct = (Side(url, arguments.model, arguments.dialect) for url in (arguments.stator, arguments.direct))
    equal: collections.Counter = collections.Counter()
    asked: collections.Counter = collections.Counter()
    skipped: collections.Counter = collections.Counter()
    examples: list[str] = []
    begin = time.monotonic()
    for i, prompt in enumerate(prompts(arguments.prompts)):
        length = 8 + i % 25
        kinds = ["completion", "completion_stream", "chat", "chat_stream"]
        stop = None
        if i % arguments.every == 0:
            whole = direct.completion(prompt, max_tokens=length)["text"]
            stop = whole[len(whole) // 2:len(whole) // 2 + 3]
            kinds += ["logprobs", "tools"] + (["stop"] if stop.strip() else [])
        for kind in kinds:
            try:
                expected = ask(direct, kind, prompt, length, stop)
            except openai.BadRequestError as refused:
                skipped[f"{kind}: {refused.body}"] += 1  # the server was started without it
                continue
            got = ask(ours, kind, prompt, length, stop)
            asked[kind] += 1
            if alike(expected, got):
                equal[kind] += 1
            elif len(examples) < 5:
                examples.append(f"{kind}, prompt {i}:\n  direct {expected}\n  stator {got}")
    took = time.monotonic() - begin
    lines = ["| what | equal | asked |", "|---|---|---|"]
    lines += [f"| {kind} | {equal[kind]} | {asked[kind]} |" for kind in asked]
    report = "\n".join(lines + ["", f"{sum(asked.values())} pairs in {took:.0f} s."] + [f"Not asked, {n} times: {why}" for why, n in skipped.items()] + ["", *examples])
    print(report)
    if arguments.report:
        with open(arguments.report, "w", encoding="utf-8") as file:
            file.write(report + "\n")
    return 0 if equal == asked else 1


if __name__ == "__main__":
    sys.exit(main())
