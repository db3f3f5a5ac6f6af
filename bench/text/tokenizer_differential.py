#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random texts through `stator tokenize` and the Hugging Face tokenizers library: counts the differences.

One small tokenizer per model, normalizer, pre-tokenizer and decoder type is made on the spot. Normalizers
are seen through a model of single bytes; pre-tokenizers through a space that is put before every piece.

    python3 tokenizer_differential.py --stator BINARY [--texts 100000] [--only NAME] [--charsmap SPM_MODEL]
        [--corpus FILE] [TOKENIZER_JSON ...]        # needs: pip install tokenizers
"""
import argparse
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

POOLS = [
    [(0x20, 0x7F)], [(0x61, 0x7B)], [(0x20, 0x21)], [(0x09, 0x0E), (0x20, 0x21), (0xA0, 0xA1), (0x2000, 0x2010), (0x85, 0x86)],
    [(0x00, 0x20), (0x7F, 0xA0), (0xAD, 0xAE), (0x200B, 0x2010), (0x2028, 0x202F), (0xFEFF, 0xFF00), (0xFFF0, 0x10000)],
    [(0xC0, 0x250)], [(0x300, 0x370), (0x483, 0x488), (0x591, 0x5BE), (0x64B, 0x660), (0x1AB0, 0x1B00), (0x20D0, 0x20F1)],
    [(0x370, 0x530)], [(0x590, 0x700)], [(0x900, 0xE00)], [(0xE00, 0x1000)], [(0x1100, 0x1200), (0xAC00, 0xD7A4)],
    [(0x1E00, 0x2000)], [(0x2000, 0x2C00)], [(0x3000, 0x3100)], [(0x4E00, 0x9FFF)], [(0xF900, 0xFB50)], [(0xFB50, 0xFE00)],
    [(0xFF00, 0xFFEF)], [(0x1D100, 0x1D800)], [(0x1F300, 0x1FB00)], [(0x10000, 0x12000)], [(0x1E000, 0x1EF00)],
    [(0x20000, 0x2FA20)], [(0, 0xD800), (0xE000, 0x110000)],
]
SNIPPETS = ["\u200d", "\ufe0f", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F44D\U0001F3FD", "\U0001F1E9\U0001F1EA", "\r\n",
            "\n", "  ", "don't", "we'll", "McDonald's", "123", "3.14", "Hello", " world", "[MASK]", "<unk>", "<0x41>", "\u2581", "##ing", "</w>",
            "e\u0301", "\u0323\u0307", "\ufb01", "\u00bd", "\ufdfa", "İ", "\u1100\u1161\u11a8", "<added>", "Word", "[UNK]", "中文", "ひらがなカタカナー"]


def random_text(rng, corpus):
    parts = []
    for _ in range(rng.randint(1, 8)):
        kind = rng.random()
        if kind < 0.25:
            parts.append(rng.choice(SNIPPETS))
        elif kind < 0.5 and corpus:
            start = rng.randrange(len(corpus))
            parts.append(corpus[start:start + rng.randint(1, 30)])
        else:
            pool = rng.choice(POOLS)
            for _ in range(rng.randint(1, 8)):
                low, high = rng.choice(pool)
                parts.append(chr(rng.randrange(low, high)))
    return "".join(part for part in parts)


def byte_model():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return models.BPE({c: i for i, c in enumerate(alphabet)}, [])


def seen_through_bytes(normalizer=None, pre_tokenizer=None):
    tokenizer = Tokenizer(byte_model())
    if normalizer:
        tokenizer.normalizer = normalizer
    marker = pre_tokenizers.ByteLevel(add_prefix_space=pre_tokenizer is not None, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizer, marker]) if pre_tokenizer else marker
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def with_normalizer():
    n = normalizers
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Nmt"):
        yield f"normalizer {name}", getattr(n, name)()
    yield "normalizer Prepend", n.Prepend("\u2581")
    yield "normalizer Replace", n.Sequence([n.Replace("e", "xy"), n.Replace(Regex(r"\s+"), " "), n.Replace(Regex("[a-c]+"), "_")])
    yield "normalizer Bert", n.BertNormalizer()
    yield "normalizer Bert cased", n.BertNormalizer(lowercase=False)
    yield "normalizer Bert accents", n.BertNormalizer(strip_accents=True, lowercase=False, handle_chinese_chars=False)
    yield "normalizer Sequence", n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase(), n.Strip()])


def with_pre_tokenizer():
    p = pre_tokenizers
    behaviors = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
    for behavior in behaviors:
        for invert in (False, True):
            yield f"pre-tokenizer Split {behavior} {invert}", p.Split(Regex("[a-m]|[0-9]+|\\p{Han}"), behavior, invert)
        yield f"pre-tokenizer Punctuation {behavior}", p.Punctuation(behavior)
    yield "pre-tokenizer Split text", p.Split("a", "isolated")
    for scheme in ("always", "first", "never"):
        yield f"pre-tokenizer Metaspace {scheme}", p.Metaspace(prepend_scheme=scheme)
        yield f"pre-tokenizer Metaspace {scheme} whole", p.Metaspace("_", scheme, split=False)
    yield "pre-tokenizer Digits", p.Digits(False)
    yield "pre-tokenizer Digits single", p.Digits(True)
    for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts"):
        yield f"pre-tokenizer {name}", getattr(p, name)()
    yield "pre-tokenizer CharDelimiterSplit", p.CharDelimiterSplit("e")
    yield "pre-tokenizer FixedLength", p.FixedLength(3)
    yield "pre-tokenizer Sequence", p.Sequence([p.UnicodeScripts(), p.Digits(True), p.Metaspace(), p.Punctuation()])
    yield "pre-tokenizer first word", p.Sequence([p.WhitespaceSplit(), p.Metaspace(prepend_scheme="first")])


def trained(model, trainer, corpus, **steps):
    tokenizer = Tokenizer(model)
    for name, step in steps.items():
        setattr(tokenizer, name, step)
    tokenizer.train_from_iterator([corpus[i:i + 500] for i in range(0, min(len(corpus), 400_000), 500)], trainer)
    tokenizer.add_tokens([AddedToken("<added>", normalized=True), AddedToken("Word", single_word=True, normalized=True),
                          AddedToken("[MASK]", special=True, lstrip=True, normalized=False)])
    return tokenizer


def whole_tokenizers(corpus):
    p, n, d, t = pre_tokenizers, normalizers, decoders, trainers
    quiet = {"show_progress": False}
    yield "model WordLevel", trained(models.WordLevel(unk_token="<unk>"), t.WordLevelTrainer(vocab_size=3000, special_tokens=["<unk>"], **quiet), corpus,
                                     normalizer=n.Lowercase(), pre_tokenizer=p.Whitespace())
    bert = trained(models.WordPiece(unk_token="[UNK]"), t.WordPieceTrainer(vocab_size=3000, special_tokens=["[UNK]", "[CLS]", "[SEP]"], **quiet), corpus,
                   normalizer=n.BertNormalizer(), pre_tokenizer=p.BertPreTokenizer(), decoder=d.WordPiece())
    bert.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield "model WordPiece", bert
    yield "model WordPiece plain", trained(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=8),
                                           t.WordPieceTrainer(vocab_size=2000, special_tokens=["[UNK]"], continuing_subword_prefix="@", **quiet), corpus,
                                           pre_tokenizer=p.WhitespaceSplit(), decoder=d.WordPiece("@", False))
    unigram = t.UnigramTrainer(vocab_size=3000, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>", **quiet)
    yield "model Unigram", trained(models.Unigram(), unigram, corpus, normalizer=n.Sequence([n.Nmt(), n.NFKC(), n.Replace(Regex(" {2,}"), " ")]),
                                   pre_tokenizer=p.Metaspace(), decoder=d.Metaspace())
    whole = trained(models.Unigram(), unigram, corpus, pre_tokenizer=p.Metaspace(prepend_scheme="first", split=False),
                    decoder=d.Metaspace(prepend_scheme="first"))
    data = json.loads(whole.to_str())
    for byte in range(256):
        data["model"]["vocab"].append([f"<0x{byte:02X}>", -20.0])
    data["model"]["byte_fallback"] = True
    for token in data["added_tokens"]:
        token["id"] = token["id"] if token["id"] < 3 else token["id"] + 256
    data["decoder"] = {"type": "Sequence", "decoders": [data["decoder"], {"type": "ByteFallback"}, {"type": "Fuse"}]}
    yield "model Unigram bytes", Tokenizer.from_str(json.dumps(data))
    yield "model BPE suffix", trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True),
                                      t.BpeTrainer(vocab_size=3000, special_tokens=["<unk>"], end_of_word_suffix="</w>", **quiet), corpus,
                                      normalizer=n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase()]), pre_tokenizer=p.BertPreTokenizer(), decoder=d.BPEDecoder())
    yield "model BPE prefix", trained(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
                                      t.BpeTrainer(vocab_size=2000, special_tokens=["<unk>"], continuing_subword_prefix="##", **quiet), corpus,
                                      pre_tokenizer=p.Whitespace(), decoder=d.WordPiece())
    yield "model BPE bytes normalizer", trained(models.BPE(), t.BpeTrainer(vocab_size=2000, initial_alphabet=p.ByteLevel.alphabet(), **quiet), corpus,
                                                normalizer=n.ByteLevel(), decoder=d.ByteLevel())


PIECES = ["a", "##b", "##", "\u2581", "\u2581the", "x\u2581y", "</w>", "a</w>", "</w>b", " .", " ?", "n't", " n't", "'s", "'m", " ' ", " do not", ".", ",", "!",
          "<pad>", "|", "a<pad>b", "<0x41>", "<0xC3>", "<0xA9>", "<0xG1>", " ", "  a  ", "é", "中", "\U0001F600", "Ġa", "Ã©", "don", "'t", "_", "__a_", ""]


def with_decoder():
    d = decoders
    yield "decoder none", None
    yield "decoder WordPiece", d.WordPiece()
    yield "decoder WordPiece plain", d.WordPiece(cleanup=False)
    yield "decoder Metaspace", d.Metaspace()
    yield "decoder Metaspace never", d.Metaspace(prepend_scheme="never")
    yield "decoder BPEDecoder", d.BPEDecoder()
    yield "decoder CTC", d.CTC()
    yield "decoder CTC plain", d.CTC(cleanup=False)
    yield "decoder ByteLevel", d.ByteLevel()
    yield "decoder Fuse", d.Fuse()
    yield "decoder Strip each", d.Strip(" ", 1, 0)
    yield "decoder Strip whole", d.Sequence([d.Metaspace(prepend_scheme="never"), d.Fuse(), d.Strip(" ", 2, 0)])
    yield "decoder Replace", d.Sequence([d.Replace("a", "bb"), d.Replace(Regex("[b_]+"), "<>"), d.Fuse()])
    yield "decoder Sequence", d.Sequence([d.Replace("\u2581", " "), d.WordPiece("##", True), d.Fuse(), d.Replace("a", "A")])


def decoder_tokenizer(decoder):
    tokenizer = Tokenizer(models.WordLevel({text: i for i, text in enumerate(PIECES)}, unk_token="a"))
    if decoder:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


class Stator:
    def __init__(self, binary, path):
        self.command = [binary, "tokenize", "--tokenizer", str(path)]

    def lines(self, inputs, *flags):
        done = subprocess.run([*self.command, *flags], input="".join(line + "\n" for line in inputs).encode(), capture_output=True)
        if done.returncode != 0:
            sys.exit(f"{self.command}: {done.stderr.decode()}")
        return [json.loads(line) for line in done.stdout.decode().splitlines()]


def report(name, cases, differing):
    print(f"{name:40} {cases:8} cases {len(differing):6} differences", flush=True)
    for text, ours, theirs in differing[:3]:
        print(f"    {text!r}\n      stator    {ours!r}\n      reference {theirs!r}")
    return len(differing)


def compare_encode(name, tokenizer, stator, texts):
    lines = [json.dumps(text) for text in texts]
    differing = []
    ours = stator.lines(lines, "--jsonl")
    plain = stator.lines(lines, "--jsonl", "--no-special")
    theirs = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=True)]
    tokenizer.encode_special_tokens = True
    theirs_plain = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    tokenizer.encode_special_tokens = False
    for i, text in enumerate(texts):
        if ours[i]["tokens"] != theirs[i] or plain[i]["tokens"] != theirs_plain[i]:
            differing.append((text, (ours[i]["tokens"], plain[i]["tokens"]), (theirs[i], theirs_plain[i])))
    return report(name, len(texts), differing), theirs


def compare_decode(name, tokenizer, stator, batches):
    differing = []
    lines = [json.dumps(ids) for ids in batches]
    for skip, flags in ((False, []), (True, ["--no-special"])):
        ours = stator.lines(lines, "--decode", *flags)
        theirs = tokenizer.decode_batch(batches, skip_special_tokens=skip)
        differing += [(ids, mine["text"], text) for ids, mine, text in zip(batches, ours, theirs) if mine["text"] != text]
    return report(name, 2 * len(batches), differing)


def charsmap_of(path):
    """The normalizer's table in a SentencePiece model: field 2 of its field 3."""
    def fields(data):
        at = 0
        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = varint()
            size = {1: 8, 5: 4}.get(key & 7)
            if key & 7 == 0:
                varint()
                continue
            size = varint() if size is None else size
            yield key >> 3, data[at:at + size]
            at += size
    normalizer = next(value for number, value in fields(pathlib.Path(path).read_bytes()) if number == 3)
    return next(value for number, value in fields(normalizer) if number == 2)


def all_cases(arguments, corpus):
    for name, normalizer in with_normalizer():
        yield name, seen_through_bytes(normalizer=normalizer)
    if arguments.charsmap:
        charsmap = charsmap_of(arguments.charsmap)
        yield "normalizer Precompiled", seen_through_bytes(normalizer=normalizers.Precompiled(charsmap))
    for name, pre_tokenizer in with_pre_tokenizer():
        yield name, seen_through_bytes(pre_tokenizer=pre_tokenizer)
    yield from whole_tokenizers(corpus)
    for name, decoder in with_decoder():
        yield name, decoder_tokenizer(decoder)
    for path in arguments.files:
        yield path, Tokenizer.from_file(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stator", required=True)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--charsmap")
    parser.add_argument("--corpus")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    corpus = pathlib.Path(arguments.corpus).read_text()[:4_000_000] if arguments.corpus else "".join(SNIPPETS) * 50
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        for name, tokenizer in all_cases(arguments, corpus):
            if arguments.only not in name:
                continue
            rng = random.Random(f"{arguments.seed} {name}")
            path.write_text(tokenizer.to_str() if name not in arguments.files else pathlib.Path(name).read_text())
            stator = Stator(arguments.stator, path)
            if name.startswith("decoder"):
                batches = [[rng.randrange(len(PIECES) + 1) for _ in range(rng.randint(1, 12))] for _ in range(arguments.texts)]
                total += compare_decode(name, tokenizer, stator, batches)
                continue
            texts = [random_text(rng, corpus) for _ in range(arguments.texts)]
            differences, ids = compare_encode(name, tokenizer, stator, texts)
            total += differences
            if not name.startswith(("normalizer", "pre-tokenizer")):
                total += compare_decode(f"{name}, decoded", tokenizer, stator, [batch for batch in ids if batch])
    print(f"{total} differences in all")
    return 1 if total else 0


sys.exit(main())
