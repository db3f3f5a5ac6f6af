#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""StatorStorage made by the real SGLang's backend factory, with real tensors as pages: set, exists, get, a second backend from the store.

usage: VENV/bin/python tests/real_engines/sglang_storage.py        VENV has SGLang (0.5.23 was used); no GPU is needed
"""

import dataclasses
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "bindings" / "python")]
from stator_process import Stator  # noqa: E402

import torch  # noqa: E402
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig  # noqa: E402
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory  # noqa: E402

PAGE, SHAPE = 16, (2, 2, 16, 2, 32)


class Pool:
    """SGLang's host memory, layer first: as MHATokenToKVPoolHost gives and takes flat pages."""
    page_size, layout = PAGE, "layer_first"

    def __init__(self):
        self.kv = torch.zeros(2, 2, 64 * PAGE, 2, 32, dtype=torch.bfloat16)

    def get_dummy_flat_data_page(self):
        return torch.zeros(SHAPE, dtype=torch.bfloat16).flatten()

    def get_data_page(self, index, flat=True):
        page = self.kv[:, :, index:index + PAGE]
        return page.flatten() if flat else page

    def set_from_flat_data_page(self, index, page):
        self.kv[:, :, index:index + PAGE] = page.reshape(SHAPE)


def backend(port: int, pool: Pool):
    extra = {"backend_name": "stator", "module_path": "stator_kv.sglang_storage", "class_name": "StatorStorage",
             "store": f"127.0.0.1:{port}", "load_timeout_ms": 20_000}
    given = {"model_name": "m", "tp_size": 1, "pp_size": 1, "attn_cp_size": 1, "dp_size": 1, "is_mla_model": False, "extra_config": extra}
    values = {field.name: given.get(field.name, 0) for field in dataclasses.fields(HiCacheStorageConfig)
              if field.name in given or field.default is dataclasses.MISSING}
    made = StorageBackendFactory.create_backend("dynamic", HiCacheStorageConfig(**values), pool)
    made.register_mem_pool_host(pool)
    return made


def main() -> None:
    store = Stator("store", "--listen", "127.0.0.1:0", "--host-bytes", "64MiB")
    pool, other = Pool(), Pool()
    pool.kv.copy_(torch.randn(pool.kv.shape, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16))
    keys, indices = [f"{n:064x}" for n in range(40)], torch.arange(40 * PAGE)
    first = backend(store.port, pool)
    assert first.batch_exists(keys) == 0
    assert first.batch_set(keys, [pool.get_data_page(n * PAGE) for n in range(40)])
    first.close()
    second = backend(store.port, other)
    assert second.batch_exists(keys + ["f" * 64]) == 40
    pages = second.batch_get(keys, [other.get_dummy_flat_data_page() for _ in keys])
    equal = sum(torch.equal(page, pool.get_data_page(n * PAGE)) for n, page in enumerate(pages))
    assert second.batch_get_v1(keys, indices) == [True] * 40
    assert torch.equal(other.kv[:, :, :40 * PAGE], pool.kv[:, :, :40 * PAGE])
    second.close()
    store.close()
    print(f"{equal} of 40 pages equal through a store, by pages and by indices")


if __name__ == "__main__":
    main()
