# SPDX-License-Identifier: Apache-2.0
"""What operators see of requests while they run, and where a request would go if it came now: /requests, /routing/preview, `stator top`."""

import http.client
import json
import pathlib
import tempfile
import unittest

from access_test import ask, key, stator
from stator_process import MODEL_DIR, Stator, eventually

WORDS = " ".join(f"Point {i} of a long briefing that two requests share." for i in range(40))


class Running(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        keys = [cls.user, cls.operator] = [key("user", "acme"), key("operator", "ops")]
        (folder / "keys").write_text("".join(line + "\n" for _, line in keys))
        # One token in 100 ms or so: they run for as long as anybody looks.
        cls.server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0.1", "--workers", "2", "--port", "0", "--host", "127.0.0.1",
                            "--admin-port", "0", "--api-keys", str(folder / "keys"))
        cls.port, cls.admin = cls.server.ready["port"], cls.server.ready["admin_port"]

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.folder.cleanup()

    def look(self, path: str, body=None):
        status, _, text = ask(self.admin, "GET" if body is None else "POST", path, body, authorization=f"Bearer {self.operator[0]}")
        return status, json.loads(text)

    def running(self) -> list[dict]:
        return self.look("/requests?state=running")[1]

    def stream(self, text: str, **more) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.addCleanup(connection.close)
        body = {"model": "demo", "messages": [{"role": "user", "content": text}], "max_tokens": 1500, "stream": True, "ignore_eos": True} | more
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", "x-request-id": text[:20],
                                                                             "authorization": f"Bearer {self.user[0]}"})
        return connection

    def test_running_requests_are_listed_until_they_end(self):
        first = self.stream("the first one")
        eventually(lambda: [one for one in self.running() if one["output_tokens"] > 0], "it answers")
        second = self.stream("the second one")
        eventually(lambda: [one["x_request_id"] for one in self.running()] == ["the first one", "the second one"], "both, the oldest first")
        one = self.running()[0]
        self.assertEqual((one["running"], one["phase"], one["model"], one["tenant"], one["stream"]), (True, "decode", "demo", "acme", True))
        self.assertRegex(one["worker_id"], r"^\d+$")
        self.assertGreater(one["prompt_tokens"], 3)
        self.assertGreater(one["duration_ms"], one["ttft_ms"])
        self.assertNotIn("status", one)
        self.assertEqual([step["step"] for step in one["timeline"]], ["prepared", "routed", "submitted", "first_token"])
        tokens, age = one["output_tokens"], one["duration_ms"]
        later = eventually(lambda: [now for now in self.running()[:1] if now["output_tokens"] > tokens], "more tokens")[0]
        self.assertGreater(later["duration_ms"], age)

        status, receipt = self.look(f"/receipts/{one['request_id']}")
        self.assertEqual((status, receipt["chosen"]["worker_id"]), (200, one["worker_id"]))
        self.assertEqual([r["request_id"] for r in self.look(f"/requests?request_id={one['request_id']}")[1]], [one["request_id"]])
        self.assertEqual(len(self.look("/requests?state=running&limit=1")[1]), 1)

        keyfile = pathlib.Path(self.folder.name) / "operator"
        keyfile.write_text(self.operator[0])
        shown = stator("top", "--url", f"http://127.0.0.1:{self.admin}", "--key", str(keyfile), "--once")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        row = next(line for line in shown.stdout.splitlines() if one["request_id"] in line)
        for word in ("demo", one["worker_id"], "acme", "decode"):
            self.assertIn(word, row)
        self.assertIn("RUNNING", shown.stdout)

        first.close()
        second.close()
        eventually(lambda: self.running() == [], "they left")
        ended = eventually(lambda: [r for r in self.look("/requests?state=ended")[1] if r["request_id"] == one["request_id"]], "it ended")[0]
        self.assertEqual((ended["finish_reason"], ended.get("running")), ("cancelled", None))

    def test_the_price_of_a_prompt_without_asking_it(self):
        before = self.look("/requests")[1]
        body = {"model": "demo", "messages": [{"role": "user", "content": WORDS}]}
        status, receipt = self.look("/routing/preview?tenant=acme", body)
        self.assertEqual(status, 200, receipt)
        self.assertEqual((receipt["workers"], len(receipt["candidates"]), receipt["prefill"]), (2, 2, None))
        self.assertGreater(receipt["prompt_tokens"], 100)
        self.assertLessEqual(max(one["overlap_blocks"] for one in receipt["candidates"]), 2)  # the template's beginning, from other tests
        self.assertEqual(len(receipt["urls"]), 2)
        self.assertEqual(self.look("/requests")[1], before)  # nothing ran
        self.assertEqual({one["active_requests"] for one in self.look("/routing/preview?tenant=acme", body)[1]["candidates"]}, {0})  # nothing was booked

        # The same prompt asked for real: the worker that has it is cheaper, and chosen.
        connection = self.stream(WORDS, max_tokens=1)
        connection.getresponse().read()

        def known():
            now = self.look("/routing/preview?tenant=acme", body)[1]
            return [now] if any(one["overlap_blocks"] > 5 for one in now["candidates"]) else None
        now = eventually(known, "the router knows its blocks")[0]
        holder = max(now["candidates"], key=lambda one: one["overlap_blocks"])
        self.assertEqual(now["chosen"]["worker_id"], holder["worker_id"])
        self.assertLess(holder["cost"], min(one["cost"] for one in now["candidates"] if one is not holder))

        # Another tenant's cache tells nothing.
        self.assertEqual({one["overlap_blocks"] for one in self.look("/routing/preview?tenant=other", body)[1]["candidates"]}, {0})

        for prompt, count in (([5] * 40, 40), ("some text", None)):
            status, receipt = self.look("/routing/preview", {"model": "demo", "prompt": prompt})
            self.assertEqual(status, 200, receipt)
            if count:
                self.assertEqual(receipt["prompt_tokens"], count)
        pinned = self.look("/routing/preview", {"model": "demo", "prompt": "x", "nvext": {"backend_instance_id": int(holder["worker_id"])}})[1]
        self.assertEqual((pinned["chosen"]["worker_id"], pinned["eligible"]), (holder["worker_id"], 1))

    def test_wrong_questions(self):
        for body, status in (({"model": "nobody", "prompt": "x"}, 404), ({"model": "demo", "prompt": ""}, 400), ({}, 400), ([1], 400),
                             ({"model": "demo", "prompt": "x", "nvext": {"backend_instance_id": 1}}, 404)):
            with self.subTest(body=body):
                got, answer = self.look("/routing/preview", body)
                self.assertEqual(got, status, answer)
                self.assertTrue(answer["error"]["message"])
        for query in ("state=sleeping", "limit=x", "limit=5000"):
            self.assertEqual(self.look(f"/requests?{query}")[0], 400, query)
        # It is the operators' business.
        self.assertEqual(ask(self.admin, "POST", "/routing/preview", {"prompt": "x"})[0], 401)
        self.assertEqual(ask(self.admin, "POST", "/routing/preview", {"prompt": "x"}, authorization=f"Bearer {self.user[0]}")[0], 403)
        self.assertEqual(ask(self.port, "POST", "/routing/preview", {"prompt": "x"}, authorization=f"Bearer {self.operator[0]}")[0], 404)


if __name__ == "__main__":
    unittest.main()
