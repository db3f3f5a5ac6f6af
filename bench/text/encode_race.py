#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Races Stator's encoder against fastokens on the same texts, in turns in one run.

    encode_race.py --driver BUILD/src/stator/tokenizer/stator_encode_driver_bench \\
        --corpora DIR --vocabulary llama3=DIR/tokenizer.json --vocabulary qwen2=DIR/tokenizer.json

needs `pip install fastokens`; corpora come from make_corpora.py beside this file. One core each;
processor time of the process, so that other work on the machine disturbs both sides less.

unseen: the first half of a corpus as warm-up, then ten slices never seen before, in documents of
        8 KB, each slice timed once. The figure is the median; the sides take turns in every round.
cold:   the first megabyte in a fresh process, after loading the tokenizer.
chat:   one prompt of about 60,000 tokens as one text: in a fresh process, and again in a process
        that has encoded the corpora but not this text.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

CORPORA = ("prose", "code", "multi")
SLICES = 10
DOCUMENT_BYTES = 8192


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def cut_documents(text):
    """As the native driver cuts: DOCUMENT_BYTES, then to the end of the line."""
    data, documents, at = text.encode(), [], 0
    while at < len(data):
        line_end = data.find(b"\n", min(at + DOCUMENT_BYTES, len(data)))
        end = len(data) if line_end < 0 else line_end + 1
        documents.append(data[at:end].decode())
        at = end
    return documents


class Stator:
    name = "stator"

    def __init__(self, options, vocabulary):
        self.process = subprocess.Popen([options.driver, vocabulary], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.load_ms = int(self.process.stdout.readline()) / 1e6

    def ask(self, *lines):
        """Asks all at once, so that the driver does not fall asleep between two answers."""
        self.process.stdin.write("".join(line + "\n" for line in lines))
        self.process.stdin.flush()
        return [self.process.stdout.readline() for _ in lines]

    def open(self, path, whole):
        return int(*self.ask(f"{'whole' if whole else 'docs'} {path}"))

    def time(self, *ranges):
        answers = self.ask(*(f"time {begin} {end}" for begin, end in ranges))
        return [(size, ns / 1e9, ids) for size, ns, ids in (map(int, answer.split()) for answer in answers)]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Fastokens:
    name = "fastokens"

    def __init__(self, options, vocabulary):
        import fastokens
        begin = time.perf_counter()
        self.tokenizer = fastokens.Tokenizer.from_file(vocabulary)
        self.load_ms = (time.perf_counter() - begin) * 1e3

    def open(self, path, whole):
        text = read(path)
        self.documents = [text] if whole else cut_documents(text)
        return len(self.documents)

    def time(self, *ranges):
        return [self.time_one(self.documents[begin:end]) for begin, end in ranges]

    def time_one(self, documents):
        size = sum(len(document.encode()) for document in documents)
        encode, ids = self.tokenizer.encode_batch_flat, 0
        start = time.process_time()
        for document in documents:
            ids += len(encode([document])[0]) // 4  # four bytes each
        return size, time.process_time() - start, ids

    def close(self):
        pass


SIDES = {side.name: side for side in (Stator, Fastokens)}


def fresh(options, side, vocabulary, path, mode):
    """One measurement in a process of its own: (MB/s or ms, load ms)."""
    command = [sys.executable, __file__, "--driver", options.driver, "--child", side, vocabulary, path, mode]
    value, load_ms = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    return value, load_ms


def child(options):
    side, vocabulary, path, mode = options.child
    racer = SIDES[side](options, vocabulary)
    count = racer.open(path, whole=mode == "chat")
    if mode == "chat":
        [(_, seconds, _)] = racer.time((0, 1))
        print(seconds * 1e3, racer.load_ms)
    else:
        [(size, seconds, _)] = racer.time((0, count // 2))
        print(size / 1e6 / seconds, racer.load_ms)
    racer.close()


def race_unseen(options, vocabulary, path):
    """Median MB/s per side and whether both made as many ids; one after the other, each alone, as
    two processes in turns would only measure how they empty each other's processor cache."""
    rates, ids = {}, {}
    for make in SIDES.values():
        racer = make(options, vocabulary)
        count = racer.open(path, whole=False)
        half = count // 2
        step = max(1, (count - half) // SLICES)
        _, *slices = racer.time((0, half), *((begin, begin + step) for begin in range(half, count - step + 1, step)))
        rates[racer.name] = statistics.median(size / 1e6 / seconds for size, seconds, _ in slices)
        ids[racer.name] = sum(made for _, _, made in slices)
        racer.close()
    return rates["stator"], rates["fastokens"], ids["stator"], ids["fastokens"]


def warm_chat(options, vocabulary, corpora, prompt):
    """Milliseconds per side for a prompt not seen before, after all corpora."""
    times = {}
    for make in SIDES.values():
        racer = make(options, vocabulary)
        for name in corpora:
            racer.time((0, racer.open(name, whole=False)))
        racer.open(prompt, whole=True)
        [(_, seconds, _)] = racer.time((0, 1))
        times[racer.name] = seconds * 1e3
        racer.close()
    return times["stator"], times["fastokens"]


def report(vocabulary, what, unit, ours, theirs, ratio):
    print(f"{vocabulary:8} {what:14} {ours:9.1f} {theirs:9.1f} {unit:5} {ratio:6.2f}x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--corpora")
    parser.add_argument("--vocabulary", action="append", default=[], help="NAME=PATH of a tokenizer.json")
    parser.add_argument("--rounds", type=int, default=5, help="the median of so many")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    median = statistics.median
    print("vocabulary what            stator fastokens unit   ratio")
    for name, vocabulary in (item.split("=", 1) for item in options.vocabulary):
        paths = {corpus: f"{options.corpora}/{corpus}.txt" for corpus in CORPORA}
        for corpus, path in paths.items():
            rounds = [race_unseen(options, vocabulary, path) for _ in range(options.rounds)]
            ours, theirs = median(r[0] for r in rounds), median(r[1] for r in rounds)
            report(name, f"unseen {corpus}", "MB/s", ours, theirs, median(r[0] / r[1] for r in rounds))
            if any(r[2] != r[3] for r in rounds):
                print(f"  number of ids differs: {rounds[0][2]} and {rounds[0][3]}")
        for corpus, path in paths.items():
            rounds = [[fresh(options, side, vocabulary, path, "cold") for side in SIDES] for _ in range(options.rounds)]
            ours, theirs = median(r[0][0] for r in rounds), median(r[1][0] for r in rounds)
            report(name, f"cold {corpus}", "MB/s", ours, theirs, median(r[0][0] / r[1][0] for r in rounds))
        loads = [median(r[side][1] for r in rounds) for side in (0, 1)]
        report(name, "load", "ms", *loads, loads[1] / loads[0])
        prompt = f"{options.corpora}/chat60k.{name}.txt"
        if os.path.exists(prompt):
            rounds = [[fresh(options, side, vocabulary, prompt, "chat")[0] for side in SIDES] for _ in range(options.rounds)]
            ours, theirs = median(r[0] for r in rounds), median(r[1] for r in rounds)
            report(name, "chat60k cold", "ms", ours, theirs, theirs / ours)
            rounds = [warm_chat(options, vocabulary, paths.values(), prompt) for _ in range(options.rounds)]
            ours, theirs = median(r[0] for r in rounds), median(r[1] for r in rounds)
            report(name, "chat60k unseen", "ms", ours, theirs, theirs / ours)


if __name__ == "__main__":
    main()
