# SPDX-License-Identifier: Apache-2.0
"""HTTP exchanges recorded from real engines, sent again to a fake one, and the shapes of both answers."""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket

from stator_process import ROOT

STREAMS = pathlib.Path(os.environ.get("STATOR_SHARED_DIR", str(ROOT.parent / "shared"))) / "data" / "streams"


def read_request(path: pathlib.Path) -> tuple[str, dict[str, str], bytes]:
    """Request line, headers and body of a recorded request."""
    head, _, body = path.read_bytes().partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return lines[0], headers, body


def send(port: int, line: str, headers: dict[str, str], body: bytes, timeout_s: float = 120.0) -> bytes:
    """Sends a request on its own connection and returns everything that comes back."""
    wanted = {k: v for k, v in headers.items() if k.lower() not in ("host", "content-length", "connection")}
    wanted |= {"Host": "127.0.0.1", "Connection": "close"}
    if body or line.startswith("POST"):
        wanted["Content-Length"] = str(len(body))
    head = line + "\r\n" + "".join(f"{k}: {v}\r\n" for k, v in wanted.items()) + "\r\n"
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(head.encode() + body)
        try:
            while chunk := connection.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass
    return received


def parse_response(raw: bytes) -> dict:
    """status, content_type, body (chunked coding undone)."""
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:] if ": " in line)}
    if headers.get("transfer-encoding") == "chunked":
        body = dechunk(body)
    return {"status": int(lines[0].split()[1]) if lines[0] else 0,
            "content_type": headers.get("content-type", "").split(";")[0], "body": body}


def dechunk(data: bytes) -> bytes:
    out = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        try:
            length = int(size, 16)
        except ValueError:
            break
        if length == 0:
            break
        out += rest[:length]
        data = rest[length + 2:]
    return out


def frames(body: bytes) -> list[object]:
    """The data of every server-sent event; "[DONE]" as text."""
    out = []
    for event in body.decode(errors="replace").split("\n\n"):
        if event.startswith("data: "):
            text = event[len("data: "):]
            try:
                out.append(json.loads(text))
            except ValueError:
                out.append(text)
    return out


def shape(value: object, key: str = "") -> object:
    """Keys with their order, and types; equal neighbours in lists count once."""
    if isinstance(value, dict):
        if key == "top_logprobs" or (value and all(re.fullmatch(r"\d+", k) for k in value)):
            return ["map of", *collapse(shape(v) for v in value.values())]
        return {k: shape(v, k) for k, v in value.items()} | {"order": list(value)}
    if isinstance(value, list):
        return collapse(shape(v, key) for v in value)
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "null" if value is None else "text"


def collapse(shapes) -> list:
    out = []
    for item in shapes:
        if not out or out[-1] != item:
            out.append(item)
    return out


def response_shape(response: dict) -> dict:
    """What must be the same for the recorded and the fake answer."""
    out = {"status": response["status"], "content_type": response["content_type"]}
    if response["content_type"] == "text/event-stream":
        return out | {"frames": frame_shapes(frames(response["body"]))}
    if response["content_type"] == "application/json":
        return out | {"body": shape(json.loads(response["body"]))}
    return out | {"empty": not response["body"]}


def frame_shapes(events: list) -> list:
    """Shapes of the frames of a stream, those of the first choice before those of the second: their mix is chance."""
    def choice_of(event: object) -> int:
        choices = event.get("choices") if isinstance(event, dict) else None
        return choices[0]["index"] if choices else 1 << 30

    return collapse(f if isinstance(f, str) else shape(f) for f in sorted(events, key=choice_of))


def families(text: str, prefix: str) -> set[str]:
    """Names of the metric families in Prometheus text."""
    return {m[1] for m in re.finditer(r"^# TYPE (\S+) ", text, re.M) if m[1].startswith(prefix)}
