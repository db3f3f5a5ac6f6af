#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights from another process' memory (`stator models share`, `fetch`), and memory that outlives its users (`stator memory`), from outside."""

import array
import mmap
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import unittest

from stator_process import BINARY, MODEL_DIR, Stator, eventually

HANDSHAKE, ALLOCATE, EXPORT, COMMIT, STATE, OK = 1, 2, 3, 10, 12, 13
WRITE, READ, EITHER = 0, 1, 2


def packed(value) -> bytes:
    """MessagePack of what the messages have."""
    if isinstance(value, str):
        return bytes([0xa0 | len(value)]) + value.encode()
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b"".join(packed(one) for one in value)
    return bytes([value]) if value < 128 else b"\xcf" + struct.pack(">Q", value)


def unpacked(data: bytes, at: int = 0):
    tag = data[at]
    sizes = {0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8}
    if tag < 128:
        return tag, at + 1
    if tag in sizes:
        return int.from_bytes(data[at + 1:at + 1 + sizes[tag]], "big"), at + 1 + sizes[tag]
    if 0xa0 <= tag < 0xc0 or tag == 0xd9:
        length, at = (tag & 31, at + 1) if tag != 0xd9 else (data[at + 1], at + 2)
        return data[at:at + length].decode(), at + length
    assert 0x90 <= tag < 0xa0, tag
    out, at = [], at + 1
    for _ in range(tag & 15):
        value, at = unpacked(data, at)
        out.append(value)
    return out, at


class Client:
    """A stranger to the service, by its README."""

    def __init__(self, path: str):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)

    def ask(self, kind: int, mode: int = 0, id_: int = 0, size: int = 0, number: int = 0, text: str = "") -> dict:
        body = packed([kind, mode, id_, size, number, text, [0, 0, 0, ""], [], []])
        self.socket.sendall(struct.pack(">I", len(body)) + body)
        fds = array.array("i")
        data, control, *_ = self.socket.recvmsg(65536, socket.CMSG_SPACE(4))
        for _, _, rights in control:
            fds.frombytes(rights[:4])
        while len(data) < 4 or len(data) < 4 + struct.unpack(">I", data[:4])[0]:
            data += self.socket.recv(65536)
        kind, _, id_, size, number, text, *_ = unpacked(data[4:])[0]
        return {"ok": kind == OK, "id": id_, "bytes": size, "number": number, "text": text, "fd": fds[0] if fds else -1}

    def close(self) -> None:
        self.socket.close()


class SharedMemoryTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stator_shared_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, *arguments: str) -> Stator:
        process = Stator(*arguments, announce=False)
        self.addCleanup(process.close)
        return process

    def test_a_checkpoint_travels_from_memory_to_memory(self):
        place = f"file://{self.folder}/sources"
        (self.folder / "sources").mkdir()
        first = self.start("models", "share", MODEL_DIR, "--place", place, "--name", "first")
        eventually(lambda: "ready" in first.log(), "the source is ready")
        second = self.start("models", "fetch", "demo", "--place", place, "--name", "second", "--into", str(self.folder / "b"), "--share")
        eventually(lambda: "ready" in second.log(), "the copy is a source, too")
        first.terminate()
        first.wait()
        eventually(lambda: len(list((self.folder / "sources").iterdir())) == 1, "the first has taken its offer back")
        done = subprocess.run([BINARY, "models", "fetch", "demo", "--place", place, "--into", str(self.folder / "c")],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("from second", done.stdout)
        for file in pathlib.Path(MODEL_DIR).iterdir():
            if file.is_file():
                self.assertEqual((self.folder / "c" / file.name).read_bytes(), file.read_bytes(), file.name)
        other = subprocess.run([BINARY, "models", "fetch", "demo", "--revision", "x", "--place", place, "--into", str(self.folder / "d")],
                               capture_output=True, text=True, timeout=60)
        self.assertNotEqual(other.returncode, 0)
        self.assertIn("nobody shares demo", other.stderr)

    def test_memory_is_owned_by_the_service(self):
        path = str(self.folder / "s")
        service = self.start("memory", "--socket", path, "--bytes", "8MiB")
        eventually(lambda: "ready" in service.log(), "the service listens")
        writer = Client(path)
        self.assertEqual(writer.ask(STATE)["text"], "EMPTY")
        self.assertEqual(writer.ask(HANDSHAKE, mode=WRITE, number=1000)["number"], 1)
        self.assertFalse(writer.ask(ALLOCATE, size=1 << 30, text="weights")["ok"])
        made = writer.ask(ALLOCATE, size=1 << 20, text="weights")
        given = writer.ask(EXPORT, id_=made["id"])
        with mmap.mmap(given["fd"], 1 << 20) as memory:
            memory[:5] = b"hello"
        self.assertTrue(writer.ask(COMMIT)["ok"])
        writer.close()
        reader = Client(path)
        self.assertEqual(reader.ask(HANDSHAKE, mode=EITHER, number=1000)["number"], 0)
        seen = reader.ask(EXPORT, id_=made["id"])
        with mmap.mmap(seen["fd"], 1 << 20, access=mmap.ACCESS_READ) as memory:
            self.assertEqual(memory[:5], b"hello")
        self.assertFalse(reader.ask(ALLOCATE, size=4096)["ok"])
        reader.close()
        # A writer that ends without a commit leaves nothing.
        crashed = Client(path)
        self.assertEqual(crashed.ask(HANDSHAKE, mode=WRITE, number=10_000)["number"], 1)
        crashed.close()
        look = Client(path)
        self.addCleanup(look.close)
        eventually(lambda: look.ask(STATE)["text"] == "EMPTY", "the layout is gone")
        again = subprocess.run([BINARY, "memory", "--socket", path], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("listens at", again.stderr)


if __name__ == "__main__":
    unittest.main()
