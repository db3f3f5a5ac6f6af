#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real LMCache package's remote connector (lm://) against `stator store --lmcache-listen`: chunks of several sizes and types, put by
one connector and read by another, also after a restart of the store.

usage: VENV/bin/python tests/real_engines/lmcache_client.py        VENV has lmcache (0.5.6 was used) and torch; no GPU is needed
"""

import asyncio
import pathlib
import shutil
import sys
import tempfile
import threading
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from stator_process import Stator  # noqa: E402

import torch  # noqa: E402
from lmcache.utils import CacheEngineKey  # noqa: E402
from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.memory_allocators.ad_hoc_memory_allocator import AdHocMemoryAllocator  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402
from lmcache.v1.storage_backend.connector.lm_connector import LMCServerConnector  # noqa: E402

CHUNK = 256


def connector(port: int, loop) -> LMCServerConnector:
    metadata = LMCacheMetadata(model_name="m", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0, kv_dtype=torch.bfloat16,
                               kv_shape=(4, 2, CHUNK, 2, 32), chunk_size=CHUNK)
    local = types.SimpleNamespace(config=LMCacheEngineConfig.from_defaults(chunk_size=CHUNK), metadata=metadata)
    allocator = AdHocMemoryAllocator("cpu")
    local.allocate = lambda shape, dtype, fmt: allocator.allocate(shape, dtype, fmt)
    local.allocator = allocator
    return LMCServerConnector("127.0.0.1", port, loop, local)


def main() -> None:
    folder = tempfile.mkdtemp(prefix="stator_lm_real_")
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    wait = lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(120)  # noqa: E731
    start = lambda: Stator("store", "--listen", "127.0.0.1:0", "--lmcache-listen", "127.0.0.1:0", "--host-bytes", "64MiB",  # noqa: E731
                           "--dir", folder, "--dir-bytes", "256MiB")
    store, checked, keys = start(), 0, []
    writer = connector(store.ready["lmcache_port"], loop)
    for n, (dtype, tokens) in enumerate([(torch.bfloat16, CHUNK), (torch.bfloat16, 40), (torch.float16, CHUNK), (torch.float32, 17)] * 4):
        key = CacheEngineKey("m", 1, 0, 1000 + n, dtype)
        memory = writer.local_cpu_backend.allocate(torch.Size([2, 4, tokens, 64]), dtype, writer.meta_fmt)
        memory.tensor.copy_(torch.randn(memory.tensor.shape, generator=torch.Generator().manual_seed(n)).to(dtype))
        assert not writer.exists_sync(key)
        wait(writer.put(key, memory))
        assert writer.exists_sync(key)
        keys.append((key, memory.tensor.clone()))
    for restart in (False, True):
        if restart:
            store.terminate()
            store.wait()
            store = start()
        reader = connector(store.ready["lmcache_port"], loop)
        for key, expected in keys:
            got = wait(reader.get(key))
            assert got is not None and got.tensor.dtype == expected.dtype and torch.equal(got.tensor, expected), key
            checked += 1
        assert wait(reader.get(CacheEngineKey("m", 1, 0, 9, torch.bfloat16))) is None
        wait(reader.close())
    store.close()
    shutil.rmtree(folder)
    print(f"{checked} of {2 * len(keys)} chunks equal, half of them after a restart of the store")


if __name__ == "__main__":
    main()
