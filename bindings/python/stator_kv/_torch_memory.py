# SPDX-License-Identifier: Apache-2.0
"""Where the blocks of an engine's tensors lie: regions for those in host memory, copies through a pinned buffer for the others."""

from __future__ import annotations

import hashlib
import json
import typing

if typing.TYPE_CHECKING:
    import torch


def block_axis(shape: tuple[int, ...], num_blocks: int) -> int:
    """The axis that counts blocks: the first if it can be, else the only one that can. An engine may cut its blocks into smaller ones."""
    able = [axis for axis, size in enumerate(shape) if size == num_blocks]
    if not able:
        able = [axis for axis, size in enumerate(shape) if size and size % num_blocks == 0]
    if able and (able[0] == 0 or len(able) == 1):
        return able[0]
    raise ValueError(f"no axis of a KV tensor of shape {tuple(shape)} counts its {num_blocks} blocks" if not able else
                     f"axes {able} of a KV tensor of shape {tuple(shape)} could each count its {num_blocks} blocks")


def regions_of(tensor: torch.Tensor, num_blocks: int) -> list[tuple[int, int, int]]:
    """(offset from the tensor's first byte, bytes to the next block, bytes): the contiguous pieces of a block, in the order of the axes.
    A tensor with several small blocks in one of the engine's has them one behind the other."""
    axis, width = block_axis(tuple(tensor.shape), num_blocks), tensor.element_size()
    per_block = tensor.shape[axis] // num_blocks
    sizes = [size for i, size in enumerate(tensor.shape) if i != axis]
    strides = [stride * width for i, stride in enumerate(tensor.stride()) if i != axis]
    small = tensor.stride(axis) * width
    # From the fastest axis outwards as long as the pieces touch.
    piece, rest = width, sorted(range(len(sizes)), key=lambda i: (strides[i], i))
    while rest and (strides[rest[0]] == piece or sizes[rest[0]] == 1):
        piece *= sizes[rest[0]]
        rest.pop(0)
    pieces = [0]
    for i in sorted(rest):
        pieces = [at + step * strides[i] for at in pieces for step in range(sizes[i])]
    if len(pieces) == 1 and pieces[0] == 0 and piece == small:  # small blocks of one block are one piece
        return [(0, small * per_block, piece * per_block)]
    return [(n * small + at, small * per_block, piece) for n in range(per_block) for at in pieces]


def unique_tensors(caches: dict[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """Layers that share a tensor count once."""
    seen: dict[tuple, tuple[str, torch.Tensor]] = {}
    for name, tensor in caches.items():
        seen.setdefault((tensor.data_ptr(), tuple(tensor.shape), tensor.stride()), (name, tensor))
    return list(seen.values())


class HostTensors:
    """Tensors in this process's memory: the library copies by itself."""

    def __init__(self, caches: dict[str, torch.Tensor], num_blocks: int):
        self.num_blocks, self._tensors = num_blocks, unique_tensors(caches)
        self.regions, shapes = [], []
        for _, tensor in self._tensors:
            pieces = regions_of(tensor, num_blocks)
            self.regions += [(tensor.data_ptr() + at, stride, size) for at, stride, size in pieces]
            shapes.append([str(tensor.dtype), [[at, size] for at, _, size in pieces]])
        self.block_bytes = sum(size for _, _, size in self.regions)
        self.layout = "host/" + hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]

    def attach(self, cache) -> None:
        self._cache, self._memory = cache, cache.memory(self.regions, self.num_blocks)

    def put(self, keys, blocks, tokens, parent):
        return self._cache.put(keys, self._memory, blocks, tokens=tokens, parent=parent)

    def get(self, keys, blocks, tokens, limit_ms):
        return self._cache.get(keys, self._memory, blocks, tokens=tokens, limit_ms=limit_ms)


class _StagedGet:
    """A get whose blocks are copied to the device when they have come."""

    def __init__(self, memory: StagedTensors, operation, rows: list[int], blocks: list[int]):
        self._memory, self._operation, self._rows, self._blocks, self._outcome = memory, operation, rows, blocks, None

    def wait(self, milliseconds: int = 60_000):
        if self._outcome is None:
            outcome = self._operation.wait(milliseconds)
            if outcome is not None and outcome.blocks:
                self._memory.scatter(self._rows[:outcome.blocks], self._blocks[:outcome.blocks])
            self._outcome = outcome
        return self._outcome

    def poll(self):
        return self.wait(0)

    def release(self) -> None:
        self._operation.release()
        self._memory.give_back(self._rows)
        self._rows = []


class StagedTensors:
    """Tensors on a device: blocks go through a pinned buffer of `rows` blocks, in the order of the tensors' axes."""

    def __init__(self, caches: dict[str, torch.Tensor], num_blocks: int, buffer_bytes: int = 256 << 20):
        self.num_blocks, self._tensors = num_blocks, [tensor for _, tensor in unique_tensors(caches)]
        self._axes = [block_axis(tuple(tensor.shape), num_blocks) for tensor in self._tensors]
        self._sizes = [tensor.numel() // num_blocks * tensor.element_size() for tensor in self._tensors]
        self.block_bytes = sum(self._sizes)
        import torch
        self._torch, device = torch, self._tensors[0].device
        self._on_device = device.type != "cpu"
        rows = max(16, min(num_blocks, buffer_bytes // self.block_bytes))
        self._buffer = torch.empty((rows, self.block_bytes), dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._free = list(range(rows))
        shapes = [[str(tensor.dtype), [size for i, size in enumerate(tensor.shape) if i != axis]]
                  for tensor, axis in zip(self._tensors, self._axes)]
        self.layout = "staged/" + hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]

    def attach(self, cache) -> None:
        self._cache = cache

    def give_back(self, rows: list[int]) -> None:
        self._free += rows

    def _views(self, blocks: list[int]):
        """Per tensor: the axis moved to the front with so many small blocks each, and the small blocks' indices."""
        for tensor, axis in zip(self._tensors, self._axes):
            per_block = tensor.shape[axis] // self.num_blocks
            ids = self._torch.tensor([block * per_block + i for block in blocks for i in range(per_block)], device=tensor.device)
            yield tensor, axis, ids

    def gather(self, rows: list[int], blocks: list[int]) -> None:
        parts = [tensor.index_select(axis, ids).movedim(axis, 0).contiguous().view(self._torch.uint8).reshape(len(blocks), -1)
                 for tensor, axis, ids in self._views(blocks)]
        self._buffer[rows] = self._torch.cat(parts, dim=1).to("cpu")

    def scatter(self, rows: list[int], blocks: list[int]) -> None:
        whole, at = self._buffer[rows].to(self._tensors[0].device), 0
        for (tensor, axis, ids), size in zip(self._views(blocks), self._sizes):
            shape = [len(ids)] + [n for i, n in enumerate(tensor.shape) if i != axis]
            part = whole[:, at:at + size].contiguous().view(tensor.dtype).reshape(shape)
            tensor.index_copy_(axis, ids, part.movedim(0, axis))
            at += size
        if self._on_device:
            getattr(self._torch, "accelerator", self._torch.cuda).synchronize()

    def _addresses(self, rows: list[int]) -> list[int]:
        return [self._buffer.data_ptr() + row * self.block_bytes for row in rows]

    def put(self, keys, blocks, tokens, parent):
        """Waits for each buffer full: the device's blocks are free when it returns."""
        operation, block_tokens = None, len(tokens) // len(keys) if tokens else 0
        step = len(self._buffer) // 2
        for begin in range(0, len(keys), step):
            if operation is not None:
                operation.wait()
                operation.release()
            part = slice(begin, begin + step)
            rows = [self._free.pop() for _ in range(min(len(keys[part]), len(self._free)))]
            if len(rows) < len(keys[part]):
                self._free += rows
                return operation
            self.gather(rows, list(blocks[part]))
            operation = self._cache.put(keys[part], 0, self._addresses(rows), tokens=tokens[begin * block_tokens:(begin + step) * block_tokens],
                                        parent=keys[begin - 1] if begin else parent)
            operation.wait()
            self._free += rows
        return operation

    def get(self, keys, blocks, tokens, limit_ms):
        """As many of the first blocks as the buffer has room for."""
        count = min(len(keys), len(self._free))
        if count == 0:
            return None
        rows = [self._free.pop() for _ in range(count)]
        block_tokens = len(tokens) // len(keys) if tokens else 0
        operation = self._cache.get(keys[:count], 0, self._addresses(rows), tokens=tokens[:count * block_tokens], limit_ms=limit_ms)
        return _StagedGet(self, operation, rows, list(blocks[:count]))
