#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same kill test for Stator and for NVIDIA Dynamo with its mock engine: how many streams fail or change.

Three workers, unbroken streams of a fixed length, and every few moments one worker is killed with `kill -9` and replaced.
Told apart: streams that fail (no 200, an error event, no end), streams whose number of tokens is wrong, and, where the engine
is deterministic (Stator's simulated one), streams whose text differs from the undisturbed one. Dynamo's mock engine draws its
tokens at random, so there nobody can see whether a continued text was right.

Needs for --system dynamo, once (without dependencies: `aisimulate` is only a stub on the public index):
  python3 -m venv VENV && VENV/bin/pip install --no-deps ai-dynamo==1.4.2 ai-dynamo-runtime==1.4.2 gguf &&
  VENV/bin/pip install aiohttp certifi 'kubernetes<33' msgspec 'prometheus-client<1' pyzmq 'redis<9' tqdm transformers zstandard \\
    pydantic uvloop

  bench/race/kill_workers.py --system stator
  bench/race/kill_workers.py --system dynamo --dynamo-venv VENV --migration-limit 3
"""

import argparse
import ctypes
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from free_ports import free_port  # noqa: E402

PROMPTS = ("What is a KV cache?", "Write about rivers.", "Tell me a story of a lighthouse, please.", "Count the stars.")


class System:
    """Processes of one contestant."""

    name: str
    deterministic: bool
    model = "m"

    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="stator-race-")
        self.port = free_port()
        self.frontend = self.spawn(self.frontend_command())
        self.workers = [self.start_worker() for _ in range(options.workers)]

    def spawn(self, command: list[str]) -> subprocess.Popen:
        # The mock engine has children of its own: a group per process dies as one.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
                                stderr=open(f"{self.folder}/log", "ab"), env=self.environment(),
                                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def start_worker(self) -> subprocess.Popen:
        return self.spawn(self.worker_command())

    def kill(self, process: subprocess.Popen) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in [self.frontend, *self.workers]:
            self.kill(process)
        shutil.rmtree(self.folder, ignore_errors=True)


class Stator(System):
    name, deterministic = "stator", True

    def discovery(self) -> list[str]:
        return ["--discovery", f"file:{self.folder}/d", "--discovery-lease-ttl", "2s"]

    def frontend_command(self):
        return [self.options.stator, "frontend", "--host", "127.0.0.1", "--port", str(self.port), *self.discovery(),
                "--migration-limit", str(self.options.migration_limit), "--frontend-poison-workers", "0"]

    def worker_command(self):
        return [self.options.stator, "worker", str(ROOT / "models" / "demo"), "--model-name", "m", "--engine", "sim",
                "--sim-speedup", str(self.options.speedup), *self.discovery()]


class Dynamo(System):
    name, deterministic = "dynamo", False
    model = str(ROOT / "models" / "demo")  # with another name its frontend looks for the tokenizer on the model hub

    def environment(self):
        return super().environment() | {"HF_HUB_OFFLINE": "1", "DYN_LOG": "error", "DYN_FILE_KV": f"{self.folder}/kv"}

    def python(self, module: str, *arguments: str) -> list[str]:
        return [f"{self.options.dynamo_venv}/bin/python", "-m", module, "--discovery-backend", "file", *arguments]

    def frontend_command(self):
        return self.python("dynamo.frontend", "--router-mode", "kv", "--http-port", str(self.port),
                           "--migration-limit", str(self.options.migration_limit))

    def worker_command(self):
        return self.python("dynamo.mocker", "--model-path", self.model, "--num-workers", "1", "--speedup-ratio", str(self.options.speedup))


def ask(system: System, prompt: str, tokens: int) -> tuple[str, int, str]:
    """(text, tokens by usage, what went wrong)."""
    body = {"model": system.model, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    text, used, done = "", 0, False
    try:
        connection = http.client.HTTPConnection("127.0.0.1", system.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            return text, used, f"status {answer.status}"
        for raw in answer:
            line = raw.decode().strip()
            if line.startswith("event: error") or '{"error"' in line:
                return text, used, line[:200]
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data:"):
                chunk = json.loads(line[5:])
                used = (chunk.get("usage") or {}).get("completion_tokens", used)
                for choice in chunk["choices"]:
                    text += choice["delta"].get("content") or ""
        return text, used, "" if done else "no end"
    except (OSError, ValueError, KeyError, http.client.HTTPException) as e:
        return text, used, repr(e)


def race(system: System, options) -> dict:
    deadline = time.monotonic() + options.patience
    while wrong := next((w for w in (ask(system, prompt, 4)[2] for prompt in PROMPTS) if w), None):
        if time.monotonic() > deadline:
            log = pathlib.Path(f"{system.folder}/log").read_text(errors="replace")
            raise SystemExit(f"{system.name} does not answer: {wrong}\n{log[-1500:]}")
        time.sleep(0.5)
    expected = {prompt: ask(system, prompt, options.tokens)[0] for prompt in PROMPTS}
    count = {"streams": 0, "failed": 0, "wrong_length": 0, "altered": 0 if system.deterministic else None}
    errors: dict[str, int] = {}
    lock, running = threading.Lock(), threading.Event()
    running.set()

    def client(turn: int):
        while running.is_set():
            prompt = PROMPTS[turn % len(PROMPTS)]
            turn += 1
            text, used, wrong = ask(system, prompt, options.tokens)
            with lock:
                count["streams"] += 1
                if wrong:
                    count["failed"] += 1
                    errors[wrong[:100]] = errors.get(wrong[:100], 0) + 1
                elif used != options.tokens:
                    count["wrong_length"] += 1
                elif system.deterministic and text != expected[prompt]:
                    count["altered"] += 1

    threads = [threading.Thread(target=client, args=(i,)) for i in range(options.streams)]
    for thread in threads:
        thread.start()
    chance = random.Random(options.seed)
    for _ in range(options.kills):
        time.sleep(options.pause * (0.5 + chance.random()))
        slot = chance.randrange(len(system.workers))
        system.kill(system.workers[slot])
        system.workers[slot] = system.start_worker()
    time.sleep(options.pause)
    running.clear()
    for thread in threads:
        thread.join()
    return {"system": system.name, "kills": options.kills, "migration_limit": options.migration_limit, **count,
            "errors": errors, "load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=("stator", "dynamo"), required=True)
    parser.add_argument("--stator", default=str(ROOT / "build" / "release" / "bin" / "stator"))
    parser.add_argument("--dynamo-venv", help="virtual environment with ai-dynamo")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between kills, on average: longer than a worker's start")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--speedup", type=float, default=2.0, help="of the simulated engines")
    parser.add_argument("--migration-limit", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=120, help="seconds until the system must answer")
    options = parser.parse_args()
    if options.system == "dynamo" and not options.dynamo_venv:
        parser.error("--system dynamo needs --dynamo-venv")
    system = (Stator if options.system == "stator" else Dynamo)(options)
    try:
        print(json.dumps(race(system, options)))
    finally:
        system.close()


if __name__ == "__main__":
    sys.exit(main())
