#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ids to text as they arrive: Stator's IncrementalDetokenizer and Hugging Face's DecodeStream, alternately.

    python3 detokenize_race.py --bench build/bench/bin/stator_tokenizer_bench --model DIR --text FILE [--rounds 5]

Prints nanoseconds per token, best of all rounds. Needs: pip install tokenizers; `cmake --preset bench`.
"""
import argparse
import json
import pathlib
import subprocess
import time

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


def stator_ns(arguments):
    done = subprocess.run([arguments.bench, f"--model={arguments.model}", "--benchmark_filter=^detokenize$", "--benchmark_format=json"],
                          capture_output=True, text=True, check=True)
    return 1e9 / json.loads(done.stdout)["benchmarks"][0]["items_per_second"]


def reference_ns(tokenizer, ids):
    step = DecodeStream(skip_special_tokens=True).step
    begin = time.perf_counter()
    for token in ids:
        step(tokenizer, token)
    return (time.perf_counter() - begin) / len(ids) * 1e9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(f"{arguments.model}/tokenizer.json")
    ids = tokenizer.encode(pathlib.Path(arguments.text).read_text()[:400_000], add_special_tokens=False).ids
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(stator_ns(arguments))
        theirs.append(reference_ns(tokenizer, ids))
    print(f"stator       {min(ours):8.1f} ns per token")
    print(f"DecodeStream {min(theirs):8.1f} ns per token, {min(theirs) / min(ours):.0f} times as long")


main()
