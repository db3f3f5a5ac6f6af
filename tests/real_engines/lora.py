#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A LoRA adapter of a real server, loaded, asked and unloaded through Stator.

    lora.py --stator URL --direct URL --system URL --adapter FOLDER [--prompts 20]

One server behind one frontend, started with --enable-lora (and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True). What the adapter says through
Stator must be what it says when the server is asked directly, and not what the model says. Exits 1 at the first thing that is not so.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from equality import Side, prompts  # noqa: E402
from stator_process import Http, eventually  # noqa: E402

NAME, OTHER = "poet", "clerk"


def check(what: str, good: object, told: object = "") -> None:
    if not good:
        sys.exit(f"NOT SO: {what} {told}")
    print(f"- {what}")


class Patient(Http):
    """A server that may be on a busy machine."""

    def request(self, method: str, path: str, body: object = None, headers: dict | None = None, timeout_s: float = 300.0):
        return super().request(method, path, body, headers, timeout_s)


class Servers:
    """Stator, its service for operators, and the server itself."""

    def __init__(self, stator: str, system: str, direct: str, hits: str = "vllm:prefix_cache_hits_total"):
        self.stator, self.system, self.direct = (Patient(urllib.parse.urlsplit(url).port) for url in (stator, system, direct))
        self.hits = hits

    def parents(self, server: Patient) -> dict[str, str | None]:
        return {row["id"]: row.get("parent") for row in server.get("/v1/models")[1]["data"]}

    def ask(self, model: str, prompt: str) -> tuple[int, int]:
        """Tokens that the router believed cached, and that the server found there."""
        before = self.direct.metric(self.hits)
        status, answer = self.stator.post("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0})
        if status != 200:
            sys.exit(f"{model}: {answer}")
        receipt = self.stator.get(f"/receipts/{answer['id']}")[1]
        return receipt["best_overlap_blocks"] * receipt["block_size"], int(self.direct.metric(self.hits) - before)

    def ask_until_cached(self, model: str, prompt: str) -> tuple[int, int]:
        def cached() -> tuple[int, int] | None:
            both = self.ask(model, prompt)
            return both if min(both) > 100 else None

        return eventually(cached, f"the blocks of {model} are known to the router and at the server", 60)


def compare(arguments: argparse.Namespace, name: str) -> tuple[int, int, int]:
    """Answers equal to the server's own, answers in all, and prompts to which the model itself says something else."""
    ours, own, model = (Side(url, named, "vllm")
                        for url, named in ((arguments.stator, name), (arguments.direct, name), (arguments.direct, "m")))
    equal = asked = other = 0
    for i, prompt in enumerate(prompts(arguments.prompts)):
        for kind in ("completion", "completion_stream", "chat", "chat_stream"):
            expected = getattr(own, kind)(prompt, max_tokens=8 + i % 9)
            equal += expected == getattr(ours, kind)(prompt, max_tokens=8 + i % 9)
            asked += 1
        other += model.completion(prompt, max_tokens=8)["text"] != own.completion(prompt, max_tokens=8)["text"]
    return equal, asked, other


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stator", required=True)
    parser.add_argument("--direct", required=True)
    parser.add_argument("--system", required=True, help="Stator's service for operators (--system-port)")
    parser.add_argument("--adapter", required=True, help="folder, as the server sees it")
    parser.add_argument("--prompts", type=int, default=20)
    arguments = parser.parse_args()
    servers = Servers(arguments.stator, arguments.system, arguments.direct)
    wish = {"lora_name": NAME, "lora_path": arguments.adapter}

    status, told = servers.system.post("/v1/loras", wish)
    check("loaded through Stator", status == 200, told)
    check("the server lists it", servers.parents(servers.direct).get(NAME, "") == "m")
    eventually(lambda: servers.parents(servers.stator).get(NAME, "") == "m", "Stator lists it, with its parent")
    check("Stator lists it, with its parent", True)
    equal, asked, other = compare(arguments, NAME)
    check(f"{equal} of {asked} greedy answers are the server's own; the model itself says something else {other} of {arguments.prompts} times",
          equal == asked and other > arguments.prompts // 2)

    tale = f"{arguments.adapter} " + "a tale that only this check tells " * 40
    servers.ask_until_cached("m", tale)
    check("a prompt that the model has cached is not cached for the adapter", servers.ask(NAME, tale) == (0, 0))
    believed, found = servers.ask_until_cached(NAME, tale)
    check(f"its own are: the router says {believed} tokens, the server {found}", abs(believed - found) <= 32)

    status, told = servers.system.post("/v1/loras", wish)
    check("loading it again is refused as a conflict", status == 409, (status, told))
    status, told = servers.system.post("/v1/loras", {"lora_name": OTHER, "lora_path": "/nonexistent/adapter"})
    check("a folder that is not there is refused by its name", status == 404 and "/nonexistent/adapter" in str(told), (status, told))

    status, told = servers.system.request("DELETE", f"/v1/loras/{NAME}")[::2]
    check("unloaded through Stator", status == 200, told)
    check("the server has forgotten it", NAME not in servers.parents(servers.direct))
    eventually(lambda: NAME not in servers.parents(servers.stator), "Stator, too")
    status, told = servers.stator.post("/v1/completions", {"model": NAME, "prompt": "a", "max_tokens": 1})
    check("asking for it is a 404 that names it", status == 404 and NAME in str(told), (status, told))

    servers.direct.request("POST", "/v1/load_lora_adapter", {"lora_name": OTHER, "lora_path": arguments.adapter})
    eventually(lambda: OTHER in servers.parents(servers.stator), "one that is loaded at the server itself is found", 60)
    equal, asked, _ = compare(argparse.Namespace(**vars(arguments) | {"prompts": 2}), OTHER)
    check("one that is loaded at the server itself is found, and answers as there", equal == asked)
    servers.direct.request("POST", "/v1/unload_lora_adapter", {"lora_name": OTHER})
    eventually(lambda: OTHER not in servers.parents(servers.stator), "and missed", 60)
    check("and missed once it is unloaded there", True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
