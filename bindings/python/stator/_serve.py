# SPDX-License-Identifier: Apache-2.0
"""A server of one's own, for tests and notebooks."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import tempfile
import threading
from typing import Any

from ._binary import binary_path, demo_model, environment
from ._client import Client


class StartError(RuntimeError):
    """The server did not start; the message has the end of its log."""


class Server(Client):
    """A running `stator serve`. Ends with its `with` block, with close(), or with this process."""

    def __init__(self, command: list[str], env: dict[str, str], start_timeout_s: float, api_key: str | None):
        self._log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, env=env)
        lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read_output, args=(lines,), daemon=True).start()
        try:
            self.ready: dict[str, Any] = json.loads(lines.get(timeout=start_timeout_s) or b"x")
        except (queue.Empty, ValueError):
            self.process.kill()
            self.process.wait()
            raise StartError(f"{' '.join(command)} did not get ready:\n{self.log()[-2000:]}") from None
        super().__init__(self.ready["url"], api_key)
        port = self.ready.get("admin_port", -1)
        self.admin_url = f"http://127.0.0.1:{port}" if port >= 0 else None

    def _read_output(self, lines: queue.Queue) -> None:
        for line in self.process.stdout:
            lines.put(line)
        lines.put(b"")

    def log(self) -> str:
        """What it has written to its log so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def close(self, timeout_s: float = 60.0) -> None:
        """Ends it: running requests may finish."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self._log.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(model: str | None = None, *arguments: str, port: int = 0, host: str = "127.0.0.1", api_key: str | None = None,
          env: dict[str, str] | None = None, start_timeout_s: float = 120.0, **settings: Any) -> Server:
    """Starts `stator serve` and waits until it is ready.

    `model`: a folder, ORG/NAME, or nothing for the demo model. `settings` are flags: `workers=2` is `--workers 2`,
    `announce_all=True` is `--announce-all`. `arguments` are passed on as they are. StartError with the log if it ends instead.
    """
    flags: list[str] = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        flags += [flag] if value is True else [] if value is False else [flag, str(value)]
    command = [binary_path(), "serve", model or demo_model(), "--host", host, "--port", str(port), "--announce", *flags, *arguments]
    return Server(command, environment(env), start_timeout_s, api_key)
