#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a page in a browser sees of a server that its origin may use, and of one that it may not."""

import json
import unittest

from stator_process import MODEL, MODEL_DIR, Http, Stator

CHAT = "/v1/chat/completions"
PAGE = "https://chat.example"
BODY = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "What is a KV cache?"}]}


class Cors(unittest.TestCase):
    def serve(self, *arguments):
        server = Stator("serve", str(MODEL_DIR), "--port", "0", "--workers", "1", *arguments)
        self.addCleanup(server.close)
        return Http(server.port)

    def preflight(self, http, origin):
        return http.request("OPTIONS", CHAT, headers={
            "Origin": origin, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"})

    def test_a_listed_page_may_ask_and_read_every_answer(self):
        http = self.serve("--cors-origins", f"http://localhost:3000,{PAGE}")
        status, headers, body = self.preflight(http, PAGE)
        self.assertEqual((status, body), (204, b""))
        self.assertEqual(headers["access-control-allow-origin"], PAGE)
        self.assertIn("POST", headers["access-control-allow-methods"])
        self.assertEqual(headers["access-control-allow-headers"], "authorization,content-type,x-stainless-os")
        self.assertGreater(int(headers["access-control-max-age"]), 0)
        self.assertEqual(headers["vary"], "Origin")
        for body, expected in ((BODY, 200), (BODY | {"stream": True}, 200), (BODY | {"model": "nobody"}, 404),
                               (BODY | {"temperature": -1}, 400)):
            status, headers, _ = http.request("POST", CHAT, body, {"Origin": PAGE})
            self.assertEqual((status, headers["access-control-allow-origin"]), (expected, PAGE))
            self.assertIn("x-request-id", headers["access-control-expose-headers"])
        self.assertEqual(http.request("GET", "/v1/models", headers={"Origin": PAGE})[1]["access-control-allow-origin"], PAGE)

    def test_other_pages_see_what_they_saw_before(self):
        listed = self.serve("--cors-origins", PAGE)
        nobody = self.serve()
        for http, origin in ((listed, "https://evil.example"), (nobody, PAGE)):
            status, headers, body = self.preflight(http, origin)
            self.assertEqual((status, headers["allow"], json.loads(body)["code"]), (405, "POST", 405))
            answer = http.request("POST", CHAT, BODY, {"Origin": origin})
            self.assertEqual(answer[0], 200)
            for seen in (headers, answer[1]):
                self.assertFalse([name for name in seen if name.lower().startswith("access-control")])


if __name__ == "__main__":
    unittest.main()
