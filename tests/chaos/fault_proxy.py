# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that does to a connection what networks do, and a discovery folder that leads through it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import select
import socket
import tempfile
import threading
import time

from stator_process import eventually

UP, DOWN = 0, 1  # from the frontend to the worker, and back


@dataclasses.dataclass
class Link:
    """What happens to everything that passes; may change at any time."""

    delay_s: float = 0.0
    bytes_per_s: float = 0.0  # 0: no limit
    blocked: tuple[bool, bool] = (False, False)  # by direction: nothing passes, nothing is refused
    cut_after: tuple[int, int] | None = None  # direction and byte of one connection at which it is reset
    corrupt_at: tuple[int, int] | None = None  # direction and byte that changes
    refuse: bool = False  # new connections are reset


class FaultProxy:
    """Listens on a free port for one target. Faults that name a byte happen once, to the next connection that gets there."""

    def __init__(self, target: tuple[str, int]):
        self.target = target
        self.link = Link()
        self.passed = [0, 0]  # bytes of the latest connection, by direction
        self.connections = 0
        self.struck = threading.Event()  # a cut or corruption has happened
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._server.getsockname()[1]
        self._running = True
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._running = False
        self._server.close()
        self.reset_all()
        self._thread.join(5)

    def reset_all(self) -> None:
        for pair in self._pairs:
            for end in pair:
                _reset(end)
        self._pairs = []

    def _accept(self) -> None:
        while self._running:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self.link.refuse:
                _reset(client)
                continue
            try:
                server = socket.create_connection(self.target, timeout=60)
            except OSError:
                _reset(client)
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self.passed = passed = [0, 0]
            self._pairs.append((client, server))
            for direction, source, sink in ((UP, client, server), (DOWN, server, client)):
                threading.Thread(target=self._pump, args=(direction, source, sink, passed), daemon=True).start()

    def _pump(self, direction: int, source: socket.socket, sink: socket.socket, passed: list[int]) -> None:
        try:
            while self._running:
                if self.link.blocked[direction]:
                    time.sleep(0.01)
                    continue
                if not select.select([source], [], [], 0.2)[0]:
                    continue
                data = source.recv(65536)
                if not data:
                    break
                if self.link.delay_s:
                    time.sleep(self.link.delay_s)
                while self.link.blocked[direction]:
                    time.sleep(0.01)
                data, broken = self._strike(direction, data, passed)
                passed[direction] += len(data)
                sink.sendall(data)
                if broken:
                    break
                if self.link.bytes_per_s:
                    time.sleep(len(data) / self.link.bytes_per_s)
        except (OSError, ValueError):  # also: closed by the other direction
            pass
        _reset(source)
        _reset(sink)

    def _strike(self, direction: int, data: bytes, passed: list[int]) -> tuple[bytes, bool]:
        begin = passed[direction]
        for name in ("cut_after", "corrupt_at"):
            where = getattr(self.link, name)
            if where and where[0] == direction and begin <= where[1] < begin + len(data):
                setattr(self.link, name, None)
                self.struck.set()
                at = where[1] - begin
                if name == "cut_after":
                    return data[:at], True
                data = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1:]
        return data, False


def _reset(end: socket.socket) -> None:
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()


class DetourFolder:
    """Mirrors the records of one discovery folder into another, where every worker's address is a FaultProxy's."""

    def __init__(self, source: str):
        self.source = pathlib.Path(source) / "instances"
        self.folder = tempfile.TemporaryDirectory(prefix="stator-detour-")
        self.target = pathlib.Path(self.folder.name) / "instances"
        self.target.mkdir()
        self.proxies: dict[str, FaultProxy] = {}  # by file name
        self._running = True
        self._thread = threading.Thread(target=self._mirror, daemon=True)
        self._thread.start()

    @property
    def path(self) -> str:
        return self.folder.name

    def proxy_of(self, worker_id: str) -> FaultProxy:
        return eventually(lambda: next((p for n, p in self.proxies.items() if n.endswith(f"{int(worker_id):x}")), None), "its proxy")

    def close(self) -> None:
        self._running = False
        self._thread.join(5)
        for proxy in self.proxies.values():
            proxy.close()
        self.folder.cleanup()

    def _mirror(self) -> None:
        while self._running:
            names = {p.name for p in self.source.glob("[!.]*")}
            for name in names:
                self._copy(name)
            for gone in {p.name for p in self.target.glob("[!.]*")} - names:
                (self.target / gone).unlink(missing_ok=True)
            time.sleep(0.1)

    def _copy(self, name: str) -> None:
        try:
            record = json.loads((self.source / name).read_text())
        except (OSError, ValueError):
            return
        host, port = record["address"].rsplit(":", 1)
        known = self.proxies.get(name)
        if known is None or known.target != (host, int(port)):
            self.proxies[name] = known = FaultProxy((host, int(port)))
        record["address"] = f"127.0.0.1:{known.port}"
        text = json.dumps(record)
        target = self.target / name
        if target.exists() and target.read_text() == text:
            os.utime(target)
            return
        draft = self.target / f".tmp_{name}"
        draft.write_text(text)
        draft.rename(target)
