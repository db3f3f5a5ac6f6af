# SPDX-License-Identifier: Apache-2.0
"""A folder that looks like a small Qwen2-VL to everybody who does not compute: the demo model's tokenizer, three tokens more, a
template and the facts of a vision tower. And pictures."""

import base64
import json
import pathlib
import shutil
import struct
import zlib

from stator_process import MODEL_DIR

IMAGE_TOKENS = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def make_vision_model(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("generation_config.json", "tokenizer_config.json"):
        shutil.copy(MODEL_DIR / name, folder / name)
    tokenizer = json.loads((MODEL_DIR / "tokenizer.json").read_text())
    first = max(token["id"] for token in tokenizer["added_tokens"]) + 1
    like = tokenizer["added_tokens"][-1]
    tokenizer["added_tokens"] += [like | {"id": first + i, "content": text} for i, text in enumerate(IMAGE_TOKENS)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((MODEL_DIR / "config.json").read_text()) | {
        "model_type": "qwen2_vl", "image_token_id": first + 1, "vision_start_token_id": first, "vision_end_token_id": first + 2,
        "vision_config": {"patch_size": 14, "spatial_merge_size": 2}, "vocab_size": first + 3}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(
        {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 1003520}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def png(width: int = 112, height: int = 112, shade: int = 0) -> bytes:
    """A picture of one grey: 16 tokens at the default size."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes([shade]) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
