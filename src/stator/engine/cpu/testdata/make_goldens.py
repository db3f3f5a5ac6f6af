#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny random checkpoints of this folder and what they should compute.

Needs torch, transformers and safetensors. Run it in this folder; the result is committed:

    python3 make_goldens.py [NAME…]

Per model a folder with config.json, generation_config.json, the weights, and golden.safetensors:
  promptN.tokens  I32  the prompt
  promptN.logits  F32  [positions, vocab]: every position for prompt 0, the last one for the others
  promptN.greedy  I32  the greedy continuation, 40 tokens, EOS ignored
The reference computes in f32 whatever the checkpoint's dtype, as the engine does.
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, Ernie4_5Config, Gemma2Config, Gemma3TextConfig, GemmaConfig, Glm4Config,
                          GlmConfig, GptOssConfig, GraniteConfig, LlamaConfig, MistralConfig, MixtralConfig, Olmo2Config,
                          Olmo3Config, OlmoeConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig, SeedOssConfig,
                          SmolLM3Config)

GREEDY_TOKENS = 40
PROMPT_LENGTHS = [20, 1, 37]

BASE = dict(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2)
# The vocabulary is no multiple of the engine's vector width on purpose.
SMALL = dict(BASE, vocab_size=300, hidden_size=32, intermediate_size=48)

MODELS = {
    "qwen3_f32_tied": (
        Qwen3Config(**BASE, head_dim=32, tie_word_embeddings=True,
                    rope_parameters={"rope_type": "default", "rope_theta": 1e6}), torch.float32),
    "llama_bf16_llama3_sharded": (
        LlamaConfig(**BASE, tie_word_embeddings=False,
                    rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0,
                                     "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                     "original_max_position_embeddings": 32}), torch.bfloat16),
    "qwen3_f16_three_layers": (
        Qwen3Config(**dict(SMALL, num_hidden_layers=3), head_dim=16, tie_word_embeddings=False,
                    rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}),
        torch.float16),
    "qwen2_bf16_bias": (
        Qwen2Config(**dict(SMALL, num_attention_heads=2, num_key_value_heads=1),
                    tie_word_embeddings=True), torch.bfloat16),
    "mistral_bf16_window": (
        MistralConfig(**dict(SMALL, num_attention_heads=2, num_key_value_heads=2), sliding_window=8,
                      tie_word_embeddings=True), torch.bfloat16),
}

# As small as an architecture can be: the repository keeps them.
TINY = dict(vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def rope(kind, **parameters):
    return {"rope_type": kind, "rope_theta": 1e4, **parameters}


MODELS |= {name: (config, torch.bfloat16) for name, config in {
    "llama_bf16_yarn": LlamaConfig(**TINY, rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    "llama_bf16_dynamic": LlamaConfig(**TINY, rope_parameters=rope("dynamic", factor=2.0)),
    "qwen3_moe_bf16": Qwen3MoeConfig(
        **TINY, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[1]),
    "gemma2_bf16": Gemma2Config(**TINY, head_dim=16, query_pre_attn_scalar=32, sliding_window=8),
    "gemma3_bf16": Gemma3TextConfig(
        **TINY, head_dim=16, query_pre_attn_scalar=32, sliding_window=8,
        layer_types=["sliding_attention", "full_attention"]),
    "phi3_bf16_longrope": Phi3Config(
        **TINY, original_max_position_embeddings=128, rope_parameters=rope(
            "longrope", short_factor=[1.0 + 0.1 * i for i in range(8)], long_factor=[1.0 + 0.5 * i for i in range(8)],
            original_max_position_embeddings=128, partial_rotary_factor=1.0)),
    "glm_bf16": GlmConfig(**TINY, head_dim=16, attention_bias=True),
    "glm4_bf16": Glm4Config(**TINY, head_dim=16, attention_bias=True),
    "gpt_oss_bf16": GptOssConfig(
        **TINY, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters=rope("yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                             original_max_position_embeddings=64)),
    "mixtral_bf16": MixtralConfig(**TINY, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    "olmoe_bf16": OlmoeConfig(**TINY, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False),
    "gemma_bf16": GemmaConfig(**TINY, head_dim=16, hidden_activation="gelu_pytorch_tanh"),
    "granite_bf16": GraniteConfig(**TINY, embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.7,
                                  logits_scaling=2.0),
    "smollm3_bf16": SmolLM3Config(**TINY, no_rope_layers=[1, 0], tie_word_embeddings=True),
    "olmo2_bf16": Olmo2Config(**TINY),
    "olmo3_bf16": Olmo3Config(**TINY, sliding_window=8, layer_types=["sliding_attention", "full_attention"]),
    "seed_oss_bf16": SeedOssConfig(**TINY, head_dim=16, attention_bias=True, attention_out_bias=False),
    "ernie4_5_bf16": Ernie4_5Config(**TINY, head_dim=16, use_bias=True, tie_word_embeddings=True),
}.items()}
# Prompts beyond the trained context: the rotation is another one there.
LONG = {"llama_bf16_dynamic_long": (LlamaConfig(**dict(TINY, max_position_embeddings=24), rope_parameters=rope(
            "dynamic", factor=4.0)), torch.bfloat16),
        "phi3_bf16_longrope_long": (Phi3Config(
            **TINY, original_max_position_embeddings=24, rope_parameters=rope(
                "longrope", short_factor=[1.0 + 0.1 * i for i in range(8)], long_factor=[1.0 + 0.5 * i for i in range(8)],
                original_max_position_embeddings=24, partial_rotary_factor=1.0)), torch.bfloat16)}
MODELS |= LONG


def save_sharded(folder):
    """Splits model.safetensors in two, by hand: the library only shards large models."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for shard, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-{shard:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map.update({name: file for name in part})
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
             "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def randomize(model):
    """Weights large enough that attention is not uniform, logits differ clearly, and a tied model does
    not just repeat its last token."""
    output_gain = 6.0 if model.config.tie_word_embeddings else 1.0
    generator = torch.Generator().manual_seed(42)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_((0.0 if "Gemma" in type(model).__name__ else 1.0) + 0.2 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.3 * noise)
            else:
                scale = 1.0 if "embed" in name or "lm_head" in name else 1.5 / parameter.shape[1] ** 0.5
                gain = output_gain if "o_proj" in name or "down_proj" in name else 1.0
                parameter.copy_(gain * scale * noise)


def make(name, config, dtype):
    folder = pathlib.Path(name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomize(model)
    model.to(dtype).save_pretrained(folder)
    load = lambda: AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    model = load()
    if "sharded" in name:
        save_sharded(folder)
    golden = {}
    for index, length in enumerate(PROMPT_LENGTHS):
        model = load() if name in LONG else model  # it keeps the longest text that it saw
        generator = torch.Generator().manual_seed(100 + index)
        prompt = torch.randint(3, config.vocab_size, (1, length), generator=generator)
        tokens = prompt
        with torch.no_grad():
            logits = model(tokens, use_cache=False).logits[0]
            smallest_margin = 1e9
            past, new = None, tokens
            for _ in range(GREEDY_TOKENS):
                if name in LONG:  # what is cached stays as it was rotated
                    step = model(new, past_key_values=past, use_cache=True)
                    past, last = step.past_key_values, step.logits[0, -1]
                    new = last.argmax().view(1, 1)
                else:
                    last = model(tokens, use_cache=False).logits[0, -1]
                best = last.topk(2).values
                smallest_margin = min(smallest_margin, (best[0] - best[1]).item())
                tokens = torch.cat([tokens, last.argmax().view(1, 1)], dim=1)
        distinct = len(set(tokens[0, length:].tolist()))
        print(f"{name} prompt {index}: smallest greedy margin {smallest_margin:.4f}, "
              f"largest logit {logits.abs().max():.2f}, {distinct} distinct tokens")
        golden[f"prompt{index}.tokens"] = prompt[0].to(torch.int32)
        golden[f"prompt{index}.logits"] = (logits if index == 0 else logits[-1:]).contiguous()
        golden[f"prompt{index}.greedy"] = tokens[0, length:].to(torch.int32).contiguous()
    save_file(golden, folder / "golden.safetensors")


if __name__ == "__main__":
    for model_name, (model_config, model_dtype) in MODELS.items():
        if len(sys.argv) < 2 or model_name in sys.argv[1:]:
            make(model_name, model_config, model_dtype)
