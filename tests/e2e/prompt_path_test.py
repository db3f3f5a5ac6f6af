#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long prompts: prepared beside the event loop, cached by prefix, given up when nobody waits any more."""

import json
import socket
import unittest

from stator_process import MODEL, DeploymentTest, Serve, eventually

CHAT = "/v1/chat/completions"
CACHE = "dynamo_frontend_tokenizer_cache_"
POOL_TASKS = "stator_frontend_cpu_pool_wait_seconds_count"
SLOW = ("--sim-step-us", "50000", "--sim-speedup", "1")
PARAGRAPH = "A block holds sixteen tokens.\nThe router knows which worker has it. "


def chat(text: str = "What is a KV cache?", **fields) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 4} | fields


def padded(body: dict, size: int) -> bytes:
    return json.dumps(body).encode().ljust(size)


class PromptPath(DeploymentTest):
    @classmethod
    def deploy(cls):
        return Serve(*SLOW)

    def post_bytes(self, path: str, body: bytes, **headers: str):
        status, _, answer = self.http.request("POST", path, body, {"Content-Type": "application/json"} | headers)
        return status, json.loads(answer)

    def tokenize(self, text: str) -> list[int]:
        status, answer = self.http.post("/tokenize", {"model": MODEL, "prompt": text})
        self.assertEqual(status, 200, answer)
        return answer["tokens"]

    def test_a_long_body_means_what_a_short_one_means(self):
        status, short = self.http.post(CHAT, chat())
        self.assertEqual(status, 200, short)
        before = self.http.metric(POOL_TASKS)
        status, long = self.post_bytes(CHAT, padded(chat(), 20_000))
        self.assertEqual(status, 200, long)
        self.assertEqual(long["usage"]["prompt_tokens"], short["usage"]["prompt_tokens"])
        self.assertEqual(self.http.metric(POOL_TASKS), before + 1)

    def test_errors_of_long_bodies_keep_their_status(self):
        for body, expected in ((b"{".ljust(20_000), 400), (padded(chat(model="absent"), 20_000), 404),
                               (padded(chat(PARAGRAPH * 1000), 0), 400)):
            status, answer = self.post_bytes(CHAT, body)
            self.assertEqual(status, expected, answer)

    def test_a_prompt_that_grows_costs_its_delta_and_keeps_its_ids(self):
        text = PARAGRAPH * 300
        first = self.tokenize(text)
        hits = self.http.metric(CACHE + "hits_total")
        known = self.http.metric(CACHE + "cached_tokens_total")
        self.assertEqual(self.tokenize(text), first)
        self.assertEqual(self.tokenize(text + "And then?")[:len(first) - 2], first[:-2])
        self.assertEqual(self.http.metric(CACHE + "hits_total"), hits + 2)
        self.assertGreater(self.http.metric(CACHE + "cached_tokens_total"), known + len(first))

    def test_clients_that_leave_while_their_prompt_is_prepared_leave_nothing(self):
        body = padded(chat(PARAGRAPH * 30_000), 0)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", self.deployment.frontend.port)) as connection:
                connection.sendall(head.encode() + body)
        eventually(lambda: self.http.metric("stator_frontend_cpu_pool_queue_depth") == 0, "nothing waits")
        self.assertEqual(self.http.post(CHAT, chat())[0], 200)

    def test_a_request_past_its_own_deadline_ends(self):
        endless = chat(max_tokens=1000, ignore_eos=True)
        status, answer = self.http.post(CHAT, endless, {"x-request-timeout-ms": "300"})
        self.assertEqual(status, 504, answer)
        self.assertIn("x-request-timeout-ms", answer["error"]["message"])
        _, _, stream = self.http.request("POST", CHAT, endless | {"stream": True}, {"x-request-timeout-ms": "300"})
        events = stream.decode().split("\n\n")
        self.assertTrue(any('"error"' in event for event in events), events[-3:])

    def test_a_request_within_its_deadline_does_not_notice_it(self):
        status, answer = self.http.post(CHAT, chat(), {"x-request-timeout-ms": "20000"})
        self.assertEqual(status, 200, answer)


if __name__ == "__main__":
    unittest.main()
