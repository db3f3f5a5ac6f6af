#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of `stator serve` per request and per streamed token in other protocols, relative to chat's.

The same prompts in each protocol, one server, runs that alternate; the whole process is counted. Small requests (31 tokens in, 1
out), long ones of a coding agent's shape (a system prompt, tools, turns with calls and their results), and unpaced streams.
"""

import os
import tempfile

import frontend_cpu
import measure

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
BAR = 1.2
TOOL_COUNT = 5
TURNS = 10
LINE = "the worker computes the prompt, the router remembers which blocks it has, and the next turn finds them again"


def add_options(parser):
    parser.add_argument("--runs", type=int, default=5, help="medians of so many, alternating [5]")
    parser.add_argument("--requests", type=int, default=20000, help="small requests per run [20000]")
    parser.add_argument("--long-requests", type=int, default=400, help="long requests per run [400]")
    parser.add_argument("--streams", type=int, default=640, help="streamed answers per run [640]")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--parallel-streams", type=int, default=64)
    parser.add_argument("--stream-tokens", type=int, default=256)
    parser.add_argument("--prompt-tokens", type=int, default=31)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")


def schema(index):
    properties = {f"field_{k}": {"type": "string", "description": LINE} for k in range(4)}
    return {"type": "object", "properties": properties, "required": [f"field_{index % 4}"]}


def agent_chat(model, text):
    messages = [{"role": "system", "content": LINE * 4}, {"role": "user", "content": text}]
    for turn in range(TURNS):
        call = {"id": f"toolu_{turn}", "type": "function", "function": {"name": "tool_0", "arguments": '{"field_0":"x"}'}}
        messages.append({"role": "assistant", "content": LINE, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"toolu_{turn}", "content": LINE * 2})
    tools = [{"type": "function", "function": {"name": f"tool_{i}", "description": LINE, "parameters": schema(i)}}
             for i in range(TOOL_COUNT)]
    return {"model": model, "messages": messages, "tools": tools, "max_tokens": 1, "ignore_eos": True}


def agent_messages(model, text):
    messages = [{"role": "user", "content": text}]
    for turn in range(TURNS):
        messages.append({"role": "assistant", "content": [
            {"type": "text", "text": LINE},
            {"type": "tool_use", "id": f"toolu_{turn}", "name": "tool_0", "input": {"field_0": "x"}}]})
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": [{"type": "text", "text": LINE * 2}]}]})
    tools = [{"name": f"tool_{i}", "description": LINE, "input_schema": schema(i)} for i in range(TOOL_COUNT)]
    return {"model": model, "system": [{"type": "text", "text": LINE * 4}], "messages": messages, "tools": tools,
            "max_tokens": 1, "ignore_eos": True}


def agent_responses(model, text):
    items = [{"role": "user", "content": text}]
    for turn in range(TURNS):
        items += [{"role": "assistant", "content": LINE},
                  {"type": "function_call", "call_id": f"toolu_{turn}", "name": "tool_0", "arguments": '{"field_0":"x"}'},
                  {"type": "function_call_output", "call_id": f"toolu_{turn}", "output": LINE * 2}]
    tools = [{"type": "function", "name": f"tool_{i}", "description": LINE, "parameters": schema(i)} for i in range(TOOL_COUNT)]
    return {"model": model, "instructions": LINE * 4, "input": items, "tools": tools, "max_output_tokens": 1, "ignore_eos": True}


def small(protocol, model, text, **fields):
    body = frontend_cpu.chat(model, text, **fields)  # the same words in all
    if protocol == "responses":
        body["input"] = body.pop("messages")
        body["max_output_tokens"] = body.pop("max_tokens")
    return body


def compare(options, server, folder, name, bodies, flags, count, units):
    """µs of CPU per unit and protocol: medians of runs that alternate."""
    files = {}
    for protocol in PATHS:
        own = os.path.join(folder, protocol)
        os.makedirs(own, exist_ok=True)
        files[protocol] = measure.write_bodies(own, bodies(protocol))
    costs = {protocol: [] for protocol in PATHS}
    for run in range(options.runs + 1):
        for protocol, path in PATHS.items():
            report, cpu_s = measure.run_load(options, server, [
                "--endpoint", path, "--bodies", files[protocol], "--requests", count, *flags], options.load_core)
            if run > 0:  # the first one warms caches and pools
                costs[protocol].append(cpu_s * 1e6 / (report["request_count"]["avg"] * units))
    middle = {protocol: measure.median(found) for protocol, found in costs.items()}
    measure.detail(options, f"{name}: " + "; ".join(
        f"{protocol} {middle[protocol]:.2f} µs ({', '.join(f'{c:.2f}' for c in found)})" for protocol, found in costs.items()))
    return [measure.Bar(f"{protocol}: {name}, times chat's", middle[protocol] / middle["chat"], BAR, "×",
                        note=f"{middle[protocol]:.2f} µs, chat {middle['chat']:.2f} µs")
            for protocol in PATHS if protocol != "chat"]


def measure_protocols(options):
    bars = []
    agent = {"chat": agent_chat, "messages": agent_messages, "responses": agent_responses}
    with tempfile.TemporaryDirectory() as folder, measure.Server(
            options, ["--engine", "sim", "--workers", "2", "--sim-speedup", "0"], options.server_core) as server:
        model = server.model_name()
        prompts = frontend_cpu.make_prompts(server, model, options.prompt_tokens)
        unary = ["--no-stream", "--concurrency", options.connections]
        bars += compare(options, server, folder, "small request",
                        lambda protocol: [small(protocol, model, text, max_tokens=1, ignore_eos=True) for text in prompts],
                        unary, options.requests, 1)
        bars += compare(options, server, folder, "request of a coding agent",
                        lambda protocol: [agent[protocol](model, text) for text in prompts[:32]], unary, options.long_requests, 1)
        bars += compare(options, server, folder, "streamed token",
                        lambda protocol: [small(protocol, model, text, max_tokens=options.stream_tokens, ignore_eos=True,
                                                stream=True) for text in prompts],
                        ["--concurrency", options.parallel_streams], options.streams, options.stream_tokens)
    for bar in bars:
        bar.note += f"; machine load {os.getloadavg()[0]:.1f}"
    return bars


if __name__ == "__main__":
    measure.main(measure_protocols, measure.parse_arguments(__doc__, add_options))
