#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a tiny Qwen2-VL with random weights that vLLM can serve on a CPU; run it with the environment's own python.

    make_vision_model.py OUT TOKENIZER_JSON     a Llama vocabulary of 32,000 tokens: <s>, </s>, <unk>
"""

import json
import pathlib
import sys

import torch
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessor

NAMES = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' or 'image_url' in part %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=sys.argv[2], bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>")
    tokenizer.add_special_tokens({"additional_special_tokens": NAMES})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(out)
    ids = dict(zip(NAMES, tokenizer.convert_tokens_to_ids(NAMES)))
    # A wide initialisation: with the defaults a random model only echoes its last token, whatever the picture.
    text = {"vocab_size": 32064, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 4096, "initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": 2,
            "tie_word_embeddings": False, "dtype": "bfloat16",
            "rope_parameters": {"rope_type": "default", "type": "mrope", "mrope_section": [4, 6, 6], "rope_theta": 10000.0}}
    vision = {"depth": 2, "embed_dim": 64, "hidden_size": 128, "num_heads": 4, "mlp_ratio": 2, "patch_size": 14, "spatial_merge_size": 2,
              "temporal_patch_size": 2, "in_channels": 3}
    config = Qwen2VLConfig(
        text_config=text, vision_config=vision, image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"], tie_word_embeddings=False)
    torch.manual_seed(0)
    model = Qwen2VLForConditionalGeneration(config).to(torch.bfloat16)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "visual" in name and weights.dim() > 1:
                torch.nn.init.normal_(weights, std=0.15)
    model.save_pretrained(out)
    Qwen2VLImageProcessor(min_pixels=3136, max_pixels=1003520, patch_size=14, temporal_patch_size=2, merge_size=2).save_pretrained(out)
    for name in ("preprocessor_config.json", "tokenizer_config.json"):
        content = json.loads((out / name).read_text()) | {"processor_class": "Qwen2VLProcessor"}
        (out / name).write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
