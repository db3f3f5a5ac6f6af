#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns published chat templates into goldens/rendered.json.

usage: make_rendered.py FOLDER > goldens/rendered.json      (needs jinja2)

What a template writes for a finished assistant message is what its model was taught to write. So
the message that went into the template is what parsing its text must give back. FOLDER holds
NAME.jinja as collected by ggml-org/llama.cpp (models/templates).
"""

import datetime
import json
import pathlib
import re
import sys

import jinja2.exceptions
import jinja2.ext
import jinja2.sandbox

# How the arguments are spelled by the parser: as the template wrote them; compact; or an object put
# together from values as the template wrote them. Gemma's template sorts the keys.
RAW, COMPACT, SORTED, MEMBERS = "raw", "compact", "sorted", "members"

TEMPLATES = {  # tool family, reasoning family, spelling, template variables
    "Apertus-8B-Instruct": ("apertus", "apertus", RAW, {}),
    "ByteDance-Seed-OSS": ("seed_oss", "seed_oss", MEMBERS, {}),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("cohere", "cohere_cmd", RAW, {"enable_thinking": True}),
    "GLM-4.6": ("glm45", "glm45", MEMBERS, {}),
    "Kimi-K2-Instruct": ("kimi_k2", "none", RAW, {}),
    "LFM2.5-8B-A1B": ("lfm2", "basic", COMPACT, {}),
    "MiniMax-M1": ("jamba", "none", RAW, {}),
    "MiniMax-M2": ("minimax_m2", "minimax_m2", MEMBERS, {}),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral", "none", RAW, {}),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("qwen3_coder", "nemotron_nano", MEMBERS, {}),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", "none", RAW, {}),
    "Qwen-Qwen3-0.6B": ("hermes", "qwen3", RAW, {}),
    "Qwen3-Coder": ("qwen3_coder", "none", MEMBERS, {}),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek_v3_1", "none", RAW, {"thinking": False}),
    "deepseek-ai-DeepSeek-V3.2": ("deepseek_v3_2", "deepseek_v3_2", MEMBERS, {"thinking": True}),
    "deepseek-ai-DeepSeek-V4": ("deepseek_v4", "deepseek_v4", MEMBERS, {"thinking": True}),
    "google-gemma-4-31B-it-interleaved": ("gemma4", "gemma4", SORTED, {"enable_thinking": True}),
    "ibm-granite-granite-4.0": ("granite", "none", RAW, {}),
    "meetkai-functionary-medium-v3.1": ("functionary_v3_1", "none", RAW, {}),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", "none", RAW, {}),
    "openai-gpt-oss-120b": ("harmony", "gpt_oss", RAW, {}),
    "unsloth-Apriel-1.5": ("jamba", "none", RAW, {}),
}
ENDS = ["<|im_end|>", "<turn|>", "<|tool_response>", "<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        "<|assistant_end|>", "<｜end▁of▁sentence｜>", "<｜Assistant｜>", "<think>", "<|call|>", "<|return|>",
        "[e~[", "<seed:eos>", "<|end_of_text|>", "</s>", "<|eom_id|>", "<|eot_id|>", "<|end|>",
        "<end_of_sentence>"]

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "City"},
        "days": {"type": "integer", "description": "Days"},
        "rate": {"type": "number", "description": "Rate"},
        "ok": {"type": "boolean", "description": "Sure"},
        "tags": {"type": "array", "description": "Tags", "items": {"type": "string"}},
        "where": {"type": "object", "description": "Place", "properties": {"a": {"type": "integer"}}},
    },
    "required": ["city"],
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": PARAMETERS}}
    for name in ("get_weather", "search")
]
PLAIN = {"city": "Oslo, ß 東京 🌆", "days": -3, "ok": True}
# No quotes and backslashes: not every template escapes them.
RICH = {"city": " <b>{1}</b> [2] &amp; 42%\n", "days": 100000000000000000000, "rate": 0.25, "ok": False,
        "tags": ["null", "a, b"], "where": {"a": 7, "b": {"c": ["</x>"]}}}
MESSAGES = {  # what to render: content, reasoning, calls
    "answer": ("The answer: 1 < 2.", "Think\n\nfirst.", []),
    "one call": ("", "", [("get_weather", PLAIN)]),
    "text and a call": ("Let me look.", "", [("search", RICH)]),
    "two calls": ("", "Two of them.", [("get_weather", PLAIN), ("search", RICH)]),
}


def environment():
    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = fail
    env.globals["strftime_now"] = lambda form: datetime.datetime(2026, 1, 1).strftime(form)
    return env


def message_of(content, reasoning, calls, as_text):
    message = {"role": "assistant", "content": content}
    if reasoning:
        message.update(reasoning_content=reasoning, thinking=reasoning)
    if calls:
        message["tool_calls"] = [
            {"id": f"abcdefgh{i}", "type": "function",
             "function": {"name": name, "arguments": dump(arguments) if as_text else arguments}}
            for i, (name, arguments) in enumerate(calls)
        ]
    return message


def dump(value, separators=None):
    return json.dumps(value, ensure_ascii=False, separators=separators)


def spell(arguments, spelling, text):
    if spelling == SORTED:
        arguments = dict(sorted(arguments.items()))
    if spelling in (COMPACT, SORTED):
        return dump(arguments, (",", ":"))
    written = lambda value: next(
        (one for one in (dump(value), dump(value, (",", ":"))) if one in text),
        dump(value, (",", ":")))
    if spelling == MEMBERS:
        return "{" + ",".join(f"{dump(key)}:{written(value)}" for key, value in arguments.items()) + "}"
    return written(arguments)


def with_space(content, text):
    """White space around content is content, but for one line break behind the reasoning's end."""
    found = re.search(r"\s*" + re.escape(content) + r"\s*", text)
    at = found.start()
    return found[0][1:] if found[0].startswith("\n") and at > 0 and text[at - 1] == ">" else found[0]


def without_ends(text):
    while True:
        bare = text.rstrip()
        end = next((end for end in ENDS if bare.endswith(end)), None)
        if end is None:
            return text
        text = bare[: -len(end)]


def rendered(template, message, variables):
    """What the template adds for the message to what it prompts the model with."""
    user = [{"role": "user", "content": "Hi"}]
    common = {"bos_token": "", "eos_token": "</s>", "tools": TOOLS, **variables}
    prompt = template.render(messages=user, add_generation_prompt=True, **common)
    whole = template.render(messages=user + [message], add_generation_prompt=False, **common)
    same = 0
    while same < min(len(prompt), len(whole)) and prompt[same] == whole[same]:
        same += 1
    return without_ends(whole[same:]), prompt[:same].rstrip().endswith("<think>")


def case_of(name, kind, template):
    tools, reasoning_family, spelling, variables = TEMPLATES[name]
    content, reasoning, calls = MESSAGES[kind]
    reasoning = reasoning if reasoning_family != "none" else ""
    if name == "openai-gpt-oss-120b" and (calls and reasoning or len(calls) > 1):
        return None  # the template writes no such turn
    for as_text in (False, True):
        try:
            text, inside = rendered(template, message_of(content, reasoning, calls, as_text), variables)
            break
        except (jinja2.exceptions.TemplateError, TypeError, ValueError):
            continue
    else:
        return None
    if name == "openai-gpt-oss-120b" and calls:
        content, reasoning = "", content  # it calls the text before a call analysis
    case = {"name": f"{name}: {kind}", "family": tools, "reasoning": reasoning_family,
            "start": "inside" if inside else "on", "text": text}
    if content and content in text:
        case["content"] = with_space(content, text)
    if reasoning and reasoning in text:
        case["reasoning_content"] = reasoning
    if calls:
        case["calls"] = [{"name": tool, "arguments": spell(arguments, spelling, text)} for tool, arguments in calls]
    return case


def main():
    env = environment()
    cases = []
    for name in TEMPLATES:
        source = (pathlib.Path(sys.argv[1]) / f"{name}.jinja").read_text()
        template = env.from_string(re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", source))
        cases += filter(None, (case_of(name, kind, template) for kind in MESSAGES))
    lines = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in cases)
    print(f'{{\n "tools": {dump(TOOLS)},\n "cases": [\n  {lines}\n ]\n}}')


if __name__ == "__main__":
    main()
