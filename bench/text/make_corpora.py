#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the text corpora of encode_race.py and ids_equal.py from folders at hand.

    make_corpora.py OUT --prose DIR... --code DIR... --multi DIR...

prose: English texts (for example Debian's `fortunes`), code: any source trees, multi: one folder
per language (debian-reference in ja, zh-cn, de, fr; manpages in ru, es). Reads *.txt, sources and
files without ending, also gzipped; nothing is downloaded. Writes prose.txt, code.txt, multi.txt of
at most 2 MB and chat60k.{llama3,qwen2}.txt, prompts of about 60,000 tokens cut from the first two.
"""
import argparse
import gzip
import os
import random

BYTES_MAX = 2_000_000
CHAT_CHARACTERS = 235_000
CODE_ENDINGS = {".rs", ".py", ".h", ".cc", ".cpp", ".c", ".go", ".ts", ".js", ".java"}
CHAT_MARKS = {
    "llama3": "<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>",
    "qwen2": "<|im_start|>{role}\n{text}<|im_end|>\n",
}


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        return file.read().decode("utf-8", errors="ignore")


def find_files(folders, endings):
    for folder in folders:
        for parent, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                ending = os.path.splitext(name.removesuffix(".gz"))[1]
                if endings is None or ending in endings:
                    yield os.path.join(parent, name)


def cut(text, size=BYTES_MAX):
    return text.encode()[:size].decode(errors="ignore")


def make_prose(folders):
    texts = map(read, find_files(folders, {"", ".txt"}))
    return "\n".join(text for text in texts if sum(ord(c) > 127 for c in text) <= len(text) * 0.02)


def make_code(folders, rng):
    paths, texts, size = list(find_files(folders, CODE_ENDINGS)), [], 0
    rng.shuffle(paths)
    for path in paths:
        texts.append(read(path))
        size += len(texts[-1])
        if size > BYTES_MAX * 1.2:
            break
    return "\n".join(texts)


def make_multi(folders, rng):
    """The languages in turn, 4,000 characters at a time."""
    share, chunks = BYTES_MAX // max(1, len(folders)), []
    for folder in folders:
        text = cut("\n".join(map(read, find_files([folder], None))), share)
        chunks += [text[i:i + 4000] for i in range(0, len(text), 4000)]
    rng.shuffle(chunks)
    return "".join(chunks)


def make_chat(marks, prose, code):
    rng, parts, size = random.Random(3), [], 0
    while size < CHAT_CHARACTERS:
        source, length = (code if rng.random() < 0.35 else prose), rng.randrange(500, 6000)
        begin = rng.randrange(0, len(source) - length)
        role = "assistant" if len(parts) % 2 else "user"
        parts.append(marks.format(role=role, text=source[begin:begin + length]))
        size += len(parts[-1])
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    for name in ("prose", "code", "multi"):
        parser.add_argument(f"--{name}", nargs="+", required=True, metavar="DIR")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    corpora = {"prose": make_prose(options.prose), "code": make_code(options.code, random.Random(1)),
               "multi": make_multi(options.multi, random.Random(2))}
    for kind, marks in CHAT_MARKS.items():
        corpora[f"chat60k.{kind}"] = make_chat(marks, corpora["prose"], corpora["code"])
    for name, text in corpora.items():
        text = cut(text)
        with open(f"{options.out}/{name}.txt", "w", encoding="utf-8", newline="") as file:
            file.write(text)
        print(f"{name}.txt: {len(text.encode())} bytes, {len(text)} characters")


if __name__ == "__main__":
    main()
