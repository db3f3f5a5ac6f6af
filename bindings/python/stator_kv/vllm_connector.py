# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV connector over Stator's tiers.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "StatorConnector", "kv_connector_module_path": "stator_kv.vllm_connector",
      "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
      "kv_connector_extra_config": {"host_bytes": "8GiB", "disk": "/var/lib/stator/kv", "disk_bytes": "100GiB"}}'

Two objects: the scheduler's says how much of a prompt is in the tiers and what is to be copied in this step; each worker's copies.
In one process (one rank) they share a cache, and blocks are brought to host memory and kept there before the scheduler counts them,
so that a load is a copy that cannot miss. With several ranks the scheduler counts what all ranks' namespaces have in the shared tiers.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base as vllm_base
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole
from vllm.logger import init_logger

from stator_kv import _settings
from stator_kv._vllm_scheduler import LoadPlan, SavePlan, Scheduler
from stator_kv._vllm_worker import Facts, Worker

logger = init_logger("vllm.stator_kv")


@dataclasses.dataclass
class StatorMetadata(KVConnectorMetadata):
    """What the workers do in one step. Plain data: it crosses processes."""
    loads: list[LoadPlan] = dataclasses.field(default_factory=list)
    saves: list[SavePlan] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class StatorHandshake(getattr(vllm_base, "KVConnectorHandshakeMetadata", object)):
    """A worker's namespace, for a scheduler in another process."""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


class StatorConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config, role, kv_cache_config=None):
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        settings = _settings.read(dict(transfer.kv_connector_extra_config or {}))
        groups = getattr(kv_cache_config, "kv_cache_groups", None) or []
        if len(groups) > 1:
            raise ValueError(f"this model has {len(groups)} groups of KV caches, StatorConnector keeps one: "
                             "start vLLM with --disable-hybrid-kv-cache-manager")
        block_tokens = groups[0].kv_cache_spec.block_size if groups else vllm_config.cache_config.block_size
        # Workers of one engine in this process find each other by it.
        engine = f"{transfer.engine_id}:{os.getpid()}"
        self._scheduler = self._worker = None
        if role == KVConnectorRole.SCHEDULER:
            ranks = vllm_config.parallel_config.world_size
            self._scheduler = Scheduler(settings, engine, block_tokens, ranks, getattr(transfer, "kv_role", "kv_both"))
        else:
            self._worker = Worker(settings, engine, Facts.of(vllm_config, block_tokens, settings), kv_cache_config)

    # The scheduler's side.

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self._scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        self._scheduler.allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        loads, saves = self._scheduler.step(scheduler_output)
        return StatorMetadata(loads, saves)

    def request_finished(self, request, block_ids):
        self._scheduler.finished(request.request_id)
        return False, None

    def reset_cache(self):
        self._scheduler.forget_everything()
        return True

    def set_xfer_handshake_metadata(self, metadata):
        self._scheduler.meet_workers({rank: meta.facts for rank, meta in metadata.items()})

    # A worker's side.

    def register_kv_caches(self, kv_caches):
        self._worker.register(kv_caches)
        logger.info("KV blocks are kept in namespace %s", self._worker.cache.namespace)

    def get_handshake_metadata(self):
        return StatorHandshake(self._worker.facts_of_cache) if self._worker is not None and self._worker.cache is not None else None

    def start_load_kv(self, forward_context, **kwargs):
        self._worker.start_loads(self._get_connector_metadata().loads)

    def wait_for_layer_load(self, layer_name):
        return None

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        return None

    def wait_for_save(self):
        self._worker.save(self._get_connector_metadata().saves)

    def get_finished(self, finished_req_ids):
        return None, self._worker.finished(finished_req_ids) or None

    def get_block_ids_with_load_errors(self):
        return self._worker.take_failed_blocks()

    def shutdown(self):
        for side in (self._scheduler, self._worker):
            if side is not None:
                side.close()
