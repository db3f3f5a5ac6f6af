#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token masks against llguidance and XGrammar (PyPI) on the same random schemas, vocabulary and answers, single thread.

  pip install llguidance numpy 'jsonschema[format-nongpl]' pydantic; pip install --no-deps xgrammar apache-tvm-ffi
  bench/cpu_engine/grammar_race.py --vocabulary ggml-vocab-qwen2.gguf --stator build/release/bin/stator_masks [--schemas 30] [--rounds 3]

Stator draws --answers answers to each schema, of at most --steps tokens, from its own masks. Their texts are cut into tokens anew, the longest
first, as a tokenizer would: llguidance takes a text that the grammar forces in such tokens only. All sides are led through the same tokens, with
what they have learnt of the schema kept. Where one does not allow a token (its idea of blanks or formats is another), that answer ends there. Per
token: make the mask, then take the token. Times are CPU time. Stator is told
that there is room for little more, so that it makes sure to come to an end. --rounds repeats all sides in turn and keeps each figure's median. XGrammar asks for
torch and transformers, which it needs to hold and name things only: without them it gets stand-ins and masks in numpy arrays.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable

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


class Plain:
    """What llguidance wants of a tokenizer. It must turn text into tokens: a text that the grammar forces is looked up as tokens, and
    the mask is that of the place behind it."""

    bos_token_id = None

    def __init__(self, tokens: list[bytes]) -> None:
        self.eos_token_id = len(tokens) - 1
        self.special_token_ids = [self.eos_token_id]
        self.tokens = [token or b"\xff<%d>" % i for i, token in enumerate(tokens)]
        self.ids = {token: i for i, token in reversed(list(enumerate(tokens))) if token}
        self.longest = max(map(len, self.ids))

    def __call__(self, text: bytes | str) -> list[int]:
        data = text if isinstance(text, bytes) else text.encode()
        out, at = [], 0
        while at < len(data):
            size = next(n for n in range(min(self.longest, len(data) - at), 0, -1) if data[at:at + n] in self.ids)
            out.append(self.ids[data[at:at + size]])
            at += size
        return out


class Figures:
    def __init__(self) -> None:
        self.compiled: list[float] = []
        self.masks: list[float] = []
        self.accepts: list[float] = []
        self.broken = 0  # answers that ended early
        self.refused = 0  # schemas

    def cells(self) -> list[float]:
        masks = sorted(self.masks)
        at = lambda share: masks[min(len(masks) - 1, int(share * len(masks)))]
        return [statistics.median(self.compiled) / 1000, max(self.compiled) / 1000, statistics.fmean(masks), at(0.5), at(0.99), masks[-1],
                statistics.fmean(masks) + statistics.fmean(self.accepts), len(masks), self.broken, self.refused]


def microseconds(body: Callable[[], object], into: list[float]) -> object:
    begin = time.process_time_ns()
    out = body()
    into.append((time.process_time_ns() - begin) / 1000)
    return out


def has_bit(row: object, token: int) -> bool:
    return bool(int(row[token // 32]) >> (token % 32) & 1)


class Llguidance:
    def __init__(self, tokens: list[bytes]) -> None:
        import llguidance
        import llguidance.numpy as masks_of

        self.module, self.masks_of = llguidance, masks_of
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Plain(tokens)))
        self.bitmap = masks_of.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema: str) -> object:
        matcher = self.module.LLMatcher(self.tokenizer, self.module.LLMatcher.grammar_from_json_schema(schema))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def begin(self, compiled: object) -> object:
        return compiled.deep_copy()

    def mask(self, state: object) -> object:
        self.masks_of.fill_next_token_bitmask(state, self.bitmap, 0)
        return self.bitmap[0]

    def take(self, state: object, token: int) -> bool:
        return state.consume_token(token)


class XGrammar:
    def __init__(self, tokens: list[bytes]) -> None:
        import numpy
        import tvm_ffi  # noqa: F401  # before the stand-ins: it looks for torch, too

        self.missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
        for name in self.missing:
            sys.modules[name] = StandIn(name)
        import xgrammar

        self.module = xgrammar
        info = xgrammar.TokenizerInfo([token or b"" for token in tokens], vocab_type=xgrammar.VocabType.RAW,
                                      vocab_size=len(tokens), stop_token_ids=[len(tokens) - 1])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bitmap = numpy.full((1, (len(tokens) + 31) // 32), -1, dtype=numpy.int32)

    def compile(self, schema: str) -> object:
        return self.compiler.compile_json_schema(schema, any_whitespace=True)

    def begin(self, compiled: object) -> object:
        return self.module.GrammarMatcher(compiled)

    def mask(self, state: object) -> object:
        state.fill_next_token_bitmask(self.bitmap)
        return self.bitmap[0]

    def take(self, state: object, token: int) -> bool:
        return state.accept_token(token)


class StandIn(types.ModuleType):
    """A module whose every member is an empty class: for annotations."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.int32, self.tensor = "int32", lambda *_, **__: None

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def follow(side: Llguidance | XGrammar, schemas: list[str], answers: list[list[list[int]]]) -> Figures:
    figures = Figures()
    for schema, texts in zip(schemas, answers, strict=True):
        try:
            compiled = microseconds(lambda: side.compile(schema), figures.compiled)
        except Exception:  # a keyword it does not know
            figures.refused += 1
            continue
        for tokens in texts:
            state = side.begin(compiled)
            for token in tokens:
                row = microseconds(lambda: side.mask(state), figures.masks)
                if not has_bit(row, token) or not microseconds(lambda: side.take(state, token), figures.accepts):
                    figures.broken += 1
                    break
    return figures


class Stator:
    def __init__(self, options: argparse.Namespace, folder: str, tokens: list[bytes], schemas: list[str]) -> None:
        self.options = options
        self.files = [pathlib.Path(folder, name) for name in ("tokens", "schemas", "answers")]
        self.files[0].write_text("".join(token.hex() + "\n" for token in tokens))
        self.files[1].write_text("".join(schema + "\n" for schema in schemas))

    def run(self, *mode: str) -> list[dict]:
        done = subprocess.run([self.options.stator, *map(str, self.files[:2]), *mode], capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def draw(self, encode: Plain) -> list[list[list[int]]]:
        rows = self.run("draw", str(self.options.steps), str(self.options.answers))
        return [[encode(b"".join(encode.tokens[token] for token in answer)) for answer in row["answers"]] for row in rows]

    def follow(self, answers: list[list[list[int]]]) -> Figures:
        self.files[2].write_text("".join("".join(" ".join(map(str, tokens)) + "\n" for tokens in texts if tokens) + "\n" for texts in answers))
        figures = Figures()
        for row in self.run("follow", str(self.files[2])):
            figures.refused += row["compile_us"] == 0
            figures.compiled += [row["compile_us"]] if row["compile_us"] > 0 else []
            for answer in row["answers"]:
                figures.masks += answer["mask_us"]
                figures.accepts += answer["accept_us"]
                figures.broken += len(answer["accept_us"]) < len(answer["mask_us"])
        return figures


def two_kilobytes() -> str:
    """A schema as applications have them: 34 properties, 2.2 KB."""
    kinds = [{"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "string", "enum": ["red", "green", "blue"]},
             {"type": "array", "items": {"type": "string"}, "maxItems": 5}, {"type": "string", "format": "date-time"}, {"type": "number"},
             {"type": ["string", "null"], "maxLength": 80}, {"type": "boolean"}]
    names = [f"property_{i}" for i in range(34)]
    return json.dumps({"type": "object", "properties": {name: kinds[i % len(kinds)] for i, name in enumerate(names)},
                       "required": names[::2], "additionalProperties": False})


HEAD = """| side | compile ms, median | max | mask µs, mean | p50 | p99 | max | per token µs, mean | masks | ended early | refused |
|---|---|---|---|---|---|---|---|---|---|---|"""


def race(options: argparse.Namespace, tokens: list[bytes], made: dict, schemas: list[str], title: str) -> None:
    rows: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        stator = Stator(options, folder, tokens, schemas)
        answers = stator.draw(Plain(tokens))
        for _ in range(options.rounds):
            rows.setdefault("Stator", []).append(stator.follow(answers).cells())
            for name, side in made.items():
                rows.setdefault(name, []).append(follow(side, schemas, answers).cells())
    print(f"{title}, load {os.getloadavg()[0]:.1f}\n{HEAD}")
    for name, repeated in rows.items():
        cells = [statistics.median(column) for column in zip(*repeated, strict=True)]
        print(f"| {name} | " + " | ".join(f"{cell:.2f}" if i < 7 else f"{cell:.0f}" for i, cell in enumerate(cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--stator", default=str(ROOT / "build/release/bin/stator_masks"))
    parser.add_argument("--schemas", type=int, default=30)
    parser.add_argument("--answers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", default="llguidance,xgrammar")
    options = parser.parse_args()
    from random_schemas import RandomSchemas

    tokens = gguf_tokens(options.vocabulary)
    sides = {"llguidance": Llguidance, "XGrammar": XGrammar}
    made = {name: make(tokens) for name, make in sides.items() if name.lower() in options.sides}
    schemas = [json.dumps(RandomSchemas(seed).root()) for seed in range(options.schemas)]
    race(options, tokens, made, schemas, f"{options.schemas} random schemas")
    large = two_kilobytes()
    race(options, tokens, made, [large] * 5, f"one schema of {len(large) / 1000:.1f} KB, five times")


if __name__ == "__main__":
    main()
