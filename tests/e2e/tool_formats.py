# SPDX-License-Identifier: Apache-2.0
"""How models of each family write the same answer: a thought, two calls. Bytes as the models emit them."""

from __future__ import annotations

import dataclasses
import json

WEATHER = {"city": "Zürich \"am See\"", "days": 3, "units": {"temperature": "°C", "wind": ["km/h", None]}}
CLOCK = {"zone": "Europe/Zurich"}
THOUGHT = "The user wants the weather.\nI need two tools."
TEXT = "Let me look."

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Forecast of a city",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "units": {"type": "object"}}}}},
    {"type": "function", "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}},
]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _hermes(name: str, arguments: dict) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {_json(arguments)}}}\n</tool_call>'


def _xml_parameters(arguments: dict, begin: str, end: str) -> str:
    return "".join(
        begin.format(key) + (value if isinstance(value, str) else _json(value)) + end for key, value in arguments.items())


def _qwen_coder(name: str, arguments: dict) -> str:
    return (f"<tool_call>\n<function={name}>\n"
            + _xml_parameters(arguments, "<parameter={}>\n", "\n</parameter>\n") + "</function>\n</tool_call>")


def _minimax(name: str, arguments: dict) -> str:
    return f'<invoke name="{name}">\n' + _xml_parameters(arguments, '<parameter name="{}">', "</parameter>\n") + "</invoke>\n"


def _glm(name: str, arguments: dict) -> str:
    return f"<tool_call>{name}\n" + _xml_parameters(
        arguments, "<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n") + "</tool_call>"


def _kimi(name: str, arguments: dict, number: int) -> str:
    return (f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>"
            f"{_json(arguments)}<|tool_call_end|>")


def _deepseek(name: str, arguments: dict) -> str:
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_json(arguments)}<｜tool▁call▁end｜>"


def _harmony(name: str, arguments: dict) -> str:
    return f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{_json(arguments)}<|call|>"


def _think(begin: str = "<think>\n", end: str = "\n</think>\n") -> str:
    return begin + THOUGHT + end


@dataclasses.dataclass(frozen=True)
class Family:
    """`reply` is what the model writes; `text` the content that is left of it."""
    tools: str
    reasoning: str
    reply: str
    text: str | None = None
    reasons: bool = True
    asked: dict = dataclasses.field(default_factory=dict)  # further fields of the request


_PYTHONIC = ('[get_weather(city="Zürich \\"am See\\"", days=3, units={"temperature": "°C", "wind": ["km/h", None]}), '
             'get_time(zone="Europe/Zurich")]')

FAMILIES = [
    Family("hermes", "qwen3", _think() + TEXT + _hermes("get_weather", WEATHER) + "\n" + _hermes("get_time", CLOCK), TEXT),
    Family("qwen3_coder", "qwen3", _think() + TEXT + _qwen_coder("get_weather", WEATHER) + "\n" + _qwen_coder("get_time", CLOCK),
           TEXT),
    Family("llama3_json", "none",
           f'<|python_tag|>{{"name": "get_weather", "parameters": {_json(WEATHER)}}}; '
           f'{{"name": "get_time", "parameters": {_json(CLOCK)}}}', reasons=False),
    Family("mistral", "mistral",
           _think("[THINK]", "[/THINK]") + TEXT + f"[TOOL_CALLS]get_weather{_json(WEATHER)}[TOOL_CALLS]get_time{_json(CLOCK)}",
           TEXT, asked={"reasoning_effort": "high"}),
    Family("deepseek_v3_1", "deepseek_r1",
           _think("", "\n</think>\n") + TEXT + "<｜tool▁calls▁begin｜>" + _deepseek("get_weather", WEATHER)
           + _deepseek("get_time", CLOCK) + "<｜tool▁calls▁end｜>", TEXT),
    Family("kimi_k2", "kimi_k25",
           _think("") + TEXT + "<|tool_calls_section_begin|>" + _kimi("get_weather", WEATHER, 0) + _kimi("get_time", CLOCK, 1)
           + "<|tool_calls_section_end|>", TEXT),
    Family("pythonic", "none", _PYTHONIC, reasons=False),
    Family("harmony", "gpt_oss",
           f"<|channel|>analysis<|message|>{THOUGHT}<|end|>"
           f"<|start|>assistant<|channel|>final<|message|>{TEXT}<|end|>"
           + _harmony("get_weather", WEATHER) + _harmony("get_time", CLOCK), TEXT),
    Family("glm45", "glm45", _think() + TEXT + _glm("get_weather", WEATHER) + "\n" + _glm("get_time", CLOCK), TEXT),
    Family("minimax_m2", "minimax_m2",
           _think("") + TEXT + "<minimax:tool_call>\n" + _minimax("get_weather", WEATHER) + _minimax("get_time", CLOCK)
           + "</minimax:tool_call>", TEXT),
]
