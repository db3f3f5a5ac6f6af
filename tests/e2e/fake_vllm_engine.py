# SPDX-License-Identifier: Apache-2.0
"""An engine that calls a KV connector as vLLM 0.32 does: blocks, chunked prefill, preemption, loads between steps.

Its "KV" of a token is a digest of all tokens up to it, so a block with other bytes than it should have is seen at once: what would be
another token in vLLM is an AssertionError here.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import itertools
import pathlib
import pickle
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).parent / "vllm_standin"), str(ROOT / "bindings" / "python")]

from stator_kv.vllm_connector import StatorConnector  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole  # noqa: E402

BLOCK, LAYERS, WIDTH = 16, 2, 8  # tokens, layers, bytes of a token's keys and of its values
_engines = itertools.count()


class Tensor:
    """Of bytes, shape (2, blocks, BLOCK, WIDTH): keys and values apart, as the memory of an attention layer."""

    def __init__(self, blocks: int):
        self.shape = (2, blocks, BLOCK, WIDTH)
        self.bytes = bytearray(2 * blocks * BLOCK * WIDTH)
        self._view = (ctypes.c_uint8 * len(self.bytes)).from_buffer(self.bytes)
        self.dtype, self.device = "uint8", types.SimpleNamespace(type="cpu")

    def data_ptr(self) -> int:
        return ctypes.addressof(self._view)

    def element_size(self) -> int:
        return 1

    def stride(self, axis: int | None = None):
        strides = (self.shape[1] * BLOCK * WIDTH, BLOCK * WIDTH, WIDTH, 1)
        return strides if axis is None else strides[axis]

    def slot(self, kind: int, block: int, offset: int) -> slice:
        at = (kind * self.shape[1] + block) * BLOCK * WIDTH + offset * WIDTH
        return slice(at, at + WIDTH)


@dataclasses.dataclass
class Request:
    request_id: str
    all_token_ids: list[int]
    max_tokens: int = 1
    lora_request: object = None
    cache_salt: str | None = None
    mm_features: tuple = ()
    prompt_embeds: object = None

    def __post_init__(self):
        self.num_prompt_tokens, self.num_computed_tokens = len(self.all_token_ids), 0
        self.blocks: list[int] = []
        self.loading = self.scheduled_once = self.resumed = False
        self.external_tokens = 0

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    def identity(self, position: int) -> str:
        """What a token's KV depends on beside the tokens: adapter, and media up to it."""
        media = [feature.identifier for feature in self.mm_features if feature.mm_position.offset <= position]
        return f"{self.lora_request and self.lora_request.lora_name}/{self.cache_salt}/{media}"


class Engine:
    def __init__(self, blocks: int = 64, role: str = "kv_both", chunk: int = 40, model: str = "tiny", **extra):
        transfer = types.SimpleNamespace(engine_id=f"engine-{next(_engines)}", kv_role=role, kv_connector_extra_config=extra)
        config = types.SimpleNamespace(
            kv_transfer_config=transfer, cache_config=types.SimpleNamespace(block_size=BLOCK, cache_dtype="auto"),
            parallel_config=types.SimpleNamespace(rank=0, world_size=1, data_parallel_rank=0),
            model_config=types.SimpleNamespace(model=model, dtype="uint8", revision=None, quantization=None, hf_config=None))
        spec = types.SimpleNamespace(block_size=BLOCK)
        cache_config = types.SimpleNamespace(num_blocks=blocks, kv_cache_groups=[types.SimpleNamespace(kv_cache_spec=spec)])
        self.tensors = {f"model.layers.{i}.attn": Tensor(blocks) for i in range(LAYERS)}
        self.worker = StatorConnector(config, KVConnectorRole.WORKER, cache_config)
        self.worker.register_kv_caches(self.tensors)
        self.scheduler = StatorConnector(config, KVConnectorRole.SCHEDULER, cache_config)
        self.free, self.chunk = list(range(blocks)), chunk
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.done: set[str] = set()
        self.failed_blocks: set[int] = set()

    @property
    def cache(self):
        return self.worker._worker.cache

    def close(self) -> None:
        self.scheduler.shutdown()
        self.worker.shutdown()

    # What a block should hold.

    def _kv(self, request: Request, position: int) -> list[tuple[bytes, bytes]]:
        text = request.identity(position) + repr(request.all_token_ids[:position + 1])
        return [(hashlib.sha256(f"k{i}{text}".encode()).digest()[:WIDTH], hashlib.sha256(f"v{i}{text}".encode()).digest()[:WIDTH])
                for i in range(LAYERS)]

    def _slots(self, request: Request, position: int):
        block, offset = request.blocks[position // BLOCK], position % BLOCK
        for i, tensor in enumerate(self.tensors.values()):
            yield i, tensor, tensor.slot(0, block, offset), tensor.slot(1, block, offset)

    def compute(self, request: Request, begin: int, end: int) -> None:
        for position in range(begin):
            kv = self._kv(request, position)
            for i, tensor, keys, values in self._slots(request, position):
                assert (bytes(tensor.bytes[keys]), bytes(tensor.bytes[values])) == kv[i], \
                    f"{request.request_id}: attention would read another KV at token {position}, layer {i}"
        for position in range(begin, end):
            kv = self._kv(request, position)
            for i, tensor, keys, values in self._slots(request, position):
                tensor.bytes[keys], tensor.bytes[values] = kv[i]

    # A step.

    def add(self, request: Request) -> Request:
        self.waiting.append(request)
        return request

    def _allocate(self, request: Request, tokens: int) -> list[int]:
        new = [self.free.pop(0) for _ in range(-(-tokens // BLOCK) - len(request.blocks))]
        request.blocks += new
        return new

    def _admit(self, output) -> None:
        for request in list(self.waiting):
            if request.loading:
                continue
            external, is_async = 0, False
            if request.num_computed_tokens == 0:
                external, is_async = self.scheduler.get_num_new_matched_tokens(request, 0)
                if external is None:
                    continue
                assert external % BLOCK == 0 and external < request.num_tokens and (external or not is_async)
            request.external_tokens = max(request.external_tokens, external)
            begin = request.num_computed_tokens or external
            count = 0 if is_async else min(self.chunk, request.num_tokens - begin)
            self._allocate(request, begin + count)
            self.scheduler.update_state_after_alloc(request, types.SimpleNamespace(get_block_ids=lambda r=request: (list(r.blocks),)), external)
            request.num_computed_tokens = begin
            if is_async:
                request.loading = True
                continue
            self.waiting.remove(request)
            self.running.append(request)
            output.num_scheduled_tokens[request.request_id] = count
            if request.resumed:
                output.scheduled_cached_reqs.add(request, [list(request.blocks)], resumed=True)
            else:
                output.scheduled_new_reqs.append(types.SimpleNamespace(
                    req_id=request.request_id, block_ids=(list(request.blocks),), num_computed_tokens=begin))

    def step(self) -> None:
        class Cached:
            def __init__(self):
                self.req_ids, self.new_block_ids, self.num_computed_tokens, self.resumed_req_ids = [], [], [], set()

            def add(self, request, blocks, resumed=False):
                self.req_ids.append(request.request_id)
                self.new_block_ids.append(blocks)
                self.num_computed_tokens.append(request.num_computed_tokens)
                self.resumed_req_ids |= {request.request_id} if resumed else set()

        output = types.SimpleNamespace(scheduled_new_reqs=[], scheduled_cached_reqs=Cached(), num_scheduled_tokens={})
        for request in self.running:
            count = min(self.chunk, request.num_tokens - request.num_computed_tokens)
            new = self._allocate(request, request.num_computed_tokens + count)
            output.scheduled_cached_reqs.add(request, [new] if new else None)
            output.num_scheduled_tokens[request.request_id] = count
        self._admit(output)
        metadata = pickle.loads(pickle.dumps(self.scheduler.build_connector_meta(output)))
        self.worker.bind_connector_metadata(metadata)
        self.worker.start_load_kv(None)
        for request in self.running:
            self.compute(request, request.num_computed_tokens, request.num_computed_tokens + output.num_scheduled_tokens[request.request_id])
        self.worker.wait_for_save()
        _, received = self.worker.get_finished(self.done)
        self.done = set()
        failed = self.worker.get_block_ids_with_load_errors()
        self.failed_blocks |= failed
        self.worker.clear_connector_metadata()
        self._after(output, received or set(), failed)

    def _after(self, output, received, failed) -> None:
        for request in list(self.waiting):
            if request.request_id in received:
                assert request.loading
                request.loading = False
                good = next((i for i, block in enumerate(request.blocks) if block in failed), len(request.blocks))
                request.num_computed_tokens = min(request.num_computed_tokens, good * BLOCK)
        for request in list(self.running):
            request.num_computed_tokens += output.num_scheduled_tokens[request.request_id]
            if request.num_computed_tokens == request.num_tokens:
                if request.num_tokens - request.num_prompt_tokens == request.max_tokens - 1:
                    self.finish(request)
                else:
                    request.all_token_ids.append(hash(tuple(request.all_token_ids)) % 32_000)

    def finish(self, request: Request) -> None:
        assert self.scheduler.request_finished(request, list(request.blocks)) == (False, None)
        (self.running if request in self.running else self.waiting).remove(request)
        self.free += request.blocks
        request.blocks = []
        self.done.add(request.request_id)

    def preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.free = self.free + request.blocks
        for block in request.blocks:  # somebody else writes there
            for tensor in self.tensors.values():
                tensor.bytes[tensor.slot(0, block, 0)] = b"\xff" * WIDTH
        request.blocks, request.num_computed_tokens, request.resumed = [], 0, True
        self.waiting.insert(0, request)

    def run(self, *requests: Request) -> list[int]:
        """Tokens that came from the tiers, per request."""
        for request in requests:
            self.add(request)
        for _ in range(20_000):
            if not self.running and not self.waiting:
                self.step()  # the ids of what ended reach the worker
                return [request.external_tokens for request in requests]
            self.step()
        raise AssertionError("the engine does not come to an end")
