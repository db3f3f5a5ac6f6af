#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frontends and workers that find each other through a Kubernetes API server, also while that is away."""

import pathlib
import tempfile
import unittest

from kube_api import KubeApi
from stator_process import MODEL_DIR, Http, Stator, clean_environment, eventually

RECORDS = "dynamoworkermetadatas"


class KubeDiscovery(unittest.TestCase):
    def test_serving_goes_on_while_the_api_server_is_away(self):
        api = KubeApi()
        closed = []
        self.addCleanup(lambda: closed or api.close())
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        config = pathlib.Path(folder.name) / "kubeconfig"
        api.write_kubeconfig(config)
        environment = clean_environment(HOME=folder.name, KUBECONFIG=str(config))
        worker = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--discovery", "kubernetes:llm", env=environment)
        self.addCleanup(worker.close)
        frontend = Stator("frontend", "--port", "0", "--discovery", "kubernetes:llm", env=environment)
        self.addCleanup(frontend.close)
        client = Http(frontend.port)

        def models():
            status, _, body = client.request("GET", "/v1/models")
            return status == 200 and b'"id"' in body and body

        eventually(models, "the worker's model is listed")
        record = api.get(RECORDS, api.names(RECORDS)[0])
        self.assertIn("stator", record["spec"]["data"])

        # A second worker comes, and goes: its record with it.
        second = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--discovery", "kubernetes:llm", env=environment)
        self.addCleanup(second.close)
        eventually(lambda: len(api.names(RECORDS)) == 2, "two records")
        second.terminate()
        self.assertEqual(second.wait(), 0)
        self.assertEqual(len(api.names(RECORDS)), 1)

        api.close()
        closed.append(True)
        status, _, body = client.request("POST", "/v1/completions", {
            "model": record["spec"]["data"]["stator"]["model"]["name"], "prompt": "hello", "max_tokens": 4})
        self.assertEqual(status, 200, body)


if __name__ == "__main__":
    unittest.main()
