#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example worker of examples/python_worker joins a running cluster and serves, moves, drains like any other."""

import json
import subprocess
import sys
import tempfile
import threading
import unittest

import openai

from etcd_process import Etcd
from stator_process import MODEL, MODEL_DIR, ROOT, Split, Stator, _die_with_parent, clean_environment, eventually

WORKER = ROOT / "examples" / "python_worker" / "worker.py"
QUESTION = [{"role": "user", "content": "Repeat this: a KV cache keeps keys and values."}]


class PythonWorker(Stator):
    """One process of the example."""

    def __init__(self, discovery: list[str], *arguments: str, lease_ttl_s: int = 2):
        self.log_file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), str(MODEL_DIR), *discovery, "--lease-ttl", str(lease_ttl_s), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log_file, env=clean_environment(),
            preexec_fn=_die_with_parent)
        self.ready = json.loads(self.process.stdout.readline() or "{}")
        if not self.ready.get("ready"):
            raise AssertionError(f"the example did not become ready:\n{self.log()}")


class PythonWorkerTest(unittest.TestCase):
    def deploy(self) -> Split:
        deployment = Split(workers=0)
        self.addCleanup(deployment.close)
        return deployment

    def join(self, deployment: Split, *arguments: str) -> PythonWorker:
        worker = PythonWorker(deployment.discovery[:2], *arguments)
        deployment.workers.append(worker)
        deployment.wait_for_workers(len(deployment.workers))
        return worker

    def client(self, deployment: Split) -> openai.OpenAI:
        client = openai.OpenAI(base_url=deployment.frontend.url + "/v1", api_key="unused", max_retries=0, timeout=120)
        self.addCleanup(client.close)
        return client

    @staticmethod
    def text(client: openai.OpenAI, **fields) -> str:
        stream = client.chat.completions.create(**{
            "model": "parrot", "messages": QUESTION, "max_tokens": 200, "stream": True, "extra_body": {"ignore_eos": True}} | fields)
        return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)

    def test_it_stays_within_two_hundred_lines(self):
        self.assertLessEqual(len(WORKER.read_text().splitlines()), 200)

    def test_it_joins_a_running_cluster_beside_other_models(self):
        deployment = self.deploy()
        deployment.workers.append(deployment.start_worker())
        deployment.wait_for_workers(1)
        self.join(deployment)
        client = self.client(deployment)
        self.assertEqual({model.id for model in client.models.list()}, {MODEL, "parrot"})
        answer = client.chat.completions.create(model="parrot", messages=QUESTION)
        self.assertIn("a KV cache keeps keys and values.", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.completion_tokens, answer.usage.prompt_tokens)
        cut = client.chat.completions.create(model="parrot", messages=QUESTION, max_tokens=3)
        self.assertEqual((cut.choices[0].finish_reason, cut.usage.completion_tokens), ("length", 3))

    def test_many_requests_share_one_stream(self):
        deployment = self.deploy()
        self.join(deployment, "--step-ms", "1")
        client = self.client(deployment)
        texts: list[str] = []
        threads = [threading.Thread(target=lambda: texts.append(self.text(client, max_tokens=50))) for _ in range(48)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(texts), 48)
        self.assertEqual(len(set(texts)), 1)
        eventually(deployment.idle, "idle")

    def test_a_stream_outlives_its_worker(self):
        deployment = self.deploy()
        first = self.join(deployment)
        client = self.client(deployment)
        whole = self.text(client)
        for end in (PythonWorker.kill, PythonWorker.terminate):
            stream = client.chat.completions.create(model="parrot", messages=QUESTION, max_tokens=200, stream=True,
                                                    extra_body={"ignore_eos": True})
            chunks = iter(stream)
            seen = [next(chunks) for _ in range(5)]
            second = PythonWorker(deployment.discovery[:2])
            deployment.workers.append(second)
            deployment.wait_for_workers(2)
            end(first)
            seen += chunks
            self.assertEqual("".join(c.choices[0].delta.content or "" for c in seen if c.choices), whole)
            first.process.wait(40)
            deployment.workers.remove(first)
            first.close()
            deployment.wait_for_workers(1)
            first = second
        self.assertEqual(deployment.http.metric("dynamo_frontend_model_migration_total"), 1, "draining finished its stream")

    def test_a_client_that_leaves_frees_its_place(self):
        deployment = self.deploy()
        self.join(deployment)
        client = self.client(deployment)
        stream = client.chat.completions.create(model="parrot", messages=QUESTION, max_tokens=100000, stream=True,
                                                extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        eventually(deployment.idle, "idle")

    def test_it_joins_through_etcd(self):
        store = Etcd()
        self.addCleanup(store.close)
        frontend = Stator("frontend", "--host", "127.0.0.1", "--port", "0", "--discovery", store.discovery + "/fleet",
                          "--discovery-lease-ttl", "2s")
        self.addCleanup(frontend.close)
        worker = PythonWorker(["--discovery", store.discovery + "/fleet"])
        self.addCleanup(worker.close)
        client = openai.OpenAI(base_url=frontend.url + "/v1", api_key="unused", max_retries=0, timeout=120)
        self.addCleanup(client.close)
        eventually(lambda: client.models.list().data, "the model is listed")
        store.members[0].wipe()
        store.wait_until_healthy()
        eventually(lambda: "fleet/v1/instances" in store.ctl("get", "--prefix", "--keys-only", "fleet/"), "registered again")
        self.assertIn("a KV cache", self.text(client, max_tokens=40))
        worker.terminate()
        self.assertEqual(worker.wait(), 0, worker.log())
        self.assertEqual(store.ctl("get", "--prefix", "--keys-only", "fleet/").strip(), "")


if __name__ == "__main__":
    unittest.main()
