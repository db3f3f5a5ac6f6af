#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator serve FILE.gguf`: a model, its vocabulary and its chat template from one file."""

from __future__ import annotations

import json
import pathlib
import struct
import subprocess
import tempfile
import unittest

from gguf_file import byte_vocabulary, gguf
from stator_process import BINARY, ROOT, Serve, clean_environment


TESTDATA = ROOT / "src" / "stator" / "engine" / "cpu" / "testdata" / "qwen3_f32_tied"
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def tensors(path: pathlib.Path) -> dict[str, tuple[list[int], bytes]]:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (row["shape"], data[8 + size + row["data_offsets"][0]:8 + size + row["data_offsets"][1]])
            for name, row in header.items()}


def gguf_name(name: str) -> str:
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER[rest.removesuffix('.weight')]}.weight"


def model_file() -> bytes:
    config = json.loads((TESTDATA / "config.json").read_text())
    vocabulary = byte_vocabulary()
    missing = config["vocab_size"] - len(vocabulary["tokenizer.ggml.tokens"])
    vocabulary["tokenizer.ggml.tokens"] += [f"<x{i}>" for i in range(missing)]
    vocabulary["tokenizer.ggml.token_type"] += [4] * missing
    keys = {"general.architecture": "qwen3", "qwen3.block_count": config["num_hidden_layers"],
            "qwen3.context_length": config["max_position_embeddings"], "qwen3.embedding_length": config["hidden_size"],
            "qwen3.feed_forward_length": config["intermediate_size"],
            "qwen3.attention.head_count": config["num_attention_heads"],
            "qwen3.attention.head_count_kv": config["num_key_value_heads"],
            "qwen3.attention.key_length": config["head_dim"], "qwen3.attention.value_length": config["head_dim"],
            "tokenizer.chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}"} | vocabulary
    rows = tensors(TESTDATA / "model.safetensors")
    head = bytearray(gguf(keys))
    # One number that is no integer, which the writer does not know.
    theta = b"qwen3.rope.freq_base"
    head += struct.pack("<Q", len(theta)) + theta + struct.pack("<If", 6, 1e6)
    head[8:24] = struct.pack("<QQ", len(rows), len(keys) + 1)
    body = b""
    for name, (shape, data) in rows.items():
        spelled = gguf_name(name).encode()
        head += struct.pack("<Q", len(spelled)) + spelled + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", extent) for extent in reversed(shape)) + struct.pack("<IQ", 0, len(body))
        body += data + b"\0" * (-len(data) % 32)
    return bytes(head) + b"\0" * (-len(head) % 32) + body


class GgufModel(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "tiny.gguf"

    def test_it_says_what_the_folder_of_the_same_weights_says(self) -> None:
        self.path.write_bytes(model_file())
        golden = tensors(TESTDATA / "golden.safetensors")
        prompt = list(struct.unpack("<20i", golden["prompt0.tokens"][1]))
        expected = list(struct.unpack("<40i", golden["prompt0.greedy"][1]))
        deployment = Serve(engine="cpu", model=str(self.path))
        self.addCleanup(deployment.close)
        status, answer = deployment.http.post("/v1/completions", {
            "model": "tiny", "prompt": prompt, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "logprobs": 0,
            "return_tokens_as_token_ids": True})
        self.assertEqual(status, 200, answer)
        tokens = [int(token.removeprefix("token_id:")) for token in answer["choices"][0]["logprobs"]["tokens"]]
        self.assertEqual(tokens, expected)
        status, answer = deployment.http.post("/v1/chat/completions", {
            "model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
        self.assertEqual(status, 200, answer)

    def test_a_truncated_file_is_refused_by_its_tensor(self) -> None:
        self.path.write_bytes(model_file()[:-100])
        done = subprocess.run([BINARY, "serve", str(self.path), "--engine", "cpu", "--port", "0"], env=clean_environment(),
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("GGUF tensor", done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
