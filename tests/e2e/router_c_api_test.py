#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libstator_router from Python through ctypes: an example of embedding the router, and what the library shows."""

import ctypes
import pathlib
import subprocess
import unittest

from stator_process import BINARY

LIBRARY = pathlib.Path(BINARY).resolve().parents[1] / "lib" / "libstator_router.so"


class Config(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("mode", ctypes.c_char_p), ("index", ctypes.c_char_p),
                ("block_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("index_bytes_max", ctypes.c_uint64),
                ("seed", ctypes.c_uint64), ("overlap_credit", ctypes.c_double), ("temperature", ctypes.c_double),
                ("prefill_tokens_max", ctypes.c_double)]


class Worker(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("worker_id", ctypes.c_uint64), ("dp_rank", ctypes.c_uint32),
                ("total_kv_blocks", ctypes.c_uint32), ("max_num_batched_tokens", ctypes.c_uint32),
                ("taint_count", ctypes.c_uint32), ("taints", ctypes.POINTER(ctypes.c_char_p))]


class Request(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("request_id", ctypes.c_char_p), ("prompt_tokens", ctypes.c_uint64),
                ("sequence_hashes", ctypes.POINTER(ctypes.c_uint64)), ("sequence_count", ctypes.c_size_t),
                ("allowed_worker_ids", ctypes.POINTER(ctypes.c_uint64)), ("allowed_count", ctypes.c_size_t),
                ("required_taints", ctypes.POINTER(ctypes.c_char_p)), ("required_count", ctypes.c_size_t),
                ("expected_output_tokens", ctypes.c_uint64)]


class Decision(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("worker_id", ctypes.c_uint64), ("dp_rank", ctypes.c_uint32),
                ("overlap_blocks", ctypes.c_uint32), ("prefill_tokens", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


def sized(structure: type, **fields) -> ctypes.Structure:
    return structure(struct_size=ctypes.sizeof(structure), **fields)


class RouterLibrary(unittest.TestCase):
    def setUp(self):
        self.lib = ctypes.CDLL(str(LIBRARY))
        self.lib.stator_router_last_error.restype = ctypes.c_char_p

    def call(self, function: str, *arguments):
        status = getattr(self.lib, function)(*arguments)
        self.assertEqual(status, 0, self.lib.stator_router_last_error())

    def test_requests_spread_by_load_and_leases_give_it_back(self):
        router = ctypes.c_void_p()
        config = sized(Config, mode=b"kv", index=b"ttl", block_size=16)
        self.call("stator_router_create", ctypes.byref(config), ctypes.byref(router))
        self.addCleanup(self.lib.stator_router_destroy, router)
        for worker_id in (1, 2):
            self.call("stator_router_add_worker", router, ctypes.byref(sized(Worker, worker_id=worker_id)))
        chosen, leases = set(), []
        for _ in range(2):
            decision, lease = sized(Decision), ctypes.c_void_p()
            self.call("stator_router_route", router, ctypes.byref(sized(Request, prompt_tokens=100)),
                      ctypes.byref(decision), ctypes.byref(lease))
            chosen.add(decision.worker_id)
            leases.append(lease)
        self.assertEqual(chosen, {1, 2}, "the second goes where nothing runs")
        for lease in leases:
            self.lib.stator_router_lease_free(lease)

    def test_the_library_shows_its_interface_and_nothing_else(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", str(LIBRARY)], capture_output=True, text=True, check=True)
        shown = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
        shown.discard("STATOR_ROUTER_1")
        self.assertIn("stator_router_route", shown)
        self.assertEqual({name for name in shown if not name.startswith("stator_router_")}, set())


if __name__ == "__main__":
    unittest.main()
