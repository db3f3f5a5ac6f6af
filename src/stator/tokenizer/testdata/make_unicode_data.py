#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ../unicode_data.inc: character classes as the Hugging Face tokenizers library sees them.

Its regular expressions, its Rust code and its normalizers follow different Unicode versions, and none
of them is the version of this system's libraries. So the classes are not taken from the Unicode
database but asked of the library itself, code point by code point.

    python3 make_unicode_data.py > ../unicode_data.inc        # needs: pip install tokenizers
"""
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
EVERYTHING = "".join(map(chr, CODE_POINTS))


def regex_class(body):
    return set(map(ord, normalizers.Replace(Regex(f"[^{body}]+"), "").normalize_str(EVERYTHING)))


def isolated_by(pre_tokenizer):
    """Code points that come out alone when they stand between letters."""
    alone = set()
    for start in range(0, len(CODE_POINTS), 4096):
        text = "aa" + "aa".join(map(chr, CODE_POINTS[start:start + 4096])) + "aa"
        alone |= {ord(piece) for piece, _ in pre_tokenizer.pre_tokenize_str(text) if len(piece) == 1}
    return alone


def separators_of(pre_tokenizer):
    """Code points that the pre-tokenizer removes."""
    kept = set()
    for start in range(0, len(CODE_POINTS), 4096):
        text = "".join(map(chr, CODE_POINTS[start:start + 4096]))
        kept |= {ord(c) for piece, _ in pre_tokenizer.pre_tokenize_str(text) for c in piece}
    return set(CODE_POINTS) - kept


def active_in(form):
    """Code points that a decomposing normalization form changes or reorders."""
    normalizer = getattr(normalizers, form)()
    active = {c for c in CODE_POINTS if normalizer.normalize_str(chr(c)) != chr(c)}
    for c in CODE_POINTS:
        mark = chr(c)
        if unicodedata.combining(mark):
            # Marks that the library's older tables do not know have class 0 there: never reordered.
            probes = ["a\u0345" + mark, "a\u0301" + mark, "a\u0316" + mark, mark + "\u0334"]
            expected = [unicodedata.normalize(form, probe) for probe in probes]
            if [normalizer.normalize_str(probe) for probe in probes] == expected:
                active.add(c)
    return active


def active_composing(form):
    """The same for a composing form: also what composes with what stands before it."""
    normalizer = getattr(normalizers, form)()
    active = active_in(form)
    for c in CODE_POINTS:
        mark = chr(c)
        parts = unicodedata.normalize("NFD", mark)
        if len(parts) > 1 and normalizer.normalize_str(parts) != parts:
            active.update(map(ord, parts[1:]))
    active.update(range(0x1161, 0x1176))  # Hangul vowels and trailing consonants compose
    active.update(range(0x11A8, 0x11C3))
    return active


def removed_by(normalizer):
    return {c for c in CODE_POINTS if normalizer.normalize_str(f"a{chr(c)}b") == "ab"}


def bert(**on):
    return normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
                                         "lowercase": False, **on})


def grapheme_extending():
    """Code points that stay in one grapheme with the letter before: seen through a charsmap that maps
    "a" to "b", because it replaces whole graphemes and so loses what else is in them."""
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ ord("a")] = ord("a") | 1 << 8 | 256 << 10
    units[ord("a")] = 1 << 31
    charsmap = struct.pack("<513I", 2048, *units) + b"b\0"
    normalizer = normalizers.Precompiled(charsmap)
    return {c for c in CODE_POINTS if c and normalizer.normalize_str("a" + chr(c)) == "b"}


def main():
    whitespace = pre_tokenizers.Whitespace()
    isolated = isolated_by(whitespace)
    space = regex_class("\\s")
    assert space == separators_of(pre_tokenizers.WhitespaceSplit()) == separators_of(whitespace)
    ascii_punctuation = {c for c in range(128) if chr(c) in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"}
    classes = [  # order = bit, see UnicodeClass in unicode.h
        regex_class("\\p{L}"), regex_class("\\p{N}"), space, regex_class("\\p{M}"),
        regex_class("\\p{P}"), regex_class("\\p{S}"), regex_class("\\p{Lu}\\p{Lt}"),
        regex_class("\\p{Ll}"), regex_class("\\p{Han}"),
        set(CODE_POINTS) - isolated - space,  # \w of the Rust side
        isolated_by(pre_tokenizers.Digits(individual_digits=True)),
        isolated_by(pre_tokenizers.Punctuation("isolated")) | ascii_punctuation,
        active_composing("NFC"),
        set(),  # kNewline is set when the table is built
        active_in("NFD"), active_composing("NFKC"), active_in("NFKD"),
        removed_by(bert(clean_text=True)),
        removed_by(bert(strip_accents=True)),
        removed_by(normalizers.StripAccents()),
        grapheme_extending(),
    ]
    flags = [0] * 0x110000
    for bit, members in enumerate(classes):
        for c in members:
            flags[c] |= 1 << bit
    runs = []
    for value in flags:
        if runs and runs[-1][1] == value:
            runs[-1][0] += 1
        else:
            runs.append([1, value])
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Generated by testdata/make_unicode_data.py from tokenizers {tokenizers.__version__}; do not edit.")
    print("// {code points, UnicodeClass bits} from U+0000 on.")
    line = ""
    for length, value in runs:
        item = f"{{{length},{value}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = ""
        line += item
    print(line)
    print(f"{len(runs)} runs, {len(set(flags))} distinct", file=sys.stderr)


main()
