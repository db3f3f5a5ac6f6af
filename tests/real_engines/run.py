#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts real engine servers and Stator in front of them, runs the checks of this folder, and writes a report.

    run.py vllm|pd|shared|control|sglang|llamacpp [--prompts N] [--checks NAME,…] [--report FILE]

Environment: VENV (with bin/vllm, or with SGLang), LLAMA_SERVER (the binary) and GGUF (its model), MODEL (a model folder),
ADAPTER (a LoRA adapter for it), STATOR.
scripts/test_real_engines.sh is the way in; it tells which packages are needed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from free_ports import free_port  # noqa: E402

READY_S = 1800  # on a busy machine; alone half a minute
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
VLLM = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
LENGTH = 1024  # of the context


class Fleet:
    """The processes of one run; all of them end with it."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.groups_file, self.processes = folder, folder / "groups", []
        self.groups_file.touch()

    def start(self, name: str, command: list[str], env: dict[str, str] | None = None) -> subprocess.Popen:
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(command, env=os.environ | QUIET | (env or {}), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True)
        self.processes.append(process)
        return process

    def tell_ends(self) -> None:
        """What the processes said last, for a check that failed because one of them had ended."""
        for log in sorted(self.folder.glob("*.log")):
            print(f"-- end of {log.name}:\n{log.read_text(errors='replace')[-6000:]}", file=sys.stderr)

    def engine(self, name: str, command: list[str], port: int, env: dict[str, str] | None = None) -> "Engine":
        return Engine(name, command, f"http://127.0.0.1:{port}", env or {}, self.start(name, command, env), self.folder / f"{name}.log")

    def stator(self, name: str, *arguments: str) -> "Engine":
        port = free_port()
        stator = os.environ.get("STATOR", str(ROOT / "build/release/bin/stator"))
        command = [stator, "serve", os.environ["MODEL"], *arguments, "--host", "127.0.0.1", "--port", str(port), "--model-name", "m",
                   "--reasoning-parser", "none", "--tool-call-parser", "none"]
        engine = self.engine(name, command, port)
        engine.wait()
        return engine

    def close(self) -> None:
        restarted = [int(line) for line in self.groups_file.read_text().split()]  # by a check that kills
        for group in [process.pid for process in self.processes] + restarted:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.wait()


class Engine:
    """A server and what it was started with."""

    def __init__(self, name: str, command: list[str], url: str, env: dict[str, str], process: subprocess.Popen, log: pathlib.Path):
        self.name, self.command, self.url, self.env, self.process, self.log = name, command, url, env, process, log

    def wait(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=20):
                    return
            except OSError:
                time.sleep(0.2)
        raise SystemExit(f"{self.name} did not become ready:\n{self.log.read_text(errors='replace')[-3000:]}")


def vllm(fleet: Fleet, name: str, *extra: str, env: dict[str, str] | None = None) -> Engine:
    port = free_port()
    command = [f"{os.environ['VENV']}/bin/vllm", "serve", os.environ["MODEL"], "--host", "127.0.0.1", "--port", str(port),
               "--served-model-name", "m", "--dtype", "bfloat16", "--enforce-eager", "--max-model-len", str(LENGTH), "--block-size", "32",
               "--enable-prefix-caching", "--enable-prompt-tokens-details", *extra, *os.environ.get("VLLM_ARGS", "").split()]
    return fleet.engine(name, command, port, VLLM | (env or {}))


def vllm_events() -> list[str]:
    return ["--kv-events-config", json.dumps({"enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv-events",
                                              "endpoint": f"tcp://*:{free_port()}", "replay_endpoint": f"tcp://*:{free_port()}"})]


def sglang(fleet: Fleet, name: str) -> Engine:
    port = free_port()
    command = [f"{os.environ['VENV']}/bin/python", "-m", "sglang.launch_server", "--model-path", os.environ["MODEL"],
               "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--attention-backend",
               "torch_native", "--disable-overlap-schedule", "--page-size", "16", "--max-total-tokens", "4096", "--context-length",
               str(LENGTH), "--enable-metrics", "--enable-cache-report", "--kv-events-config",
               json.dumps({"publisher": "zmq", "endpoint": f"tcp://*:{free_port()}", "topic": "kv-events"})]
    return fleet.engine(name, command, port)


def llamacpp(fleet: Fleet, name: str) -> Engine:
    port = free_port()
    command = [os.environ["LLAMA_SERVER"], "-m", os.environ["GGUF"], "--host", "127.0.0.1", "--port", str(port), "-np", "2", "-c",
               str(2 * LENGTH), "-t", "1", "--metrics", "--slots", "--alias", "m"]
    return fleet.engine(name, command, port)


class Checks:
    """Runs scripts of this folder and collects what they print."""

    def __init__(self, wanted: list[str], report: pathlib.Path):
        self.wanted, self.report, self.lines, self.failed = wanted, report, [], []

    def run(self, script: str, *arguments: str) -> None:
        if self.wanted and script not in self.wanted:
            return
        begin = time.monotonic()
        done = subprocess.run([sys.executable, str(HERE / f"{script}.py"), *arguments], stdout=subprocess.PIPE, text=True)
        good = done.returncode == 0
        text = f"## {script}: {'passed' if good else 'FAILED'} ({time.monotonic() - begin:.0f} s)\n\n{done.stdout}"
        print(text, flush=True)
        self.lines.append(text)
        self.report.write_text("\n".join(self.lines), encoding="utf-8")
        self.failed += [] if good else [script]


def run_vllm(fleet: Fleet, checks: Checks, prompts: int) -> None:
    tools = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    # The first one's cache is so small that it evicts.
    small = vllm(fleet, "vllm-small", *tools, *vllm_events(), "--num-gpu-blocks-override", "48")
    large = vllm(fleet, "vllm-large", *tools, *vllm_events())
    small.wait()
    large.wait()
    both = fleet.stator("stator-both", "--engine", "vllm", "--url", f"{small.url},{large.url}")
    one = fleet.stator("stator-small", "--engine", "vllm", "--url", small.url)
    checks.run("overlap", "--stator", one.url, "--engine", small.url)
    other = fleet.stator("stator-large", "--engine", "vllm", "--url", large.url)
    checks.run("conformance", "--stator", other.url, "--engine", large.url, "--dialect", "vllm")
    checks.run("overhead", "--stator", other.url, "--direct", large.url, "--pid", str(other.process.pid))
    checks.run("equality", "--stator", both.url, "--direct", large.url, "--prompts", str(prompts))
    checks.run("kill_one", "--stator", both.url, "--direct", large.url, "--kill-group", str(small.process.pid), "--tokens", "100")


def run_pd(fleet: Fleet, checks: Checks, prompts: int) -> None:
    engines = {}
    for role, kind in (("prefill", "kv_producer"), ("decode", "kv_consumer")):
        engines[role] = vllm(fleet, role, "--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": kind}),
                             env={"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())})
    for engine in engines.values():
        engine.wait()
    starts = fleet.folder / "starts.json"
    starts.write_text(json.dumps({role: {"command": engine.command, "env": QUIET | engine.env, "group": engine.process.pid, "log": str(engine.log),
                                         "groups": str(fleet.groups_file)} for role, engine in engines.items()}))
    stator = fleet.stator("stator", "--engine", "vllm", "--url", ",".join(engine.url for engine in engines.values()), "--role", ",".join(engines),
                          "--frontend-migration-wait", "300s", "--migration-limit", "20")
    checks.run("pd", "--stator", stator.url, "--prefill", engines["prefill"].url, "--decode", engines["decode"].url, "--prompts", str(prompts),
               "--kill", str(starts))


def run_shared(fleet: Fleet, checks: Checks, prompts: int) -> None:
    connector = json.dumps({"kv_connector": "ExampleConnector", "kv_role": "kv_both",
                            "kv_connector_extra_config": {"shared_storage_path": str(fleet.folder / "blocks")}})
    engines = {role: vllm(fleet, role, "--kv-transfer-config", connector) for role in ("prefill", "decode")}
    for engine in engines.values():
        engine.wait()
    stator = fleet.stator("stator", "--engine", "vllm", "--url", ",".join(engine.url for engine in engines.values()), "--role", ",".join(engines),
                          "--handoff", "shared")
    checks.run("pd", "--stator", stator.url, "--prefill", engines["prefill"].url, "--decode", engines["decode"].url, "--prompts", str(prompts),
               "--shared")


def run_control(fleet: Fleet, checks: Checks, prompts: int) -> None:
    engine = vllm(fleet, "vllm", "--enable-lora", "--max-lora-rank", "16", *vllm_events(),
                  env={"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"})
    engine.wait()
    system_port = free_port()
    stator = fleet.stator("stator", "--engine", "vllm", "--url", engine.url, "--system-port", str(system_port))
    servers = ["--stator", stator.url, "--direct", engine.url, "--system", f"http://127.0.0.1:{system_port}"]
    checks.run("lora", *servers, "--adapter", os.environ["ADAPTER"], "--prompts", str(prompts))
    checks.run("control", *servers, "--sleep")


def run_sglang(fleet: Fleet, checks: Checks, prompts: int) -> None:
    engines = [sglang(fleet, f"sglang-{i}") for i in range(2)]
    for engine in engines:
        engine.wait()
    doomed, one = engines
    both = fleet.stator("stator-both", "--engine", "sglang", "--url", ",".join(engine.url for engine in engines))
    system_port = free_port()
    stator = fleet.stator("stator-one", "--engine", "sglang", "--url", one.url, "--system-port", str(system_port))
    checks.run("conformance", "--stator", stator.url, "--engine", one.url, "--dialect", "sglang")
    checks.run("overlap", "--stator", stator.url, "--engine", one.url, "--hits", "sglang:cached_tokens_total")
    checks.run("overhead", "--stator", stator.url, "--direct", one.url, "--pid", str(stator.process.pid))
    checks.run("control", "--stator", stator.url, "--direct", one.url, "--system", f"http://127.0.0.1:{system_port}", "--hits",
               "sglang:cached_tokens_total")
    checks.run("equality", "--stator", both.url, "--direct", one.url, "--prompts", str(prompts), "--dialect", "sglang")
    checks.run("kill_one", "--stator", both.url, "--direct", one.url, "--kill-group", str(doomed.process.pid), "--tokens", "100")


def run_llamacpp(fleet: Fleet, checks: Checks, _prompts: int) -> None:
    engine = llamacpp(fleet, "llama-server")
    engine.wait()
    stator = fleet.stator("stator", "--engine", "llamacpp", "--url", engine.url)
    # No comparison with its own chat endpoint: a converted GGUF splits text otherwise than the tokenizer.json it was made from.
    checks.run("conformance", "--stator", stator.url, "--engine", engine.url, "--dialect", "llamacpp")


SUITES = {"vllm": (run_vllm, 200), "pd": (run_pd, 50), "shared": (run_shared, 50), "control": (run_control, 20),
          "sglang": (run_sglang, 200), "llamacpp": (run_llamacpp, 200)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--prompts", type=int, default=0, help="default: 200, pd and shared 50, control 20")
    parser.add_argument("--checks", default="", help="only these, comma-separated")
    parser.add_argument("--report", help="default: docs/verification/SUITE.txt")
    arguments = parser.parse_args()
    suite, prompts = SUITES[arguments.suite]
    report = pathlib.Path(arguments.report or ROOT / f"docs/verification/{arguments.suite}.txt")
    checks = Checks([name for name in arguments.checks.split(",") if name], report)
    with tempfile.TemporaryDirectory(prefix="stator-real-") as folder:
        fleet = Fleet(pathlib.Path(folder))
        try:
            suite(fleet, checks, arguments.prompts or prompts)
        finally:
            if checks.failed:
                fleet.tell_ends()
            fleet.close()
    return 1 if checks.failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
