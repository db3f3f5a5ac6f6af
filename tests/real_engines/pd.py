#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pair of real vLLM servers, prefill and decode, behind Stator: the text of one server, whoever dies on the way.

    pd.py --stator URL --prefill URL --decode URL [--prompts 50] [--report FILE] [--kill STARTS]

First `--prompts` prompts of 1 to 900 tokens: greedy text through Stator against the prefill server asked alone, whose cache holds
nothing that it has not computed itself. vLLM's own counter says how many tokens the decode server fetched. With --kill, a JSON file with
the commands that start each server and its process group (run.py writes it), each server is killed at six points
of a request's life and started again. Exits 1 if a text differs, a stream hangs, or a block stays in use after the lease.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

BLOCK = 32  # tokens, as run.py starts vLLM
LEASE_S = 30
PATIENCE_S = 400
# Tokens of whole characters: when a prompt ends within a character, vLLM's own text begins with the prompt.
TOKENS = (300, 30_000)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def metric(url: str, name: str, having: str = "") -> float:
    return sum(float(line.split()[-1]) for line in get(f"{url}/metrics").splitlines()
               if line.startswith((name + "{", name + " ")) and having in line)


def eventually(condition, what: str, timeout_s: float = PATIENCE_S):
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if value := condition():
                return value
        except (OSError, urllib.error.URLError):
            pass
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.2)


class Ask:
    """One greedy completion by token ids, streamed by a thread."""

    def __init__(self, url: str, prompt: list[int], tokens: int, **more):
        self.body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True} | more
        self.url, self.text, self.finish, self.error = url, "", None, None
        self.first = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(self.body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                for raw in answer:
                    line = raw.decode().strip()
                    if not line.startswith("data:") or line == "data: [DONE]":
                        continue
                    chunk = json.loads(line[5:])
                    if chunk.get("error"):
                        self.error = str(chunk["error"])
                    for choice in chunk.get("choices", []):
                        self.text += choice.get("text") or ""
                        self.finish = choice.get("finish_reason") or self.finish
                        self.first.set()
        except (OSError, urllib.error.URLError) as error:
            self.error = f"{error} {error.read().decode()[:300] if isinstance(error, urllib.error.HTTPError) else ''}"
        self.first.set()

    def wait(self) -> "Ask":
        self.thread.join()
        return self


class Server:
    """A vLLM server that can be killed and started again."""

    def __init__(self, name: str, url: str, start: dict):
        self.name, self.url, self.start, self.group = name, url, start, start["group"]

    def kill(self) -> None:
        os.killpg(self.group, signal.SIGKILL)

    def pause(self, how: signal.Signals) -> None:
        os.killpg(self.group, how)

    def restart(self) -> None:
        with open(self.start["log"], "ab") as log:
            process = subprocess.Popen(self.start["command"], env=os.environ | self.start["env"], stdout=log, stderr=log,
                                       start_new_session=True)
        self.group = process.pid
        pathlib.Path(self.start["groups"]).open("a", encoding="utf-8").write(f"{process.pid}\n")
        eventually(lambda: get(f"{self.url}/health") is not None, f"{self.name} is back", 400)


def prompts(count: int) -> list[list[int]]:
    source = random.Random(7)
    lengths = [1, 2, 31, 32, 33, 63, 64, 65, 900] + [source.randint(1, 900) for _ in range(count)]
    return [[source.randint(*TOKENS) for _ in range(length)] for length in lengths[:count]]


def handoffs(stator: str) -> dict[str, int]:
    out = {}
    for line in get(f"{stator}/metrics").splitlines():
        if line.startswith("stator_frontend_handoff_seconds_count{"):
            outcome = line.split('outcome="')[1].split('"')[0]
            out[outcome] = out.get(outcome, 0) + int(float(line.split()[-1]))
    return out


def compare(arguments: argparse.Namespace, lines: list[str]) -> bool:
    asked = prompts(arguments.prompts)
    before = metric(arguments.decode, "vllm:external_prefix_cache_hits_total")
    got = [Ask(arguments.stator, prompt, 12).wait() for prompt in asked]
    fetched = metric(arguments.decode, "vllm:external_prefix_cache_hits_total") - before
    # ExampleConnector miscounts what it has of a block's multiple and one, and a prompt of one token ends its server: no cache for these.
    miscounted = [arguments.shared and len(prompt) % BLOCK == 1 for prompt in asked]
    alone = [Ask(arguments.whole, prompt, 12, **({"prompt_logprobs": 0} if no_cache else {})).wait() for prompt, no_cache in zip(asked, miscounted)]
    equal = sum(a.text == b.text and a.finish == b.finish and not a.error for a, b in zip(got, alone))
    tokens = sum(len(prompt) for prompt in asked)
    whole = sum((len(prompt) - 2) // BLOCK * BLOCK for prompt in asked if len(prompt) % BLOCK != 1)
    in_blocks = f", {whole} of them in blocks that ExampleConnector keeps" if arguments.shared else ""
    lengths = [len(prompt) for prompt in asked]
    lines += [f"{equal} of {len(asked)} greedy texts ({min(lengths)} to {max(lengths)} prompt tokens) equal to one server's own.",
              f"The prompts have {tokens} tokens{in_blocks}; the decode server counts {fetched:.0f} of them as fetched "
              f"(`vllm:external_prefix_cache_hits_total`).", f"Hand-offs by outcome: {handoffs(arguments.stator)}.", ""]
    for a, b in zip(got, alone):
        if a.text != b.text or a.error:
            lines.append(f"differs ({len(a.body['prompt'])} tokens): {a.text!r} / {b.text!r} {a.error or ''}")
    return equal == len(asked) and fetched > 0


def kill_points(arguments: argparse.Namespace, lines: list[str]) -> bool:
    starts = json.loads(pathlib.Path(arguments.kill).read_text(encoding="utf-8"))
    prefill = Server("prefill", arguments.prefill, starts["prefill"])
    decode = Server("decode", arguments.decode, starts["decode"])
    source = random.Random(11)
    lines += ["| killed | when | text | after | outcome |", "|---|---|---|---|---|"]
    good, wrong = True, []
    points = [(prefill, "while it computes the prompt", "computing"), (prefill, "before its prompt is fetched", "offered"),
              (prefill, "while or just after it is fetched", "fetching"), (decode, "before it is asked", "before"),
              (decode, "before its first token", "offered"), (decode, "after some tokens", "streaming")]
    for server, when, point in points:
        prompt = [source.randint(*TOKENS) for _ in range(source.randint(400, 800))]
        before = handoffs(arguments.stator)
        prefilled = metric(arguments.prefill, "vllm:request_success_total")
        splits = metric(arguments.stator, "stator_router_disaggregation_total", 'path="split"')
        begin = time.monotonic()
        if point == "before":
            server.kill()
        if point == "offered":
            decode.pause(signal.SIGSTOP)  # so that it has not fetched the prompt when the other dies
        ask = Ask(arguments.stator, prompt, 40)
        if point != "before":
            eventually(lambda: metric(arguments.stator, "stator_router_disaggregation_total", 'path="split"') > splits, "split")
            if point == "streaming":
                ask.first.wait()
            elif point != "computing":
                eventually(lambda: metric(arguments.prefill, "vllm:request_success_total") > prefilled, "prefill", 30)
                time.sleep({"offered": 0, "fetching": 0.1}[point])
            server.kill()
            if point == "offered" and server is prefill:
                decode.pause(signal.SIGCONT)
        back = threading.Thread(target=server.restart)
        back.start()
        ask.wait()
        took = time.monotonic() - begin
        back.join()
        # Asked now: a server that had seen the prompt before would have nothing to compute.
        expected = Ask(arguments.whole, prompt, 40).wait()
        # With its only decode server dead a request that has not begun may be refused, never answered wrongly.
        same = ask.text == expected.text and not ask.error
        refused = bool(ask.error) and expected.text.startswith(ask.text)
        good = good and (same or refused)
        after = handoffs(arguments.stator)
        outcome = ", ".join(k for k in after if after[k] > before.get(k, 0)) or "none"
        if not same and not refused:
            wrong.append(f"{when}: {ask.text!r} / {expected.text!r} {ask.error or ''}")
        lines.append(f"| {server.name} | {when} | {'equal' if same else 'refused' if refused else 'WRONG'} | {took:.1f} s | {outcome} |")
        eventually(lambda: metric(arguments.stator, "stator_adapter_engine_up") == 2, "both engines are up", 60)
        time.sleep(1)  # and the router knows
    lines += ["", *wrong]
    return good


def stranded(arguments: argparse.Namespace, lines: list[str]) -> bool:
    """Blocks that are still in use when nothing runs and every lease is over."""
    time.sleep(LEASE_S + 5)
    Ask(arguments.prefill, [5, 6, 7], 1).wait()  # vLLM looks at leases when it steps
    used = {}
    for name, url in (("prefill", arguments.prefill), ("decode", arguments.decode)):
        try:
            eventually(lambda url=url: metric(url, "vllm:num_requests_running") == 0 and metric(url, "vllm:kv_cache_usage_perc") == 0,
                       "no block in use", 20)
            used[name] = 0.0
        except AssertionError:
            used[name] = metric(url, "vllm:kv_cache_usage_perc")
    lines.append(f"In use {LEASE_S + 5} s later: {used['prefill']:.0%} of the prefill server's blocks, {used['decode']:.0%} of the "
                 f"decode server's; {metric(arguments.prefill, 'vllm:nixl_num_kv_expired_reqs_total'):.0f} prompts expired unfetched.")
    return not any(used.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stator", required=True)
    parser.add_argument("--prefill", required=True)
    parser.add_argument("--decode", required=True)
    parser.add_argument("--whole", help="a server that is asked alone (default: the prefill server)")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--kill")
    parser.add_argument("--shared", action="store_true", help="the pair shares storage (ExampleConnector)")
    parser.add_argument("--report")
    arguments = parser.parse_args()
    arguments.whole = arguments.whole or arguments.prefill
    lines: list[str] = []
    good = compare(arguments, lines)
    if arguments.kill:
        good = kill_points(arguments, lines) and good
    good = stranded(arguments, lines) and good
    print("\n".join(lines))
    if arguments.report:
        pathlib.Path(arguments.report).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
