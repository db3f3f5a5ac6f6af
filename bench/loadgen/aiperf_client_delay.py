#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How late AIPerf's HTTP client sees tokens, without the rest of AIPerf: its client class against a server that notes when it sends.

Run by a Python that has aiperf:  VENV/bin/python bench/loadgen/aiperf_client_delay.py
Prints medians in milliseconds: from AIPerf's start stamp to the request at the server, and from each send to AIPerf's stamp of that token, where the
head of the answer is sent at once and where it comes with the first token. Both processes read the same monotonic clock."""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKENS = 8
WARM_UP = 5
REQUESTS = 25


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def read_request(connection: socket.socket, received: bytes) -> bytes | None:
    """Bytes behind the request, or None when the client is gone."""
    while True:
        head, separator, rest = received.partition(b"\r\n\r\n")
        if separator:
            length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            if len(rest) >= length:
                return rest[length:]
        data = connection.recv(65536)
        if not data:
            return None
        received += data


def serve(connection: socket.socket, head_first: bool) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rest: bytes | None = b""
    while (rest := read_request(connection, rest)) is not None:
        times = [time.perf_counter_ns()]
        if head_first:
            connection.sendall(HEAD)
        time.sleep(0.2)
        for i in range(TOKENS):
            event = b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": f"w{i} "}}]}).encode() + b"\n\n"
            times.append(time.perf_counter_ns())
            connection.sendall((b"" if head_first or i > 0 else HEAD) + chunk(event))
            time.sleep(0.02)
        print(json.dumps(times), flush=True)
        connection.sendall(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def run_server(head_first: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, head_first), daemon=True).start()


async def measure(head_first: bool) -> None:
    from aiperf.transports.aiohttp_client import AioHttpClient

    server = subprocess.Popen([sys.executable, __file__, "server", str(int(head_first))], stdout=subprocess.PIPE, text=True)
    client = AioHttpClient(timeout=30)
    try:
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1/chat/completions"
        body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x " * 100}]}).encode()
        up, down = [], []
        for _ in range(REQUESTS):
            record = await client.post_request(url, body, {"Content-Type": "application/json", "Accept": "text/event-stream"})
            got, *sent = json.loads(server.stdout.readline())
            up.append(got - record.start_perf_ns)
            down.append([seen.perf_ns - at for seen, at in zip(record.responses, sent)])
    finally:
        await client.close()
        server.terminate()
        server.wait()
    median = lambda values: f"{statistics.median(values) / 1e6:.3f}"
    print(f"head {'at once' if head_first else 'with the first token'}: request {median(up[WARM_UP:])}, tokens",
          *(median(column) for column in zip(*down[WARM_UP:])), f"(load {os.getloadavg()[0]:.1f})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["server"]:
        run_server(sys.argv[2] == "1")
    else:
        for head_first in (True, False):
            asyncio.run(measure(head_first))
