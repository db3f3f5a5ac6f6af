#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of the tokenizer tests with the Hugging Face tokenizers library.

Trains tiny tokenizers in the styles of published models on the corpus below, saves them as
models/<name>.json, and records what the library makes of texts.json in goldens/<name>.json.

    python3 make_goldens.py                      # needs: pip install tokenizers
    python3 make_goldens.py --shared DIR ...     # also records model folders, as goldens/<folder name>.json

Golden file: one entry per text: {"ids", "special" (with BOS/EOS), "text" (ids as text), "plain" (special
tokens encoded as text), "decoded", "skipped" (decoded without special tokens)}; an entry is left out where
it equals the obvious: special, text, plain = ids; decoded = the text; skipped = decoded.
"""
import json
import pathlib
import struct
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

HERE = pathlib.Path(__file__).parent

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's what they've said, we'll see; I'm sure you'd agree.",
    "Tokenizers split text into pieces, and pieces into tokens: the most frequent pairs are merged first.",
    "for (int i = 0; i < 100; ++i) {\n    total += values[i] * 2;\n}\nreturn total;\n\n\tif (x == 12345) { y(); }",
    "def main(argv):\n    print(f\"hello {argv[1]}\")\n    return {'key': [1, 2, 3], \"other\": None}\n",
    "https://example.org/path?query=value&page=2 user@example.com 2024-01-31 12:34:56 3.14159 1,000,000",
    "Der schnelle braune Fuchs springt über den faulen Hund. Größe, Straße, Äpfel, Öl, Übung.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au delà des îles.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Привет, мир!",
    "いろはにほへと ちりぬるを 東京は日本の首都です。吾輩は猫である。名前はまだ無い。",
    "我能吞下玻璃而不伤身体。人工智能正在改变世界。你好，世界！",
    "नमस्ते दुनिया। क्या हाल है? สวัสดีชาวโลก مرحبا بالعالم שלום עולם 안녕하세요 세계",
    "😀 😃 👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ ✓ → ∑ ∞ ≠ ½ Ⅻ ²³",
    "HELLO World CamelCaseWord XMLHttpRequest getURLFor iPhone McDonald's O'Neil DON'T You'RE WE'LL",
]

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", " \n ", "\t", "\r\n", "a", "Hello", "Hello world", " Hello  world ",
    "hello\nworld\n\n\nagain   \n   end   ", "   leading", "trailing   ", "tabs\tand\t\ttabs \t mixed \t",
    "It's what they've said, we'll see; I'm sure you'd agree.", "IT'S WHAT THEY'VE SAID, WE'LL'D'M'T",
    "'s 't 're 've 'm 'll 'd 'x ' '' ''s don't'", "a'\u017fb it\u2019s 'S 'RE'l 'L", "1 12 123 1234 12345 123456 1234567890",
    "3.14159 1,000,000 0x1F 1e10 ½ Ⅻ ²³ ٣٤٥ १२३ ௧௨", "2024-01-31T12:34:56Z",
    "for (int i = 0; i < 100; ++i) {\n    total += values[i];\n}\n", "x=='';//comment\n/*block*/\n#!/bin/sh\n\n\n    y",
    "!!!??? ... --- *** &&& ||| ~~~ ``` $$$ %%%", "(a)[b]{c}<d>\"e\"'f'`g`", "a_b__c___d -e--f",
    "HELLO World CamelCaseWord XMLHttpRequest getURLFor iPhone aB ABc aBC ABCdEF ÀÉîõÜ ǅabc",
    "Größe Straße über naïve café déjà vu cœur", "cafe\u0301 nai\u0308ve A\u030a \u212b \u1e9b\u0323 q\u0307\u0323 \u0958",
    "a\u0323\u0307\u0301b\u0307\u0323 \u0301start \u0344 x\u0300\u0301\u0302\u0303", "\u1100\u1161\u11a8 각 \ud55c\uae00 \u1112\u1161\u11ab",
    "Съешь же ещё этих мягких французских булок", "ελληνικά ΣΊΣΥΦΟΣ İstanbul ıI", "日本語のテキスト、東京。カタカナ ひらがな",
    "我能吞下玻璃而不伤身体。你好，世界！１２３", "नमस्ते दुनिया क्या हाल है", "สวัสดีชาวโลก", "مرحبا بالعالم שָׁלוֹם עולם",
    "안녕하세요 세계", "தமிழ் বাংলা ಕನ್ನಡ ქართული հայերեն አማርኛ", "😀😃 👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ 😀a 1😀",
    "✓→∑∞≠ ©®™ €£¥ ½¼ ㋿ 〆 ﷺ ﬁ", "a\u0085b\u00a0c\u1680d\u180ee\u2000f\u200bg\u2028h\u2029i\u202fj\u205fk\u3000l\ufeffm",
    "\u00a0\u00a0x \u2028\u2028y \u3000z", "\u180e\u180e \u180ea \u001c\u001d\u001e\u001f\u001ca", "x\u0085\u0085y \u0085z\u000b\u000c w",
    "nul\u0000inside \u0000 \u0001\u007f\u0080\u009f", "\u00ad soft\u00adhyphen \u200d\u200c \u2060", "\ufffd \uffff \U0010ffff \ue000",
    "\U00010400\U00010428 \U0001d7d8\U0001d7d9 \U00020000\U0002a6df \u1c89\ua7cb\U00010d50", "a" * 40, "ab" * 60, " " * 50, "\n" * 30, "=" * 45,
    "abcdefghijklmnopqrstuvwxyz" * 6, "东" * 50, "1" * 50, "the " * 40, "e\u0301" * 40, "word" + " " * 20 + "word" + "\n " * 10 + "end",
    "<s>", "<s></s>", "<s> a </s> b<unk>c", "<|begin|>Hello<|end|>", "a<|begin|><|end|>b <|end|> <|end|>  c", "<|begin|", "<|begin|>|>", "<|<|begin|>",
    "  <mask>  x", "x<mask>y \n<mask> <mask>", "a <right>   b<right>\n\nc", "<right><mask><right>", "a <both> \t b<both>c  <both>",
    "word wordy sword word. (word) word_ word1 wörd word", "Word WORD", "<think>hmm</think> ok", "<tool>é</tool> e\u0301<tool>", "caf\u00e9tok cafe\u0301tok CAF\u00c9TOK",
    "    four  two   three     five", "<0x41><0x0A> <0xFF>", "▁under ▁▁ score▁", "Ġġ Ċ ĉ ¡¢£ ÿĀĐ", "end of text\n", "#version 1 2",
]
INVALID = ["ff", "61ff62", "c3", "61c3", "c328", "e282", "61e28261", "f09f98", "f09f9880f09f98", "eda080", "f4908080", "c0af", "e0809f", "80808080",
           "fe80", "61f0808080f162", "c3a9c3", "20ff20fe20", "e4bda0e5a5", "00ff00"]

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
TAIL = r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
CONTRACTIONS = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)"""
CL100K = CONTRACTIONS + r"""|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*""" + TAIL
QWEN2 = CONTRACTIONS + r"""|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*""" + TAIL
QWEN35 = CONTRACTIONS + r"""|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*""" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTIONS + r"?|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*"
         + CONTRACTIONS + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL)
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*""" + TAIL)

DEEPSEEK_LLM_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
EXAONE_MOE = (CONTRACTIONS + r"""|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"""
              r"""|\s*[\r\n]|\s+(?!\S)|\s+""")


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(use_regex=False, add_prefix_space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def after(*steps):
    return pre_tokenizers.Sequence([*steps, byte_level()])


def special(content, **flags):
    return AddedToken(content, special=True, normalized=False, **flags)


def plain(content, **flags):
    return AddedToken(content, special=False, **flags)


ADDED = [special("<s>"), special("</s>"), special("<|begin|>"), special("<|end|>"), special("<mask>", lstrip=True),
         special("<right>", rstrip=True), special("<both>", lstrip=True, rstrip=True), plain("word", single_word=True, normalized=False),
         plain("<think>", normalized=False), plain("</think>", normalized=False), plain("<tool>", normalized=True),
         plain("café" + "tok", normalized=True), plain("    ", normalized=False), plain("  ", normalized=False)]


def train(pre_tokenizer, normalizer=None, decoder=None, added=(), vocab=700, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    byte_alphabet = pre_tokenizers.ByteLevel.alphabet() if decoder is None else []
    specials = [model["unk_token"]] if "unk_token" in model else []
    affixes = {key: model[key] for key in ("continuing_subword_prefix", "end_of_word_suffix") if key in model}
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, initial_alphabet=byte_alphabet,
                                  show_progress=False, **affixes)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoder or decoders.ByteLevel()
    for token in added:
        tokenizer.add_tokens([token])
    return tokenizer


def with_template(tokenizer, single, names):
    ids = [(name, tokenizer.token_to_id(name)) for name in names]
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                    processors.TemplateProcessing(single=single, special_tokens=ids)])
    return tokenizer


def edit(tokenizer, change):
    """Applies `change` to the JSON of a tokenizer."""
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def sentencepiece(prepend):
    """Llama-2 style: characters, spaces as U+2581, bytes as <0xNN>."""
    steps = ([normalizers.Prepend("▁")] if prepend else []) + [normalizers.Replace(" ", "▁")]
    strip = [decoders.Strip(" ", 1, 0)] if prepend else []
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    specials = [special("<s>"), special("</s>")]
    trained = train(None, normalizers.Sequence(steps), decoder, vocab=600, unk_token="<unk>")

    def add_bytes(data):
        vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
        vocab.update({f"<0x{byte:02X}>": 3 + byte for byte in range(256)})
        for text in sorted(data["model"]["vocab"], key=data["model"]["vocab"].get):
            vocab.setdefault(text, len(vocab))
        data["model"].update(vocab=vocab, byte_fallback=True, fuse_unk=True)
        data["added_tokens"][0]["id"] = 0
        if not prepend:
            data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    tokenizer = edit(trained, add_bytes)
    tokenizer.add_special_tokens(specials)
    return with_template(tokenizer, "<s> $A", ["<s>"])


def build():
    yield "gpt2", train(byte_level(use_regex=True), added=ADDED)
    llama = with_template(train(after(split(CL100K)), added=ADDED), "<|begin|> $A", ["<|begin|>"])
    yield "llama3", edit(llama, lambda data: data["model"].update(ignore_merges=True))
    yield "qwen2", train(after(split(QWEN2)), normalizers.NFC(), added=ADDED)
    yield "qwen35", train(after(split(QWEN35)), normalizers.NFC(), vocab=500)
    yield "o200k", train(after(split(O200K, "removed", True)), vocab=500)
    yield "deepseek3", train(after(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK)), vocab=500)
    yield "starcoder", train(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(use_regex=True)]), vocab=500)
    yield "falcon", train(pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), byte_level(use_regex=True),
                                                   pre_tokenizers.Digits(False), split("[0-9][0-9][0-9]")]), vocab=500)
    yield "deepseek_llm", train(after(split("[\r\n]"), split(r"\s?[" + DEEPSEEK_LLM_LETTERS + "]+"), split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"),
                                      split(r"\s+$"), split("[一-龥ࠀ-一가-\ud7ff]+"), pre_tokenizers.Digits(True)), vocab=500)
    yield "bloom", train(after(split(BLOOM)), vocab=500)
    yield "viking", train(after(split(BLOOM), pre_tokenizers.Digits(True)), vocab=500)
    yield "exaone_moe", train(after(split(EXAONE_MOE)), vocab=500)
    roberta = train(byte_level(use_regex=True, add_prefix_space=True), added=ADDED[:8], vocab=500)
    roberta.post_processor = processors.RobertaProcessing(("</s>", roberta.token_to_id("</s>")), ("<s>", roberta.token_to_id("<s>")))
    yield "roberta", roberta
    yield "sentencepiece", sentencepiece(prepend=True)
    yield "gemma", sentencepiece(prepend=False)
    clip = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    yield "clip", train(split(CONTRACTIONS + r"|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "removed", True), clip,
                        decoders.Fuse(), vocab=500, unk_token="<unk>", end_of_word_suffix="</w>")
    yield "words", train(pre_tokenizers.Whitespace(), normalizers.Strip(), decoders.Fuse(), vocab=400, unk_token="<unk>",
                         continuing_subword_prefix="##")
    yield "next", train(after(split("[aeiou]+", "merged_with_next"), pre_tokenizers.Split(" ", "merged_with_previous")), vocab=400)


QUIET = {"show_progress": False}
WORD_ADDED = [special("<s>"), special("</s>"), special("<mask>", lstrip=True), plain("word", single_word=True, normalized=False),
              plain("<tool>", normalized=True)]


def train_words(model, trainer, pre_tokenizer, normalizer=None, decoder=None):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, trainer)
    if decoder:
        tokenizer.decoder = decoder
    for token in WORD_ADDED:
        tokenizer.add_tokens([token])
    return tokenizer


def unigram(pre_tokenizer, normalizer, decoder):
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>"], unk_token="<unk>", **QUIET)
    return train_words(models.Unigram(), trainer, pre_tokenizer, normalizer, decoder)


def with_unigram_bytes(tokenizer):
    def add_bytes(data):
        first = len(data["model"]["vocab"])
        data["model"]["vocab"] += [[f"<0x{byte:02X}>", -30.0] for byte in range(256)]
        data["model"]["byte_fallback"] = True
        for token in data["added_tokens"]:
            token["id"] += 256 if token["id"] >= first else 0
    return edit(tokenizer, add_bytes)


def small_charsmap():
    """A double array that maps "e" to "E" and the ligature "fi" to its two letters, as SentencePiece stores it."""
    units = [0] * 1024
    replacements = b"E\0fi\0"
    root = 256
    units[0] = root << 10
    at = root ^ ord("e")
    units[at] = ord("e") | 1 << 8 | 256 << 10
    units[at ^ 256] = 1 << 31
    node, blocks = root, [512, 640, 768]
    for byte, block in zip("\ufb01".encode(), blocks):
        at = node ^ byte
        node = block
        units[at] = byte | (at ^ block) << 10
    units[at] |= 1 << 8
    units[node] = 1 << 31 | 2
    return struct.pack("<I1024I", 4096, *units) + replacements


def build_words():
    """The models that are no BPE, and steps that only they use."""
    wordpiece = trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[CLS]", "[SEP]"], **QUIET)
    bert = train_words(models.WordPiece(unk_token="[UNK]"), wordpiece, pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(),
                       decoders.WordPiece())
    bert.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield "bert", bert
    cased = trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]"], continuing_subword_prefix="@", **QUIET)
    yield "cased", train_words(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=8), cased, pre_tokenizers.WhitespaceSplit(),
                               normalizers.Sequence([normalizers.BertNormalizer(strip_accents=True, lowercase=False), normalizers.Strip()]),
                               decoders.WordPiece("@", False))
    yield "t5", unigram(pre_tokenizers.Metaspace(), normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]), decoders.Metaspace())
    yield "xlm", with_unigram_bytes(unigram(pre_tokenizers.Metaspace(prepend_scheme="first", split=False), normalizers.Precompiled(small_charsmap()),
                                            decoders.Sequence([decoders.Metaspace(prepend_scheme="never"), decoders.ByteFallback(), decoders.Fuse(),
                                                               decoders.Strip(" ", 1, 0)])))
    yield "scripts", unigram(pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Digits(True),
                                                      pre_tokenizers.Punctuation("merged_with_previous")]), normalizers.NFKD(), decoders.Fuse())
    wordlevel = trainers.WordLevelTrainer(vocab_size=200, special_tokens=["<unk>", "<pad>", "|"], **QUIET)
    yield "wordlevel", train_words(models.WordLevel(unk_token="<unk>"), wordlevel, pre_tokenizers.Whitespace(),
                                   normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]))
    yield "ctc", train_words(models.WordLevel(unk_token="<unk>"), wordlevel, pre_tokenizers.FixedLength(1), None, decoders.CTC())
    suffix = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], end_of_word_suffix="</w>", **QUIET)
    yield "gpt1", train_words(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), suffix, pre_tokenizers.BertPreTokenizer(),
                              normalizers.BertNormalizer(handle_chinese_chars=False), decoders.BPEDecoder())


def all_texts():
    return [{"text": text} for text in TEXTS] + [{"hex": text} for text in INVALID]


def as_text(item):
    return item["text"] if "text" in item else bytes.fromhex(item["hex"]).decode("utf-8", "replace")


def record(tokenizer):
    entries = []
    for text in map(as_text, all_texts()):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        special_ids = tokenizer.encode(text, add_special_tokens=True).ids
        tokenizer.encode_special_tokens = True
        plain_ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        decoded = tokenizer.decode(special_ids, skip_special_tokens=False)
        skipped = tokenizer.decode(special_ids, skip_special_tokens=True)
        full = {"ids": ids, "special": special_ids, "plain": plain_ids, "decoded": decoded, "skipped": skipped}
        obvious = {"ids": None, "special": ids, "plain": ids, "decoded": text, "skipped": decoded}
        entries.append({key: value for key, value in full.items() if value != obvious[key]})
    return entries


def write_lines(path, items):
    path.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(item, ensure_ascii=True, separators=(",", ":")) for item in items)
    path.write_text("[\n" + lines + "\n]\n")


def main():
    write_lines(HERE / "texts.json", all_texts())
    (HERE / "models").mkdir(exist_ok=True)
    for name, tokenizer in [*build(), *build_words()]:
        path = HERE / "models" / f"{name}.json"
        path.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
        write_lines(HERE / "goldens" / f"{name}.json", record(Tokenizer.from_file(str(path))))
    if "--shared" in sys.argv:
        for folder in map(pathlib.Path, sys.argv[sys.argv.index("--shared") + 1:]):
            write_lines(HERE / "goldens" / f"{folder.name}.json", record(Tokenizer.from_file(str(folder / "tokenizer.json"))))


main()
