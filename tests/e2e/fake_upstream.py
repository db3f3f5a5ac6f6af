# SPDX-License-Identifier: Apache-2.0
"""An OpenAI-compatible server with known delays that writes down what it saw and when it answered.

As a program it serves until its standard input ends and prints `{"port": N}` first. The model of a request chooses
what happens: `fixed` streams max_tokens tokens, the first after FIRST_S, then one every GAP_S; `serial` does the same but
serves one request at a time; `refuse` answers 503; `sometimes` refuses every third request; `break` closes in the middle
of a stream; `stall` never answers; `silent` reports no usage; `together` answers nobody
before 40 requests are there. `GET /log` gives what was written down, `GET /asked` the headers of those who asked for models.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
import sys
import time

FIRST_S = 0.06
GAP_S = 0.015


class Upstream:
    def __init__(self) -> None:
        self.log: list[dict] = []
        self.asked: list[dict] = []
        self.serial = asyncio.Lock()
        self.together = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = await reader.readline()
        if not line:
            return False
        method, path, _ = line.decode().split()
        headers = {}
        while (line := await reader.readline()) not in (b"\r\n", b""):
            name, value = line.decode().split(":", 1)
            headers[name.strip().lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET":
            if path == "/v1/models":
                self.asked.append(headers)
            models = {"object": "list", "data": [{"id": "fixed", "object": "model"}]}
            self.answer(writer, 200, {"/log": self.log, "/asked": self.asked}.get(path, models))
            return True
        entry = {"at": time.monotonic(), "path": path, "headers": headers, "body": json.loads(body), "chunks": [], "hung_up": False}
        self.log.append(entry)
        try:
            return await self.generate(entry, reader, writer)
        except ConnectionError:
            entry["hung_up"] = True
            raise

    def answer(self, writer: asyncio.StreamWriter, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data))

    async def generate(self, entry: dict, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        model = entry["body"]["model"]
        if model == "refuse" or (model == "sometimes" and len(self.log) % 3 == 0):
            self.answer(writer, 503, {"error": {"message": "the fake is full"}})
            return True
        if model == "stall":
            entry["hung_up"] = await reader.read(1) == b""
            return False
        if model == "together":
            if len(self.log) >= 40:
                self.together.set()
            await self.together.wait()
        if model == "serial":
            async with self.serial:
                return await self.tokens(entry, reader, writer)
        return await self.tokens(entry, reader, writer)

    async def tokens(self, entry: dict, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        body, count = entry["body"], entry["body"].get("max_tokens", 4)
        is_chat = "messages" in body
        usage = {"prompt_tokens": 11, "completion_tokens": count, "total_tokens": 11 + count}
        await asyncio.sleep(FIRST_S)
        if not body.get("stream"):
            await asyncio.sleep(GAP_S * (count - 1))
            text = " tok" * count
            choice = {"index": 0, "message": {"role": "assistant", "content": text}} if is_chat else {"index": 0, "text": text}
            self.answer(writer, 200, {"id": "x", "choices": [choice], "usage": usage})
            entry["chunks"].append(time.monotonic() - entry["at"])
            return True
        self.event_head(writer)
        for i in range(count):
            if reader.at_eof():
                entry["hung_up"] = True
                return False
            if i > 0:
                await asyncio.sleep(GAP_S)
            delta = {"delta": {"content": f' t"{i}'}} if is_chat else {"text": f" t{i}"}
            self.event(writer, {"id": "x", "choices": [{"index": 0, **delta, "finish_reason": None}]})
            entry["chunks"].append(time.monotonic() - entry["at"])
            await writer.drain()
            if body["model"] == "break" and i == 1:
                return False
        if body["model"] != "silent":
            self.event(writer, {"id": "x", "choices": [], "usage": usage})
        self.event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        return True

    @staticmethod
    def event_head(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    @staticmethod
    def event(writer: asyncio.StreamWriter, value: object) -> None:
        data = b"data: %s\n\n" % (value if isinstance(value, str) else json.dumps(value)).encode()
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def main() -> None:
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=1 << 24)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


class FakeUpstream:
    """The program above as a child process of a test."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).resolve())], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = json.loads(self.process.stdout.readline())["port"]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


if __name__ == "__main__":
    asyncio.run(main())
