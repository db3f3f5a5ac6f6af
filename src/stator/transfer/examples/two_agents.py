#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two agents through libstator_transfer.so: one writes into the other's memory and tells it.

    python3 two_agents.py build/release/lib/libstator_transfer.so
"""

import ctypes
import sys
import time


class Range(ctypes.Structure):
    _fields_ = [("addr", ctypes.c_uint64), ("len", ctypes.c_uint64), ("dev", ctypes.c_uint64)]


DRAM, WRITE, SUCCESS = 0, 1, 0
lib = ctypes.CDLL(sys.argv[1])
lib.stator_transfer_create.restype = ctypes.c_void_p
lib.stator_transfer_allocate.restype = ctypes.c_void_p
for name in ("metadata", "list", "make"):
    getattr(lib, f"stator_transfer_{name}").restype = ctypes.c_int64


def agent(name: bytes) -> tuple[ctypes.c_void_p, int, Range]:
    made = ctypes.c_void_p(lib.stator_transfer_create(name))
    assert lib.stator_transfer_backend(made, b"shm", b"") == SUCCESS
    memory = lib.stator_transfer_allocate(made, ctypes.c_size_t(4096))
    range_ = Range(memory, 4096, 0)
    assert lib.stator_transfer_register(made, DRAM, ctypes.byref(range_), ctypes.c_size_t(1)) == SUCCESS
    return made, memory, range_


a, memory_a, range_a = agent(b"a")
b, memory_b, range_b = agent(b"b")
blob = ctypes.create_string_buffer(65536)
size = lib.stator_transfer_metadata(b, blob, ctypes.c_size_t(len(blob)))
peer = ctypes.create_string_buffer(64)
assert lib.stator_transfer_load_peer(a, blob, ctypes.c_size_t(size), peer, ctypes.c_size_t(64)) == SUCCESS

text = b"hello over shm"
ctypes.memmove(memory_a, text, len(text))
mine = ctypes.c_int64(lib.stator_transfer_list(a, b"", DRAM, ctypes.byref(range_a), ctypes.c_size_t(1)))
theirs = ctypes.c_int64(lib.stator_transfer_list(a, peer.value, DRAM, ctypes.byref(range_b), ctypes.c_size_t(1)))
transfer = ctypes.c_int64(lib.stator_transfer_make(a, WRITE, mine, theirs, b"done"))
lib.stator_transfer_post(a, transfer)
assert lib.stator_transfer_wait(a, transfer, ctypes.c_uint32(10_000)) == SUCCESS

sender, message = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
while lib.stator_transfer_next_notification(b, sender, ctypes.c_size_t(64), message, ctypes.c_size_t(64)) != SUCCESS:
    time.sleep(0.001)
print(f"b has {ctypes.string_at(memory_b, len(text))} and was told '{message.value.decode()}' by {sender.value.decode()}")
lib.stator_transfer_release(a, transfer)
lib.stator_transfer_destroy(a)
lib.stator_transfer_destroy(b)
