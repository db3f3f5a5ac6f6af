#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token masks against llguidance and XGrammar (PyPI) on the same random schemas and vocabulary, single thread.

  pip install llguidance xgrammar jsonschema openai pydantic
  bench/cpu_engine/grammar_race.py --vocabulary ggml-vocab-qwen2.gguf --stator build/release/bin/stator_masks [--schemas 30]

Each side draws its own tokens from its own masks, at most --steps per schema, with what it has learnt of the schema kept.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))


def gguf_tokens(path: str) -> list[bytes]:
    """The byte-level tokens of a GGUF vocabulary."""
    data = pathlib.Path(path).read_bytes()
    at = 8

    def take(form: str) -> tuple:
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values

    def text() -> bytes:
        nonlocal at
        (length,) = take("Q")
        at += length
        return data[at - length:at]

    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def value(kind: int) -> object:
        if kind == 8:
            return text()
        if kind == 9:
            inner, count = take("IQ")
            return [value(inner) for _ in range(count)]
        return take(sizes[kind])[0]

    _, count = take("QQ")
    pairs = {}
    for _ in range(count):
        key = text().decode()
        (kind,) = take("I")
        pairs[key] = value(kind)
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {chr(byte): byte for byte in plain}
    spelled |= {chr(256 + i): byte for i, byte in enumerate(b for b in range(256) if b not in plain)}
    kinds = pairs["tokenizer.ggml.token_type"]
    return [b"" if kinds[i] != 1 else bytes(spelled[c] for c in token.decode())
            for i, token in enumerate(pairs["tokenizer.ggml.tokens"])]


def line(name: str, compiled: list[float], masks: list[float]) -> None:
    masks.sort()
    at = lambda share: masks[min(len(masks) - 1, int(share * len(masks)))]
    print(f"| {name} | {statistics.median(compiled) / 1000:.2f} | {statistics.fmean(masks):.1f} | {at(0.5):.1f} | {at(0.99):.0f} "
          f"| {masks[-1]:.0f} | {len(masks)} |", flush=True)


def run_llguidance(tokens: list[bytes], schemas: list[str], steps: int) -> None:
    import llguidance
    import llguidance.numpy as masks_of
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

    class Plain:
        eos_token_id = len(tokens) - 1
        bos_token_id = None
        special_token_ids = [len(tokens) - 1]

        def __init__(self) -> None:
            self.tokens = [token or b"\xff<%d>" % i for i, token in enumerate(tokens)]

        def __call__(self, text: bytes) -> list[int]:
            return []

    tokenizer = LLTokenizer(TokenizerWrapper(Plain()))
    draw, compiled, times = random.Random(1), [], []
    for schema in schemas:
        begin = time.perf_counter()
        matcher = LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_json_schema(schema))
        compiled.append((time.perf_counter() - begin) * 1e6)
        bitmap = masks_of.allocate_token_bitmask(1, tokenizer.vocab_size)
        for _ in range(steps):
            if matcher.is_stopped() or matcher.is_error():
                break
            begin = time.perf_counter()
            masks_of.fill_next_token_bitmask(matcher, bitmap, 0)
            times.append((time.perf_counter() - begin) * 1e6)
            allowed = bits(bitmap[0])
            if not allowed or not matcher.consume_token(draw.choice(allowed)):
                break
    line("llguidance", compiled, times)


def bits(row: object) -> list[int]:
    import numpy

    return numpy.flatnonzero(numpy.unpackbits(numpy.asarray(row).view(numpy.uint8), bitorder="little")).tolist()


def run_xgrammar(tokens: list[bytes], schemas: list[str], steps: int) -> None:
    import xgrammar

    info = xgrammar.TokenizerInfo([token or b"" for token in tokens], vocab_type=xgrammar.VocabType.RAW,
                                  vocab_size=len(tokens), stop_token_ids=[len(tokens) - 1])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    draw, compiled, times = random.Random(1), [], []
    for schema in schemas:
        begin = time.perf_counter()
        try:
            grammar = compiler.compile_json_schema(schema, any_whitespace=True)
        except Exception:  # a keyword it does not know
            continue
        compiled.append((time.perf_counter() - begin) * 1e6)
        matcher = xgrammar.GrammarMatcher(grammar)
        bitmap = xgrammar.allocate_token_bitmask(1, len(tokens))
        for _ in range(steps):
            if matcher.is_terminated():
                break
            begin = time.perf_counter()
            matcher.fill_next_token_bitmask(bitmap)
            times.append((time.perf_counter() - begin) * 1e6)
            allowed = bits(bitmap[0].numpy())
            if not allowed or not matcher.accept_token(draw.choice(allowed)):
                break
    line("XGrammar", compiled, times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--stator", default=str(ROOT / "build/release/bin/stator_masks"))
    parser.add_argument("--schemas", type=int, default=30)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--sides", default="stator,llguidance,xgrammar")
    options = parser.parse_args()
    from guided_output_test import RandomSchemas

    tokens = gguf_tokens(options.vocabulary)
    schemas = [json.dumps(RandomSchemas(seed).root()) for seed in range(options.schemas)]
    print("| side | compile ms, median | mask µs, mean | p50 | p99 | max | masks |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        tokens_file, schemas_file = pathlib.Path(folder, "tokens"), pathlib.Path(folder, "schemas")
        tokens_file.write_text("".join(token.hex() + "\n" for token in tokens))
        schemas_file.write_text("".join(schema + "\n" for schema in schemas))
        if "stator" in options.sides:
            said = subprocess.run([options.stator, str(tokens_file), str(schemas_file), str(options.steps)],
                                  capture_output=True, text=True, check=True).stdout
            rows = [row for row in map(json.loads, said.splitlines()) if "error" not in row]
            line("stator", [row["compile_us"] for row in rows], [t for row in rows for t in row["mask_us"]])
    if "llguidance" in options.sides:
        run_llguidance(tokens, schemas, options.steps)
    if "xgrammar" in options.sides:
        run_xgrammar(tokens, schemas, options.steps)


if __name__ == "__main__":
    main()
