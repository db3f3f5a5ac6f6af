#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What attacks cost the server and everybody else: memory, and how long other clients wait.

Each attack gets a server of its own (`stator serve`, two simulated workers, budgets as by default). Eight other clients ask small things all the time, from
a process of their own; their p50 and p99 are taken in the seconds before the attack and while it lasts, the growth of the server's memory at its largest.
Answers that are not 200 to the others are counted. Who has used up an engine is not the question here: attackers ask one worker, the others the other one.
Attackers run at the lowest priority, but the server's work for them takes CPU, too: on a machine that does other things the ratio says little.

    bench/attacks.py [--seconds 10] [--only held_bodies]
"""

import argparse
import http.client
import json
import multiprocessing
import os
import pathlib
import socket
import sys
import threading
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "e2e"))
from hostile_text_test import chat_with_members, colliding_keys  # noqa: E402
from stator_process import MODEL, MODEL_DIR, PATIENCE_S, Http, Stator  # noqa: E402

MIB = 1 << 20
BUDGET_MIB = 1024
OTHERS = 8
PAUSE_S = 0.02
CHAT = "/v1/chat/completions"
PIN = "x-stator-worker-instance-id"
MESSAGES = [{"role": "user", "content": "What is a KV cache?"}]
SMALL = json.dumps({"model": MODEL, "messages": MESSAGES, "max_tokens": 4}).encode()
# Routes that read nothing long; `stator routes` has all.
USELESS = (("POST", "/busy_threshold"), ("GET", "/v1/models"), ("GET", "/health"), ("GET", "/live"), ("GET", "/metrics"), ("GET", "/receipts/x"),
           ("POST", "/detokenize"), ("POST", "/v1/embeddings"), ("POST", "/v1/unknown"), ("PUT", CHAT), ("POST", "/v1/files"))


def head(method: str, path: str, length: int) -> bytes:
    return (f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{PIN}: {WORKERS[0]}\r\n"
            f"Content-Length: {length}\r\n\r\n").encode()


def connect(port: int, receive_buffer: int = 0) -> socket.socket:
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(30)
    connection.connect(("127.0.0.1", port))
    return connection


def send(connection: socket.socket, count: int) -> None:
    """As much as the server takes without a pause of a second."""
    piece, sent = b"x" * MIB, 0
    connection.settimeout(1)
    try:
        while sent < count:
            sent += connection.send(piece[:count - sent])
    except OSError:
        pass


def at_once(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def until(end: float, work: Callable[[], None]) -> Callable[[int], None]:
    def loop(_: int) -> None:
        while time.monotonic() < end:
            try:
                work()
            except (OSError, http.client.HTTPException):
                pass
    return loop


def held_bodies(port: int, end: float) -> None:
    """128 bodies of 190 MB whose last byte never comes."""
    held = []

    def hold(first: int) -> None:
        for _ in range(first, 128, 8):
            connection = connect(port)
            held.append(connection)
            try:
                connection.sendall(head("POST", CHAT, 190 * MIB + 1))
            except OSError:
                continue
            send(connection, 190 * MIB)

    at_once(8, hold)
    time.sleep(max(0.0, end - time.monotonic()))
    for connection in held:
        connection.close()


def useless_bodies(port: int, end: float) -> None:
    """190 MB to routes that read none, four clients at once."""
    routes = iter(USELESS * 100000)

    def one() -> None:
        method, path = next(routes)
        with connect(port) as connection:
            connection.sendall(head(method, path, 190 * MIB))
            send(connection, 190 * MIB)

    at_once(4, until(end, one))


def tokenize(port: int, end: float) -> None:
    """185 MB to /tokenize, and as much as it takes, four clients at once."""
    most = json.dumps({"model": MODEL, "prompt": "a b " * (2 * MIB - 100)}).encode()

    def one() -> None:
        with connect(port) as connection:
            connection.sendall(head("POST", "/tokenize", 185 * MIB))
            send(connection, 185 * MIB)
        with connect(port) as connection:
            connection.sendall(head("POST", "/tokenize", len(most)) + most)
            while connection.recv(MIB):
                pass

    at_once(4, until(end, one))


def large_answers(port: int, end: float) -> None:
    """n × max_tokens × logprobs at their limits in one small request, sixteen clients at once."""
    body = json.dumps({"model": MODEL, "messages": MESSAGES, "max_tokens": 1900, "ignore_eos": True, "n": 128, "logprobs": True, "top_logprobs": 20}).encode()

    def one() -> None:
        with connect(port) as connection:
            connection.sendall(head("POST", CHAT, len(body)) + body)
            while time.monotonic() < end and connection.recv(MIB):
                pass

    at_once(16, until(end, one))


def no_readers(port: int, end: float) -> None:
    """1,500 clients with long streams that read nothing."""
    body = json.dumps({"model": MODEL, "messages": MESSAGES, "max_tokens": 1900, "ignore_eos": True, "stream": True, "n": 8, "logprobs": True,
                       "top_logprobs": 20}).encode()
    clients = []
    for _ in range(1500):
        try:
            clients.append(connect(port, 4096))
            clients[-1].sendall(head("POST", CHAT, len(body)) + body)
        except OSError:
            pass
    time.sleep(max(0.0, end - time.monotonic()))
    for client in clients:
        client.close()


def colliding(port: int, end: float) -> None:
    """60,000 keys of one hash in a message, from a client that leaves."""
    body = chat_with_members(COLLIDING)

    def one() -> None:
        with connect(port) as connection:
            connection.sendall(head("POST", CHAT, len(body)) + body)
            time.sleep(0.1)
        time.sleep(0.5)

    at_once(1, until(end, one))


ATTACKS = {"held_bodies": held_bodies, "useless_bodies": useless_bodies, "tokenize": tokenize, "large_answers": large_answers,
           "no_readers": no_readers, "colliding": colliding}
FLAGS = {"held_bodies": ("--http-body-bytes-max", "192MiB"), "no_readers": ("--sim-speedup", "10")}
COLLIDING: list[str] = []
WORKERS: list[str] = []


def other_clients(port: int, stop, waits) -> None:
    """Asks until `stop`; puts (when, seconds, status) of each request into `waits`."""
    seen: list[tuple[float, float, int]] = []

    def client(_: int) -> None:
        connection = None
        while not stop.is_set():
            began, status = time.monotonic(), 0
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("POST", CHAT, SMALL, {"Content-Type": "application/json", PIN: WORKERS[1]})
                answer = connection.getresponse()
                answer.read()
                status = answer.status
            except (OSError, http.client.HTTPException):
                connection = None
            seen.append((began, time.monotonic() - began, status))
            time.sleep(PAUSE_S)

    at_once(OTHERS, client)
    waits.put(seen)


def attack(name: str, port: int, end: float) -> None:
    os.nice(19)
    ATTACKS[name](port, end)


def memory_mib(server: Stator, field: str) -> float:
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field + ":")) / 1024


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


def run(name: str, seconds: float) -> None:
    server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--workers", "2", "--port", "0", "--host", "127.0.0.1", *FLAGS.get(name, ()))
    WORKERS[:] = [str(instance["instance_id"]) for instance in Http(server.port).get("/health")[1]["instances"]]
    stop, waits = multiprocessing.Event(), multiprocessing.Queue()
    others = multiprocessing.Process(target=other_clients, args=(server.port, stop, waits), daemon=True)
    try:
        others.start()
        time.sleep(2)
        calm = time.monotonic()
        time.sleep(seconds)
        began, before = time.monotonic(), memory_mib(server, "VmRSS")
        attackers = multiprocessing.Process(target=attack, args=(name, server.port, began + seconds), daemon=True)
        attackers.start()
        attackers.join(seconds + PATIENCE_S)
        attackers.kill()
        ended = time.monotonic()
        stop.set()
        seen = waits.get(timeout=120)
        calm_s = [took for when, took, _ in seen if calm <= when < began - 0.1]
        under_s = [took for when, took, _ in seen if began <= when < ended]
        failed = sum(status != 200 for when, _, status in seen if began <= when < ended)
        refused = Http(server.port).metric("stator_budget_refused_total")
        print(f"| {name} | {memory_mib(server, 'VmHWM') - before:.0f} MiB | {percentile(calm_s, .5):.1f}, {percentile(calm_s, .99):.1f} ms "
              f"| {percentile(under_s, .5):.1f}, {percentile(under_s, .99):.1f} ms | {percentile(under_s, .99) / percentile(calm_s, .99):.2f}× "
              f"| {failed} of {len(under_s)} | {refused:.0f} |", flush=True)
    finally:
        stop.set()
        others.join(10)
        server.kill()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__.partition("\n\n")[2],
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=10, help="of calm, and of each attack [10]")
    options.add_argument("--only", choices=ATTACKS, action="append", help="this attack alone; may be said again")
    chosen = options.parse_args()
    if not chosen.only or "colliding" in chosen.only:
        COLLIDING.extend(colliding_keys(60_000))
    print("| attack | memory | others before: p50, p99 | others under attack | p99 | others not served | refused by budgets |\n|---|---|---|---|---|---|---|",
          flush=True)
    for name in chosen.only or ATTACKS:
        run(name, chosen.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
