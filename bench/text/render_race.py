#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Races chat template rendering: Stator against Python Jinja2 and minijinja.

    python bench/text/render_race.py --loop BUILD/src/stator/chat_template/stator_render_loop \\
        --templates FOLDER [--rounds 9] [NAME...]

FOLDER holds published templates as NAME.jinja. Needs the Python packages jinja2 and minijinja.
One conversation of 50 messages and 8 tools (about 31 KB of prompt). All sides render the same
conversation; the bytes must be equal to Jinja2's before anything is timed. Stator starts from the
request's JSON text, the peers from Python objects that are already parsed. The sides take turns in
every round, so that a busy machine slows all of them; printed are the medians of the rounds, and as
ratios the medians of the rounds' own ratios.

minijinja's own tojson does not write what Hugging Face's does, so its bytes may differ; it is timed
as it comes, and once more with a Python tojson that makes the bytes equal.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone

import jinja2
import jinja2.ext
import minijinja
from jinja2.sandbox import ImmutableSandboxedEnvironment

NAMES = ["Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", "Qwen-Qwen2.5-7B-Instruct",
         "deepseek-ai-DeepSeek-V3.1", "openai-gpt-oss-120b"]
WORDS = ("the of and a to in is you that it he was for on are as with his they I at be this have "
         "from or one had by word but not what all were we when your can said there use an each "
         "which she do how their if will up other about out many then them these so some her would "
         "make like him into time has look two more write go see number no way could people").split()
NOW = datetime.now(timezone.utc)


def prose(seed, length):
    """English-looking text of `length` characters, always the same for a seed."""
    text, state = "", seed * 2654435761 + 12345
    while len(text) < length:
        state = (state * 1103515245 + 12345) % 2**31
        text += WORDS[state // 65536 % len(WORDS)] + (".\n" if state % 97 == 0 else " ")
    return text[:length]


def conversation():
    tools = [{"type": "function", "function": {
        "name": f"tool_{i}",
        "description": "Look up a thing and return a JSON object with the result of the search, in a stable order.",
        "parameters": {"type": "object", "properties": {
            "query": {"type": "string", "description": "what to look for"},
            "limit": {"type": "integer", "description": "maximum results"},
            "filters": {"type": "object", "properties": {"from": {"type": "string"},
                                                         "to": {"type": "string"}}}},
            "required": ["query"]}}} for i in range(8)]
    messages = [{"role": "system", "content": "You are a careful assistant. " + prose(1, 600)}]
    while len(messages) < 50:
        at = len(messages)
        text = prose(at + 1, 600)
        if at % 5 == 2:
            messages.append({"role": "assistant", "content": "", "tool_calls": [
                {"id": f"call_{at}", "type": "function", "function": {
                    "name": "tool_1", "arguments": {"query": text[:60], "limit": 5}}}]})
        elif at % 5 == 3:
            messages.append({"role": "tool", "content": text, "tool_call_id": f"call_{at - 1}"})
        elif at % 5 == 4:
            messages.append({"role": "assistant", "content": text})
        else:
            messages.append({"role": "user", "content": text})
    return messages, tools


def raise_exception(message):
    raise ValueError(message)


def strftime_now(form):
    return NOW.strftime(form)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def make_jinja2(source, variables):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    compiled = env.from_string(source)
    return lambda: compiled.render(**variables)


def make_minijinja(source, variables, python_tojson):
    env = minijinja.Environment(templates={"t": source}, trim_blocks=True, lstrip_blocks=True)
    env.add_global("raise_exception", raise_exception)
    env.add_global("strftime_now", strftime_now)
    if python_tojson:
        env.add_filter("tojson", tojson)
    return lambda: env.render_template("t", **variables)


class Native:
    """stator_render_loop with one template."""

    def __init__(self, loop, template, messages, tools, extra, folder):
        files = {"messages": messages, "tools": tools, "extra": extra}
        for name, value in files.items():
            (folder / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False))
        out = folder / "prompt"
        self.process = subprocess.Popen(
            [loop, template, *(folder / f"{name}.json" for name in files), out],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            sys.exit(f"stator_render_loop could not render {template}")
        self.prompt = out.read_bytes().decode()

    def time(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()) / count

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def time_python(render, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        render()
    return (time.perf_counter_ns() - start) / count


def race(name, options, folder):
    template = pathlib.Path(options.templates) / f"{name}.jinja"
    source = template.read_text()
    messages, tools = conversation()
    extra = {"enable_thinking": True}
    variables = {"messages": messages, "tools": tools, "add_generation_prompt": True,
                 "bos_token": "<s>", "eos_token": "</s>", **extra}
    native = Native(options.loop, template, messages, tools, extra, folder)
    sides = {"jinja2": make_jinja2(source, variables),
             "minijinja": make_minijinja(source, variables, False),
             "minijinja+tojson": make_minijinja(source, variables, True)}
    if sides["jinja2"]() != native.prompt:
        sys.exit(f"{name}: Stator's prompt differs from Jinja2's")
    times = {side: [] for side in ("stator", *sides)}
    for _ in range(options.rounds):
        times["stator"].append(native.time(200) / 1000)
        for side, render in sides.items():
            times[side].append(time_python(render, 20) / 1000)
    native.close()
    median = {side: statistics.median(values) for side, values in times.items()}
    ratio = {side: statistics.median(theirs / ours for theirs, ours in zip(values, times["stator"]))
             for side, values in times.items()}
    equal = sides["minijinja"]() == native.prompt
    print(f"{name:34} {len(native.prompt.encode()):7} {median['stator']:8.1f} {median['jinja2']:8.1f} "
          f"{median['minijinja']:8.1f} {median['minijinja+tojson']:8.1f} "
          f"{ratio['jinja2']:7.1f}x {ratio['minijinja']:7.1f}x"
          f"  {'equal' if equal else 'minijinja differs'}")
    return ratio["jinja2"], ratio["minijinja"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", required=True)
    parser.add_argument("--templates", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("names", nargs="*", default=NAMES)
    options = parser.parse_args()
    print(f"microseconds per render, medians of {options.rounds} alternating rounds; "
          f"jinja2 {jinja2.__version__}")
    print(f"{'template':34} {'bytes':>7} {'stator':>8} {'jinja2':>8} {'minijinja':>8} {'+tojson':>8} "
          f"{'/jinja2':>8} {'/minij.':>8}")
    with tempfile.TemporaryDirectory() as folder:
        ratios = [race(name, options, pathlib.Path(folder)) for name in options.names or NAMES]
    worst = min(r[0] for r in ratios), min(r[1] for r in ratios)
    print(f"worst ratios: {worst[0]:.1f}x Jinja2 (bar 12), {worst[1]:.1f}x minijinja (bar 3)")
    return 0 if worst[0] >= 12 and worst[1] >= 3 else 1


if __name__ == "__main__":
    sys.exit(main())
