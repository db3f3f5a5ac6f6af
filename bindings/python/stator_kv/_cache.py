# SPDX-License-Identifier: Apache-2.0
"""One open cache and its operations. ctypes gives up the interpreter's lock while it calls, so threads may share a cache."""

from __future__ import annotations

import array
import ctypes
import dataclasses
from collections.abc import Iterable, Sequence

from stator_kv import _library as c


class StatorKvError(RuntimeError):
    def __init__(self, status: int, name: str, text: str):
        super().__init__(f"{name}: {text}")
        self.status = status


@dataclasses.dataclass(frozen=True)
class Found:
    present: int  # so many of the first are in host memory or on disk
    host: int
    disk: int
    ask: bool  # a store may have more


@dataclasses.dataclass(frozen=True)
class Outcome:
    blocks: int  # so many of the first
    from_host: int
    late: bool  # the limit passed; `blocks` count all the same


class Operation:
    """Under way until done() is true. release() it, or leave a `with`; a copy that runs is waited for."""

    def __init__(self, cache: Cache, id_: int):
        self._cache, self.id = cache, id_

    def poll(self) -> Outcome | None:
        return self.wait(0)

    def wait(self, milliseconds: int = 60_000) -> Outcome | None:
        """None: not done yet."""
        out = c.ResultStruct(ctypes.sizeof(c.ResultStruct))
        status = self._cache._lib.stator_kv_wait(self._cache._handle, self.id, milliseconds, ctypes.byref(out))
        if status == c.IN_PROGRESS:
            return None
        if status not in (c.OK, c.DEADLINE):
            self._cache._raise(status)
        return Outcome(out.blocks, out.from_host, status == c.DEADLINE)

    def release(self) -> None:
        while self.id and self._cache._lib.stator_kv_release(self._cache._handle, self.id) == c.IN_PROGRESS:
            self._cache._lib.stator_kv_wait(self._cache._handle, self.id, 1000, None)
        self.id = 0

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, *_) -> None:
        self.release()


def _uint32(values: Iterable[int]) -> ctypes.Array:
    numbers = array.array("I", values)
    return (ctypes.c_uint32 * len(numbers)).from_buffer(numbers)


class Cache:
    """See stator_kv.h. Keys are bytes objects of 32 bytes; a list of keys may also be one bytes object with all of them."""

    POINTERS = 0

    def __init__(self, *, host_bytes: int | str = 0, disk_bytes: int | str = 0, library: str | None = None, wipe_foreign: bool = False,
                 trust_host: bool = False, **options):
        self._lib = c.load(library)
        fields = c.Options(ctypes.sizeof(c.Options))
        fields.host_bytes, fields.disk_bytes = c.parse_bytes(host_bytes), c.parse_bytes(disk_bytes)
        fields.flags = (c.WIPE_FOREIGN if wipe_foreign else 0) | (c.TRUST_HOST if trust_host else 0)
        known = {name for name, _ in c.Options._fields_}
        for name, value in options.items():
            if name not in known:
                raise TypeError(f"stator_kv.Cache has no option '{name}'")
            if value is not None:
                setattr(fields, name, str(value).encode() if isinstance(value, str) else value)
        handle = ctypes.c_void_p()
        self._handle = None
        self._check(self._lib.stator_kv_open(ctypes.byref(fields), ctypes.byref(handle)))
        self._handle = handle
        self.block_tokens, self.block_bytes = fields.block_tokens, fields.block_bytes

    def _raise(self, status: int) -> None:
        raise StatorKvError(status, self._lib.stator_kv_status_name(status).decode(), self._lib.stator_kv_last_error().decode())

    def _check(self, status: int) -> int:
        if status < 0:
            self._raise(status)
        return status

    def close(self) -> None:
        if self._handle is not None:
            self._lib.stator_kv_close(self._handle)
            self._handle = None

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        out = ctypes.create_string_buffer(33)
        self._check(self._lib.stator_kv_namespace(self._handle, out))
        return out.value.decode()

    def memory(self, regions: Sequence[tuple[int, int, int]], blocks: int) -> int:
        """Regions are (address, stride, bytes). The memory stays the caller's and must outlive its operations."""
        array_ = (c.Region * len(regions))(*[c.Region(*region) for region in regions])
        return self._check(self._lib.stator_kv_memory(self._handle, array_, len(regions), blocks))

    def keys(self, tokens: Sequence[int], *, owner: str | bytes = b"", parent: bytes | None = None) -> list[bytes]:
        """Of the full blocks of `tokens`."""
        owner = owner.encode() if isinstance(owner, str) else owner
        most = len(tokens) // self.block_tokens if self.block_tokens else 0
        out = ctypes.create_string_buffer(max(most, 1) * c.KEY_BYTES)
        count = self._check(self._lib.stator_kv_keys_of_tokens(
            self._handle, parent, owner, len(owner), _uint32(tokens), len(tokens), out, most))
        return [out.raw[i * c.KEY_BYTES:(i + 1) * c.KEY_BYTES] for i in range(count)]

    def name(self, text: str | bytes) -> bytes:
        """Key of a block that the engine names itself."""
        text = text.encode() if isinstance(text, str) else text
        out = ctypes.create_string_buffer(c.KEY_BYTES)
        self._check(self._lib.stator_kv_key_of_name(self._handle, text, len(text), out))
        return out.raw

    def lookup(self, keys: Sequence[bytes]) -> Found:
        out = c.FoundStruct(ctypes.sizeof(c.FoundStruct))
        self._check(self._lib.stator_kv_lookup(self._handle, b"".join(keys), len(keys), ctypes.byref(out)))
        return Found(out.present, out.host, out.disk, bool(out.ask))

    def _start(self, kind: str, keys: Sequence[bytes], *, memory: int = 0, blocks: Sequence[int] = (), tokens: Sequence[int] | None = None,
               parent: bytes | None = None, limit_ms: int = 0) -> Operation:
        joined = b"".join(keys)
        ids = (ctypes.c_uint64 * len(blocks))(*blocks) if blocks else None
        numbers = _uint32(tokens) if tokens is not None and len(tokens) else None
        if numbers is not None and len(numbers) != len(keys) * self.block_tokens:
            raise ValueError(f"{len(numbers)} tokens for {len(keys)} blocks of {self.block_tokens}")
        if kind in ("get", "put") and len(blocks) != len(keys):
            raise ValueError(f"{len(blocks)} blocks for {len(keys)} keys")
        request = c.Request(ctypes.sizeof(c.Request), ctypes.cast(joined, ctypes.c_void_p), len(keys), ctypes.cast(numbers, ctypes.c_void_p),
                            ctypes.cast(parent, ctypes.c_void_p), memory, ctypes.cast(ids, ctypes.c_void_p), limit_ms)
        id_ = getattr(self._lib, "stator_kv_" + kind)(self._handle, ctypes.byref(request))
        return Operation(self, self._check(id_))

    def get(self, keys, memory: int, blocks, *, tokens=None, limit_ms: int = 0) -> Operation:
        return self._start("get", keys, memory=memory, blocks=blocks, tokens=tokens, limit_ms=limit_ms)

    def put(self, keys, memory: int, blocks, *, tokens=None, parent: bytes | None = None) -> Operation:
        return self._start("put", keys, memory=memory, blocks=blocks, tokens=tokens, parent=parent)

    def stage(self, keys, *, tokens=None, limit_ms: int = 0) -> Operation:
        return self._start("stage", keys, tokens=tokens, limit_ms=limit_ms)

    def probe(self, keys, *, limit_ms: int = 0) -> Operation:
        return self._start("probe", keys, limit_ms=limit_ms)

    def release(self, id_: int) -> None:
        """Of an operation that was started elsewhere in this process."""
        Operation(self, id_).release()

    def pin(self, keys: Sequence[bytes], ttl_ms: int) -> tuple[int, int]:
        """(id for unpin(), how many of the first blocks)."""
        blocks = ctypes.c_size_t()
        id_ = self._check(self._lib.stator_kv_pin(self._handle, b"".join(keys), len(keys), ttl_ms, ctypes.byref(blocks)))
        return id_, blocks.value

    def unpin(self, id_: int) -> bool:
        return self._lib.stator_kv_unpin(self._handle, id_) == c.OK

    def flush(self, milliseconds: int = 60_000) -> bool:
        """True: everything is on disk and in the stores."""
        status = self._lib.stator_kv_flush(self._handle, milliseconds)
        if status not in (c.OK, c.DEADLINE):
            self._raise(status)
        return status == c.OK

    def stats(self) -> dict[str, int]:
        out = c.Stats(ctypes.sizeof(c.Stats))
        self._check(self._lib.stator_kv_get_stats(self._handle, ctypes.byref(out)))
        return {name: getattr(out, name) for name, _ in c.Stats._fields_ if name != "struct_size"}

    def metrics(self) -> str:
        """Prometheus text."""
        size = 0
        while True:
            out = ctypes.create_string_buffer(max(size, 1))
            needed = self._check(self._lib.stator_kv_metrics(self._handle, out, size))
            if needed <= size:
                return out.raw[:needed].decode()
            size = needed + 1024
