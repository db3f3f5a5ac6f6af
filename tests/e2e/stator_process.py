# SPDX-License-Identifier: Apache-2.0
"""Real Stator processes for tests: started on free loopback ports, in temporary folders, and never outliving the test."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL_DIR = ROOT / "models" / "demo"
MODEL = "demo"
BINARY = os.environ.get("STATOR_BINARY", str(ROOT / "build" / "release" / "bin" / "stator"))
# Limits that only a hang reaches: a machine that is busy or waits for its disk takes many times as long as a quiet one.
PATIENCE_S = 60.0
HANG_S = 120.0
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    # Without it a test that is killed by its time limit would leave its servers running.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment without settings of the person who runs the tests."""
    foreign = ("STATOR_", "DYN_", "HF_", "OPENAI_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return {k: v for k, v in os.environ.items() if not k.startswith(foreign)} | extra


def eventually(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> object:
    """Waits until `condition()` is true and returns its value."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            value = condition()
        except (OSError, http.client.HTTPException):
            value = None
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.02)


class Stator:
    """One `stator` process. With `announce`, construction waits for its ready line."""

    def __init__(self, *arguments: str, announce: bool = True, env: dict[str, str] | None = None):
        self.log_file = tempfile.TemporaryFile()
        command = [BINARY, *arguments, *(["--announce"] if announce else [])]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log_file,
            env=env or clean_environment(), preexec_fn=_die_with_parent)
        self.ready: dict = {}
        if announce:
            os.set_blocking(self.process.stdout.fileno(), False)
            self.ready = self._wait_for_ready()

    def _wait_for_ready(self) -> dict:
        received = b""
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline:
            received += self.process.stdout.read() or b""
            if b"\n" in received:
                return json.loads(received.split(b"\n")[0])
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        log = self.log()
        self.kill()
        raise AssertionError(f"stator did not become ready:\n{log}")

    def log(self) -> str:
        return os.pread(self.log_file.fileno(), 1 << 20, 0).decode(errors="replace")

    @property
    def port(self) -> int:
        return self.ready["port"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def alive(self) -> bool:
        return self.process.poll() is None

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = HANG_S) -> int:
        return self.process.wait(timeout_s)

    def freeze(self) -> None:
        """Returns when no thread of it runs any more: SIGSTOP alone does not wait for that."""
        self.process.send_signal(signal.SIGSTOP)
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        eventually(lambda: all("\nState:\tT" in (task / "status").read_text() for task in tasks.iterdir()),
                   "every thread stands still")

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As `kill -9`. Safe to call again."""
        if self.alive():
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def close(self) -> None:
        self.kill()
        self.log_file.close()


class Http:
    """Plain requests to one server."""

    def __init__(self, port: int):
        self.port = port

    def request(self, method: str, path: str, body: object = None, headers: dict | None = None, timeout_s: float = HANG_S):
        """Returns (status, headers, bytes). A dict or list as `body` is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            sent = dict(headers or {})
            if isinstance(body, (dict, list)):
                body = json.dumps(body).encode()
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, object]:
        status, _, body = self.request("GET", path)
        return status, json.loads(body)

    def post(self, path: str, body: object, headers: dict | None = None) -> tuple[int, object]:
        status, _, answer = self.request("POST", path, body, headers)
        return status, json.loads(answer)

    def metric(self, name: str, **labels: str) -> float:
        """Sum over all series of that name that have these labels."""
        _, _, text = self.request("GET", "/metrics")
        total = 0.0
        for line in text.decode().splitlines():
            match = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line)
            if match and match[1] == name and all(f'{k}="{v}"' in (match[2] or "") for k, v in labels.items()):
                total += float(match[3])
        return total


class Deployment:
    """A running service: `http` to talk to it, `processes` it is made of."""

    frontend: Stator
    workers: list[Stator]

    @property
    def http(self) -> Http:
        return Http(self.frontend.port)

    def idle(self) -> bool:
        """Nothing routed, nothing in an engine that this process can see."""
        http_ = self.http
        return (http_.metric("stator_router_active_requests") == 0
                and http_.metric("stator_engine_running_requests") == 0
                and http_.metric("stator_engine_waiting_requests") == 0)

    def worker_ids(self) -> list[int]:
        _, health = self.http.get("/health")
        return [instance["instance_id"] for instance in health.get("instances", [])]

    def close(self) -> None:
        for process in [self.frontend, *self.workers]:
            process.close()


class Serve(Deployment):
    """Everything in one process."""

    def __init__(self, *arguments: str, engine: str = "sim", model: str = str(MODEL_DIR), env: dict[str, str] | None = None):
        self.workers = []
        self.frontend = Stator(
            "serve", model, "--engine", engine, "--host", "127.0.0.1", "--port", "0", *arguments, env=env)


class Split(Deployment):
    """A frontend process and worker processes that find each other through a folder."""

    def __init__(self, *frontend_arguments: str, workers: int = 2, worker_arguments: tuple[str, ...] = (), lease_ttl: str = "10s",
                 engine: str = "sim"):
        self.engine = engine
        self.folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.discovery = ["--discovery", f"file:{self.folder.name}", "--discovery-lease-ttl", lease_ttl]
        self.frontend_arguments = frontend_arguments
        self.worker_arguments = worker_arguments
        self.workers = []
        self.frontend = self.start_frontend()
        try:
            for _ in range(workers):
                self.workers.append(self.start_worker())
            self.wait_for_workers(workers)
        except BaseException:
            self.close()
            raise

    def start_frontend(self, *arguments: str) -> Stator:
        """One more; with the first one's arguments unless there are others."""
        return Stator("frontend", "--host", "127.0.0.1", "--port", "0", *self.discovery, *(arguments or self.frontend_arguments))

    def start_worker(self) -> Stator:
        return Stator("worker", str(MODEL_DIR), "--engine", self.engine, *self.discovery, *self.worker_arguments)

    def wait_for_workers(self, count: int) -> None:
        eventually(lambda: len(self.worker_ids()) == count, f"{count} workers in /health")

    def close(self) -> None:
        super().close()
        self.folder.cleanup()


class DeploymentTest(unittest.TestCase):
    """Base of tests that share one deployment; the subclass's `deploy` makes it."""

    deployment: Deployment

    @classmethod
    def deploy(cls) -> Deployment:
        raise NotImplementedError

    @classmethod
    def setUpClass(cls) -> None:
        cls.deployment = cls.deploy()
        cls.addClassCleanup(cls.deployment.close)
        eventually(lambda: cls.deployment.http.request("GET", "/health")[0] == 200, "healthy")
        cls.http = cls.deployment.http

    def tearDown(self) -> None:
        eventually(self.deployment.idle, "active requests and engine queues are back at 0")
        self.assertTrue(self.deployment.frontend.alive(), self.deployment.frontend.log()[-4000:])


def both_deployments(case: type, namespace: dict, serve: Callable[[], Deployment] = Serve,
                     split: Callable[[], Deployment] = Split) -> None:
    """Adds `case` to a test module twice: against one process, and against frontend and worker processes.

    `case` itself is a mixin that does not derive from TestCase, so it does not run by itself.
    """
    for suffix, make in (("Serve", serve), ("Split", split)):
        name = case.__name__ + suffix
        namespace[name] = type(name, (case, DeploymentTest), {
            "deploy": classmethod(lambda cls, make=make: make()), "__module__": namespace["__name__"]})
