# SPDX-License-Identifier: Apache-2.0
"""Servers that speak the OpenAI API oddly, or hardly: what a load generator meets outside.

The model of a request names the habit: a function of this file that writes the whole answer, below `HABITS`. It returns
True if the connection stays open. Habits of every third request only fail then. As a program it serves until its
standard input ends and prints `{"port": N}` first; `--ipv6` and `--tls CERT KEY` say where and how.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import socket
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable

TOKENS = 5
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
EVENT_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
Writer = asyncio.StreamWriter
Habit = Callable[[Writer, dict, int], Awaitable[bool]]
HABITS: dict[str, Habit] = {}


def habit(function: Habit) -> Habit:
    HABITS[function.__name__] = function
    return function


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: object, line_end: bytes = b"\n") -> bytes:
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return b"data: " + data.encode() + line_end * 2


def delta(**fields: object) -> dict:
    return {"id": "x", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def texts() -> list[bytes]:
    return [event(delta(content=f"wörd{i} ")) for i in range(TOKENS)]


USAGE_EVENT = event({"id": "x", "choices": [], "usage": USAGE})
DONE = event("[DONE]")


async def send(writer: Writer, *pieces: bytes) -> None:
    """Each piece in a write of its own, with a turn of the loop between."""
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.001)


async def stream(writer: Writer, events: list[bytes], head: bytes = EVENT_HEAD) -> bool:
    await send(writer, head + b"Transfer-Encoding: chunked\r\n\r\n", *map(chunk, events), b"0\r\n\r\n")
    return True


async def whole(writer: Writer, status: str, value: object, headers: str = "") -> bool:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
    await send(writer, head.encode() + data)
    return True


async def usual(writer: Writer) -> bool:
    return await stream(writer, [*texts(), USAGE_EVENT, DONE])


# Failures of every third request.


@habit
async def error_500(writer: Writer, _body: dict, number: int) -> bool:
    return await whole(writer, "500 Oops", {"error": {"message": "boom"}}) if number % 3 == 0 else await usual(writer)


@habit
async def busy_429(writer: Writer, _body: dict, number: int) -> bool:
    if number % 3 == 0:
        return await whole(writer, "429 Slow Down", {"error": {"message": "slow down"}}, "Retry-After: 1\r\n")
    return await usual(writer)


@habit
async def closed_mid_stream(writer: Writer, _body: dict, number: int) -> bool:
    if number % 3 == 0:
        await send(writer, EVENT_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunk(texts()[0]))
        return False
    return await usual(writer)


@habit
async def closed_inside_a_line(writer: Writer, _body: dict, number: int) -> bool:
    if number % 3 == 0:
        await send(writer, EVENT_HEAD + b"Connection: close\r\n\r\n", texts()[0], texts()[1][:20])
        return False
    return await usual(writer)


@habit
async def closed_before_headers(_writer: Writer, _body: dict, _number: int) -> bool:
    return False


@habit
async def error_in_the_stream(writer: Writer, _body: dict, number: int) -> bool:
    if number % 3 == 0:
        return await stream(writer, [texts()[0], event({"error": {"message": "the engine died", "code": 500}}), DONE])
    return await usual(writer)


@habit
async def error_with_200(writer: Writer, _body: dict, number: int) -> bool:
    return await whole(writer, "200 OK", {"error": {"message": "not today"}}) if number % 3 == 0 else await usual(writer)


@habit
async def web_page(writer: Writer, _body: dict, number: int) -> bool:
    page = b"<html><body>Please log in</body></html>"
    return await whole(writer, "200 OK", page) if number % 3 == 0 else await usual(writer)


@habit
async def empty_stream(writer: Writer, _body: dict, number: int) -> bool:
    return await stream(writer, [DONE]) if number % 3 == 0 else await usual(writer)


# Failures of every request.


@habit
async def garbage(writer: Writer, _body: dict, _number: int) -> bool:
    await send(writer, b"\x00\x01\xfe garbage\r\n\r\n")
    return False


@habit
async def bad_chunks(writer: Writer, _body: dict, _number: int) -> bool:
    await send(writer, EVENT_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\nhello\r\n")
    return True


@habit
async def endless_headers(writer: Writer, _body: dict, _number: int) -> bool:
    await send(writer, b"HTTP/1.1 200 OK\r\n" + b"X-Filler: abcdefghijklmnopqrstuvwxyz\r\n" * 4000 + b"\r\n")
    return False


@habit
async def more_than_announced(writer: Writer, _body: dict, _number: int) -> bool:
    await send(writer, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{} and more")
    return True


@habit
async def redirect(writer: Writer, _body: dict, _number: int) -> bool:
    return await whole(writer, "307 Temporary Redirect", b"", "Location: https://elsewhere.example/v1\r\n")


@habit
async def unknown_model(writer: Writer, body: dict, _number: int) -> bool:
    return await whole(writer, "404 Not Found", {"error": {"message": f"The model `{body['model']}` does not exist."}})


@habit
async def hang(_writer: Writer, _body: dict, _number: int) -> bool:
    await asyncio.sleep(3600)  # longer than any test
    return False


@habit
async def hang_mid_stream(writer: Writer, _body: dict, _number: int) -> bool:
    await send(writer, EVENT_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunk(texts()[0]))
    await asyncio.sleep(3600)  # longer than any test
    return False


# Odd, but whole answers.


@habit
async def keep_alive_comments(writer: Writer, _body: dict, _number: int) -> bool:
    events = [piece for text in texts() for piece in (b": keep-alive\n\n", text)]
    return await stream(writer, [*events, b":\n\n", USAGE_EVENT, DONE])


@habit
async def crlf(writer: Writer, _body: dict, _number: int) -> bool:
    events = [event(delta(content=f"wörd{i} "), b"\r\n") for i in range(TOKENS)]
    return await stream(writer, [*events, USAGE_EVENT.replace(b"\n", b"\r\n"), event("[DONE]", b"\r\n")])


@habit
async def three_bytes_at_a_time(writer: Writer, _body: dict, _number: int) -> bool:
    data = b"".join([*texts(), USAGE_EVENT, DONE])
    pieces = [data[i : i + 3] for i in range(0, len(data), 3)]
    writer.write(EVENT_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for piece in pieces:
        writer.write(b"%x;name=value\r\n" % len(piece))
        await writer.drain()
        writer.write(piece + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\nX-Trailer: 1\r\n\r\n")
    return True


@habit
async def all_in_one_chunk(writer: Writer, _body: dict, _number: int) -> bool:
    return await stream(writer, [b"".join([*texts(), USAGE_EVENT, DONE])])


@habit
async def role_first(writer: Writer, _body: dict, _number: int) -> bool:
    empty = [event(delta(role="assistant", content="")), event(delta(content="")), event(delta(content=None)), event(delta())]
    return await stream(writer, [*empty, *texts(), *empty[1:], USAGE_EVENT, DONE])


@habit
async def reasoning(writer: Writer, _body: dict, _number: int) -> bool:
    thoughts = [event(delta(reasoning_content=f"hm{i} ", content=None)) for i in range(2)]
    return await stream(writer, [event(delta(role="assistant")), *thoughts, *texts()[:3], USAGE_EVENT, DONE])


@habit
async def tool_calls_only(writer: Writer, _body: dict, _number: int) -> bool:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": ""}}
    pieces = [event(delta(tool_calls=[call]))]
    pieces += [event(delta(tool_calls=[{"index": 0, "function": {"arguments": part}}])) for part in ('{"a"', ":", "1", "}")]
    return await stream(writer, [event(delta(role="assistant", content=None)), *pieces, USAGE_EVENT, DONE])


@habit
async def extra_spaces(writer: Writer, _body: dict, _number: int) -> bool:
    events = [b"data:    " + json.dumps(delta(content=f"w{i}"), indent=None, separators=(" , ", " : ")).encode() + b"\n\n"
              for i in range(TOKENS)]
    return await stream(writer, [*events, USAGE_EVENT, b"data:   [DONE]  \n\n"])


@habit
async def no_space_after_data(writer: Writer, _body: dict, _number: int) -> bool:
    return await stream(writer, [piece.replace(b"data: ", b"data:", 1) for piece in [*texts(), USAGE_EVENT, DONE]])


@habit
async def ids_and_event_names(writer: Writer, _body: dict, _number: int) -> bool:
    events = [b"id: 1\nevent: message\nretry: 100\n" + text for text in texts()]
    return await stream(writer, [*events, USAGE_EVENT, DONE])


@habit
async def usage_in_every_event(writer: Writer, _body: dict, _number: int) -> bool:
    events = [event({**delta(content=f"w{i}"), "usage": {"prompt_tokens": 11, "completion_tokens": i + 3}}) for i in range(TOKENS)]
    return await stream(writer, [*events, DONE])


@habit
async def no_usage(writer: Writer, _body: dict, _number: int) -> bool:
    return await stream(writer, [*texts(), DONE])


@habit
async def no_stream_options(writer: Writer, body: dict, _number: int) -> bool:
    """Refuses the field by which a stream is asked for its token counts."""
    if "stream_options" in body:
        return await whole(writer, "400 Bad Request", {"error": {"message": "Unknown field stream_options"}})
    return await stream(writer, [*texts(), DONE])


@habit
async def no_done(writer: Writer, _body: dict, _number: int) -> bool:
    return await stream(writer, [*texts(), USAGE_EVENT])


@habit
async def until_close(writer: Writer, _body: dict, _number: int) -> bool:
    await send(writer, EVENT_HEAD + b"\r\n", *texts(), USAGE_EVENT, DONE)
    return False


@habit
async def http_1_0(writer: Writer, _body: dict, _number: int) -> bool:
    await send(writer, EVENT_HEAD.replace(b"1.1", b"1.0") + b"\r\n", *texts(), USAGE_EVENT, DONE)
    return False


@habit
async def silent_close(writer: Writer, _body: dict, _number: int) -> bool:
    """Closes after each answer without having said so."""
    await usual(writer)
    return False


@habit
async def interim_answers(writer: Writer, _body: dict, _number: int) -> bool:
    await send(writer, b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
    return await usual(writer)


@habit
async def large_headers(writer: Writer, _body: dict, _number: int) -> bool:
    filler = b"X-Filler: abcdefghijklmnopqrstuvwxyz\r\n" * 1000
    return await stream(writer, [*texts(), USAGE_EVENT, DONE], EVENT_HEAD + filler)


@habit
async def not_a_stream(writer: Writer, _body: dict, _number: int) -> bool:
    """Ignores that a stream was asked for; pretty-printed."""
    answer = {"choices": [{"message": {"role": "assistant", "content": "hello there"}}], "usage": USAGE}
    return await whole(writer, "200 OK", json.dumps(answer, indent=2).encode())


@habit
async def trickle(writer: Writer, _body: dict, _number: int) -> bool:
    data = b"".join([EVENT_HEAD, b"Connection: close\r\n\r\n", texts()[0], USAGE_EVENT, DONE])
    for i in range(len(data)):
        writer.write(data[i : i + 1])
        await writer.drain()
        await asyncio.sleep(0)
    return False


class Server:
    def __init__(self) -> None:
        self.requests: dict[str, int] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            while await self.serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def serve_one(self, reader: asyncio.StreamReader, writer: Writer) -> bool:
        line = await reader.readline()
        if not line:
            return False
        path, length = line.decode().split()[1], 0
        while (line := await reader.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = json.loads(await reader.readexactly(length) or b"{}")
        if not path.endswith("/v1/chat/completions"):
            return await whole(writer, "404 Not Found", {"error": {"message": f"nothing at {path}"}})
        name = body["model"]
        self.requests[name] = self.requests.get(name, 0) + 1
        return await HABITS[name](writer, body, self.requests[name])


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ipv6", action="store_true")
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    options = parser.parse_args()
    tls = None
    if options.tls:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*options.tls)
    server = await asyncio.start_server(Server().serve, "::1" if options.ipv6 else "127.0.0.1", 0, limit=1 << 24, ssl=tls)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


class OddServer:
    """The program above as a child process of a test."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).resolve()), *arguments],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = json.loads(self.process.stdout.readline())["port"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def deaf_socket() -> socket.socket:
    """Listens, and never accepts: its backlog takes one connection or two."""
    return socket.create_server(("127.0.0.1", 0), backlog=0)


if __name__ == "__main__":
    asyncio.run(main())
