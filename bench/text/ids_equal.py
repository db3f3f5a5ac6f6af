#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Stator's token ids with those of the Hugging Face tokenizers library.

    ids_equal.py --driver BUILD/src/stator/tokenizer/stator_encode_driver_bench \\
        [--corpora DIR] [--megabytes 20] TOKENIZER_JSON...

needs `pip install tokenizers`. The texts: prose and code (this repository's documents and sources,
and DIR/*.txt) cut at random lengths, words of every script, emoji sequences, sentences that mix
scripts, random strings from all planes, random bytes that form valid UTF-8, white space and
contractions in all arrangements, long runs, and chats with the tokenizer's own added tokens. A table
of what was compared is printed; exit 1 and the first differences if there are any.
"""
import argparse
import glob
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402

SCRIPTS = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x5FF),
           (0x600, 0x6FF), (0x700, 0x8FF), (0x900, 0xDFF), (0xE00, 0xFFF), (0x1000, 0x139F), (0x1780, 0x18AF),
           (0x1E00, 0x1FFF), (0x2000, 0x2BFF), (0x2E80, 0x303F), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xA000, 0xABFF),
           (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE00, 0xFFFD), (0x10000, 0x107FF), (0x10D40, 0x10F00),
           (0x11000, 0x11FFF), (0x16100, 0x16D7F), (0x1D400, 0x1D7FF), (0x1E000, 0x1EFFF), (0x1F000, 0x1FAFF),
           (0x20000, 0x323AF), (0xE0000, 0xE01EF), (0, 0x10FFFF)]
GLUE = [" ", "  ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "'s", "'S", "'re", "'LL",
        "'\u017f", "''", "'", "/", "\n/", "!", "...", "(", ".\n", ";\n\n  ", "1", "12", "123", "1234", "\u0661\u0662", "a",
        "B", "aB", "Ab", "\u00e9", "e\u0301", "\u4e2d", "\u3042", "\U0001f600", "\u200d", "\ufe0f", "-", "_", "\x00", "\x1c"]


# What people write: [first, last] of the letters, the word lengths, what stands between words, full stops.
LANGUAGES = [
    ([(0x61, 0x7A), (0xDF, 0xF6), (0xF8, 0xFF)], 8, " ", ". "), ([(0x430, 0x44F)], 8, " ", ". "), ([(0x3B1, 0x3C9)], 7, " ", ". "),
    ([(0x627, 0x63A), (0x641, 0x64A), (0x64B, 0x652)], 6, " ", "\u060c "), ([(0x5D0, 0x5EA), (0x5B0, 0x5BC)], 6, " ", ". "),
    ([(0x4E00, 0x9FA5)], 20, "\uff0c", "\u3002"), ([(0x3041, 0x3096), (0x30A1, 0x30FC), (0x4E00, 0x9FA5)], 25, "\u3001", "\u3002\n"),
    ([(0xAC00, 0xD7A3)], 5, " ", ". "), ([(0x0E01, 0x0E3A), (0x0E40, 0x0E4E)], 30, " ", " "),
    ([(0x905, 0x939), (0x93E, 0x94D)], 7, " ", "\u0964 "), ([(0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF)], 2, " ", "!\n"),
]
EMOJI = ["\U0001F600", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F44D\U0001F3FD", "\U0001F1E9\U0001F1EA", "\u2764\ufe0f", "1\ufe0f\u20e3"]
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def character(rng, first, last):
    while True:
        c = rng.randint(first, last)
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def script_text(rng):
    """Words of one script with the usual glue."""
    first, last = rng.choice(SCRIPTS)
    parts = []
    for _ in range(rng.randint(1, 60)):
        parts.append("".join(character(rng, first, last) for _ in range(rng.randint(1, 12))))
        parts.append(rng.choice(GLUE) if rng.random() < 0.5 else " ")
    return "".join(parts)


def language_text(rng):
    """Sentences, most in one language, some with another's words, numbers and emoji in them."""
    main = rng.choice(LANGUAGES)
    parts = []
    for _ in range(rng.randint(5, 120)):
        ranges, length_max, gap, stop = main if rng.random() < 0.85 else rng.choice(LANGUAGES)
        parts.append("".join(character(rng, *rng.choice(ranges)) for _ in range(rng.randint(1, length_max))))
        kind = rng.random()
        parts.append(gap if kind < 0.75 else stop if kind < 0.9 else rng.choice((str(rng.randrange(10 ** rng.randint(1, 9))), rng.choice(EMOJI), "(", ")", "\n")))
    return "".join(parts)


def run_text(rng):
    """A character or two over and over, between others."""
    unit = rng.choice(GLUE) + (rng.choice(GLUE) if rng.random() < 0.3 else "")
    return rng.choice(GLUE) + unit * rng.randint(1, 300) + rng.choice(GLUE)


def glue_text(rng):
    return "".join(rng.choice(GLUE) for _ in range(rng.randint(1, 200)))


def byte_text(rng):
    """Random bytes; what is not UTF-8 of them is left out."""
    weights = bytes(rng.choice((rng.randrange(256), rng.randrange(128), rng.randrange(0xC0, 0xF5), rng.randrange(0x80, 0xC0)))
                    for _ in range(rng.randint(1, 400)))
    return weights.decode("utf-8", errors="ignore")


def chat_text(rng, added, corpora):
    parts = []
    for _ in range(rng.randint(1, 12)):
        parts.append(rng.choice(added) if added and rng.random() < 0.8 else rng.choice(GLUE))
        parts.append(corpus_text(rng, corpora, 400) if rng.random() < 0.7 else rng.choice(GLUE))
    return "".join(parts)


def corpus_text(rng, corpora, length_max=6000):
    text = rng.choice(corpora)
    begin = rng.randrange(len(text))
    return text[begin:begin + rng.randint(1, length_max)]


def make_texts(rng, corpora, added, size):
    makers = [lambda: corpus_text(rng, corpora)] * 4 + [lambda: script_text(rng)] * 3 + [lambda: language_text(rng)] * 3 + [
        lambda: glue_text(rng), lambda: run_text(rng), lambda: byte_text(rng), lambda: chat_text(rng, added, corpora)]
    texts, total = [], 0
    while total < size:
        text = makers[len(texts) % len(makers)]()
        texts.append(text)
        total += len(text.encode())
    return texts


def stator_ids(driver, path, texts):
    with tempfile.TemporaryDirectory() as folder:
        source, target = f"{folder}/texts", f"{folder}/ids"
        with open(source, "wb") as file:
            for data in map(str.encode, texts):
                file.write(struct.pack("<I", len(data)) + data)
        subprocess.run([driver, path], input=f"encode {source} {target}\n", text=True, check=True, capture_output=True)
        with open(target, "rb") as file:
            data = file.read()
    at = 0
    for _ in texts:
        (count,) = struct.unpack_from("<I", data, at)
        yield list(struct.unpack_from(f"<{count}I", data, at + 4))
        at += 4 + 4 * count


def compare(options, path, corpora):
    rng = random.Random(options.seed)
    reference = tokenizers.Tokenizer.from_file(path)
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    texts = make_texts(rng, corpora, added, options.megabytes * 1_000_000)
    size, count, different = sum(len(text.encode()) for text in texts), 0, 0
    for text, ours in zip(texts, stator_ids(options.driver, path, texts)):
        theirs = reference.encode(text, add_special_tokens=False).ids
        count += len(theirs)
        if ours != theirs:
            different += 1
            if different <= 3:
                at = next((i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
                print(f"  differs at token {at}: {ours[at:at + 6]} and {theirs[at:at + 6]} after "
                      f"{reference.decode(theirs[max(0, at - 4):at])!r} in a text of {len(text)} characters")
    print(f"{different:5} of {len(texts):6} texts differ, {size / 1e6:5.1f} MB, {count:9} ids  {path}", flush=True)
    return different


def read_corpora(folder):
    """Prose and code: a few megabytes of it are in the repository."""
    paths = [path for pattern in ("*.md", "docs/**/*.md", "src/**/*.md", "src/**/*.cc", "src/**/*.h", "bench/**/*.py")
             for path in sorted(REPOSITORY.glob(pattern))]
    texts = ["\n".join(path.read_text(encoding="utf-8") for path in paths)]
    for path in sorted(glob.glob(f"{folder}/*.txt")) if folder else []:
        with open(path, encoding="utf-8", newline="") as file:
            texts.append(file.read())
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--corpora", help="a folder with more texts")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("tokenizers", nargs="+")
    options = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}, seed {options.seed}")
    corpora = read_corpora(options.corpora)
    return 1 if sum(compare(options, path, corpora) for path in options.tokenizers) else 0


if __name__ == "__main__":
    sys.exit(main())
