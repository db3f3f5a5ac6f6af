#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LMCache's remote protocol at `stator store --lmcache-listen`: messages as LMCache 0.5's own client packs them.
With the real package: tests/real_engines/lmcache_client.py."""

import pathlib
import shutil
import socket
import struct
import tempfile
import unittest

from stator_process import Http, Stator, eventually

PUT, GET, EXIST, LIST, HEALTH = 1, 2, 3, 4, 5
BFLOAT16, KV_2LTD = 3, 1


def key(n: int) -> bytes:
    return f"meta-llama/Llama-3.1-8B-Instruct@1@0@{n:016x}@bfloat16".encode()


class Client:
    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    def send(self, command: int, name: bytes, value: bytes = b"", shape=(0, 0, 0, 0), length: int | None = None) -> None:
        self.socket.sendall(struct.pack("iiiiiiiii150s", command, len(value) if length is None else length, KV_2LTD, BFLOAT16, 0, *shape,
                                        name.ljust(150)) + value)

    def receive(self, count: int) -> bytes:
        out = b""
        while len(out) < count:
            part = self.socket.recv(count - len(out))
            if not part:
                raise ConnectionError("closed")
            out += part
        return out

    def answer(self) -> tuple[int, int, tuple]:
        """code, length, what the value is."""
        code, length, *rest = struct.unpack("iiiiiiiii", self.receive(36))
        return code, length, tuple(rest)

    def put(self, name: bytes, value: bytes, shape) -> None:
        self.send(PUT, name, value, shape)

    def exists(self, name: bytes) -> bool:
        self.send(EXIST, name)
        return self.answer()[0] == 200

    def get(self, name: bytes) -> tuple[bytes, tuple] | None:
        self.send(GET, name)
        code, length, rest = self.answer()
        return (self.receive(length), rest) if code == 200 else None

    def closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def value(n: int, tokens: int = 256) -> tuple[bytes, tuple]:
    shape = (2, 4, tokens, 64)
    count = 2 * 4 * tokens * 64 * 2
    return bytes((n * 37 + i * 11 + i // 251) % 256 for i in range(4096)) * (count // 4096), shape


class LmcacheTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stator_lm_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.store = self.start()

    def start(self) -> Stator:
        store = Stator("store", "--listen", "127.0.0.1:0", "--lmcache-listen", "127.0.0.1:0", "--host-bytes", "64MiB",
                       "--dir", str(self.folder), "--dir-bytes", "64MiB")
        self.addCleanup(store.close)
        return store

    def client(self, store: Stator | None = None) -> Client:
        client = Client((store or self.store).ready["lmcache_port"])
        self.addCleanup(client.socket.close)
        return client

    def test_chunks_come_back_with_what_they_are_from_another_client_and_after_a_restart(self):
        first = self.client()
        self.assertFalse(first.exists(key(0)))
        self.assertIsNone(first.get(key(0)))
        chunks = {n: value(n, 256 if n < 4 else 40) for n in range(5)}  # the last one of a prompt is shorter
        for n, (data, shape) in chunks.items():
            first.put(key(n), data, shape)
        for client in (first, self.client()):
            for n, (data, shape) in chunks.items():
                self.assertTrue(client.exists(key(n)))
                self.assertEqual(client.get(key(n)), (data, (KV_2LTD, BFLOAT16, *shape, 0)))
        first.put(key(0), *chunks[1])
        self.assertEqual(first.get(key(0))[0], chunks[0][0], "a key has one value")
        self.store.terminate()
        self.store.wait()
        again = self.client(self.start())
        for n, (data, shape) in chunks.items():
            self.assertEqual(again.get(key(n)), (data, (KV_2LTD, BFLOAT16, *shape, 0)))
        self.assertFalse(again.exists(key(99)))

    def test_health_and_what_nobody_sends(self):
        client = self.client()
        client.send(HEALTH, b"")
        self.assertEqual(client.answer()[0], 200)
        client.send(LIST, b"")
        self.assertEqual(client.answer()[0], 400)
        for command, name, length in ((0, b"k", 0), (9, b"k", 0), (PUT, b"k", -1), (PUT, b"k", (512 << 20) + 1), (GET, b"", 0)):
            bad = self.client()
            bad.send(command, name, length=length)
            self.assertTrue(bad.closed())
        half = self.client()
        half.socket.sendall(b"\x01\x00")
        half.socket.close()
        self.assertFalse(self.client().exists(key(0)), "others are served")
        http = Http(self.store.port)
        self.assertEqual(http.metric("stator_kv_lmcache_bad_messages_total"), 5)
        self.assertEqual(http.metric("stator_kv_lmcache_requests_total", op="health"), 1)

    def test_connections_are_bounded(self):
        clients = [self.client() for _ in range(64)]
        for client in clients:
            self.assertFalse(client.exists(key(0)))
        self.assertTrue(self.client().closed())
        clients[0].socket.close()

        def admitted():
            one = self.client()
            try:
                return not one.exists(key(0))
            except OSError:
                return False
        eventually(admitted, "a place that was given up is taken")


if __name__ == "__main__":
    unittest.main()
