#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files and batches through OpenAI's Python client, and over a kill -9."""

import json
import tempfile
import unittest

import openai

from stator_process import MODEL, Serve, eventually


def lines_of(count: int, url: str = "/v1/chat/completions") -> bytes:
    def body(i: int) -> dict:
        text = f"Question {i}"
        return {"input": text} if url == "/v1/responses" else {"messages": [{"role": "user", "content": text}]}
    return "".join(json.dumps({"custom_id": f"line-{i}", "method": "POST", "url": url,
                               "body": body(i) | {"model": MODEL, "seed": 1} |
                               ({"max_output_tokens": 4} if url == "/v1/responses" else {"max_tokens": 4})}) + "\n"
                   for i in range(count)).encode()


class Batches(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.start()

    def start(self, *arguments: str):
        self.deployment = Serve("--batches-folder", self.folder.name, *(arguments or ("--sim-speedup", "0")))
        self.addCleanup(self.deployment.close)
        self.client = openai.OpenAI(base_url=self.deployment.frontend.url + "/v1", api_key="unused", max_retries=0, timeout=60)
        self.addCleanup(self.client.close)
        eventually(lambda: self.deployment.http.request("GET", "/health")[0] == 200, "healthy")

    def submit(self, content: bytes, endpoint: str = "/v1/chat/completions"):
        file = self.client.files.create(file=("in.jsonl", content), purpose="batch")
        return self.client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={"k": "v"})

    def wait_for(self, identity: str, status: str):
        return eventually(lambda: (b := self.client.batches.retrieve(identity)).status == status and b, f"{identity} is {status}")

    def results(self, file_id: str) -> list[dict]:
        return [json.loads(line) for line in self.client.files.content(file_id).text.splitlines()]

    def test_runs_chats_and_responses(self):
        for endpoint, kind in (("/v1/chat/completions", "chat.completion"), ("/v1/responses", "response")):
            batch = self.submit(lines_of(20, endpoint), endpoint)
            self.assertEqual((batch.status, batch.metadata), ("in_progress", {"k": "v"}))
            batch = self.wait_for(batch.id, "completed")
            self.assertEqual((batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed), (20, 20, 0))
            results = self.results(batch.output_file_id)
            self.assertEqual({result["custom_id"] for result in results}, {f"line-{i}" for i in range(20)})
            self.assertEqual({result["response"]["body"]["object"] for result in results}, {kind})
            self.assertTrue(all(result["response"]["request_id"] for result in results))
            self.assertIsNone(batch.error_file_id)
        self.assertEqual(len(list(self.client.batches.list(limit=1))), 2)

    def test_failed_lines_go_to_the_error_file(self):
        bad = json.dumps({"custom_id": "bad", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "nope", "messages": []}})
        batch = self.wait_for(self.submit(lines_of(1) + bad.encode()).id, "completed")
        self.assertEqual((batch.request_counts.completed, batch.request_counts.failed), (1, 1))
        error = self.results(batch.error_file_id)[0]
        self.assertEqual((error["custom_id"], error["response"]["status_code"]), ("bad", 400))

    def test_a_broken_file_fails_the_batch(self):
        batch = self.submit(lines_of(1) + b"nonsense\n")
        self.assertEqual((batch.status, batch.errors.data[0].line), ("failed", 2))

    def test_files(self):
        content = lines_of(1)
        file = self.client.files.create(file=("a.jsonl", content), purpose="batch",
                                        expires_after={"anchor": "created_at", "seconds": 3600})
        self.assertEqual((file.bytes, file.filename, file.purpose), (len(content), "a.jsonl", "batch"))
        self.assertEqual(file.expires_at, file.created_at + 3600)
        self.assertEqual(self.client.files.retrieve(file.id), file)
        self.assertEqual([f.id for f in self.client.files.list(purpose="batch")], [file.id])
        self.assertTrue(self.client.files.delete(file.id).deleted)
        with self.assertRaises(openai.NotFoundError):
            self.client.files.content(file.id)
        with self.assertRaises(openai.BadRequestError):
            self.client.files.create(file=("a", b"x"), purpose="nothing")

    def test_cancel(self):
        self.deployment.close()
        self.start("--batches-inflight-max", "1")
        batch = self.submit(lines_of(200))
        self.assertEqual(self.client.batches.cancel(batch.id).status, "cancelling")
        batch = self.wait_for(batch.id, "cancelled")
        counted = batch.request_counts
        self.assertEqual(counted.completed + counted.failed, 200)
        self.assertGreater(counted.failed, 0)

    def test_kill_9_neither_loses_nor_repeats_a_line(self):
        self.deployment.close()
        self.start("--batches-inflight-max", "2")
        batch = self.submit(lines_of(300))
        for _ in range(2):
            known = self.client.batches.retrieve(batch.id).request_counts.completed
            now = eventually(lambda: (c := self.client.batches.retrieve(batch.id).request_counts.completed) > known and c, "some are done")
            self.assertLess(now, 300, "killed in the middle")
            self.deployment.frontend.kill()
            self.deployment.close()
            self.start("--batches-inflight-max", "2")
        batch = self.wait_for(batch.id, "completed")
        self.assertEqual(batch.request_counts.completed, 300)
        results = self.results(batch.output_file_id)
        self.assertEqual(sorted(result["custom_id"] for result in results), sorted(f"line-{i}" for i in range(300)))


class NoFolder(unittest.TestCase):
    def test_says_what_to_do(self):
        deployment = Serve()
        self.addCleanup(deployment.close)
        status, headers, raw = deployment.http.request("GET", "/v1/batches")
        self.assertEqual((status, headers.get("x-should-retry")), (404, None))
        self.assertIn("--batches-folder", json.loads(raw)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
