#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny random checkpoints of this folder and what they should compute.

Needs torch, transformers and safetensors. Run it in this folder; the result is committed:

    python3 make_goldens.py

Per model a folder with config.json, the files of sentence-transformers where it has some, the weights,
and golden.safetensors:
  textN.tokens  I32  the sequence
  textN.first   I32  how many of its tokens have type 0
  textN.out     F32  the vector, or the class probabilities, after activation
  textN.raw     F32  the same before it
The reference computes in f32 whatever the checkpoint's dtype, as the engine does.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import (AutoModel, AutoModelForSequenceClassification, BertConfig, LlamaConfig,
                          XLMRobertaConfig)

LENGTHS = [1, 7, 20, 33]

ENCODER = dict(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
               num_attention_heads=2, max_position_embeddings=40)
DECODER = dict(ENCODER, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False)

MODELS = {
    "bert_mean": (BertConfig(**ENCODER), AutoModel, "mean", torch.float32),
    "bert_classes": (BertConfig(**ENCODER, num_labels=3, hidden_act="gelu_new"),
                     AutoModelForSequenceClassification, None, torch.float32),
    "xlmr_cls": (XLMRobertaConfig(**dict(ENCODER, max_position_embeddings=42), type_vocab_size=1,
                                  pad_token_id=1), AutoModel, "cls", torch.float16),
    "xlmr_score": (XLMRobertaConfig(**dict(ENCODER, max_position_embeddings=42), type_vocab_size=1,
                                    pad_token_id=1, num_labels=1),
                   AutoModelForSequenceClassification, None, torch.bfloat16),
    "llama_last": (LlamaConfig(**DECODER), AutoModel, "lasttoken", torch.bfloat16),
    "llama_classes": (LlamaConfig(**DECODER, num_labels=2, pad_token_id=0),
                      AutoModelForSequenceClassification, None, torch.float32),
}


def randomize(model):
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name.lower() and name.endswith("weight"):
                parameter.copy_(1.0 + 0.2 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(noise * (1.5 / parameter.shape[-1] ** 0.5))


def write_sentence_transformers(folder, mode):
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
               {"idx": 1, "name": "1", "path": "1_Pooling",
                "type": "sentence_transformers.models.Pooling"},
               {"idx": 2, "name": "2", "path": "2_Normalize",
                "type": "sentence_transformers.models.Normalize"}]
    (folder / "modules.json").write_text(json.dumps(modules, indent=1) + "\n")
    (folder / "1_Pooling").mkdir()
    names = {"mean": "mean_tokens", "cls": "cls_token", "lasttoken": "lasttoken"}
    pooling = {f"pooling_mode_{name}": name == names[mode]
               for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling, indent=1) + "\n")


def pooled(hidden, mode):
    return {"mean": lambda: hidden.mean(0), "cls": lambda: hidden[0],
            "lasttoken": lambda: hidden[-1]}[mode]()


def compute(model, ids, first, mode):
    inputs = {"input_ids": ids[None]}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        types = torch.zeros_like(ids)
        types[first:] = 1
        inputs["token_type_ids"] = types[None]
    with torch.no_grad():
        out = model(**inputs)
    if mode is not None:
        raw = pooled(out.last_hidden_state[0], mode)
        return raw, torch.nn.functional.normalize(raw, dim=0)
    raw = out.logits[0]
    return raw, torch.sigmoid(raw) if raw.numel() == 1 else torch.softmax(raw, 0)


def main():
    here = pathlib.Path(__file__).resolve().parent
    for name, (config, kind, mode, dtype) in MODELS.items():
        torch.manual_seed(1)
        model = kind.from_config(config).to(torch.float32)
        randomize(model)
        folder = here / name
        shutil.rmtree(folder, ignore_errors=True)
        model.to(dtype).save_pretrained(folder, safe_serialization=True)
        for extra in folder.iterdir():
            if extra.name not in ("config.json", "model.safetensors"):
                extra.unlink()
        if mode is not None:
            write_sentence_transformers(folder, mode)
        model = kind.from_pretrained(folder, torch_dtype=torch.float32).eval()
        generator = torch.Generator().manual_seed(3)
        golden = {}
        for i, length in enumerate(LENGTHS):
            ids = torch.randint(3, config.vocab_size, (length,), generator=generator)
            first = max(1, length // 2)
            raw, activated = compute(model, ids, first, mode)
            golden[f"text{i}.tokens"] = ids.to(torch.int32)
            golden[f"text{i}.first"] = torch.tensor([first], dtype=torch.int32)
            golden[f"text{i}.raw"] = raw.contiguous()
            golden[f"text{i}.out"] = activated.contiguous()
        save_file(golden, folder / "golden.safetensors")
        print(name, raw[:3].tolist())


main()
