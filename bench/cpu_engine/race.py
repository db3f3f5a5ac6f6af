#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CPU engine against llama.cpp on random Qwen3-shaped models of 168 M parameters, alternating, medians.

  npm install --ignore-scripts node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1
  git clone node_modules/node-llama-cpp/llama/gitRelease.bundle lcpp      # headers of the same version
  bench/cpu_engine/race.py --headers lcpp --libraries node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 \
      --stator build/release/bin/stator_infer [--types bf16,q8_0] [--rounds 5] [--ids [--model models/demo]]

--ids compares greedy tokens of 20 prompts instead: of the random model, whose logits are all but equal, or of a trained Qwen3 one with its
eval_questions.jsonl (this needs `tokenizers`). Needs numpy and g++.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

SHAPE = {"D": 1024, "L": 12, "H": 16, "KV": 8, "HD": 64, "FF": 3072, "V": 16384}
CASES = [("prefill", 512), ("prefill", 4096), ("decode", 1), ("decode", 8), ("decode", 32)]
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "q4_k": 14, "q6_k": 18, "bf16": 32}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def write_gguf(path: pathlib.Path, values: dict[str, object], tensors: list[tuple[str, "numpy.ndarray"]]) -> None:
    """F32; llama.cpp's own quantizer makes the other types of it."""
    pairs = []
    for key, value in values.items():
        kind, packed = ((8, text(value)) if isinstance(value, str) else
                        (4, struct.pack("<I", value)) if isinstance(value, int) else (6, struct.pack("<f", value)))
        pairs.append(text(key) + struct.pack("<I", kind) + packed)
    infos, offset = b"", 0
    for name, data in tensors:
        shape = data.shape[::-1]
        infos += text(name + ".weight") + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        infos += struct.pack("<IQ", 0, offset)
        offset += data.size * 4 + -data.size * 4 % 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + infos
    with path.open("wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        for _, data in tensors:
            body = data.tobytes()
            file.write(body + b"\0" * (-len(body) % 32))


def qwen3_values(shape: dict[str, int], theta: float) -> dict[str, object]:
    return {"general.architecture": "qwen3"} | {"qwen3." + key: value for key, value in (
        ("block_count", shape["L"]), ("context_length", 32768), ("embedding_length", shape["D"]),
        ("feed_forward_length", shape["FF"]), ("attention.head_count", shape["H"]),
        ("attention.head_count_kv", shape["KV"]), ("attention.key_length", shape["HD"]),
        ("attention.value_length", shape["HD"]), ("rope.freq_base", theta),
        ("attention.layer_norm_rms_epsilon", 1e-6), ("vocab_size", shape["V"]))} | {"tokenizer.ggml.model": "none"}


def write_model(path: pathlib.Path) -> None:
    import numpy

    rng = numpy.random.default_rng(7)
    heads, keys = SHAPE["H"] * SHAPE["HD"], SHAPE["KV"] * SHAPE["HD"]
    shapes: list[tuple[str, tuple[int, ...]]] = [("token_embd", (SHAPE["D"], SHAPE["V"])), ("output_norm", (SHAPE["D"],))]
    for i in range(SHAPE["L"]):
        shapes += [(f"blk.{i}.{name}", shape) for name, shape in (
            ("attn_norm", (SHAPE["D"],)), ("attn_q", (SHAPE["D"], heads)), ("attn_k", (SHAPE["D"], keys)),
            ("attn_v", (SHAPE["D"], keys)), ("attn_output", (heads, SHAPE["D"])), ("attn_q_norm", (SHAPE["HD"],)),
            ("attn_k_norm", (SHAPE["HD"],)), ("ffn_norm", (SHAPE["D"],)), ("ffn_gate", (SHAPE["D"], SHAPE["FF"])),
            ("ffn_up", (SHAPE["D"], SHAPE["FF"])), ("ffn_down", (SHAPE["FF"], SHAPE["D"])))]
    tensors = []
    for name, shape in shapes:
        values = rng.standard_normal(int(numpy.prod(shape)), dtype=numpy.float32) * (0.1 if len(shape) == 1 else 0.02)
        tensors.append((name, (values + (1 if len(shape) == 1 else 0)).astype(numpy.float32).reshape(shape[::-1])))
    write_gguf(path, qwen3_values(SHAPE, 1e6), tensors)


def convert_model(folder: pathlib.Path, path: pathlib.Path) -> None:
    """A Qwen3 checkpoint with tied embeddings, in bf16."""
    import numpy

    config = json.loads((folder / "config.json").read_text())
    raw = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
             "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    tensors = []
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        halves = numpy.frombuffer(raw, dtype="<u2", count=(end - begin) // 2, offset=8 + size + begin)
        values = (halves.astype(numpy.uint32) << 16).view(numpy.float32).reshape(entry["shape"])
        name = name.removesuffix(".weight").removeprefix("model.")
        if name.startswith("layers."):
            _, layer, part = name.split(".", 2)
            name = f"blk.{layer}.{names[part]}"
        tensors.append(({"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}.get(name, name), values))
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    write_gguf(path, qwen3_values({"L": config["num_hidden_layers"], "D": config["hidden_size"], "FF": config["intermediate_size"],
                                   "H": config["num_attention_heads"], "KV": config["num_key_value_heads"],
                                   "HD": config["head_dim"], "V": config["vocab_size"]}, float(theta)), tensors)


def write_prompts(folder: pathlib.Path, path: pathlib.Path) -> None:
    import tokenizers

    words = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    questions = [json.loads(line) for line in (folder / "eval_questions.jsonl").read_text().splitlines()][:20]
    path.write_text("".join(" ".join(map(str, words.encode(
        f"<|im_start|>user\n{question['question']}<|im_end|>\n<|im_start|>assistant\n").ids)) + "\n" for question in questions))


class Race:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = pathlib.Path(options.work)
        self.folder.mkdir(exist_ok=True)
        self.libraries = pathlib.Path(options.libraries).resolve()
        self.llama = self.folder / "llama_infer"
        source = pathlib.Path(__file__).with_name("llama_infer.cc")
        subprocess.run(["g++", "-O2", "-std=c++17", "-I", f"{options.headers}/include", "-I", f"{options.headers}/ggml/include",
                        str(source), "-L", str(self.libraries), *(f"-l:{p.name}" for p in sorted(self.libraries.glob("*.so"))
                        if p.name.startswith(("libllama.v", "libggml.v", "libggml-base"))), f"-Wl,-rpath,{self.libraries}",
                        "-o", str(self.llama)], check=True)

    def model(self, kind: str) -> pathlib.Path:
        path = self.folder / f"{kind}.gguf"
        if not path.exists() and kind == "f32":
            convert_model(pathlib.Path(self.options.model), path) if self.options.model else write_model(path)
        elif not path.exists():
            self.run(str(self.llama), str(self.model("f32")), "2", "quantize", str(FILE_TYPES[kind]), str(path))
        return path

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=os.environ | {"LLAMA_LIBRARIES": str(self.libraries)}, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-500:]}")
        return done.stdout

    def sides(self, kind: str) -> dict[str, tuple[str, ...]]:
        threads = str(self.options.threads)
        return {"stator": (self.options.stator, str(self.model(kind)), threads),
                "llama.cpp": (str(self.llama), str(self.model(kind)), threads)}

    def speed(self, kind: str) -> None:
        sides = self.sides(kind)
        for what, n in CASES:
            figures: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(self.options.rounds):
                for side, command in sides.items():
                    figures[side].append(float(self.run(*command, what, str(n)).split()[0]))
            ours, theirs = (statistics.median(figures[side]) for side in ("stator", "llama.cpp"))
            spread = {side: f"{min(values):.0f}-{max(values):.0f}" for side, values in figures.items()}
            print(f"| {kind} | {what} {n} | {ours:.1f} ({spread['stator']}) | {theirs:.1f} ({spread['llama.cpp']}) "
                  f"| {ours / theirs:.2f} |", flush=True)

    def ids(self, kind: str) -> None:
        sides = self.sides(kind)
        prompts = "20"
        if self.options.model:
            prompts = str(self.folder / "prompts.txt")
            write_prompts(pathlib.Path(self.options.model), pathlib.Path(prompts))
        ours, theirs = (self.run(*command, "ids", prompts).splitlines() for command in sides.values())
        equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
        firsts = sum(a.split()[0] == b.split()[0] for a, b in zip(ours, theirs, strict=True))
        print(f"| {kind} | {equal} of {len(ours)} prompts | first token: {firsts} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headers", required=True)
    parser.add_argument("--libraries", required=True)
    parser.add_argument("--stator", default="build/release/bin/stator_infer")
    parser.add_argument("--types", default="bf16,q8_0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ids", action="store_true")
    parser.add_argument("--model", help="of --ids: a folder as models/demo; give a --work of its own")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "stator-race"))
    options = parser.parse_args()
    race = Race(options)
    print("| type | prompts | |" if options.ids else "| type | case | stator tok/s | llama.cpp tok/s | ratio |")
    for kind in options.types.split(","):
        race.ids(kind) if options.ids else race.speed(kind)


if __name__ == "__main__":
    main()
