# SPDX-License-Identifier: Apache-2.0
"""SGLang's HiCache storage (L3) over Stator's tiers.

    python -m sglang.launch_server --model-path MODEL --enable-hierarchical-cache --hicache-storage-backend dynamic \\
      --hicache-storage-backend-extra-config '{"backend_name": "stator", "module_path": "stator_kv.sglang_storage",
        "class_name": "StatorStorage", "store": "127.0.0.1:8095", "disk": "/var/lib/stator/kv", "disk_bytes": "100GiB"}'

SGLang names pages by a SHA-256 chain over their tokens; model, rank, page size and memory layout are the namespace. Its own L2 is host
memory already, so `host_bytes` may stay unset: blocks pass through a small buffer.
"""

from __future__ import annotations

import logging

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from stator_kv import _metrics_server, _settings
from stator_kv._cache import Cache, StatorKvError

logger = logging.getLogger(__name__)


def _bytes_of(tensor) -> int:
    return tensor.numel() * tensor.element_size()


class StatorStorage(HiCacheStorage):
    """Called from SGLang's storage threads, which may wait; `load_timeout_ms` bounds each call."""

    def __init__(self, storage_config, kwargs=None):
        self._config = storage_config
        self._settings = _settings.read(dict(storage_config.extra_config or {}))
        self._limit_ms = int(self._settings.get("load_timeout_ms", 2000))
        self._cache: Cache | None = None
        self._metrics = None
        self._generation = 0
        self.mem_pool_host = None

    def register_mem_pool_host(self, mem_pool_host):
        self.mem_pool_host = mem_pool_host
        self._open(mem_pool_host.get_dummy_flat_data_page())

    def _open(self, page) -> None:
        if self._cache is not None:
            return
        config, pool = self._config, self.mem_pool_host
        cp = f" cp {config.attn_cp_rank}/{config.attn_cp_size}" if getattr(config, "attn_cp_size", 1) > 1 else ""
        pp = f" pp {config.pp_rank}/{config.pp_size}" if getattr(config, "pp_size", 1) > 1 else ""
        # Ranks that hold the same bytes share them.
        tp = "" if config.is_mla_model else f" tp {config.tp_rank}/{config.tp_size}"
        model = str(self._settings.get("model") or config.model_name or "")
        place = getattr(config, "dp_rank", 0) * config.tp_size + config.tp_rank
        self._cache = Cache(
            **_settings.cache_options(self._settings, place), model=model,
            revision=self._settings.get("revision") or _settings.revision_of(model), dtype=str(page.dtype),
            layout=f"sglang/1 {getattr(pool, 'layout', '')} page {getattr(pool, 'page_size', 0)}{tp}{pp}{cp}",
            block_tokens=0, block_bytes=_bytes_of(page))
        logger.info("KV pages are kept in namespace %s", self._cache.namespace)
        if port := int(self._settings.get("metrics_port", 0)):
            self._metrics = _metrics_server.serve(self._cache, port + place)

    def _names(self, keys) -> list[bytes]:
        return [self._cache.name(f"{self._generation}/{key}" if self._generation else key) for key in keys]

    # One page.

    def get(self, key, target_location=None, target_sizes=None):
        return self.batch_get([key], [target_location])[0]

    def set(self, key, value=None, target_location=None, target_sizes=None):
        return self.batch_set([key], [value])

    def exists(self, key):
        return self.batch_exists([key]) == 1

    # Several.

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        """The pages up to the first one that no tier has; None for the others."""
        out = [None] * len(keys)
        if not keys or target_locations is None or self._cache is None:
            return out
        places = [page if page.is_contiguous() else page.contiguous() for page in target_locations]
        if any(_bytes_of(page) != self._cache.block_bytes for page in places):
            return out
        try:
            with self._cache.get(self._names(keys), Cache.POINTERS, [page.data_ptr() for page in places], limit_ms=self._limit_ms) as operation:
                outcome = operation.wait()
        except StatorKvError as error:
            logger.warning("pages are not loaded: %s", error)
            return out
        return places[:outcome.blocks] + out[outcome.blocks:] if outcome is not None else out

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        if not keys or values is None:
            return False
        pages = [value.contiguous() for value in values]
        self._open(pages[0])
        if any(_bytes_of(page) != self._cache.block_bytes for page in pages):
            logger.warning("pages of another size than %d bytes are not kept", self._cache.block_bytes)
            return False
        try:
            stats = self._cache.stats()
            if stats["waiting_down"] > stats["host_slots"] // 4:  # this thread may wait, so nothing is dropped on the way down
                self._cache.flush(self._limit_ms)
            with self._cache.put(self._names(keys), Cache.POINTERS, [page.data_ptr() for page in pages]) as operation:
                outcome = operation.wait()
        except StatorKvError as error:
            logger.warning("pages are not kept: %s", error)
            return False
        return outcome is not None and outcome.blocks == len(keys)

    def batch_exists(self, keys, extra_info=None):
        """How many of the first pages there are."""
        if not keys or self._cache is None:
            return 0
        names = self._names(keys)
        found = self._cache.lookup(names)
        if not found.ask:
            return found.present
        with self._cache.probe(names, limit_ms=self._limit_ms) as operation:
            outcome = operation.wait()
        return max(found.present, outcome.blocks if outcome is not None else 0)

    # By indices of SGLang's host memory ("interface_v1": 1).

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        page = self.mem_pool_host.page_size
        pages = self.batch_get(keys, [self.mem_pool_host.get_dummy_flat_data_page() for _ in keys])
        for i, data in enumerate(pages):
            if data is not None:
                self.mem_pool_host.set_from_flat_data_page(host_indices[i * page], data)
        return [data is not None for data in pages]

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        page = self.mem_pool_host.page_size
        return [self.batch_set(keys, [self.mem_pool_host.get_data_page(host_indices[i * page]) for i in range(len(keys))])] * len(keys)

    def clear(self):
        """Nothing that is stored now is found again by this server."""
        self._generation += 1

    def get_stats(self):
        return None

    def close(self):
        if self._metrics is not None:
            self._metrics.shutdown()
            self._metrics.server_close()
            self._metrics = None
        if self._cache is not None:
            if not self._cache.flush(int(self._settings.get("flush_ms", 10_000))):
                logger.warning("not all KV pages went down to disk and stores: give flush_ms more time")
            self._cache.close()
            self._cache = None
