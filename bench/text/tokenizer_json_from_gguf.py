#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tokenizer.json that a byte-level BPE vocabulary in a GGUF file was made of.

    tokenizer_json_from_gguf.py ggml-vocab-llama-bpe.gguf LLAMA3/     writes LLAMA3/tokenizer.json

For races against libraries that read tokenizer.json only. Knows the pre-tokenizers llama-bpe and
qwen2; needs the package gguf (PyPI).
"""
import argparse
import json
import pathlib

import gguf

SPLITS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
CONTROL, USER_DEFINED = 3, 4


def convert(fields):
    value = lambda name: fields["tokenizer.ggml." + name].contents()
    kind, tokens, types = value("pre"), value("tokens"), value("token_type")
    if value("model") != "gpt2" or kind not in SPLITS:
        raise SystemExit(f"{value('model')} with pre-tokenizer {kind!r}: only byte-level BPE with {', '.join(SPLITS)}")
    added = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": kind_ == CONTROL}
        for i, (text, kind_) in enumerate(zip(tokens, types))
        if kind_ in (CONTROL, USER_DEFINED)
    ]
    vocabulary = {text: i for i, (text, kind_) in enumerate(zip(tokens, types)) if kind_ not in (CONTROL, USER_DEFINED)}
    split = {"type": "Split", "pattern": {"Regex": SPLITS[kind]}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if kind == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": kind == "llama-bpe",
            "vocab": vocabulary,
            "merges": value("merges"),
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf")
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    model = convert(gguf.GGUFReader(arguments.gguf).fields)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "tokenizer.json").write_text(json.dumps(model, ensure_ascii=False))


if __name__ == "__main__":
    main()
