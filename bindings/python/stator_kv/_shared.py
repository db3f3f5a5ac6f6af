# SPDX-License-Identifier: Apache-2.0
"""Caches of this process, by engine: the two objects of a connector share one."""

import threading

_caches: dict[str, object] = {}
_lock = threading.Lock()


def offer(engine: str, cache) -> None:
    with _lock:
        _caches[engine] = cache


def find(engine: str):
    with _lock:
        return _caches.get(engine)


def withdraw(engine: str) -> None:
    with _lock:
        _caches.pop(engine, None)
