# SPDX-License-Identifier: Apache-2.0
"""The scheduler's side of the vLLM connector: how long a prefix the tiers have, and what a step copies. Knows no tensors."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from stator_kv import _library as c
from stator_kv import _settings, _shared
from stator_kv._cache import Cache, StatorKvError


@dataclasses.dataclass
class LoadPlan:
    request_id: str
    owner: str
    tokens: list[int]  # of all blocks up to the last one loaded
    first_block: int   # in the sequence
    block_ids: list[int]
    wait: bool         # before the forward pass
    stage: int = 0     # operation that keeps the blocks in host memory; the worker ends it


@dataclasses.dataclass
class SavePlan:
    request_id: str
    owner: str
    first_block: int
    tokens: list[int]  # of these blocks
    block_ids: list[int]


@dataclasses.dataclass
class _Match:
    """A look-up that goes on over several calls of the scheduler."""
    first_block: int
    operations: list  # one per cache
    blocks: int | None = None
    waits: bool = False  # for room in host memory


@dataclasses.dataclass
class _Tracked:
    request: object
    owner: str
    block_ids: list[int]
    saved_blocks: int = 0


def tokens_of(request, count: int) -> list[int]:
    """The first tokens, as names of blocks see them: those that stand for media are replaced by words of the media's own digest, so that
    two pictures never share a block."""
    tokens = list(request.all_token_ids[:count])
    for feature in getattr(request, "mm_features", None) or ():
        position = feature.mm_position
        words = hashlib.sha256(str(feature.identifier).encode()).digest()
        for i in range(position.offset, min(position.offset + position.length, count)):
            at = (i - position.offset) % 8 * 4
            tokens[i] = int.from_bytes(words[at:at + 4], "little")
    return tokens


class Scheduler:
    def __init__(self, settings: dict, engine: str, block_tokens: int, ranks: int, role: str):
        self._settings, self._engine, self._block_tokens, self._ranks = settings, engine, block_tokens, ranks
        self._waits = settings.get("load", "async") == "sync"
        self._limit_ms = int(settings.get("load_timeout_ms", 2000))
        self._saves_decode = bool(settings.get("save_decode", True))
        self._consumes, self._produces = role in ("kv_both", "kv_consumer"), role in ("kv_both", "kv_producer")
        self._caches: list[Cache] | None = None  # one, shared with the worker, or one per rank
        self._stages = True
        self._matches: dict[str, _Match] = {}
        self._loads: list[LoadPlan] = []
        self._tracked: dict[str, _Tracked] = {}
        self._generation = 0

    # What the workers are.

    def meet_workers(self, facts: dict[int, dict]) -> None:
        """Workers in other processes: their namespaces, in the tiers that a scheduler can reach."""
        if self._shared_cache() is not None or self._caches is not None:
            return
        reachable = {key: value for key, value in _settings.cache_options(self._settings).items()
                     if key not in ("disk", "disk_bytes", "disk_write_bytes_per_day", "host_bytes")}
        self._caches = [Cache(**reachable, **of_rank) for _, of_rank in sorted(facts.items())]
        self._stages = False

    def _shared_cache(self) -> Cache | None:
        if self._caches is None and self._ranks == 1:
            if (cache := _shared.find(self._engine)) is not None:
                self._caches = [cache]
        return self._caches[0] if self._caches else None

    def _owner(self, request) -> str:
        """What keeps equal tokens apart: adapter, tenant, and what was forgotten."""
        lora = getattr(request, "lora_request", None)
        parts = [lora.lora_name if lora else "", str(getattr(lora, "lora_path", "") if lora else ""),
                 getattr(request, "cache_salt", None) or "", self._generation]
        return json.dumps(parts) if any(parts) else ""

    # Look-up.

    def matched(self, request, computed_tokens: int) -> tuple[int | None, bool]:
        if not self._consumes or self._shared_cache() is None or getattr(request, "prompt_embeds", None) is not None:
            return 0, False
        first = computed_tokens // self._block_tokens
        last = (request.num_tokens - 1) // self._block_tokens  # one token at least is computed
        match = self._matches.get(request.request_id)
        if match is not None and (match.waits or match.first_block > first):  # or vLLM evicted what it had
            self._drop(request.request_id)
            match = None
        if match is None:
            match = self._begin(request, first, last)
        if match.waits:
            return None, False
        if match.blocks is None and not self._poll(match):
            return None, False
        blocks = match.first_block + match.blocks - first
        if blocks <= 0:
            self._end(match)
            return 0, False
        return blocks * self._block_tokens, not self._waits

    def _begin(self, request, first: int, last: int) -> _Match:
        match = self._matches[request.request_id] = _Match(first, [], 0)
        if last <= first:
            return match
        tokens = tokens_of(request, last * self._block_tokens)
        for cache in self._caches:
            keys = cache.keys(tokens, owner=self._owner(request))
            found = cache.lookup(keys)
            if found.present <= first and not found.ask:
                self._end(match)
                match.blocks = 0
                return match
            try:
                rest = keys[first:] if found.ask else keys[first:found.present]
                operation = (cache.stage(rest, tokens=tokens[first * self._block_tokens:(first + len(rest)) * self._block_tokens], limit_ms=self._limit_ms) if self._stages
                             else cache.probe(rest, limit_ms=self._limit_ms))
            except StatorKvError as error:
                self._end(match)
                if error.status == c.FULL and self._stages:
                    match.waits = True  # others are staged and will be copied: ask again
                match.blocks = 0
                return match
            match.operations.append(operation)
            match.blocks = None
        return match

    def _poll(self, match: _Match) -> bool:
        outcomes = [operation.poll() for operation in match.operations]
        if None in outcomes:
            return False
        match.blocks = min(outcome.blocks for outcome in outcomes)
        return True

    def _end(self, match: _Match) -> None:
        for operation in match.operations:
            operation.release()
        match.operations = []

    def _drop(self, request_id: str) -> None:
        if (match := self._matches.pop(request_id, None)) is not None:
            self._end(match)

    # What is copied.

    def allocated(self, request, block_ids: list[int], external_tokens: int) -> None:
        tracked = self._tracked.setdefault(request.request_id, _Tracked(request, self._owner(request), []))
        tracked.request, tracked.block_ids = request, list(block_ids)
        match = self._matches.get(request.request_id)
        if external_tokens == 0:  # nothing is to be loaded, or it has been
            self._drop(request.request_id)
            return
        count = external_tokens // self._block_tokens
        first = match.first_block + match.blocks - count
        stage = 0
        if self._stages and match.operations:
            stage, match.operations = match.operations[0].id, []
        self._drop(request.request_id)
        self._loads.append(LoadPlan(request.request_id, tracked.owner, tokens_of(request, (first + count) * self._block_tokens), first,
                                    list(block_ids[first:first + count]), self._waits, stage))

    def step(self, output) -> tuple[list[LoadPlan], list[SavePlan]]:
        loads, self._loads = self._loads, []
        for new in output.scheduled_new_reqs:
            if new.req_id in self._tracked:
                self._tracked[new.req_id].block_ids = list(new.block_ids[0])
        cached = output.scheduled_cached_reqs
        resumed = getattr(cached, "resumed_req_ids", None) or ()
        for i, request_id in enumerate(cached.req_ids):
            tracked, more = self._tracked.get(request_id), cached.new_block_ids[i]
            if tracked is None or not more:
                continue
            if request_id in resumed:
                tracked.block_ids = list(more[0])
            else:
                tracked.block_ids += more[0]
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        computed.update(zip(cached.req_ids, cached.num_computed_tokens))
        saves = []
        for request_id, scheduled in output.num_scheduled_tokens.items() if self._produces else ():
            if (plan := self._plan_save(request_id, computed.get(request_id, 0) + scheduled)) is not None:
                saves.append(plan)
        return loads, saves

    def _plan_save(self, request_id: str, tokens_after: int) -> SavePlan | None:
        """Blocks that are full after this step and whose tokens are known: a guessed token may yet be rejected."""
        tracked = self._tracked.get(request_id)
        if tracked is None or getattr(tracked.request, "prompt_embeds", None) is not None:
            return None
        request = tracked.request
        known = request.num_tokens if self._saves_decode else request.num_prompt_tokens
        full = min(tokens_after, known, len(request.all_token_ids)) // self._block_tokens
        full = min(full, len(tracked.block_ids))
        if full <= tracked.saved_blocks:
            return None
        first, tracked.saved_blocks = tracked.saved_blocks, full
        return SavePlan(request_id, tracked.owner, first, tokens_of(request, full * self._block_tokens)[first * self._block_tokens:],
                        tracked.block_ids[first:full])

    def finished(self, request_id: str) -> None:
        self._drop(request_id)
        self._tracked.pop(request_id, None)

    def forget_everything(self) -> None:
        """The weights changed: what is stored is never found again by this engine."""
        self._generation += 1
        for request_id in list(self._matches):
            self._drop(request_id)
        for tracked in self._tracked.values():
            tracked.owner, tracked.saved_blocks = self._owner(tracked.request), 1 << 60  # mixes old and new: not kept

    def close(self) -> None:
        for request_id in list(self._matches):
            self._drop(request_id)
        if not self._stages and self._caches:
            for cache in self._caches:
                cache.close()
        self._caches = None
