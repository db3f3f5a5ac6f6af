#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpora fuzz/{tiktoken,tekken,gguf,sentencepiece}: one or two tiny files of each format."""
import base64
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
SPACE = "\u2581"


def write(folder, name, data):
    path = HERE / "fuzz" / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(data)


def tokens():
    return [bytes([byte]) for byte in range(256)] + [b"ab", b"abc", b" a", b"  ", "é".encode()]


def encoded(token):
    return base64.b64encode(token).decode()


def tekken():
    vocab = [{"rank": rank, "token_bytes": encoded(token)} for rank, token in enumerate(tokens())]
    config = {"pattern": r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+", "default_vocab_size": 270, "default_num_special_tokens": 10}
    return json.dumps({"config": config, "vocab": vocab, "special_tokens": [{"rank": 1, "token_str": "<s>"}]}, separators=(",", ":")).encode()


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(**pairs):
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    for key, value in pairs.items():
        data += string("tokenizer.ggml." + key)
        if isinstance(value, str):
            data += struct.pack("<I", 8) + string(value)
        elif isinstance(value, bool):
            data += struct.pack("<I?", 7, value)
        elif isinstance(value, int):
            data += struct.pack("<II", 4, value)
        else:
            kind, pack = {str: (8, string), float: (6, lambda v: struct.pack("<f", v)), int: (5, lambda v: struct.pack("<i", v))}[type(value[0])]
            data += struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(pack, value))
    return data


def byte_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(extra)) for byte in range(256)]


PIECES = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), (SPACE, -3.0, 1), ("a", -4.0, 1), ("b", -5.0, 1), (SPACE + "a", -1.0, 1),
          ("ab", -1.5, 1), ("<tool>", 0.0, 4), ("<0x41>", 0.0, 6)]


def message(number, data):
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def sentencepiece(model_type):
    data = b"".join(message(1, message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind])) for text, score, kind in PIECES)
    return data + message(2, bytes([0x18, model_type])) + message(3, bytes([0x18, 1, 0x20, 1]))


def main():
    write("tiktoken", "small", "".join(f"{encoded(token)} {rank}\n" for rank, token in enumerate(tokens())).encode())
    write("tekken", "small", tekken())
    texts, scores, types = (list(column) for column in zip(*PIECES))
    write("gguf", "llama", gguf(model="llama", tokens=texts, scores=scores, token_type=types, bos_token_id=1, add_space_prefix=True))
    write("gguf", "t5", gguf(model="t5", tokens=texts, scores=scores, token_type=types, eos_token_id=2))
    write("gguf", "bert", gguf(model="bert", tokens=["[UNK]", "[CLS]", "[SEP]", SPACE + "a", "b", SPACE + "é"], token_type=[2, 3, 3, 1, 1, 1],
                               cls_token_id=1, seperator_token_id=2))
    write("gguf", "gpt2", gguf(model="gpt2", pre="qwen2", tokens=[*byte_alphabet(), "ab", "<|end|>"], merges=["a b"]))
    write("sentencepiece", "unigram", sentencepiece(1))
    write("sentencepiece", "bpe", sentencepiece(2))


main()
