#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cache reset, sleep and wake-up of a real server through Stator.

    control.py --stator URL --direct URL --system URL [--hits METRIC] [--sleep]

One server behind one frontend. After a reset neither the server nor the router may believe in old blocks, and new ones must count
again. With --sleep (vLLM in dev mode): running streams end first, a sleeping server gets nothing, and says the same afterwards.
Exits 1 at the first thing that is not so.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import threading
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from equality import Side  # noqa: E402
from lora import Servers, check  # noqa: E402
from stator_process import eventually  # noqa: E402

TALE = "a tale that is told until it is forgotten " * 30


def reset(servers: Servers) -> None:
    servers.ask_until_cached("m", TALE)
    status, told = servers.system.post("/engine/reset_prefix_cache", {})
    check("the cache is reset through Stator", status == 200, told)
    check("neither the router nor the server believes in old blocks", (both := servers.ask("m", TALE)) == (0, 0), both)
    believed, found = servers.ask_until_cached("m", TALE)
    check(f"new ones count again: the router says {believed} tokens, the server {found}", abs(believed - found) <= 32)


def stream(side: Side) -> Iterator[str]:
    chunks = side.client.completions.create(model="m", prompt=TALE, temperature=0, max_tokens=200, stream=True,
                                            extra_body={"ignore_eos": True})
    return ("".join(choice.text for choice in chunk.choices) for chunk in chunks)


def sleep(servers: Servers, ours: Side, own: Side) -> None:
    expected = "".join(stream(own))
    told: list[tuple[int, object]] = []
    running = stream(ours)
    text = next(running)
    thread = threading.Thread(target=lambda: told.append(servers.system.post("/engine/sleep", {"level": 1})))
    thread.start()
    text += "".join(running)
    thread.join()
    check("a server with a running stream is put to sleep through Stator", told[0][0] == 200, told)
    check("the stream ended as without it", text == expected, text)
    check("the server says that it sleeps", servers.direct.get("/is_sleeping")[1]["is_sleeping"])
    check("the operators' health says so, too", b"asleep" in servers.system.request("GET", "/health")[2])
    check("who asks meanwhile is told 503", status_of_a_request(servers) == 503)
    status, told = servers.system.post("/engine/wake_up", {})
    check("woken up through Stator", status == 200, told)
    eventually(lambda: status_of_a_request(servers) == 200, "it serves again", 60)
    check("its cache was forgotten by the router and by itself", (both := servers.ask("m", TALE)) == (0, 0), both)
    check("it says the same as before", "".join(stream(ours)) == expected)

    servers.direct.request("POST", "/sleep?level=1")
    eventually(lambda: b"asleep" in servers.system.request("GET", "/health")[2], "it is noticed")
    check("and asked nothing when somebody else put it to sleep", status_of_a_request(servers) == 503)
    servers.direct.request("POST", "/wake_up")
    eventually(lambda: status_of_a_request(servers) == 200, "that, too", 60)
    check("until somebody else woke it up", "".join(stream(ours)) == expected)


def status_of_a_request(servers: Servers) -> int:
    return servers.stator.post("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 1})[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stator", required=True)
    parser.add_argument("--direct", required=True)
    parser.add_argument("--system", required=True, help="Stator's service for operators (--system-port)")
    parser.add_argument("--hits", default="vllm:prefix_cache_hits_total", help="the server's counter of cached tokens")
    parser.add_argument("--sleep", action="store_true")
    arguments = parser.parse_args()
    servers = Servers(arguments.stator, arguments.system, arguments.direct, arguments.hits)
    reset(servers)
    if arguments.sleep:
        sleep(servers, *(Side(url, "m", "vllm") for url in (arguments.stator, arguments.direct)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
