#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a checkpoint of 1 GB takes until it serves, and what memory it takes: bars 1.5 s (warm) and weights + KV + 60 MB.

  bench/cpu_engine/load.py [--binary build/release/bin/stator] [--runs 5] [--folder /tmp/stator-1g]

Makes a random bf16 checkpoint (20 layers, the demo model's tokenizer) in --folder, once. Warm: the file is in the page cache. Needs numpy.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
D, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCABULARY = 1536, 20, 16, 8, 96, 4096, 3072
KV_BLOCKS = 64


def tensors() -> dict[str, tuple[int, ...]]:
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, D), "model.norm.weight": (D,)}
    query, key = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    for layer in range(LAYERS):
        for name, shape in {
                "input_layernorm": (D,), "post_attention_layernorm": (D,), "self_attn.q_proj": (query, D),
                "self_attn.k_proj": (key, D), "self_attn.v_proj": (key, D), "self_attn.o_proj": (D, query),
                "self_attn.q_norm": (HEAD_DIM,), "self_attn.k_norm": (HEAD_DIM,), "mlp.gate_proj": (INNER, D),
                "mlp.up_proj": (INNER, D), "mlp.down_proj": (D, INNER)}.items():
            out[f"model.layers.{layer}.{name}.weight"] = shape
    return out


def make(folder: pathlib.Path) -> None:
    import numpy

    folder.mkdir(parents=True)
    demo = ROOT / "models/demo"
    for file in demo.glob("*.json"):
        shutil.copy(file, folder)
    config = json.loads((demo / "config.json").read_text())
    config |= dict(hidden_size=D, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
                   head_dim=HEAD_DIM, intermediate_size=INNER, max_window_layers=LAYERS)
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, shape in tensors().items():
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = numpy.random.default_rng(1)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in tensors().values():
            values = random.standard_normal(int(numpy.prod(shape)), dtype=numpy.float32) * numpy.float32(0.02)
            values += numpy.float32(len(shape) == 1)
            file.write((values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())


def memory_mb(pid: int, field: str) -> float:
    return int(re.search(rf"{field}:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) / 1000


def cpu_seconds(pid: int) -> float:
    return sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[11:13])) / 100


def run(binary: str, folder: pathlib.Path) -> tuple[float, float, float, float, float]:
    begin = time.monotonic()
    command = [binary, "serve", str(folder), "--port", "0", "--workers", "1", "--host", "127.0.0.1", "--kv-blocks", str(KV_BLOCKS)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if found := re.search(r"serve: ready url=(\S+) model=(\S+)", line):
                    break
            else:
                raise SystemExit(f"it does not serve: {' '.join(command)}")
            ready = time.monotonic() - begin
            spent = cpu_seconds(process.pid)
            idle = memory_mb(process.pid, "VmRSS")
            body = json.dumps({"model": found.group(2), "prompt": "Once", "max_tokens": 8}).encode()
            request = urllib.request.Request(found.group(1) + "/v1/completions", body, {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=60).read()
            return ready, spent, idle, memory_mb(process.pid, "VmRSS"), memory_mb(process.pid, "VmHWM")
        finally:
            process.terminate()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", default=str(ROOT / "build/release/bin/stator"))
    options.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/stator-1g"))
    options.add_argument("--runs", type=int, default=5)
    given = options.parse_args()
    if not (given.folder / "model.safetensors").exists():
        make(given.folder)
    file = given.folder / "model.safetensors"
    with open(file, "rb") as data:
        while data.read(1 << 24):
            pass
    weights = file.stat().st_size / 1e6
    kv = KV_BLOCKS * 16 * LAYERS * 2 * KV_HEADS * HEAD_DIM * 4 / 1e6
    rows = [run(given.binary, given.folder) for _ in range(given.runs)]
    ready, spent, idle, after, peak = (statistics.median(column) for column in zip(*rows))
    print(f"{weights:.0f} MB of weights, {kv:.0f} MB of KV cache; medians of {given.runs}")
    print(f"ready after {ready:.2f} s (bar 1.5; fastest {min(row[0] for row in rows):.2f}), {spent:.2f} s of CPU time")
    print(f"resident {idle:.0f} MB ready, {after:.0f} after an answer, peak {peak:.0f} (bar {weights + kv + 60:.0f})")


if __name__ == "__main__":
    main()
