#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many short texts a core of Stator embeds over the simulated engine: texts divided by the CPU time of the server's process, whatever the
load of the machine. Usage: embeddings.py [STATOR_BINARY]"""

import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "release" / "bin" / "stator")
TEXTS = [f"what does a cache remember about request {i}" for i in range(2048)]
ROUNDS = 3


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    server = subprocess.Popen([BINARY, "serve", str(ROOT / "models" / "demo"), "--engine", "sim", "--workers", "1", "--sim-speedup", "0",
                               "--host", "127.0.0.1", "--port", "0", "--announce", "--log", "warn"], stdout=subprocess.PIPE)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", json.loads(server.stdout.readline())["port"])
        print("| texts per request | encoding | texts/s per core | CPU per text |\n|---|---|---|---|")
        for batch, encoding, texts in ((1, "base64", 1000), (32, "base64", 8192), (256, "base64", 16384), (2048, "base64", 16384), (256, "float", 8192)):
            body = json.dumps({"model": "demo", "input": TEXTS[:batch], "encoding_format": encoding}).encode()
            rates = []
            for _ in range(ROUNDS):
                begin = cpu_seconds(server.pid)
                for _ in range(texts // batch):
                    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    answer.read()
                    assert answer.status == 200
                rates.append(texts / max(cpu_seconds(server.pid) - begin, 1e-9))
            rate = statistics.median(rates)
            print(f"| {batch} | {encoding} | {rate:,.0f} | {1e6 / rate:.1f} µs |", flush=True)
    finally:
        server.kill()
        server.wait()


main()
