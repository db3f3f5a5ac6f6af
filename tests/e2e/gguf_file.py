# SPDX-License-Identifier: Apache-2.0
"""Writes GGUF files without tensors: what a model's file says of its text."""

from __future__ import annotations

import struct

Value = str | int | list[str] | list[int]


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _typed(value: Value) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if value and isinstance(value[0], int):
        return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))


def gguf(pairs: dict[str, Value]) -> bytes:
    """The bytes of a version 3 file with these keys; numbers are uint32, lists of numbers int32."""
    body = b"".join(_text(key) + _typed(value) for key, value in pairs.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + body


def byte_vocabulary() -> dict[str, Value]:
    """A byte-level vocabulary without merges: a token per byte, in GPT-2's spelling of bytes, and <s>, </s>."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    spelled = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    tokens = [spelled[byte] for byte in range(256)] + ["<s>", "</s>"]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [1] * 256 + [3, 3], "tokenizer.ggml.merges": [],
            "tokenizer.ggml.bos_token_id": 256, "tokenizer.ggml.eos_token_id": 257}
