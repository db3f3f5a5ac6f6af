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

    def test_a_worker_counts_when_its_pod_is_ready_and_beside_it_before(self):
        api = KubeApi()
        self.addCleanup(api.close)
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        config = pathlib.Path(folder.name) / "kubeconfig"
        api.write_kubeconfig(config)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w-0", "namespace": "llm", "labels": {
            "nvidia.com/dynamo-discovery-enabled": "true"}}, "spec": {"readinessGates": [{"conditionType": "stator.dev/routable"}]}}
        api.put("pods", pod)
        uid = api.get("pods", "w-0")["metadata"]["uid"]
        api.patch("pods", "w-0", {"status": {"conditions": [{"type": "ContainersReady", "status": "False"}]}}, status=True)
        outside = clean_environment(HOME=folder.name, KUBECONFIG=str(config))
        inside = {**outside, "POD_NAME": "w-0", "POD_UID": uid}

        def start(*arguments, env):
            process = Stator(*arguments, "--discovery", "kubernetes:llm", env=env)
            self.addCleanup(process.close)
            return process
        start("worker", str(MODEL_DIR), "--engine", "sim", env=inside)
        ports = [start("frontend", "--port", "0", env=env).port for env in (inside, outside)]

        def has_model(port) -> bool:
            return b'"id"' in Http(port).request("GET", "/v1/models")[2]
        # The frontend of the same pod makes the pod ready, so it knows the worker first.
        eventually(lambda: has_model(ports[0]), "the worker beside it is listed")
        self.assertFalse(has_model(ports[1]))
        record = api.get(RECORDS, api.names(RECORDS)[0])
        self.assertEqual((record["metadata"]["labels"]["stator.dev/pod"], record["metadata"]["ownerReferences"][0]["uid"]), ("w-0", uid))
        api.patch("pods", "w-0", {"status": {"conditions": [{"type": "ContainersReady", "status": "True"}]}}, status=True)
        eventually(lambda: has_model(ports[1]), "the worker is listed everywhere")
        # The gate of its pod is opened by whoever knows it.
        eventually(lambda: any(each["type"] == "stator.dev/routable" and each["status"] == "True"
                               for each in api.get("pods", "w-0")["status"]["conditions"]), "the gate is open")


if __name__ == "__main__":
    unittest.main()
