#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Responses API over a WebSocket, by OpenAI's SDK and by `websockets`; frames that no client may send."""

import base64
import json
import os
import socket
import struct
import unittest

from openai import OpenAI
from stator_process import MODEL, MODEL_DIR, Http, Stator, eventually
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

CREATE = {"type": "response.create", "model": MODEL, "input": "Hello", "temperature": 0, "max_output_tokens": 8}


def masked(first: int, payload: bytes, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    head = bytes([first]) + (bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + struct.pack(">H", size) if size < 65536 else bytes([0x80 | 127]) + struct.pack(">Q", size))
    mask = b"\x01\x02\x03\x04"
    return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


class WebSocket(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0", "--log", "warn")
        cls.addClassCleanup(cls.server.close)
        cls.http = Http(cls.server.port)
        cls.url = f"ws://127.0.0.1:{cls.server.port}/v1/responses"

    def tearDown(self):
        self.assertEqual(self.http.get("/live")[0], 200)

    def expected(self) -> str:
        body = {k: v for k, v in CREATE.items() if k != "type"}
        return self.http.post("/v1/responses", body)[1]["output"][0]["content"][0]["text"]

    def test_openai(self):
        client = OpenAI(base_url=f"{self.server.url}/v1", api_key="none", max_retries=0)
        wanted = self.expected()
        with client.responses.connect() as connection:
            connection.response.create(model=MODEL, input="Hello", temperature=0, max_output_tokens=8)
            text, response = "", None
            for event in connection:
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type in ("response.completed", "response.incomplete"):
                    response = event.response
                    break
            self.assertEqual(text, wanted)
            connection.response.create(model=MODEL, input="And then?", previous_response_id=response.id, max_output_tokens=4)
            types = []
            for event in connection:
                types.append(event.type)
                if event.type in ("response.completed", "response.incomplete"):
                    self.assertEqual(event.response.previous_response_id, response.id)
                    break
        self.assertEqual(types[0], "response.created")

    def test_errors_leave_the_socket_open(self):
        with connect(self.url) as ws:
            for message, status in (("no JSON", 400), ("[]", 400), (json.dumps({"type": "session.update"}), 400), (json.dumps(CREATE | {"model": "absent"}), 404),
                                    (json.dumps(CREATE | {"temperature": 9}), 400)):
                ws.send(message)
                answer = json.loads(ws.recv())
                self.assertEqual((answer["type"], answer["status"]), ("error", status), answer)
                self.assertTrue(answer["error"]["message"])
            ws.send(json.dumps(CREATE | {"max_output_tokens": 1000, "ignore_eos": True}))
            self.assertEqual(json.loads(ws.recv())["type"], "response.created")
            ws.send(json.dumps(CREATE))
            while (event := json.loads(ws.recv()))["type"] != "error":
                pass
            self.assertEqual(event["status"], 409)

    def test_who_leaves_cancels(self):
        with connect(self.url) as ws:
            ws.send(json.dumps(CREATE | {"max_output_tokens": 2000, "ignore_eos": True}))
            ws.recv()
        eventually(lambda: b"stator_router_active_requests 0" in self.http.request("GET", "/metrics")[2], "it was cancelled")

    def test_pages_of_other_origins_and_wrong_handshakes(self):
        with self.assertRaises(InvalidStatus) as raised:
            connect(self.url, origin="https://evil.example")
        self.assertEqual(raised.exception.response.status_code, 403)
        for headers in ({"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "12"}, {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}):
            self.assertIn(self.http.request("GET", "/v1/responses", headers=headers)[0], (400, 426))

    def raw(self, frames: bytes) -> tuple[int, bytes]:
        """The code of the close frame that answers `frames`, and what came before it."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            key = base64.b64encode(os.urandom(16)).decode()
            connection.sendall(f"GET /v1/responses HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                               "Sec-WebSocket-Version: 13\r\n\r\n".encode() + frames)
            got = b""
            try:
                while data := connection.recv(65536):
                    got += data
            except ConnectionError:
                pass
        body = got.split(b"\r\n\r\n", 1)[1]
        at = body.rindex(b"\x88")
        return struct.unpack(">H", body[at + 2:at + 4])[0], body[:at]

    def test_frames(self):
        hello = b'{"type":"x"}'
        cases = {
            "not masked": (b"\x81\x02hi", 1002), "reserved bit": (masked(0xC1, b"x"), 1002), "opcode": (masked(0x83, b"x"), 1002),
            "control opcode": (masked(0x8B, b""), 1002), "fragmented ping": (masked(0x09, b"x"), 1002), "long ping": (masked(0x89, b"x" * 126), 1002),
            "continuation of nothing": (masked(0x80, b"x"), 1002), "text inside a message": (masked(0x01, b"a") + masked(0x81, b"b"), 1002),
            "binary": (masked(0x82, b"x"), 1003), "not UTF-8": (masked(0x81, b"\xff\xfe"), 1007), "too large": (masked(0x81, b"", 1 << 40), 1009),
            "close code nobody sends": (masked(0x88, struct.pack(">H", 1005)), 1002), "half a close code": (masked(0x88, b"\x03"), 1002),
            "close": (masked(0x88, struct.pack(">H", 1000) + b"bye"), 1000), "close without a code": (masked(0x88, b""), 1000),
        }
        for name, (frames, code) in cases.items():
            with self.subTest(name=name):
                self.assertEqual(self.raw(frames)[0], code)
        code, before = self.raw(masked(0x01, hello[:5]) + masked(0x89, b"ping") + masked(0x80, hello[5:]) + masked(0x88, b""))
        self.assertIn(b"\x8a\x04ping", before, "a ping inside a message is answered")
        self.assertIn(b"response.create", before, "the message came whole")

    def test_a_server_that_leaves_closes_idle_sockets(self):
        server = Stator("serve", str(MODEL_DIR), "--port", "0", "--log", "warn")
        self.addCleanup(server.close)
        with connect(f"ws://127.0.0.1:{server.port}/v1/responses") as ws:
            server.terminate()
            with self.assertRaises(ConnectionClosed):
                ws.recv()
        self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    unittest.main()
