#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator operator`: manifests in, objects out; and a graph in a cluster, from its creation to its end."""

import hashlib
import http.server
import json
import pathlib
import subprocess
import tempfile
import threading
import unittest

import yaml

from kube_api import KubeApi
from stator_process import BINARY, Stator, clean_environment, eventually

GRAPH = """
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: chat}
spec:
  backendFramework: vllm
  components:
  - name: Frontend
    type: frontend
    podTemplate: {spec: {containers: [{name: main, image: "reg/vllm-runtime:1.0.0"}]}}
  - name: Worker
    type: worker
    replicas: 2
    scalingAdapter: {}
    podTemplate:
      spec: {containers: [{name: main, image: "reg/vllm-runtime:1.0.0", args: ["true", "123"]}]}
"""


class Command(unittest.TestCase):
    def run_operator(self, *arguments, manifest=GRAPH):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(manifest)
            file.flush()
            return subprocess.run([BINARY, "operator", *arguments, file.name], env=clean_environment(),
                                  capture_output=True, timeout=300, text=True)

    def test_render_prints_a_list(self):
        done = self.run_operator("render", "--namespace", "llm")
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = yaml.safe_load(done.stdout)
        self.assertEqual(listed["kind"], "List")
        kinds = {(each["kind"], each["metadata"]["name"]) for each in listed["items"]}
        self.assertIn(("Deployment", "chat-frontend"), kinds)
        self.assertIn(("DynamoGraphDeploymentScalingAdapter", "chat-worker"), kinds)
        worker = next(each for each in listed["items"] if each["kind"] == "Deployment" and "worker" in each["metadata"]["name"])
        main = worker["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(main["args"], ["true", "123"])  # quoted words stay words

    def test_a_refusal_names_the_field(self):
        done = self.run_operator("render", manifest=GRAPH.replace("replicas: 2", "replicas: -2"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("spec.components[1].replicas: Invalid value: -2: must be at least 0", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_crds_are_documents(self):
        done = subprocess.run([BINARY, "operator", "crds"], env=clean_environment(), capture_output=True, timeout=300)
        names = {each["metadata"]["name"] for each in yaml.safe_load_all(done.stdout)}
        self.assertIn("dynamographdeployments.nvidia.com", names)
        self.assertIn("podcliquesets.grove.io", names)

    def test_conversion_there_and_back(self):
        there = self.run_operator("convert", "--to", "v1alpha1", "--json")
        back = self.run_operator("convert", "--to", "v1beta1", "--json",
                                 manifest=json.dumps(json.loads(there.stdout)["items"][0]))
        self.assertEqual(json.loads(back.stdout)["items"][0], yaml.safe_load(GRAPH))


class Cluster(unittest.TestCase):
    def setUp(self):
        self.api = KubeApi()
        self.addCleanup(self.api.close)
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        self.config = pathlib.Path(folder.name) / "kubeconfig"
        self.api.write_kubeconfig(self.config)
        self.operators = []
        self.done = threading.Event()
        self.kubelet = threading.Thread(target=self.make_deployments_ready, daemon=True)
        self.kubelet.start()
        self.addCleanup(self.done.set)

    def start(self) -> Stator:
        operator = Stator("operator", "--kubeconfig", str(self.config), "--namespace", "llm", announce=False)
        self.addCleanup(operator.close)
        return operator

    def make_deployments_ready(self):
        """Plays the controllers of Deployments and of what nobody owns any more."""
        while not self.done.wait(0.05):
            self.api.collect_garbage()
            for name in self.api.names("deployments"):
                deployment = self.api.get("deployments", name)
                if deployment is None:
                    continue
                count = deployment["spec"].get("replicas", 1)
                status = {"observedGeneration": deployment["metadata"]["generation"], "replicas": count,
                          "updatedReplicas": count, "readyReplicas": count, "availableReplicas": count,
                          "conditions": [{"type": "Available", "status": "True"}]}
                if deployment.get("status") != status:
                    self.api.patch("deployments", name, {"status": status}, status=True)

    def state(self, name="chat"):
        graph = self.api.get("dynamographdeployments", name)
        return (graph or {}).get("status", {}).get("state")

    def test_a_graph_becomes_ready_scales_rolls_and_goes(self):
        operator = self.start()
        self.api.put("dynamographdeployments", yaml.safe_load(GRAPH))
        eventually(lambda: self.state() == "successful", "the graph is ready")
        self.assertEqual(len(self.api.names("deployments")), 2)
        self.assertIn("chat-frontend", self.api.names("services"))
        self.assertIn("chat-k8s-service-discovery", self.api.names("serviceaccounts"))
        graph = self.api.get("dynamographdeployments", "chat")
        ready = next(each for each in graph["status"]["conditions"] if each["type"] == "Ready")
        self.assertEqual((ready["status"], ready["reason"]), ("True", "AllResourcesAreReady"))
        self.assertEqual(graph["status"]["components"]["Worker"]["readyReplicas"], 2)

        # An autoscaler scales the adapter, and the workers follow.
        self.api.patch("dynamographdeploymentscalingadapters", "chat-worker", {"spec": {"replicas": 3}})
        eventually(lambda: self.api.get("dynamographdeployments", "chat")["status"]["components"]["Worker"]["replicas"] == 3,
                   "three workers")

        # A hand-made change is undone.
        self.api.patch("deployments", "chat-frontend", {"spec": {"replicas": 7}})
        eventually(lambda: self.api.get("deployments", "chat-frontend")["spec"]["replicas"] == 1, "drift is repaired")

        # New workers replace the old ones: another generation, and nothing of the old one stays.
        before = self.api.names("deployments")
        components = self.api.get("dynamographdeployments", "chat")["spec"]["components"]
        components[1]["podTemplate"]["spec"]["containers"][0]["args"] = ["changed"]
        self.api.patch("dynamographdeployments", "chat", {"spec": {"components": components}})
        eventually(lambda: self.state() == "successful" and self.api.names("deployments") != before
                   and len(self.api.names("deployments")) == 2, "the rolling update is over")

        # At rest nothing is written but the lease.
        def written_at_rest():
            before = len(self.api.written)
            threading.Event().wait(1.0)
            return [each for each in self.api.written[before:] if "/leases/" not in each]
        eventually(lambda: written_at_rest() == [], "nothing is written any more")
        self.assertEqual(written_at_rest(), [])

        self.api.delete("dynamographdeployments", "chat")
        eventually(lambda: not self.api.names("deployments") and self.state() is None, "all of it is gone")
        operator.terminate()
        self.assertEqual(operator.wait(), 0)
        lease = self.api.get("leases", "stator-operator")
        self.assertEqual(lease["spec"]["holderIdentity"], "")
        self.assertNotIn("secret-token", operator.log())

    def test_adapters_are_loaded_by_all_workers_and_unloaded_before_they_go(self):
        asked: list[tuple[str, str, dict]] = []

        class Worker(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                asked.append((self.command, self.path, json.loads(body) if body else {}))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            do_POST = do_DELETE = answer

        worker = http.server.ThreadingHTTPServer(("127.77.0.2", 9090), Worker)
        threading.Thread(target=worker.serve_forever, daemon=True).start()
        self.addCleanup(worker.server_close)
        self.addCleanup(worker.shutdown)
        self.start()
        base = hashlib.sha256(b"org/base").hexdigest()[:8]
        self.api.put("endpointslices", {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "s", "labels": {"nvidia.com/dynamo-base-model-hash": base}},
            "endpoints": [{"addresses": ["127.77.0.2"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": "w-0"}},
                          {"addresses": ["127.77.0.3"], "conditions": {"ready": False}}]})
        self.api.put("dynamomodels", {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoModel", "metadata": {"name": "m"},
                                      "spec": {"modelName": "tuned", "baseModelName": "org/base", "modelType": "lora",
                                               "source": {"uri": "hf://org/tuned"}}})
        eventually(lambda: self.api.get("dynamomodels", "m").get("status", {}).get("readyEndpoints") == 1, "it is loaded")
        self.assertEqual(asked[0], ("POST", "/v1/loras", {"lora_name": "tuned", "source": {"uri": "hf://org/tuned"}}))
        self.assertEqual(self.api.get("dynamomodels", "m")["status"]["endpoints"],
                         [{"address": "http://127.77.0.2:9090", "podName": "w-0", "ready": True}])
        self.api.delete("dynamomodels", "m")
        eventually(lambda: self.api.get("dynamomodels", "m") is None, "it may go")
        self.assertEqual(asked[-1], ("DELETE", "/v1/loras/tuned", {}))

    def test_a_broken_graph_says_why_and_blocks_no_other(self):
        self.start()
        broken = yaml.safe_load(GRAPH.replace("name: chat", "name: broken").replace("type: frontend", "type: gpu"))
        self.api.put("dynamographdeployments", broken)
        self.api.put("dynamographdeployments", yaml.safe_load(GRAPH))
        eventually(lambda: self.state() == "successful", "the good graph is ready")
        eventually(lambda: self.state("broken") == "failed", "the broken one has failed")
        message = self.api.get("dynamographdeployments", "broken")["status"]["conditions"][0]["message"]
        self.assertIn("spec.components[0].type", message)

    def test_killed_operators_leave_nothing_undone(self):
        self.start().kill()
        self.api.put("dynamographdeployments", yaml.safe_load(GRAPH))
        first = self.start()
        eventually(lambda: self.api.names("dynamocomponentdeployments"), "work has begun")
        first.kill()
        # The second one waits until the first one's lease is over, unless it is freed.
        self.api.patch("leases", "stator-operator", {"spec": {"holderIdentity": ""}})
        self.start()
        eventually(lambda: self.state() == "successful", "the second operator ends the work")
        self.assertEqual(len(self.api.names("deployments")), 2)


if __name__ == "__main__":
    unittest.main()
