#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/soak.sh: every protocol mixed, clients that die, and what is held at the start and at the end."""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import threading
import time

import websockets.exceptions
import websockets.sync.client

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
from stator_process import MODEL_DIR, Http, Stator, eventually  # noqa: E402

TEXT = "Tell me about prefix caches, routers and engines. "
CHAT = {"model": "m", "messages": [{"role": "user", "content": TEXT}]}
GROWTH_MAX = 0.10  # of memory, beside SLACK_BYTES: allocators keep what one peak took
SLACK_BYTES = 8 << 20
BATCH_SHARE = 0.05  # of those that the dice chose: a batch is many requests


def requests(chance: random.Random) -> dict[str, tuple[str, dict, dict]]:
    """One of each protocol: path, body, headers."""
    tokens = chance.randint(1, 64)
    prompt = TEXT * chance.randint(1, 20)
    chat = {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens}
    return {
        "chat": ("/v1/chat/completions", chat, {}),
        "chat stream": ("/v1/chat/completions", chat | {"stream": True}, {"x-dynamo-session-id": str(chance.randint(0, 99))}),
        "completions": ("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": tokens, "n": 2}, {}),
        "completions stream": ("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": tokens, "stream": True}, {}),
        "responses": ("/v1/responses", {"model": "m", "input": prompt, "max_output_tokens": tokens, "store": False}, {}),
        "responses stream": ("/v1/responses", {"model": "m", "input": prompt, "max_output_tokens": tokens, "stream": True, "store": False}, {}),
        "messages": ("/v1/messages", chat | {"stream": True}, {"anthropic-version": "2023-06-01"}),
        "embeddings": ("/v1/embeddings", {"model": "m", "input": [TEXT] * chance.randint(1, 8)}, {}),
        "rerank": ("/v1/rerank", {"model": "m", "query": "caches", "documents": [TEXT, "routers"]}, {}),
        "tokens": ("/inference/v1/generate", {"model": "m", "token_ids": [chance.randint(10, 900) for _ in range(64)],
                                              "sampling_params": {"max_tokens": tokens}}, {}),
        "tokenize": ("/tokenize", {"model": "m", "prompt": prompt}, {}),
        "compact": ("/v1/responses/compact", {"model": "m", "input": prompt, "max_output_tokens": tokens}, {}),
        "kserve": ("/v2/models/m/generate", {"text_input": prompt, "parameters": {"max_tokens": tokens}}, {}),
        "kserve stream": ("/v2/models/m/generate_stream", {"text_input": prompt, "parameters": {"max_tokens": tokens}}, {}),
        "websocket": ("", {"type": "response.create", "model": "m", "input": prompt, "max_output_tokens": tokens, "store": False}, {}),
        "batch": ("", chat, {}),
        "broken": ("/v1/chat/completions", {"model": "m", "messages": 7}, {}),
    }


class Load:
    """Clients in closed loops that rest so long that the fleet has about `share` of the work it can do."""

    def __init__(self, port: int, clients: int, rest_s: float):
        self.port, self.rest_s = port, rest_s
        self.ended = threading.Event()
        self.counts: collections.Counter = collections.Counter()
        self.threads = [threading.Thread(target=self.run, args=(seed,)) for seed in range(clients)]

    def talk(self, body: dict, fate: float) -> str | int:
        """One response over a WebSocket; clients die as others do."""
        with websockets.sync.client.connect(f"ws://127.0.0.1:{self.port}/v1/responses", open_timeout=60, close_timeout=5) as socket:
            socket.send(json.dumps(body))
            if fate < 0.1:
                return "left before the answer"
            for message in socket:
                kind = json.loads(message)["type"]
                if fate < 0.2:
                    return "left within the answer"
                if kind in ("response.completed", "response.incomplete"):
                    return 200
                if kind in ("error", "response.failed"):
                    return 500
        return "closed"

    def batch(self, chat: dict) -> int:
        """Three requests of a file, and what was made for them goes again."""
        http_ = Http(self.port)
        lines = "".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": chat}) + "\n" for i in range(3))
        form = "".join(f'--b\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n{value}\r\n'
                       for name, extra, value in (("purpose", "", "batch"), ("file", '; filename="a.jsonl"', lines))) + "--b--\r\n"
        status, _, made = http_.request("POST", "/v1/files", form.encode(), {"Content-Type": "multipart/form-data; boundary=b"})
        if status != 200:
            return status
        file = json.loads(made)["id"]
        status, made = http_.post("/v1/batches", {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"})
        if status != 200:
            return status
        name = f"/v1/batches/{made['id']}"
        done = eventually(lambda: (b := http_.get(name)[1])["status"] in ("completed", "failed") and b, "the batch is over", 120)
        files = [file, done["output_file_id"], done["error_file_id"]]
        for each in filter(None, files):
            http_.request("DELETE", f"/v1/files/{each}")
        return 200 if done["status"] == "completed" and done["request_counts"]["completed"] == 3 else 500

    def special(self, name: str, body: dict, fate: float) -> None:
        try:
            self.counts[name, self.talk(body, fate) if name == "websocket" else self.batch(body)] += 1
        except (OSError, AssertionError, websockets.exceptions.WebSocketException) as error:
            self.counts[name, type(error).__name__] += 1

    def run(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self.ended.is_set():
            name, (path, body, headers) = chance.choice(list(requests(chance).items()))
            if not path:
                if name == "websocket" or chance.random() < BATCH_SHARE:
                    self.special(name, body, chance.random())
                continue
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"} | headers)
                fate = chance.random()
                if fate < 0.1:
                    self.counts[name, "left before the answer"] += 1
                    continue
                answer = connection.getresponse()
                if fate < 0.2:
                    answer.read(1)
                    self.counts[name, "left within the answer"] += 1
                    continue
                answer.read()
                self.counts[name, answer.status] += 1
            except (OSError, http.client.HTTPException) as error:
                self.counts[name, type(error).__name__] += 1
            finally:
                connection.close()
            time.sleep(self.rest_s * chance.random() * 2)

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()


def held(pid: int) -> dict[str, int]:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return {"rss": 1024 * int(re.search(r"VmRSS:\s*(\d+) kB", status)[1]), "threads": int(re.search(r"Threads:\s*(\d+)", status)[1]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


def leases(front: Http) -> float:
    return front.metric("stator_router_active_requests") + front.metric("dynamo_frontend_inflight_requests")


def measure(processes: dict[str, Stator], front: Http) -> dict:
    """At rest: nothing runs, and connections of clients that left are gone."""
    eventually(lambda: leases(front) == 0, "nothing is booked or in flight")
    time.sleep(1)
    return {name: held(process.process.pid) for name, process in processes.items()} | {"leases": leases(front)}


def judge(start: dict, end: dict) -> list[str]:
    wrong = []
    for name, before in start.items():
        if name == "leases":
            if end[name] != 0:
                wrong.append(f"{end[name]} leases are left")
            continue
        after = end[name]
        if after["rss"] > before["rss"] * (1 + GROWTH_MAX) + SLACK_BYTES:
            wrong.append(f"{name}: memory grew from {before['rss'] >> 20} to {after['rss'] >> 20} MiB")
        for kind in ("threads", "descriptors"):
            if after[kind] > before[kind]:
                wrong.append(f"{name}: {before[kind]} {kind} became {after[kind]}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float, nargs="?", default=30)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rest-ms", type=float, default=60, help="mean rest of a client between two requests: sets the load")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stator-soak-") as folder:
        place = ("--discovery", f"file:{folder}")
        front_process = Stator("frontend", "--host", "127.0.0.1", "--port", "0", "--shards", "1", "--batches-folder", f"{folder}/batches", *place)
        processes = {"frontend": front_process}
        try:
            for i in range(2):
                processes[f"worker {i}"] = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "20", "--model-name", "m", *place)
            front = Http(front_process.port)
            eventually(lambda: len(front.get("/health")[1].get("instances", [])) == 2, "both workers")
            warm = Load(front_process.port, arguments.clients, arguments.rest_ms / 1e3)
            warm.start()
            time.sleep(min(20.0, 30 * arguments.minutes))  # caches fill, allocators settle
            warm.stop()
            start = measure(processes, front)
            load = Load(front_process.port, arguments.clients, arguments.rest_ms / 1e3)
            load.start()
            time.sleep(60 * arguments.minutes)
            load.stop()
            end = measure(processes, front)
        finally:
            for process in processes.values():
                process.kill()
    wrong = judge(start, end)
    counts = collections.Counter()
    for (name, outcome), count in load.counts.items():
        counts[f"{name}: {outcome}"] += count
        if isinstance(outcome, int) and outcome >= 500 or isinstance(outcome, str) and not outcome.startswith("left"):
            wrong.append(f"{count} × {name}: {outcome}")
    if arguments.json:
        print(json.dumps({"minutes": arguments.minutes, "start": start, "end": end, "requests": counts, "wrong": wrong}))
    else:
        print(f"{sum(counts.values())} requests in {arguments.minutes} min")
        for line, count in sorted(counts.items()):
            print(f"  {count:8} {line}")
        for name in start:
            print(f"{name:10} start {start[name]}\n{'':10} end   {end[name]}")
        print("\n".join(wrong) if wrong else "flat")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
