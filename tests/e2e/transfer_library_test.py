#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libstator_transfer.so as a stranger uses it: the C example compiled as its head says, Python's ctypes, metadata through etcd."""

import ctypes
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from etcd_process import Etcd
from stator_process import BINARY

LIB = pathlib.Path(BINARY).resolve().parent.parent / "lib" / "libstator_transfer.so"
ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = shutil.which("cc") or "clang-19"
EXAMPLES = ROOT / "src/stator/transfer/examples"
SUCCESS, NOT_FOUND, INVALID, BACKEND, IN_PROGRESS = 0, -4, -2, -3, 1
DRAM, FILE, READ, WRITE = 0, 4, 0, 1


class Range(ctypes.Structure):
    _fields_ = [("addr", ctypes.c_uint64), ("len", ctypes.c_uint64), ("dev", ctypes.c_uint64)]


def library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(LIB))
    for name in ("create", "allocate"):
        getattr(lib, f"stator_transfer_{name}").restype = ctypes.c_void_p
    for name in ("metadata", "partial_metadata", "list", "make", "register_named", "query", "estimate", "backend_types"):
        getattr(lib, f"stator_transfer_{name}").restype = ctypes.c_int64
    return lib


class TransferLibraryTest(unittest.TestCase):
    def agent(self, lib: ctypes.CDLL, name: bytes, backend: bytes):
        made = ctypes.c_void_p(lib.stator_transfer_create(name))
        self.addCleanup(lib.stator_transfer_destroy, made)
        self.assertEqual(lib.stator_transfer_backend(made, backend, b""), SUCCESS)
        memory = lib.stator_transfer_allocate(made, ctypes.c_size_t(8192))
        mine = Range(memory, 8192, 0)
        self.assertEqual(lib.stator_transfer_register(made, DRAM, ctypes.byref(mine), ctypes.c_size_t(1)), SUCCESS)
        return made, memory, mine

    def move(self, lib, agent, op: int, mine: Range, owner: bytes, mem: int, theirs: Range) -> int:
        one = ctypes.c_size_t(1)
        source = ctypes.c_int64(lib.stator_transfer_list(agent, b"", DRAM, ctypes.byref(mine), one))
        target = ctypes.c_int64(lib.stator_transfer_list(agent, owner, mem, ctypes.byref(theirs), one))
        transfer = ctypes.c_int64(lib.stator_transfer_make(agent, op, source, target, None))
        status = lib.stator_transfer_post(agent, transfer)
        if status == IN_PROGRESS:
            status = lib.stator_transfer_wait(agent, transfer, ctypes.c_uint32(20_000))
        lib.stator_transfer_release(agent, transfer)
        return status

    def test_the_c_example_compiles_and_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            program = f"{folder}/two_processes"
            subprocess.run([COMPILER, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", "src", str(EXAMPLES / "two_processes.c"),
                            "-L", str(LIB.parent), "-lstator_transfer", f"-Wl,-rpath,{LIB.parent}", "-o", program],
                           check=True, cwd=ROOT)
            for backend in ("shm", "tcp"):
                done = subprocess.run([program, backend], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout), (0, 'initiator says "written": the bytes are there\n'), done.stderr)

    def test_the_python_example_runs(self):
        done = subprocess.run([sys.executable, str(EXAMPLES / "two_agents.py"), str(LIB)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("was told 'done' by a", done.stdout)

    def test_agents_find_each_other_through_etcd(self):
        lib = library()
        etcd = Etcd()
        self.addCleanup(etcd.close)
        place = b"etcd://" + etcd.members[0].url.removeprefix("http://").encode()
        a, memory_a, range_a = self.agent(lib, b"a", b"tcp")
        b, memory_b, range_b = self.agent(lib, b"b", b"tcp")
        name = ctypes.create_string_buffer(64)
        self.assertEqual(lib.stator_transfer_fetch_metadata(a, place, b"b", name, ctypes.c_size_t(64)), NOT_FOUND)
        self.assertEqual(lib.stator_transfer_send_metadata(b, place), SUCCESS)
        self.assertEqual(lib.stator_transfer_fetch_metadata(a, place, b"b", name, ctypes.c_size_t(64)), SUCCESS)
        self.assertEqual((name.value, lib.stator_transfer_knows(a, b"b")), (b"b", 1))
        ctypes.memmove(memory_b, b"over etcd", 9)
        self.assertEqual(self.move(lib, a, READ, range_a, b"b", DRAM, range_b), SUCCESS)
        self.assertEqual(ctypes.string_at(memory_a, 9), b"over etcd")
        self.assertEqual(lib.stator_transfer_withdraw_metadata(b, place), SUCCESS)
        self.assertEqual(lib.stator_transfer_fetch_metadata(a, place, b"b", name, ctypes.c_size_t(64)), NOT_FOUND)
        self.assertEqual(lib.stator_transfer_send_metadata(b, b"etcd://127.0.0.1:1"), BACKEND)
        self.assertEqual(lib.stator_transfer_send_metadata(b, b"somewhere"), INVALID)

    def test_files_are_memory_too(self):
        lib = library()
        a, memory, mine = self.agent(lib, b"a", b"posix")
        with tempfile.NamedTemporaryFile() as file:
            dev = lib.stator_transfer_register_named(a, FILE, f"rw:{file.name}".encode())
            self.assertGreater(dev, 0)
            ctypes.memmove(memory, bytes(range(256)) * 32, 8192)
            self.assertEqual(self.move(lib, a, WRITE, mine, b"", FILE, Range(0, 8192, dev)), SUCCESS)
            self.assertEqual(pathlib.Path(file.name).read_bytes(), bytes(range(256)) * 32)
            self.assertEqual(lib.stator_transfer_query(a, FILE, ctypes.c_uint64(dev)), 8192)
        names = ctypes.create_string_buffer(256)
        self.assertGreater(lib.stator_transfer_backend_types(names, ctypes.c_size_t(256)), 0)
        self.assertLessEqual({"shm", "tcp", "posix", "obj"}, set(names.value.decode().split(",")))


if __name__ == "__main__":
    unittest.main()
