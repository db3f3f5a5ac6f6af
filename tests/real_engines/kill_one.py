#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams through Stator while one of its vLLM servers is killed: every answer must be whole and as if nothing happened.

    kill_one.py --stator URL --direct URL --kill-group PGID [--streams 16] [--tokens 200]

First every prompt is asked directly, alone and all at once, because a CPU's arithmetic depends on the batch: both answers are
right. Then all at once through Stator; when all streams have text, the process group is killed outright.
"""

from __future__ import annotations

import argparse
import collections.abc
import os
import signal
import sys
import threading
import time

import openai

from equality import prompts


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)


def ask(client: openai.OpenAI, arguments: argparse.Namespace, prompt: str, **fields):
    return client.completions.create(model=arguments.model, prompt=prompt, temperature=0, max_tokens=arguments.tokens, **fields)


def run_all(client: openai.OpenAI, arguments: argparse.Namespace, asked: list[str],
            when_all_have_text: collections.abc.Callable[[], None]) -> tuple[list[str], list[str], int]:
    """The texts, the errors, and how many streams were unfinished at that moment."""
    got = [""] * len(asked)
    unfinished = set(range(len(asked)))
    errors: list[str] = []

    def stream(i: int) -> None:
        try:
            for chunk in ask(client, arguments, asked[i], stream=True):
                got[i] += "".join(choice.text for choice in chunk.choices)
        except openai.OpenAIError as error:
            errors.append(f"stream {i}: {error}")
        unfinished.discard(i)

    threads = [threading.Thread(target=stream, args=(i,)) for i in range(len(asked))]
    for thread in threads:
        thread.start()
    while not all(got) and any(thread.is_alive() for thread in threads):
        time.sleep(0.01)
    cut = len(unfinished)
    when_all_have_text()
    for thread in threads:
        thread.join()
    return got, errors, cut


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stator", required=True)
    parser.add_argument("--direct", required=True, help="the server that lives on")
    parser.add_argument("--kill-group", type=int, required=True)
    parser.add_argument("--model", default="m")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=200)
    arguments = parser.parse_args()
    asked = prompts(arguments.streams)
    direct = client_of(arguments.direct)
    alone = [ask(direct, arguments, prompt).choices[0].text for prompt in asked]
    together, _, _ = run_all(direct, arguments, asked, lambda: None)
    got, errors, cut = run_all(client_of(arguments.stator), arguments, asked,
                               lambda: os.killpg(arguments.kill_group, signal.SIGKILL))
    altered = [i for i, text in enumerate(got) if text not in (alone[i], together[i])]
    moved = sum(a != b for a, b in zip(alone, together))
    print(f"{len(asked)} streams, {cut} unfinished when one of two servers was killed: {len(errors)} failed, "
          f"{len(altered)} altered ({moved} answers of the server itself depend on the batch)")
    for line in errors[:3]:
        print(line)
    for i in altered[:3]:
        same = len(os.path.commonprefix([got[i], alone[i]]))
        print(f"stream {i}: {len(got[i])} of {len(alone[i])} characters, equal up to {same}")
    return 0 if not errors and not altered else 1


if __name__ == "__main__":
    sys.exit(main())
