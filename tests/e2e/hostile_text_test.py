#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Text that is made to keep a server busy: others are answered all the same, and what is too long is refused early."""

import http.client
import itertools
import json
import os
import random
import socket
import struct
import time
import unittest

from stator_process import MODEL, MODEL_DIR, Stator, eventually

MASK = 2**64 - 1
# libstdc++'s std::hash (MurmurHash64A), for which the keys below collide.
MULTIPLIER = 0xC6A4A7935BD1E995
INVERSE = pow(MULTIPLIER, -1, 2**64)
SEED = 0xC70F6907
BLOCKS = 4
VARIANTS = 16
KEYS = int(os.environ.get("STATOR_ATTACK_KEYS", "30000"))  # scripts/attack.sh long: 60,000


def mixed(word):
    word = word * MULTIPLIER & MASK
    return (word ^ word >> 47) * MULTIPLIER & MASK


def unmixed(word):
    word = word * INVERSE & MASK
    return (word ^ word >> 47) * INVERSE & MASK


def colliding_keys(count=KEYS):
    """`count` keys of 64 characters with one hash: block by block, 16 ways from each state to the next."""
    source = random.Random(7)
    state = SEED ^ (16 * BLOCKS * MULTIPLIER & MASK)
    blocks = []
    for _ in range(BLOCKS):
        target = source.getrandbits(64)
        ways = []
        while len(ways) < VARIANTS:
            first = source.getrandbits(64) & 0x7F7F7F7F7F7F7F7F
            after = (state ^ mixed(first)) * MULTIPLIER & MASK
            second = unmixed(after ^ target * INVERSE & MASK)
            if second & 0x8080808080808080 == 0:  # ASCII
                ways.append(struct.pack("<QQ", first, second).decode())
        blocks.append(ways)
        state = target
    return ["".join(parts) for parts in itertools.islice(itertools.product(*blocks), count)]


def chat_with_members(keys):
    message = {"role": "user", "content": "Hello"} | dict.fromkeys(keys, 1)
    return json.dumps({"model": MODEL, "messages": [message], "max_tokens": 1}).encode()


class HostileText(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0")
        cls.addClassCleanup(cls.server.kill)

    def post(self, path, body, timeout=300):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=timeout)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def seconds_for_others(self, body):
        """A client sends `body` and leaves; how long another one's chat of 5 KiB takes then."""
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            # It leaves when its JSON is read and its template runs; harmless work is over by then.
            time.sleep(1)
        chat = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "word " * 1024}], "max_tokens": 1})
        start = time.monotonic()
        status, text = self.post("/v1/chat/completions", chat)
        self.assertEqual(status, 200, text)
        return time.monotonic() - start

    def test_others_do_not_wait_for_keys_that_collide(self):
        keys = colliding_keys()
        self.assertEqual(len(set(keys)), KEYS)
        harmless = min(self.seconds_for_others(chat_with_members(f"{i:064}" for i in range(len(keys)))) for _ in range(2))
        hostile = min(self.seconds_for_others(chat_with_members(keys)) for _ in range(2))
        self.assertLess(hostile, 2 + 5 * harmless)

    def test_others_do_not_wait_for_a_long_body(self):
        # Of the longest kind that is taken: its text alone takes longer than the chat of 5 KiB.
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Ab1 \n" * 800_000}], "max_tokens": 1}).encode()
        self.assertLess(self.seconds_for_others(body), 5)

    def test_a_prompt_that_is_far_too_long_is_refused_early(self):
        status, text = self.post("/v1/completions", json.dumps({"model": MODEL, "prompt": "a b " * 2_000_000}))
        self.assertEqual(status, 400, text)
        self.assertIn("more than 2048", text)

    def test_tokenize_and_detokenize_are_bounded(self):
        status, text = self.post("/tokenize", json.dumps({"model": MODEL, "prompt": "a b " * 700_000}))
        self.assertEqual(status, 413, text[:200])
        status, text = self.post("/detokenize", json.dumps({"model": MODEL, "tokens": [5] * 1_100_000}))
        self.assertEqual(status, 413, text[:200])
        status, text = self.post("/tokenize", json.dumps({"model": MODEL, "prompt": "a b " * 10_000, "return_token_strs": True}))
        self.assertEqual(status, 200, text[:200])
        self.assertEqual(len(json.loads(text)["token_strs"]), json.loads(text)["count"])

    def test_what_was_left_is_not_logged_as_a_failure(self):
        self.seconds_for_others(chat_with_members(str(i) for i in range(100_000)))
        eventually(lambda: "cancelled" in self.get_metrics(), "the request that was left is counted")
        self.assertNotIn("the client left", self.server.log())

    def get_metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()


if __name__ == "__main__":
    unittest.main()
