#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our agents ("shm") against NIXL's with UCX on the same two buffers of one process: 1 MiB × 256 and 64 KiB × 4,096, reads and
writes, each side's own threads. Both are prepared once and posted again; rounds alternate; medians, and the ratio of ours to theirs.

    VENV/bin/python bench/storage/nixl_race.py build/release/lib/libstator_transfer.so [ROUNDS]      # VENV has nixl and numpy
"""

import ctypes
import statistics
import sys
import time

import numpy

LIBRARY, ROUNDS = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
TOTAL, MIB, KIB = 256 << 20, 1 << 20, 1 << 10


class Range(ctypes.Structure):
    _fields_ = [("addr", ctypes.c_uint64), ("len", ctypes.c_uint64), ("dev", ctypes.c_uint64)]


class Ours:
    """Two agents of libstator_transfer over the buffers."""

    def __init__(self, backend: str, mine, theirs):
        self.lib = lib = ctypes.CDLL(LIBRARY)
        for name in ("create", "list", "make", "metadata"):
            function = getattr(lib, f"stator_transfer_{name}")
            function.restype = ctypes.c_void_p if name == "create" else ctypes.c_int64
        self.a, self.b = (ctypes.c_void_p(lib.stator_transfer_create(name)) for name in (b"a", b"b"))
        for agent, buffer in ((self.a, mine), (self.b, theirs)):
            assert lib.stator_transfer_backend(agent, backend.encode(), b"") == 0
            whole = Range(buffer.ctypes.data, TOTAL, 0)
            assert lib.stator_transfer_register(agent, 0, ctypes.byref(whole), ctypes.c_size_t(1)) == 0
        size = lib.stator_transfer_metadata(self.b, None, ctypes.c_size_t(0))
        blob = ctypes.create_string_buffer(size)
        lib.stator_transfer_metadata(self.b, blob, ctypes.c_size_t(size))
        self.peer = ctypes.create_string_buffer(64)
        assert lib.stator_transfer_load_peer(self.a, blob, ctypes.c_size_t(size), self.peer, ctypes.c_size_t(64)) == 0

    def prepare(self, write: bool, places):
        lists = []
        for owner, column in ((b"", 0), (self.peer.value, 1)):
            ranges = (Range * len(places))(*[Range(place[column], place[2], 0) for place in places])
            lists.append(self.lib.stator_transfer_list(self.a, owner, 0, ranges, ctypes.c_size_t(len(places))))
        assert min(lists) > 0
        begin = time.perf_counter()
        transfer = self.lib.stator_transfer_make(self.a, int(write), ctypes.c_int64(lists[0]), ctypes.c_int64(lists[1]), None)
        self.prepared = time.perf_counter() - begin
        assert transfer > 0
        return ctypes.c_int64(transfer)

    def move(self, transfer) -> None:
        self.lib.stator_transfer_post(self.a, transfer)
        assert self.lib.stator_transfer_wait(self.a, transfer, 60_000) == 0


class Nixl:
    """Two agents of NIXL with UCX over the same."""

    def __init__(self, mine, theirs):
        from nixl._api import nixl_agent, nixl_agent_config
        self.a, self.b = (nixl_agent(name, nixl_agent_config(backends=["UCX"])) for name in ("nixl-a", "nixl-b"))
        self.a.register_memory([(mine.ctypes.data, TOTAL, 0, "m")], "DRAM")
        self.b.register_memory([(theirs.ctypes.data, TOTAL, 0, "t")], "DRAM")
        self.peer = self.a.add_remote_agent(self.b.get_agent_metadata())

    def prepare(self, write: bool, places):
        local = self.a.get_xfer_descs([(place[0], place[2], 0) for place in places], "DRAM")
        remote = self.a.get_xfer_descs([(place[1], place[2], 0) for place in places], "DRAM")
        begin = time.perf_counter()
        handle = self.a.initialize_xfer("WRITE" if write else "READ", local, remote, self.peer)
        self.prepared = time.perf_counter() - begin
        return handle

    def move(self, handle) -> None:
        state = self.a.transfer(handle)
        while state == "PROC":
            state = self.a.check_xfer_state(handle)
        assert state == "DONE", state


def race(name: str, ours: Ours, theirs: Nixl, write: bool, size: int, mine, other) -> None:
    places = [(mine.ctypes.data + at, other.ctypes.data + at, size) for at in range(0, TOTAL, size)]
    handles = [side.prepare(write, places) for side in (ours, theirs)]
    rates = ([], [])
    for round_ in range(ROUNDS + 1):
        for i, side in enumerate((ours, theirs)):
            begin = time.perf_counter()
            side.move(handles[i])
            if round_ > 0:  # the first one touches memory and connects
                rates[i].append(TOTAL / (time.perf_counter() - begin) / 1e9)
    assert numpy.array_equal(mine, other)
    us, them = (statistics.median(side) for side in rates)
    print(f"{name} {'write' if write else 'read':<5} {size // KIB:>5} KiB x {len(places):<5}: {us:6.2f} GB/s, NIXL's UCX {them:6.2f}, ratio {us / them:5.2f}; "
          f"made in {ours.prepared * 1e9 / len(places):.0f} and {theirs.prepared * 1e9 / len(places):.0f} ns per range", flush=True)


first = numpy.random.default_rng(1).integers(0, 255, TOTAL, dtype=numpy.uint8)
second = numpy.zeros(TOTAL, dtype=numpy.uint8)
nixl, agents = Nixl(first, second), Ours("shm", first, second)
for block in (MIB, 64 * KIB):
    for writes in (True, False):
        race("shm", agents, nixl, writes, block, first, second)
