#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the performance database of the tests beside this file. Needs pyarrow."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).parent / "h200_sxm"
BANDWIDTH = 4.8e12
FLOPS = {"bfloat16": 989e12, "fp8": 1978e12}
BYTES = {"bfloat16": 2, "fp8": 1}


def efficiency(rows: int) -> float:
    return 0.5 if rows <= 16 else 0.8


def gemm_ms(dtype: str, m: int, n: int, k: int) -> float:
    math = 2 * m * n * k / FLOPS[dtype]
    traffic = (BYTES[dtype] * (m * k + n * k) + 2 * m * n) / BANDWIDTH
    return max(math, traffic) * 1e3 / efficiency(m)


def context_ms(heads: int, kv_heads: int, dim: int, batch: int, length: int) -> float:
    math = 4 * batch * length * length / 2 * heads * dim / FLOPS["bfloat16"]
    traffic = batch * dim * (4 * heads * length + 4 * kv_heads * length) / BANDWIDTH
    return max(math, traffic) * 1e3 / efficiency(length)


def generation_ms(heads: int, kv_heads: int, dim: int, batch: int, context: int) -> float:
    math = 4 * batch * heads * dim * context / FLOPS["bfloat16"]
    traffic = batch * dim * (4 * heads + 4 * kv_heads * context) / BANDWIDTH
    return max(math, traffic) * 1e3 / efficiency(batch)


def write(family: str, name: str, rows: list[dict], **options: object) -> None:
    path = FOLDER / family / "vllm" / "0.24.0" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, **options)


gemms = [{"gemm_dtype": dtype, "m": m, "n": n, "k": k, "latency": gemm_ms(dtype, m, n, k)}
         for dtype in FLOPS for m in (1, 16, 32, 1024) for n, k in ((1024, 1024), (4096, 1024), (4096, 4096))]
heads = {"num_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "kv_cache_dtype": "bfloat16", "window_size": 0}
contexts = [heads | {"batch_size": b, "isl": s, "latency": context_ms(16, 8, 128, b, s)} for b in (1, 4) for s in (16, 128, 2048)]
generations = [heads | {"batch_size": b, "isl": 1, "step": s - 1, "latency": generation_ms(16, 8, 128, b, s)}
               for b in (1, 16, 64) for s in (128, 2048)]
write("gemm", "gemm_perf", gemms, compression="zstd")
write("attention", "context_attention_perf", contexts, compression="zstd")
write("attention", "generation_attention_perf", generations, compression="none", use_dictionary=False)

# What ParquetFile has to understand, and what it has to refuse.
types = pa.table({"whole": pa.array([1, None, -3], pa.int64()), "half": pa.array([0.5, 1.5, None], pa.float32()),
                  "text": pa.array(["a", None, "ccc"]), "yes": pa.array([True, False, None])})
pq.write_table(types, FOLDER.parent / "types.parquet", compression="zstd")
pq.write_table(types, FOLDER.parent / "snappy.parquet", compression="snappy")
pq.write_table(pa.table({"list": [[1], [2, 3]]}), FOLDER.parent / "nested.parquet")
pq.write_table(pa.table({"n": list(range(5000))}), FOLDER.parent / "pages.parquet", compression="zstd", data_page_size=512,
               row_group_size=2000)
