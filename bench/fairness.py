#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a tenant that asks for ten times its share costs the others: TTFT of calm tenants with and without it, from outside.

A `stator serve` with simulated engines, ten tenants with keys; nine of them ask for their share in an open loop, the tenth for its share or for ten times
as much. The two are measured in turn, the same arrivals in each. Prints the calm tenants' TTFT p50 and p99, what was refused, and the ratio.

    bench/fairness.py [--seconds 20] [--rounds 2] [--load 0.7]
"""

import argparse
import asyncio
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "e2e"))
from stator_process import BINARY, MODEL_DIR, Stator, clean_environment  # noqa: E402

TENANTS = 10
PROMPT_WORDS = 700  # about as many tokens


async def ask(port: int, key: str, text: str, waits: list[float], refused: list[int]) -> None:
    body = json.dumps({"model": "demo", "prompt": text, "max_tokens": 2, "stream": True, "ignore_eos": True}).encode()
    began = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer {key}\r\n"
                     f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            refused.append(int(head.split(b" ")[1]))
        else:
            await reader.readuntil(b"data: ")
            waits.append(time.monotonic() - began)
            await reader.read()
        writer.close()
    except (OSError, asyncio.IncompleteReadError):
        refused.append(0)


def prompt(rng: random.Random) -> str:
    """A prompt that nobody has in a cache."""
    return f"{rng.random()} " + " ".join(rng.choice(("cache", "token", "block", "worker", "prompt")) for _ in range(PROMPT_WORDS))


async def capacity(port: int, keys: list[str], seconds: float = 5, clients: int = 32) -> float:
    """Prompts a second that the engines compute when there are always enough, of the last four fifths of the time."""
    rng, ends = random.Random(1), []
    began = time.monotonic()

    async def client(key: str) -> None:
        while time.monotonic() < began + seconds:
            await ask(port, key, prompt(rng), [], [])
            ends.append(time.monotonic())

    await asyncio.gather(*(client(keys[i % len(keys)]) for i in range(clients)))
    first = began + seconds / 5
    return sum(first <= end < began + seconds for end in ends) / (seconds * 4 / 5)


async def measure(port: int, keys: list[str], rate: float, flood: float, seconds: float) -> tuple[list[float], list[int], int]:
    waits, refused, others = [], [], ([], [])
    tasks = []

    async def tenant(index: int) -> None:
        rng, times = random.Random(index), flood if index == 0 else 1
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(rng.expovariate(rate * times))
            tasks.append(asyncio.create_task(ask(port, keys[index], prompt(rng), *((waits, refused) if index else others))))

    await asyncio.gather(*(tenant(index) for index in range(TENANTS)))
    await asyncio.gather(*tasks)
    return waits, refused, len(others[1])


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)] * 1000 if values else float("nan")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seconds", type=float, default=20)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--load", type=float, default=0.7, help="of what the engines can compute, by all tenants at their share")
    options.add_argument("--threshold", default="0", help="router.queue_threshold")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = [json.loads(subprocess.run([BINARY, "key", "new", "--role", "user", "--tenant", f"t{i}", "--json"], env=clean_environment(),
                                          capture_output=True, text=True, check=True).stdout) for i in range(TENANTS)]
        keys = pathlib.Path(folder) / "keys"
        keys.write_text("".join(one["line"] + "\n" for one in made))
        server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--workers", "4", "--host", "127.0.0.1", "--port", "0", "--api-keys", str(keys),
                        "--router-queue-threshold", given.threshold)
        try:
            secrets = [one["key"] for one in made]
            most = asyncio.run(capacity(server.port, secrets))
            rate = given.load * most / TENANTS
            print(f"the engines compute {most:.1f} prompts/s; each tenant asks {rate:.2f}/s")
            ratios = []
            for _ in range(given.rounds):
                calm, calm_refused, _ = asyncio.run(measure(server.port, secrets, rate, 1, given.seconds))
                flooded, refused, of_flood = asyncio.run(measure(server.port, secrets, rate, 10, given.seconds))
                ratios.append(percentile(flooded, 0.99) / percentile(calm, 0.99))
                print(f"others, calm:    n {len(calm)}, p50 {percentile(calm, .5):.0f} ms, p99 {percentile(calm, .99):.0f} ms, refused {len(calm_refused)}")
                print(f"others, flooded: n {len(flooded)}, p50 {percentile(flooded, .5):.0f} ms, p99 {percentile(flooded, .99):.0f} ms, refused {len(refused)}"
                      f" (the flood: {of_flood}); p99 ratio {ratios[-1]:.3f}")
            print(f"median p99 ratio {statistics.median(ratios):.3f}")
        finally:
            server.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
