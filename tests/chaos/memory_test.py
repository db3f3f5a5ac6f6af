#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that make a server keep their bytes: bodies that never end, bodies where none are wanted, answers nobody reads.

The budgets are small here and as configured by default in the long form (STATOR_CHAOS)."""

import json
import pathlib
import socket
import threading
import time
import unittest

from chaos_deployment import LONG, ChaosTest, times
from stator_process import HANG_S, MODEL, Http, Serve, eventually

MIB = 1 << 20
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "What is a KV cache?"}]
# What a process needs beside the budget: pieces of memory that grow by doubling, the allocator's rest, other clients.
SLACK = 96 * MIB
BUDGET_MIB = 1024 if LONG > 1 else 64


class Memory(ChaosTest):
    def serve(self, *arguments: str) -> Serve:
        served = self.deploy(Serve, *arguments)
        eventually(lambda: served.http.request("GET", "/health")[0] == 200, "healthy")
        self.assertEqual(self.small_chat(served)[0], 200)
        return served

    @staticmethod
    def memory(served: Serve, field: str) -> int:
        status = pathlib.Path(f"/proc/{served.frontend.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field + ":")) * 1024

    def grown(self, served: Serve, before: int) -> int:
        """By how much its memory was larger at its largest than `before`."""
        return self.memory(served, "VmHWM") - before

    def connect(self, served: Serve, receive_buffer: int = 0) -> socket.socket:
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(HANG_S)
        connection.connect(("127.0.0.1", served.frontend.port))
        self.addCleanup(connection.close)
        return connection

    @staticmethod
    def head(method: str, path: str, length: int | str) -> bytes:
        body = "Transfer-Encoding: chunked" if length == "chunked" else f"Content-Length: {length}"
        return f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{body}\r\n\r\n".encode()

    @staticmethod
    def read_status(connection: socket.socket) -> int:
        received = b""
        while b"\r\n" not in received:
            data = connection.recv(4096)
            if not data:
                break
            received += data
        return int(received.split(b" ")[1]) if received else 0

    def small_chat(self, served: Serve) -> tuple[int, object]:
        return served.http.post(CHAT, {"model": MODEL, "messages": MESSAGES, "max_tokens": 4})

    def send_all(self, connection: socket.socket, count: int) -> int:
        """Sends `count` bytes of a body, as many as the server takes."""
        piece, sent = b"x" * MIB, 0
        try:
            while sent < count:
                sent += connection.send(piece[:count - sent])
        except OSError:
            pass
        return sent

    def test_bodies_whose_last_byte_never_comes_stay_within_the_budget(self):
        body_mib = 190 if LONG > 1 else 12
        served = self.serve("--shards", "2", "--http-bodies-bytes-max", f"{BUDGET_MIB}MiB", "--http-body-bytes-max", "192MiB")
        before = self.memory(served, "VmRSS")
        connections = []
        for number in range(128 if LONG > 1 else 24):
            connection = self.connect(served)
            connections.append(connection)
            connection.sendall(self.head("POST", CHAT, body_mib * MIB + 1))
            self.send_all(connection, body_mib * MIB)
            if number % 8 == 7:
                self.assertEqual(self.small_chat(served)[0], 200, f"others are served beside {number + 1}")
        self.assertLess(self.grown(served, before), BUDGET_MIB * MIB + SLACK)
        self.assertGreater(served.http.metric("stator_budget_refused_total", budget="request_bodies"), 0)
        self.assertLessEqual(served.http.metric("stator_budget_bytes", budget="request_bodies"), BUDGET_MIB * MIB)
        # A larger one than a chat's finds its place, too: at its own shard at once, at another's when it comes back.
        body = {"model": MODEL, "prompt": "word " * (MIB // 5), "add_special_tokens": False}
        eventually(lambda: served.http.request("POST", "/tokenize", body)[0] == 200, "a larger body is served")
        for connection in connections:
            connection.close()
        eventually(lambda: served.http.metric("stator_budget_bytes", budget="request_bodies") == 0, "nothing is kept")

    def test_a_body_that_stops_coming_is_given_up(self):
        served = self.serve("--http-body-timeout", "1h", "--http-body-time-max", "1h")
        connection = self.connect(served)
        connection.sendall(self.head("POST", CHAT, 4 * MIB))
        self.send_all(connection, 2 * MIB)
        self.assertEqual(self.read_status(connection), 408)

    def test_a_client_that_takes_a_large_answer_too_slowly_is_dropped(self):
        served = self.serve("--http-slow-client-timeout", "1h", "--sim-speedup", "0")
        body = json.dumps({"model": MODEL, "messages": MESSAGES, "max_tokens": 1500, "ignore_eos": True, "n": 16, "logprobs": True,
                           "top_logprobs": 20}).encode()
        connection = self.connect(served, receive_buffer=4096)
        connection.sendall(self.head("POST", CHAT, len(body)) + body)
        dropped = threading.Event()

        def read_slowly():
            try:
                while not dropped.wait(0.2) and connection.recv(4096):
                    pass
            except OSError:
                pass

        reader = threading.Thread(target=read_slowly)
        reader.start()
        try:
            eventually(lambda: served.http.metric("stator_http_slow_client_disconnects_total") == 1, "dropped", HANG_S)
        finally:
            dropped.set()
            reader.join()
        self.assertEqual(served.http.metric("stator_budget_bytes", budget="output"), 0)

    def test_routes_that_do_not_generate_read_no_large_body(self):
        served = self.serve()
        before = self.memory(served, "VmRSS")
        length = 190 * MIB
        for method, path, status in (
                ("POST", "/busy_threshold", 413), ("GET", "/busy_threshold", 413), ("GET", "/v1/models", 413), ("GET", "/v1/models/demo", 413),
                ("GET", "/health", 413), ("GET", "/live", 413), ("GET", "/metrics", 413), ("GET", "/receipts/x", 413), ("HEAD", "/live", 413),
                ("POST", "/tokenize", 413), ("POST", "/detokenize", 413), ("POST", "/v1/embeddings", 413), ("POST", "/v1/unknown", 404), ("PUT", CHAT, 405),
                ("POST", "/health", 405), ("POST", CHAT, 413)):
            with self.subTest(method=method, path=path):
                told = self.connect(served)
                told.sendall(self.head(method, path, length))
                self.assertEqual(self.read_status(told), status, "from its head alone")
                if path in (CHAT, "/v1/embeddings") or "tokenize" in path:
                    continue
                chunked = self.connect(served)
                chunked.sendall(self.head(method, path, "chunked") + b"20000\r\n" + b"1" * 0x20000)
                self.assertEqual(self.read_status(chunked), status, "from the first bytes of it")
        self.assertLess(self.grown(served, before), 32 * MIB)

    def test_many_of_them_at_once_hold_nobody_up(self):
        served = self.serve()
        before = self.memory(served, "VmRSS")
        stop = threading.Event()

        def flood():
            while not stop.is_set():
                try:
                    with socket.create_connection(("127.0.0.1", served.frontend.port), timeout=HANG_S) as connection:
                        connection.sendall(self.head("POST", "/busy_threshold", 190 * MIB))
                        self.send_all(connection, 190 * MIB)
                except OSError:
                    pass

        threads = [threading.Thread(target=flood) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(times(20)):
                self.assertEqual(served.http.request("GET", "/live", timeout_s=30)[0], 200)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertLess(self.grown(served, before), SLACK)

    def test_streams_that_nobody_reads_stay_within_the_budget(self):
        # Paced: what waits between an engine without limits and the loop is not output yet.
        served = self.serve("--shards", "2", "--http-output-bytes-max", f"{BUDGET_MIB}MiB", "--sim-speedup", "10")
        before = self.memory(served, "VmRSS")
        body = json.dumps({"model": MODEL, "messages": MESSAGES, "max_tokens": 1500, "ignore_eos": True, "stream": True, "n": 8,
                           "logprobs": True, "top_logprobs": 20}).encode()
        for number in range(400 if LONG > 1 else 32):
            self.connect(served, receive_buffer=4096).sendall(self.head("POST", CHAT, len(body)) + body)
            if number % 8 == 7:
                self.assertEqual(self.small_chat(served)[0], 200, f"others are served beside {number + 1}")
        eventually(lambda: served.http.metric("stator_budget_refused_total", budget="output") > 0, "the largest are dropped", HANG_S)
        eventually(served.idle, "all are over", HANG_S * LONG)
        # Without the budget it is 24 MiB for each of them, memory that grows by doubling included.
        self.assertLess(self.grown(served, before), BUDGET_MIB * MIB + 3 * SLACK)

    def test_answers_that_are_collected_stay_within_their_budget(self):
        served = self.serve("--frontend-answers-bytes-max", f"{BUDGET_MIB}MiB", "--sim-speedup", "0")
        before = self.memory(served, "VmRSS")
        body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 1900, "ignore_eos": True, "n": 16, "logprobs": True, "top_logprobs": 20}
        answers = []

        def ask():
            status, _, answer = served.http.request("POST", CHAT, body)
            answers.append((status, len(answer), answer[:500] if status != 200 else b""))

        threads = [threading.Thread(target=ask) for _ in range(40 if LONG > 1 else 4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.assertEqual(served.http.request("GET", "/live")[0], 200)
            self.assertEqual(self.small_chat(served)[0], 200)
        for status, size, answer in answers:
            self.assertIn(status, (200, 413), answer)
            if status == 413:
                self.assertIn(b"stream", answer)
            else:
                self.assertGreater(size, 16 * MIB)
        self.assertEqual(len(answers), len(threads))
        self.assertGreater(sum(status == 413 for status, _, _ in answers), 0, [status for status, _, _ in answers])
        self.assertGreater(served.http.metric("stator_budget_refused_total", budget="answers"), 0)
        eventually(served.idle, "all are over")
        eventually(lambda: served.http.metric("stator_budget_bytes", budget="answers") == 0, "nothing is kept")
        # A body is written while what it is written from is there, and sent while the next is written.
        self.assertLess(self.grown(served, before), 2 * BUDGET_MIB * MIB + 2 * SLACK)

    def test_clients_that_leave_behind_a_heap_of_bytes_are_noticed(self):
        served = self.serve("--sim-speedup", "1")
        body = json.dumps({"model": MODEL, "messages": MESSAGES, "max_tokens": 1900, "ignore_eos": True}).encode()
        clients = []
        for _ in range(8):
            clients.append(self.connect(served))
            clients[-1].sendall(self.head("POST", CHAT, len(body)) + body)
        eventually(lambda: served.http.metric("stator_router_active_requests") == 8, "all run")
        for client in clients:
            client.sendall(b"x" * 140_000)
            client.close()
        gone = time.monotonic()
        eventually(served.idle, "their work is over")
        # By itself it takes longer: 1,900 tokens of a simulated engine that is no faster than a real one.
        self.assertEqual(served.http.metric("dynamo_frontend_disconnected_clients"), 8, f"after {time.monotonic() - gone:.1f} s")


if __name__ == "__main__":
    unittest.main()
