# SPDX-License-Identifier: Apache-2.0
"""KV blocks of any engine in Stator's tiers: libstator_kv through ctypes. Standard library only.

    cache = stator_kv.Cache(model="m", dtype="bf16", layout="mine/1", block_tokens=16, block_bytes=2 << 20,
                            host_bytes="4GiB", store="127.0.0.1:8095")
    memory = cache.memory([(address, stride, bytes), …], blocks=num_blocks)
    keys = cache.keys(tokens, owner="adapter")
    put = cache.put(keys, memory, block_ids, tokens=tokens)
    put.wait()
    got = cache.get(keys, memory, other_ids, tokens=tokens, limit_ms=500)
    got.wait().blocks                       # so many of the first are in place

For vLLM: `stator_kv.vllm_connector`; for SGLang: `stator_kv.sglang_storage`; for LMCache: `stator store --lmcache-listen`.
"""

from stator_kv._cache import Cache, Found, Operation, Outcome, StatorKvError
from stator_kv._library import library_path, parse_bytes

__all__ = ["Cache", "Found", "Operation", "Outcome", "StatorKvError", "library_path", "parse_bytes"]
