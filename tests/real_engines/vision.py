#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a real server about pictures through Stator and directly: greedy text and the prompt's length must be equal, and the second
turn of a conversation must find the picture's blocks.

    vision.py --stator URL --direct URL [--model m]

For a server started with --enable-prompt-tokens-details. Exits 1 if anything differs.
"""

from __future__ import annotations

import argparse
import base64
import struct
import sys
import zlib

import openai

TEXT = ("Tell me all that there is to see in this picture, please, and take your time: what is in front, what behind, and which "
        "colours does it have?")


def picture(shade: int, width: int = 112, height: int = 112) -> str:
    """A data: URL of a PNG whose look depends on `shade`."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * shade + y * 7) % 256 for x in range(width)) for y in range(height))
    data = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return "data:image/png;base64," + base64.b64encode(data).decode()


def content(*pictures: str) -> list[dict]:
    return [{"type": "text", "text": TEXT}] + [{"type": "image_url", "image_url": {"url": url}} for url in pictures]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--stator", required=True)
    arguments.add_argument("--direct", required=True)
    arguments.add_argument("--model", default="m")
    given = arguments.parse_args()

    def ask(url: str, messages: list[dict]):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300) as client:
            return client.chat.completions.create(model=given.model, messages=messages, max_tokens=16, temperature=0)

    wrong = 0
    cases = {"one picture": content(picture(3)), "another": content(picture(11)), "two": content(picture(3), picture(11)),
             "two, swapped": content(picture(11), picture(3)), "wide": content(picture(3, width=224)),
             "odd size": content(picture(5, 200, 90)), "text only": content()}
    for name, asked in cases.items():
        direct, ours = (ask(url, [{"role": "user", "content": asked}]) for url in (given.direct, given.stator))
        same = direct.choices[0].message.content == ours.choices[0].message.content
        counted = direct.usage.prompt_tokens == ours.usage.prompt_tokens
        wrong += not (same and counted)
        print(f"{name}: {'equal' if same else 'DIFFERENT'}, prompt of {ours.usage.prompt_tokens} tokens"
              + ("" if counted else f", the server says {direct.usage.prompt_tokens}"))
    turn = [{"role": "user", "content": content(picture(23, 280, 280))}]
    first = ask(given.stator, turn)
    turn += [{"role": "assistant", "content": first.choices[0].message.content}, {"role": "user", "content": "And now?"}]
    second = ask(given.stator, turn)
    cached = second.usage.prompt_tokens_details.cached_tokens
    print(f"second turn: {cached} of {second.usage.prompt_tokens} tokens cached, the first turn had {first.usage.prompt_tokens}")
    wrong += cached <= first.usage.prompt_tokens - 64  # blocks have 32 tokens
    print("equal" if wrong == 0 else f"{wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
