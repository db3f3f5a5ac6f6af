# SPDX-License-Identifier: Apache-2.0
"""A worker's side of the vLLM connector: opens the cache when the tensors are known, and copies."""

from __future__ import annotations

import dataclasses
import logging

from stator_kv import _metrics_server, _settings, _shared
from stator_kv._cache import Cache, StatorKvError
from stator_kv._torch_memory import HostTensors, StagedTensors

logger = logging.getLogger("vllm.stator_kv")
_LOAD_WAIT_MS = 60_000  # for copies out of host memory; what is below was waited for before
_CHAINS_MAX = 65_536


@dataclasses.dataclass
class Facts:
    """The part of the namespace that does not depend on tensors."""
    options: dict
    rank: int
    place: int  # among all workers of a host's data-parallel engine: which disk folder

    @classmethod
    def of(cls, vllm_config, block_tokens: int, settings: dict) -> Facts:
        model, parallel = vllm_config.model_config, vllm_config.parallel_config
        rank, ranks = getattr(parallel, "rank", 0), parallel.world_size
        replica = getattr(parallel, "data_parallel_rank", 0) or 0
        text = getattr(model, "hf_text_config", None) or getattr(model, "hf_config", None)
        dtype = str(getattr(vllm_config.cache_config, "cache_dtype", "auto"))
        return cls({
            "model": settings.get("model") or str(model.model),
            "revision": settings.get("revision") or _settings.revision_of(str(model.model)) or str(getattr(model, "revision", "") or ""),
            "dtype": str(model.dtype) if dtype == "auto" else dtype,
            "layout": f"vllm/1 tp {rank}/{ranks} quantization {getattr(model, 'quantization', None)}",
            "block_tokens": block_tokens, "layers": int(getattr(text, "num_hidden_layers", 0) or 0),
            "kv_heads": int(getattr(text, "num_key_value_heads", 0) or 0), "head_dim": int(getattr(text, "head_dim", 0) or 0)}, rank, replica * ranks + rank)


class Worker:
    def __init__(self, settings: dict, engine: str, facts: Facts, kv_cache_config):
        self._settings, self._engine, self._facts, self._config = settings, engine, facts, kv_cache_config
        self.cache: Cache | None = None
        self.facts_of_cache: dict = {}
        self._memory = self._metrics = None
        self._chains: dict[str, list[bytes]] = {}  # keys of a request's saved blocks
        self._loading: dict[str, tuple[object, list[int], int]] = {}
        self._failed: set[int] = set()

    def register(self, kv_caches: dict) -> None:
        for name, tensor in kv_caches.items():
            if not hasattr(tensor, "data_ptr"):
                raise ValueError(f"layer {name} keeps no single KV tensor: StatorConnector does not know such models")
        first = next(iter(kv_caches.values()))
        blocks = self._config.num_blocks if self._config is not None else first.shape[0]
        staged = self._settings.get("staging", first.device.type != "cpu")
        self._memory = (StagedTensors if staged else HostTensors)(kv_caches, blocks)
        options = dict(self._facts.options, block_bytes=self._memory.block_bytes)
        options["layout"] += " " + self._memory.layout
        self.facts_of_cache = options
        self.cache = Cache(**_settings.cache_options(self._settings, self._facts.place), **options)
        self._memory.attach(self.cache)
        _shared.offer(self._engine, self.cache)
        if port := int(self._settings.get("metrics_port", 0)):
            self._metrics = _metrics_server.serve(self.cache, port + self._facts.place)

    # Loads.

    def start_loads(self, plans) -> None:
        for plan in plans:
            operation = None
            try:
                keys = self.cache.keys(plan.tokens, owner=plan.owner)[plan.first_block:]
                tokens = plan.tokens[plan.first_block * self.cache.block_tokens:]
                operation = self._memory.get(keys, plan.block_ids, tokens, int(self._settings.get("load_timeout_ms", 2000)))
            except StatorKvError as error:
                logger.warning("a load is given up, its tokens are computed: %s", error)
            self._loading[plan.request_id] = (operation, plan.block_ids, plan.stage)
            if plan.wait and not self._settle(plan.request_id, _LOAD_WAIT_MS):
                operation.release()  # waits for a copy that runs
                self._failed.update(plan.block_ids)
                del self._loading[plan.request_id]

    def _settle(self, request_id: str, milliseconds: int) -> bool:
        operation, block_ids, stage = self._loading[request_id]
        outcome = operation.wait(milliseconds) if operation is not None else None
        if operation is not None and outcome is None:
            return False
        loaded = outcome.blocks if outcome is not None else 0
        self._failed.update(block_ids[loaded:])
        if operation is not None:
            operation.release()
        if stage:
            self.cache.release(stage)
        del self._loading[request_id]
        return True

    def finished(self, finished_request_ids) -> set[str]:
        for request_id in finished_request_ids:
            self._chains.pop(request_id, None)
        return {request_id for request_id in list(self._loading) if self._settle(request_id, 0)}

    def take_failed_blocks(self) -> set[int]:
        failed, self._failed = self._failed, set()
        return failed

    # Saves.

    def save(self, plans) -> None:
        """Returns when the blocks have been copied: the engine may write to them again."""
        operations = [operation for plan in plans if (operation := self._start_save(plan)) is not None]
        for operation in operations:
            operation.wait()
            operation.release()

    def _start_save(self, plan):
        chain = self._chains.setdefault(plan.request_id, [])
        if len(chain) < plan.first_block:  # of a request that this worker has forgotten
            return None
        del chain[plan.first_block:]
        parent = chain[-1] if chain else None
        try:
            keys = self.cache.keys(plan.tokens, owner=plan.owner, parent=parent)
            chain += keys
            while len(self._chains) > _CHAINS_MAX:
                self._chains.pop(next(iter(self._chains)))
            return self._memory.put(keys, plan.block_ids, plan.tokens, parent)
        except StatorKvError as error:
            logger.warning("blocks are not kept: %s", error)
            return None

    def close(self) -> None:
        _shared.withdraw(self._engine)
        if self._metrics is not None:
            self._metrics.shutdown()
            self._metrics.server_close()
            self._metrics = None
        if self.cache is not None:
            for operation, _, _ in self._loading.values():
                if operation is not None:
                    operation.release()
            if not self.cache.flush(int(self._settings.get("flush_ms", 10_000))):
                logger.warning("not all KV blocks went down to disk and stores: give flush_ms more time")
            self.cache.close()
            self.cache = None
