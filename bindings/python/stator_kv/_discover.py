# SPDX-License-Identifier: Apache-2.0
"""The address of a `stator store` that publishes itself: "discover:file:DIR" or "discover:etcd://HOST:PORT[/ROOT]"."""

from __future__ import annotations

import base64
import json
import pathlib
import time
import urllib.request

_STALE_S = 60.0  # owners touch their record every few seconds


def _from_folder(folder: str) -> list[dict]:
    out = []
    for path in sorted(pathlib.Path(folder, "instances").glob("*")):
        try:
            if time.time() - path.stat().st_mtime < _STALE_S:
                out.append(json.loads(path.read_text()))
        except (OSError, ValueError):
            continue
    return out


def _from_etcd(url: str) -> list[dict]:
    """By etcd's JSON gateway."""
    address, _, root = url.removeprefix("etcd://").partition("/")
    first = f"{root.strip('/') or 'stator'}/v1/instances/".encode()
    past = first[:-1] + bytes([first[-1] + 1])
    body = json.dumps({"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(past).decode()}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"http://{address}/v3/kv/range", body), timeout=5) as answer:
        return [json.loads(base64.b64decode(pair["value"])) for pair in json.load(answer).get("kvs", [])]


def find(text: str, wait_s: float = 5.0) -> str:
    """`text` without its "discover:" prefix. Raises LookupError, naming the backend, when no store is published in time."""
    end = time.monotonic() + wait_s
    while True:
        records = _from_folder(text.removeprefix("file:")) if text.startswith("file:") else _from_etcd(text)
        stores = [record for record in records if (record.get("component"), record.get("endpoint")) == ("kv", "store")]
        if stores:
            near = [record for record in stores if record["address"].startswith(("127.", "localhost", "[::1]"))]
            return min(near or stores, key=lambda record: (record.get("started_at_ms", 0), record["address"]))["address"]
        if time.monotonic() >= end:
            raise LookupError(f"no `stator store --discovery {text}` is published")
        time.sleep(0.1)
