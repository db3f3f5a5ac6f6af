#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a live inference engine: what it answers to a fixed list of requests, byte for byte, and its KV events.

    tools/capture_engine/capture_engine.py --dialect vllm --url http://127.0.0.1:8100 --model m --out recordings/vllm-0.33

Use a server without other clients and a model whose output may be published. Needs only Python and libzmq. The formats
are those of README.md beside this file; the tests of adapters and fake engines read them.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import re
import struct
import sys
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import engine_requests  # noqa: E402
from wire_capture import Recorder  # noqa: E402
from zmq_wire import DEALER, SUB, Socket, unpack  # noqa: E402

QUIET_S = 0.7  # no event for this long: the engine has said everything


def printable(value: object) -> object:
    """A MessagePack value as JSON; bytes as {"hex": …}."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, list):
        return [printable(v) for v in value]
    if isinstance(value, dict):
        return {str(k): printable(v) for k, v in value.items()}
    return value


class EventRecorder:
    """Everything that came since the last `save`, as frames and decoded."""

    def __init__(self, endpoint: str, folder: pathlib.Path):
        self.socket = Socket(SUB, endpoint)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def collect(self) -> list[list[bytes]]:
        self.socket.timeout(QUIET_S)
        messages = []
        while (frames := self.socket.receive()) is not None:
            messages.append(frames)
        return messages

    def save(self, name: str, messages: list[list[bytes]]) -> int:
        raw = b"".join(struct.pack(">I", len(m)) + b"".join(struct.pack(">I", len(f)) + f for f in m) for m in messages)
        (self.folder / f"{name}.zmq").write_bytes(raw)
        lines = []
        for frames in messages:
            *_, topic, sequence, payload = ([b""] + frames)[-3:] if len(frames) < 3 else frames
            lines.append(json.dumps({
                "frames": len(frames), "topic": topic.decode(errors="replace"), "seq": int.from_bytes(sequence, "big"),
                "bytes": len(payload), "batch": printable(unpack(payload)) if payload else None}) + "\n")
        (self.folder / f"{name}.jsonl").write_text("".join(lines))
        return len(messages)


def record_http(recorder: Recorder, requests: list[dict], only: re.Pattern) -> int:
    failed = 0
    for request in requests:
        if not only.search(request["name"]):
            continue
        try:
            status = recorder.exchange(**request)
            print(f"{request['name']:45} {status}")
        except OSError as error:
            failed += 1
            print(f"{request['name']:45} {error}", file=sys.stderr)
    return failed


def record_events(recorder: Recorder, dialect: str, options: argparse.Namespace, out: pathlib.Path) -> None:
    events = EventRecorder(options.events, out / "kv-events")
    deadline = time.monotonic() + 30
    warm = engine_requests.warm_ups(dialect, options.model, options.vocab_size)
    while not events.collect():  # a new subscription misses what is published before it is known
        if time.monotonic() > deadline:
            raise SystemExit(f"no KV event from {options.events} within 30 s: are they switched on?")
        recorder.send(**next(warm))
    for step in engine_requests.event_script(dialect, options.model, options.vocab_size):
        for request in step["requests"]:
            recorder.send(**request)
        print(f"kv-events/{step['name']:35} {events.save(step['name'], events.collect())} messages")
    if options.replay:
        socket = Socket(DEALER, options.replay)
        socket.send(b"", (0).to_bytes(8, "big"))
        messages = []
        while not messages or messages[-1][-2] != b"\xff" * 8:
            frames = socket.receive()
            if frames is None:
                raise SystemExit(f"no end of the replay from {options.replay}")
            messages.append(frames)
        events.save("replay-from-0", messages[:6] + messages[-1:])
        print(f"kv-events/{'replay-from-0':35} {len(messages)} messages, first six and the end kept")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialect", required=True, choices=sorted(engine_requests.DIALECTS))
    parser.add_argument("--url", required=True, help="of the server, http only")
    parser.add_argument("--model", required=True, help="as the server names it")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write, must not exist")
    parser.add_argument("--vocab-size", type=int, default=32000, help="token ids in prompts stay below this [32000]")
    parser.add_argument("--events", help="PUB endpoint of the KV events, as this machine reaches it")
    parser.add_argument("--replay", help="ROUTER endpoint of their replay")
    parser.add_argument("--header", action="append", default=[], help="'Name: value' for every request; the value is not recorded")
    parser.add_argument("--only", default="", help="regular expression on names")
    options = parser.parse_args()
    url = urllib.parse.urlsplit(options.url)
    if url.scheme != "http" or not url.hostname:
        parser.error("--url must be http://HOST:PORT")
    if options.out.exists():
        parser.error(f"{options.out} exists; recordings are not mixed")
    secret = dict(h.split(": ", 1) for h in options.header)
    recorder = Recorder(url.hostname, url.port or 80, options.out / "http", secret)
    random.seed(1)
    if options.events:
        record_events(recorder, options.dialect, options, options.out)
    failed = record_http(recorder, engine_requests.http_requests(options.dialect, options.model, options.vocab_size),
                         re.compile(options.only))
    (options.out / "README.md").write_text(
        f"# Traffic recorded from a server of the dialect {options.dialect}\n\n"
        f"By tools/capture_engine on {time.strftime('%Y-%m-%d')}. Say here: engine and version, options, model, licence.\n")
    print(f"written to {options.out}; complete its README.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
