# SPDX-License-Identifier: Apache-2.0
"""The C interface of libstator_kv, as ctypes sees it (src/stator/connectors/stator_kv.h)."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re

OK, IN_PROGRESS, DEADLINE, NOT_FOUND, FULL = 0, 1, -4, -2, -3
WIPE_FOREIGN, TRUST_HOST = 1, 2
KEY_BYTES = 32

_TEXTS = ("model", "revision", "tokenizer", "dtype", "layout", "salt")
_OBJECT = ("store", "object", "object_endpoint", "object_region", "object_access_key", "object_secret_key", "object_session_token")


class Options(ctypes.Structure):
    _fields_ = ([("struct_size", ctypes.c_size_t)] + [(name, ctypes.c_char_p) for name in _TEXTS]
                + [(name, ctypes.c_uint32) for name in ("block_tokens", "layers", "kv_heads", "head_dim")]
                + [("block_bytes", ctypes.c_uint64), ("host_bytes", ctypes.c_uint64), ("disk", ctypes.c_char_p),
                   ("disk_bytes", ctypes.c_uint64), ("disk_write_bytes_per_day", ctypes.c_uint64)]
                + [(name, ctypes.c_char_p) for name in _OBJECT] + [("copy_threads", ctypes.c_uint32), ("flags", ctypes.c_uint32)])


class Region(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("stride", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class Request(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("keys", ctypes.c_void_p), ("count", ctypes.c_size_t), ("tokens", ctypes.c_void_p),
                ("parent", ctypes.c_void_p), ("memory", ctypes.c_int64), ("blocks", ctypes.c_void_p), ("limit_ms", ctypes.c_uint32)]


class FoundStruct(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("present", ctypes.c_size_t), ("host", ctypes.c_size_t), ("disk", ctypes.c_size_t),
                ("ask", ctypes.c_int)]


class ResultStruct(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("blocks", ctypes.c_size_t), ("from_host", ctypes.c_size_t)]


class Stats(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in (
        "host_slots", "host_blocks", "host_pinned", "host_evictions", "disk_slots", "disk_blocks", "waiting_down", "dropped_down",
        "lookup_blocks", "hit_blocks", "get_blocks", "put_blocks", "loaded_blocks", "integrity_errors", "operations")]


def library_path() -> str:
    """STATOR_KV_LIBRARY, else beside this package (a wheel), else in a build of the repository, else what the loader finds."""
    if path := os.environ.get("STATOR_KV_LIBRARY"):
        return path
    here = pathlib.Path(__file__).resolve().parent
    for folder in (here / "lib", here.parents[2] / "build" / "release" / "lib"):
        if (folder / "libstator_kv.so.1").exists():
            return str(folder / "libstator_kv.so.1")
    return "libstator_kv.so.1"


_loaded: dict[str, ctypes.CDLL] = {}


def _open(path: str, neighbours: pathlib.Path, **mode) -> ctypes.CDLL:
    """With the libraries that the system lacks from a folder beside it (a wheel's)."""
    while True:
        try:
            return ctypes.CDLL(path, **mode)
        except OSError as error:
            match = re.match(r"(\S+\.so[.\d]*): cannot open shared object", str(error))
            if not match or match[1] == path or not (neighbours / match[1]).exists():
                raise
            _open(str(neighbours / match[1]), neighbours, mode=ctypes.RTLD_GLOBAL)


def load(path: str | None = None) -> ctypes.CDLL:
    path = path or library_path()
    if path in _loaded:
        return _loaded[path]
    lib = _open(path, pathlib.Path(__file__).resolve().parents[1] / "stator" / "lib")
    handle, key, count = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    number, text = ctypes.c_int64, ctypes.c_char_p
    for name, result, arguments in (
            ("version", ctypes.c_int, []), ("status_name", text, [ctypes.c_int]), ("last_error", text, []),
            ("open", ctypes.c_int, [ctypes.POINTER(Options), ctypes.POINTER(ctypes.c_void_p)]), ("close", None, [handle]),
            ("memory", number, [handle, ctypes.POINTER(Region), count, ctypes.c_uint64]),
            ("keys_of_tokens", number, [handle, key, text, count, ctypes.c_void_p, count, ctypes.c_void_p, count]),
            ("key_of_name", ctypes.c_int, [handle, text, count, key]),
            ("lookup", ctypes.c_int, [handle, key, count, ctypes.POINTER(FoundStruct)]),
            ("get", number, [handle, ctypes.POINTER(Request)]), ("put", number, [handle, ctypes.POINTER(Request)]),
            ("stage", number, [handle, ctypes.POINTER(Request)]), ("probe", number, [handle, ctypes.POINTER(Request)]),
            ("poll", ctypes.c_int, [handle, number, ctypes.POINTER(ResultStruct)]),
            ("wait", ctypes.c_int, [handle, number, ctypes.c_uint32, ctypes.POINTER(ResultStruct)]),
            ("release", ctypes.c_int, [handle, number]),
            ("pin", number, [handle, key, count, ctypes.c_uint32, ctypes.POINTER(ctypes.c_size_t)]),
            ("unpin", ctypes.c_int, [handle, number]), ("flush", ctypes.c_int, [handle, ctypes.c_uint32]),
            ("get_stats", ctypes.c_int, [handle, ctypes.POINTER(Stats)]),
            ("metrics", number, [handle, ctypes.c_void_p, count]), ("namespace", ctypes.c_int, [handle, ctypes.c_void_p])):
        function = getattr(lib, "stator_kv_" + name)
        function.restype, function.argtypes = result, arguments
    if lib.stator_kv_version() != 1:
        raise ImportError(f"{path} has version {lib.stator_kv_version()} of the interface, this package knows 1")
    _loaded[path] = lib
    return lib


_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1000, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
          "ki": 2**10, "kib": 2**10, "mi": 2**20, "mib": 2**20, "gi": 2**30, "gib": 2**30, "ti": 2**40, "tib": 2**40}


def parse_bytes(value: int | str | None) -> int:
    """4294967296, "4GiB", "4 GB"; None is 0."""
    if value is None or isinstance(value, int):
        return value or 0
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value)
    if not match or match[2].lower() not in _UNITS:
        raise ValueError(f"'{value}' is no number of bytes: write 4294967296 or 4GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])
