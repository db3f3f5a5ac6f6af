# SPDX-License-Identifier: Apache-2.0
"""A real nats-server for tests, on a free loopback port, in a temporary folder."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile

from free_ports import free_port
from stator_process import _die_with_parent, eventually


def _find_binary() -> str:
    for path in (shutil.which("nats-server"), "/usr/sbin/nats-server", "/usr/local/bin/nats-server"):
        if path and pathlib.Path(path).exists():
            return path
    raise RuntimeError("nats-server is not installed: scripts/setup.sh does it")


class NatsServer:
    """`kill` it as often as you like: `start` brings it back on the same port, with what it stored if `jet_stream`."""

    def __init__(self, *arguments: str, jet_stream: bool = False):
        self.folder = tempfile.TemporaryDirectory(prefix="stator-nats-")
        self.arguments = (*arguments, "-js", "-sd", f"{self.folder.name}/store") if jet_stream else arguments
        self.port = free_port()
        self.process: subprocess.Popen | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [_find_binary(), "-a", "127.0.0.1", "-p", str(self.port), "--ports_file_dir", self.folder.name,
             "-l", f"{self.folder.name}/log", *self.arguments],
            stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
        eventually(lambda: (pathlib.Path(self.folder.name) / f"nats-server_{self.process.pid}.ports").exists(), "nats-server listens")

    def kill(self) -> None:
        """As `kill -9`. Safe to call again."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.kill()
        self.folder.cleanup()
