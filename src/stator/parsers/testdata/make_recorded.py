#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns recorded engine streams into goldens/recorded.json.

usage: make_recorded.py FOLDER > goldens/recorded.json

FOLDER holds streams as published by ai-dynamo/dynamo (Apache-2.0) in lib/llm/tests/data: files
ENGINE/MODEL/*.json with the deltas and the expected message, and replays/*.jsonl with deltas alone.

The recorded expectations keep the line breaks around reasoning markers and re-write arguments; ours
trims one line break at each marker, drops white space before calls and keeps the arguments' text.
"""

import json
import pathlib
import sys

FAMILIES = {  # by folder: tool family, reasoning family, how reasoning begins
    "deepseek-v3": ("deepseek_v3", "deepseek_v3", "inside"),
    "deepseek-v3.1": ("deepseek_v3_1", "deepseek_v3_1", "inside"),
    "gpt-oss-20b": ("harmony", "gpt_oss", "on"),
    "qwen3-0.6B": ("hermes", "qwen3", "on"),
}
# Streams without a usable expectation: what they mean, worked out by hand.
BY_HAND = {
    "chat_completion_incomplete_tool": {
        "start": "inside",
        "reasoning_content": " the requested format.",
        "end": "length",
        "finish": "length",
        "recoveries": ["truncated_call"],
    },
    "chat_completion_stream_finish_length": {
        "reasoning_content": "Okay, the user is asking for the weather in",
        "end": "length",
        "finish": "length",
    },
    "stream_interval_1": {
        "reasoning_content": "Okay.",
        "content": "\nThe capital of Tuvalu.",
    },
    "stream_interval_20": {},
}


def deltas_of(chunks):
    for chunk in chunks:
        for choice in (chunk.get("data", chunk) or {}).get("choices", []):
            if choice["delta"].get("content"):
                yield choice["delta"]["content"]


def pieces_of(deltas, harmony):
    special = lambda text: harmony and text.startswith("<|") and text.endswith("|>")
    return [{"special": text} if special(text) else text for text in deltas]


def objects_in(text):
    """Every JSON object in the text, as written."""
    decoder = json.JSONDecoder()
    for at, byte in enumerate(text):
        if byte == "{":
            try:
                value, end = decoder.raw_decode(text, at)
            except ValueError:
                continue
            yield value, text[at:end]


def arguments_in(text, expected):
    wanted = json.loads(expected)
    return next(written for value, written in objects_in(text) if value == wanted)


def unwrap(text, drop_newline=True):
    return text[1:] if drop_newline and text.startswith("\n") else text


def expected_of(record, text):
    expected = record["expected_output"]
    reasoning = unwrap(expected["reasoning_content"]).removesuffix("\n")
    content = unwrap(expected["normal_content"], "</think>" in text)
    calls = [
        {
            "name": call["function"]["name"],
            "arguments": arguments_in(text, call["function"]["arguments"]),
        }
        for call in expected["tool_calls"]
    ]
    result = {"content": "" if calls and not content.strip() else content}
    result["reasoning_content"] = reasoning
    if calls:
        result["calls"] = calls
    return result


def thinking_call(text):
    """<think>, reasoning, </think>, one hermes call."""
    reasoning = text.removeprefix("<think>\n").split("\n</think>")[0]
    call = next(value for value, _ in objects_in(text))
    return {
        "reasoning_content": reasoning,
        "calls": [{"name": call["name"],
                   "arguments": arguments_in(text, json.dumps(call["arguments"]))}],
    }


def case_of(path, folder):
    is_lines = path.suffix == ".jsonl"
    record = None if is_lines else json.loads(path.read_text())
    chunks = map(json.loads, path.read_text().splitlines()) if is_lines else record["input_stream"]
    deltas = list(deltas_of(chunks))
    text = "".join(deltas)
    tools, reasoning, start = FAMILIES.get(path.parent.name, FAMILIES["qwen3-0.6B"])
    case = {
        "name": str(path.relative_to(folder).with_suffix("")),
        "family": tools,
        "reasoning": reasoning,
        "start": start,
        "pieces": pieces_of(deltas, tools == "harmony"),
    }
    if path.stem in BY_HAND:
        case.update(BY_HAND[path.stem] or thinking_call(text))
    else:
        case.update(expected_of(record, text))
    return case


def main():
    folder = pathlib.Path(sys.argv[1])
    paths = sorted(path for kind in FAMILIES for path in folder.glob(f"*/{kind}/*.json"))
    paths += sorted(folder.glob("replays/stream_interval_*.jsonl"))
    cases = [json.dumps(case_of(path, folder), ensure_ascii=False) for path in paths]
    print('{\n "cases": [\n  ' + ",\n  ".join(cases) + "\n ]\n}")


if __name__ == "__main__":
    main()
