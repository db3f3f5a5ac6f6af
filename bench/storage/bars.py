#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies, transfers and the disk against what is measured beside them: libc's memcpy, UCX (ucx_perftest, package ucx-utils) and fio. Both
sides alternate; medians, and the ratio of ours to theirs. ucx_perftest moves one block again and again, which stays in the caches: where we
are held against it, we do the same. nixl_race.py is the race over buffers that do not fit there.

    STATOR_BINARY=build/release/bin/stator python3 bench/storage/bars.py [ROUNDS] [--dir FOLDER] [--short]
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import time

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("rounds", nargs="?", type=int, default=5)
arguments.add_argument("--dir", default="/tmp", help="where files of the disk's part are made")
arguments.add_argument("--short", action="store_true", help="a tenth of the bytes")
given = arguments.parse_args()
STATOR = os.environ.get("STATOR_BINARY", "build/release/bin/stator")
SCALE = 0.1 if given.short else 1.0
KIB, MIB = 1 << 10, 1 << 20
libc = ctypes.CDLL(None)
libc.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def stator(backend: str, size: int, batch: int, *more: str) -> dict:
    rounds = max(4, int(SCALE * (2 << 30) / (size * batch)))
    rounds *= 16 if size > MIB else 1
    out = subprocess.run([STATOR, "transfer-bench", "--backend", backend, "--min-size", str(size), "--max-size", str(size), "--batch", str(batch),
                          "--iterations", str(rounds), "--warm-up", str(max(1, rounds // 10)), "--json", *more],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out)["rows"][0]


def moved(backend: str, size: int, batch: int, *more: str) -> float:
    return stator(backend, size, batch, *more)["gb_per_s"]


class Blocks:
    """Two buffers of 256 MiB, each page touched."""

    def __init__(self):
        self.bytes = 256 * MIB
        self.buffers = [ctypes.create_string_buffer(b"x" * self.bytes, self.bytes) for _ in range(2)]

    def copy(self, size: int) -> float:
        """GB/s of libc's memcpy over blocks in a random order."""
        places = [i * size for i in range(self.bytes // size)]
        random.shuffle(places)
        to, source = (ctypes.addressof(buffer) for buffer in self.buffers)
        total, begin = 0, time.perf_counter()
        while total < SCALE * (2 << 30):
            for place in places:
                libc.memcpy(to + place, source + place, size)
            total += self.bytes
        return total / (time.perf_counter() - begin) / 1e9


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ucx(transports: str, test: str, size: int) -> float:
    environment = os.environ | {"UCX_TLS": transports, "UCX_WARN_UNUSED_ENV_VARS": "n"}
    port = free_port()
    server = subprocess.Popen(["ucx_perftest", "-p", str(port)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            time.sleep(0.1)
            done = subprocess.run(["ucx_perftest", "127.0.0.1", "-p", str(port), "-t", test, "-s", str(size), "-w", "10", "-f", "-v", "-n",
                                   str(max(20, int(SCALE * (2 << 30) / size)))], env=environment, capture_output=True, text=True, timeout=300)
            if done.returncode == 0:
                # iterations, percentile, average, overall latency, average and overall MB/s (2^20), messages per second
                return float(done.stdout.strip().splitlines()[-1].split(",")[5]) * MIB / 1e9
        raise RuntimeError("ucx_perftest does not start")
    finally:
        server.kill()
        server.wait()


def fio(operation: str, size: int) -> float:
    file = os.path.join(given.dir, "stator-bars-fio.data")
    done = subprocess.run(["fio", "--name=x", f"--filename={file}", "--size=1g", f"--rw={operation}", f"--bs={size}", "--ioengine=io_uring",
                           "--iodepth=64", "--direct=1", f"--runtime={4 * SCALE + 1}", "--time_based", "--output-format=json"],
                          capture_output=True, text=True, check=True)
    os.remove(file)
    return json.loads(done.stdout)["jobs"][0][operation]["bw_bytes"] / 1e9


def disk(operation: str, size: int) -> float:
    # As fio: a new operation for each that ends, 64 under way.
    return moved("posix", size, 16, "--depth", "4", "--threads", "4", "--mode", "repost", "--op", operation, "--direct", "--dir", given.dir)


def race(name: str, bar: float, ours, theirs) -> None:
    mine, other = [], []
    for _ in range(given.rounds):
        mine.append(ours())
        other.append(theirs())
    ratio = statistics.median(mine) / statistics.median(other)
    print(f"{name:<56} {statistics.median(mine):7.2f} GB/s  against {statistics.median(other):7.2f}  ratio {ratio:5.2f}  bar {bar}", flush=True)


blocks = Blocks()
for size in (64 * KIB, MIB, 4 * MIB):
    race(f"shm write, two processes, {size // KIB} KiB / memcpy", 0.9,
         lambda: moved("shm", size, 256 * MIB // size, "--processes"), lambda: blocks.copy(size))
per = [1000 * stator("shm", 64, 8192)["avg_prep_us"] / 8192 for _ in range(given.rounds)]
print(f"{'both lists and the transfer made, ns of CPU per descriptor':<56} {statistics.median(per):7.1f} ns                               bar 30", flush=True)
if shutil.which("ucx_perftest"):
    race("shm write 64 KiB, the same one / UCX put posix", 1.0, lambda: moved("shm", 64 * KIB, 1, "--processes", "--mode", "repost"),
         lambda: ucx("posix,self", "ucp_put_bw", 64 * KIB))
    for size in (64 * KIB, MIB):
        race(f"tcp write {size // KIB} KiB / UCX put tcp", 1.0, lambda: moved("tcp", size, 64, "--processes"), lambda: ucx("tcp,self", "ucp_put_bw", size))
else:
    print("UCX is not measured: ucx_perftest is not installed (package ucx-utils)")
if shutil.which("fio"):
    for operation in ("write", "read"):
        race(f"disk {operation} 1 MiB, 64 deep, O_DIRECT / fio", 0.95, lambda: disk(operation, MIB), lambda: fio(operation, MIB))
else:
    print("the disk is not measured: fio is not installed")
