#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile and broken clients. Whatever they do: a clear status, never a crash, never work left behind."""

import json
import socket
import struct
import unittest

from stator_process import HANG_S, MODEL, both_deployments, eventually, Serve, Split

CHAT = "/v1/chat/completions"
SHORT_TIMEOUTS = (
    "--http-header-timeout", "1s", "--http-body-timeout", "1s", "--http-slow-client-timeout", "1s",
    "--http-stream-high-water-bytes", "16KiB")
MESSAGES = [{"role": "user", "content": "What is a KV cache?"}]
DEEP = b"[" * 100_000


def chat_body(**fields):
    return {"model": MODEL, "messages": MESSAGES, "max_tokens": 4, "temperature": 0} | fields


class Faults:
    def raw_connection(self, receive_buffer: int | None = None) -> socket.socket:
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(HANG_S)
        connection.connect(("127.0.0.1", self.deployment.frontend.port))
        self.addCleanup(connection.close)
        return connection

    @staticmethod
    def raw_chat(**fields) -> bytes:
        body = json.dumps(chat_body(**fields)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    @staticmethod
    def read_status(connection: socket.socket) -> int:
        received = b""
        while b"\r\n" not in received:
            data = connection.recv(4096)
            if not data:
                break
            received += data
        return int(received.split(b" ")[1]) if received else 0

    def post_bytes(self, body: bytes, path: str = CHAT, content_type: str = "application/json"):
        status, headers, answer = self.http.request("POST", path, body, {"Content-Type": content_type})
        return status, headers, answer

    def assert_refused(self, expected: int, status: int, answer: bytes):
        self.assertEqual(status, expected, answer[:300])
        error = json.loads(answer)["error"]
        self.assertTrue(error["message"])
        self.assertEqual(error["code"], expected)

    # Bodies

    def test_bodies_that_are_no_json_are_400(self):
        for body in (b"", b"{", b"null", b"[]", b'"text"', b"{]", b'{"model":', DEEP, b'{"a":' * 5000, b"\x00\x01\x02"):
            for path in (CHAT, "/v1/completions", "/tokenize", "/detokenize"):
                with self.subTest(body=body[:20], path=path):
                    status, _, answer = self.post_bytes(body, path)
                    self.assert_refused(400, status, answer)

    def test_wrong_types_and_values_are_400_and_name_the_field(self):
        cases = {
            "messages": ["text", 7, None, [], [1], [{"role": "user", "content": 3}], [{"content": "no role"}]],
            "max_tokens": [0, -1, 1.5, "4", 1 << 40], "temperature": ["hot", -1, 100], "top_p": [0, 2, "x"],
            "n": [0, -1, 100_000, "two"], "stop": [5, [{}], {}], "stream": ["yes", 3], "seed": ["x"],
            "top_logprobs": [-1, 1000], "logit_bias": [[1], {"x": 1}], "model": [5, None, ""],
        }
        for field, values in cases.items():
            for value in values:
                for stream in (False, True):
                    with self.subTest(field=field, value=value, stream=stream):
                        sent = chat_body(stream=stream) | {field: value}
                        status, _, answer = self.post_bytes(json.dumps(sent).encode())
                        self.assertIn(status, (400, 404) if field == "model" else (400,), answer[:300])
                        self.assertIn(field, json.loads(answer)["error"]["message"] + str(json.loads(answer)["error"]["param"]))

    def test_unknown_roles_are_400(self):
        status, _, answer = self.post_bytes(json.dumps(chat_body(messages=[{"role": "wizard", "content": "x"}])).encode())
        self.assert_refused(400, status, answer)

    def test_an_unknown_model_is_404(self):
        for stream in (False, True):
            status, _, answer = self.post_bytes(json.dumps(chat_body(model="absent", stream=stream)).encode())
            self.assert_refused(404, status, answer)

    def test_a_prompt_beyond_the_context_is_400_before_any_event(self):
        for stream in (False, True):
            body = chat_body(messages=[{"role": "user", "content": "block " * 5000}], stream=stream)
            status, _, answer = self.post_bytes(json.dumps(body).encode())
            self.assert_refused(400, status, answer)
            self.assertIn("2048", json.loads(answer)["error"]["message"])

    def test_completion_prompts_of_wrong_tokens_or_none_are_400(self):
        for prompt in ("", [], [[]], [-1], [10 ** 7], [1.5], {"a": 1}, None):
            with self.subTest(prompt=prompt):
                status, _, answer = self.post_bytes(json.dumps({"model": MODEL, "prompt": prompt}).encode(), "/v1/completions")
                self.assert_refused(400, status, answer)

    def test_nul_bytes_and_broken_utf8_are_answered_not_fatal(self):
        for content in (b"a\\u0000b", b"a\x00b", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b"\xc3", b"\xf4\x90\x80\x80"):
            with self.subTest(content=content):
                body = b'{"model":"demo","max_tokens":2,"messages":[{"role":"user","content":"' + content + b'"}]}'
                status, _, answer = self.post_bytes(body)
                self.assertIn(status, (200, 400), answer[:300])
                json.loads(answer.decode("utf-8"))

    def test_other_media_types_are_415(self):
        for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            status, _, answer = self.post_bytes(json.dumps(chat_body()).encode(), content_type=content_type)
            self.assert_refused(415, status, answer)

    def test_unknown_paths_are_404_and_other_methods_405(self):
        self.assertEqual(self.http.request("GET", "/v2/nothing")[0], 404)
        self.assertEqual(self.http.request("GET", CHAT)[0], 405)
        self.assertEqual(self.http.request("DELETE", "/v1/models")[0], 405)
        self.assertEqual(self.http.request("GET", "/" + "x" * 5000)[0], 404)

    # Sizes

    def test_a_declared_body_of_200_mb_is_413_before_it_is_sent(self):
        connection = self.raw_connection()
        connection.sendall(
            f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {200 << 20}\r\n\r\n".encode())
        self.assertEqual(self.read_status(connection), 413)

    def test_a_chunked_body_beyond_the_limit_is_413_while_it_comes(self):
        connection = self.raw_connection()
        connection.sendall(
            f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
        try:
            for _ in range(200):
                connection.sendall(chunk)
        except OSError:
            pass  # the server need not read on after its answer
        self.assertEqual(self.read_status(connection), 413)

    def test_an_endless_head_is_431(self):
        connection = self.raw_connection()
        connection.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n")
        self.assertEqual(self.read_status(connection), 431)

    # Broken and slow clients

    def test_half_sent_requests_are_408(self):
        connections = []
        for half in (b"POST /v1/chat/comp", b"GET /live HTTP/1.1\r\nHost: x\r\n", self.raw_chat()[:-10]):
            connections.append(self.raw_connection())
            connections[-1].sendall(half)
        self.assertEqual([self.read_status(c) for c in connections], [408, 408, 408])

    def test_garbage_instead_of_http_is_400_or_closed(self):
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20, b"HELLO\r\n\r\n", b"\r\n\r\n\r\n\r\nfoo bar\r\n\r\n",
                        b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"):
            connection = self.raw_connection()
            connection.sendall(garbage)
            try:
                status = self.read_status(connection)
            except ConnectionResetError:
                status = 0
            self.assertTrue(status == 0 or 400 <= status <= 599, status)

    def test_a_client_gone_before_the_first_token_leaves_nothing_behind(self):
        # A prompt this long keeps the simulated engine busy, so the client leaves during its prefill.
        connection = self.raw_connection()
        connection.sendall(self.raw_chat(messages=[{"role": "user", "content": "ro " * 1500}], stream=True, max_tokens=100))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        eventually(self.deployment.idle, "idle")

    def test_a_client_gone_in_mid_stream_leaves_nothing_behind(self):
        connection = self.raw_connection()
        connection.sendall(self.raw_chat(stream=True, max_tokens=1500))
        received = b""
        while received.count(b"data: ") < 3:
            received += connection.recv(4096)
        gone = self.http.metric("dynamo_frontend_disconnected_clients")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        eventually(self.deployment.idle, "idle")
        self.assertGreater(self.http.metric("dynamo_frontend_disconnected_clients"), gone)

    def test_a_unary_client_that_leaves_cancels_its_request(self):
        connection = self.raw_connection()
        connection.sendall(self.raw_chat(max_tokens=1900))
        eventually(lambda: self.http.metric("stator_router_active_requests") == 1, "running")
        gone = self.http.metric("dynamo_frontend_disconnected_clients")
        connection.close()
        eventually(self.deployment.idle, "idle")
        self.assertEqual(self.http.metric("dynamo_frontend_disconnected_clients"), gone + 1, "cancelled, not finished")

    def test_a_slow_reader_is_dropped_and_does_not_hold_up_others(self):
        connection = self.raw_connection(receive_buffer=4096)
        connection.sendall(self.raw_chat(stream=True, n=8, max_tokens=1500, logprobs=True, top_logprobs=20, temperature=1))
        eventually(lambda: self.http.metric("stator_router_active_requests") >= 1, "running")
        self.assertEqual(self.http.post(CHAT, chat_body())[0], 200)
        eventually(self.deployment.idle, "the slow reader is dropped")

    def test_a_reset_flood_leaves_nothing_behind(self):
        for i in range(50):
            connection = self.raw_connection()
            connection.sendall(self.raw_chat(stream=i % 2 == 0, max_tokens=500))
            if i % 3 == 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        eventually(self.deployment.idle, "idle")
        self.assertEqual(self.http.post(CHAT, chat_body())[0], 200)


both_deployments(Faults, globals(), lambda: Serve(*SHORT_TIMEOUTS), lambda: Split(*SHORT_TIMEOUTS))

if __name__ == "__main__":
    unittest.main()
