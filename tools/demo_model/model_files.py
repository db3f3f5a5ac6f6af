# SPDX-License-Identifier: Apache-2.0
"""The file formats of models/demo: tokenizer, chat template, configuration, weights."""

from __future__ import annotations

import json
import pathlib

import safetensors.torch
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from corpus import DEFAULT_SYSTEM

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, IM_START, IM_END)

# The split pattern published with Qwen2 and Qwen3 tokenizers.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = r"""{%- if not messages or messages[0].role != 'system' -%}
    {{- '<|im_start|>system\nDEFAULT_SYSTEM<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'tool' -%}
        {{- '<|im_start|>user\n<tool_response>\n' -}}
    {%- else -%}
        {{- '<|im_start|>' + message.role + '\n' -}}
    {%- endif -%}
    {%- if message.content is string -%}
        {{- message.content -}}
    {%- elif message.content -%}
        {%- for part in message.content -%}
            {%- if part.type == 'text' -%}
                {{- part.text -}}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {%- if message.role == 'tool' -%}
        {{- '\n</tool_response>' -}}
    {%- endif -%}
    {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
""".replace("DEFAULT_SYSTEM", DEFAULT_SYSTEM)


def train_tokenizer(texts: list[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Byte-level BPE; the special tokens take the last ids, as in Qwen's own tokenizers."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(SPLIT_PATTERN), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS), min_frequency=2, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ))
    tokenizer.add_special_tokens([tokenizers.AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    return tokenizer


def make_config(tokenizer: tokenizers.Tokenizer, layers: int) -> dict:
    """config.json in the form published with Qwen3 checkpoints."""
    vocab_size = -(-tokenizer.get_vocab_size() // 64) * 64
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": tokenizer.token_to_id(END_OF_TEXT),
        "eos_token_id": tokenizer.token_to_id(IM_END),
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 256,
        "initializer_range": 0.02,
        "intermediate_size": 768,
        "max_position_embeddings": 2048,
        "max_window_layers": layers,
        "model_type": "qwen3",
        "num_attention_heads": 4,
        "num_hidden_layers": layers,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": vocab_size,
    }


def _write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tokenizer(folder: pathlib.Path, tokenizer: tokenizers.Tokenizer) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {
        str(tokenizer.token_to_id(token)): {
            "content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True,
        }
        for token in SPECIAL_TOKENS
    }
    _write_json(folder / "tokenizer_config.json", {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": [IM_START, IM_END],
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": IM_END,
        "model_max_length": 2048,
        "pad_token": END_OF_TEXT,
        "split_special_tokens": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    })


def write_model(folder: pathlib.Path, model: torch.nn.Module, config: dict) -> None:
    """Weights rounded to bfloat16; the output head is tied to the embedding and therefore not stored."""
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {
        "bos_token_id": config["bos_token_id"],
        "do_sample": True,
        "eos_token_id": [config["eos_token_id"], config["bos_token_id"]],
        "pad_token_id": config["bos_token_id"],
        "temperature": 0.3,
        "top_k": 20,
        "top_p": 0.9,
    })
    tensors = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items() if name != "lm_head.weight"
    }
    safetensors.torch.save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
