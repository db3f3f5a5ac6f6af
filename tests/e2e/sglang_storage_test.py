#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SGLang's HiCache storage backend against a stand-in of SGLang's interface: the calls of its storage threads."""

import ctypes
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

from stator_process import BINARY, ROOT, Stator

os.environ["STATOR_KV_LIBRARY"] = str(pathlib.Path(BINARY).resolve().parents[1] / "lib" / "libstator_kv.so.1")
sys.path[:0] = [str(pathlib.Path(__file__).parent / "sglang_standin"), str(ROOT / "bindings" / "python")]
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig  # noqa: E402
from stator_kv.sglang_storage import StatorStorage  # noqa: E402

PAGE_BYTES, PAGE = 4096, 16


class Page:
    """A flat tensor of bytes."""
    dtype = "uint8"

    def __init__(self, data: bytes = bytes(PAGE_BYTES)):
        self.bytes = bytearray(data)
        self._view = (ctypes.c_uint8 * len(self.bytes)).from_buffer(self.bytes)

    def numel(self): return len(self.bytes)  # noqa: E704
    def element_size(self): return 1  # noqa: E704
    def data_ptr(self): return ctypes.addressof(self._view)  # noqa: E704
    def is_contiguous(self): return True  # noqa: E704
    def contiguous(self): return self  # noqa: E704


class Pool:
    """SGLang's host memory: pages by the index of their first token."""
    page_size, layout = PAGE, "layer_first"

    def __init__(self):
        self.pages: dict[int, bytes] = {}

    def get_dummy_flat_data_page(self): return Page()  # noqa: E704
    def get_data_page(self, index, flat=True): return Page(self.pages[index])  # noqa: E704

    def set_from_flat_data_page(self, index, data):
        self.pages[index] = bytes(data.bytes)


def content(n: int) -> bytes:
    return bytes((n * 31 + i * 7 + i // 256) % 256 for i in range(PAGE_BYTES))


KEYS = [f"{n:064x}" for n in range(12)]


class SglangStorageTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stator_sglang_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def storage(self, config: dict | None = None, **extra) -> StatorStorage:
        dynamic = {"backend_name": "stator", "module_path": "stator_kv.sglang_storage", "class_name": "StatorStorage"}
        storage = StatorStorage(HiCacheStorageConfig(model_name="m", extra_config=dynamic | extra, **(config or {})), {})
        storage.register_mem_pool_host(Pool())
        self.addCleanup(storage.close)
        return storage

    def fill(self, storage: StatorStorage) -> None:
        self.assertTrue(storage.batch_set(KEYS[:8], [Page(content(n)) for n in range(8)]))

    def check(self, storage: StatorStorage) -> None:
        self.assertEqual(storage.batch_exists(KEYS), 8)
        pages = storage.batch_get(KEYS, [Page() for _ in KEYS])
        self.assertEqual([page and bytes(page.bytes) for page in pages], [content(n) for n in range(8)] + [None] * 4)

    def test_pages_come_back_one_by_one_and_in_batches(self):
        storage = self.storage(host_bytes="1MiB")
        self.assertFalse(storage.exists(KEYS[0]))
        self.assertIsNone(storage.get(KEYS[0], Page()))
        self.assertTrue(storage.set(KEYS[0], Page(content(0))))
        self.assertTrue(storage.exists(KEYS[0]))
        self.assertEqual(bytes(storage.get(KEYS[0], Page()).bytes), content(0))
        self.fill(storage)
        self.check(storage)
        self.assertFalse(storage.set(KEYS[9], Page(b"short")), "a page of another size")
        storage.clear()
        self.assertEqual(storage.batch_exists(KEYS), 0)

    def test_by_indices_of_host_memory(self):
        storage, other = self.storage(host_bytes="1MiB"), Pool()
        storage.mem_pool_host.pages = {n * PAGE: content(n) for n in range(8)}
        indices = list(range(12 * PAGE))
        self.assertEqual(storage.batch_set_v1(KEYS[:8], indices[:8 * PAGE]), [True] * 8)
        storage.mem_pool_host = other
        self.assertEqual(storage.batch_get_v1(KEYS, indices), [True] * 8 + [False] * 4)
        self.assertEqual(other.pages, {n * PAGE: content(n) for n in range(8)})

    def test_a_restart_finds_the_disk_and_another_server_the_store(self):
        store = Stator("store", "--listen", "127.0.0.1:0", "--host-bytes", "16MiB")
        self.addCleanup(store.close)
        tiers = {"disk": str(self.folder / "kv"), "disk_bytes": "1MiB", "store": f"127.0.0.1:{store.port}"}
        first = self.storage(**tiers)
        self.fill(first)
        first.close()
        self.check(self.storage(store=f"store://127.0.0.1:{store.port}"))
        store.kill()
        self.check(self.storage(**tiers))

    def test_ranks_are_apart_unless_they_hold_the_same(self):
        tiers = {"object": f"file://{self.folder}/shared"}
        first = self.storage({"tp_rank": 0, "tp_size": 2}, **tiers)
        self.fill(first)
        first.close()
        self.assertEqual(self.storage({"tp_rank": 1, "tp_size": 2}, **tiers).batch_exists(KEYS), 0)
        self.check(self.storage({"tp_rank": 0, "tp_size": 2}, **tiers))
        latent = self.storage({"tp_rank": 0, "tp_size": 2, "is_mla_model": True}, **tiers)
        self.fill(latent)
        latent.close()
        self.check(self.storage({"tp_rank": 1, "tp_size": 2, "is_mla_model": True}, **tiers))


if __name__ == "__main__":
    unittest.main()
