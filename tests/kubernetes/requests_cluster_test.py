#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a model and its latencies to a graph that is ready; what a manifest would change; models and adapters."""

import json
import subprocess
import unittest

import yaml

from control_plane import ApiError, eventually, missing
from rig import BINARY, ClusterTest, clean_environment, graph

REQUEST = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "metadata": {"name": "qwen"},
           "spec": {"model": "Qwen/Qwen3-8B", "backend": "vllm", "workload": {"isl": 2000, "osl": 200},
                    "sla": {"ttft": 1000, "itl": 30}}}


class Requests(ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for index in range(4):
            cls.api.patch("Node", f"node-{index}", {"metadata": {"labels": {
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559"}}})

    def stator(self, *arguments, data=None, code=0):
        done = subprocess.run([BINARY, *arguments], input=data, env=clean_environment(), capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_a_request_becomes_a_ready_graph(self):
        self.api.create(REQUEST, self.space)
        eventually(lambda: (self.api.get("DynamoGraphDeploymentRequest", "qwen", self.space).get("status") or {}).get("phase")
                   in ("Deployed", "Failed"), "the request is over", 180)
        request = self.api.get("DynamoGraphDeploymentRequest", "qwen", self.space)
        self.assertEqual(request["status"]["phase"], "Deployed", request["status"])
        self.assertEqual(request["status"]["dgdName"], "qwen-dgd")
        self.assertEqual((request["spec"]["hardware"]["gpuSku"], request["spec"]["hardware"]["totalGpus"]), ("h100_sxm", 32))
        made = self.api.get("DynamoGraphDeployment", "qwen-dgd", self.space)
        self.assertNotIn("ownerReferences", made["metadata"])
        self.assertEqual(made["metadata"]["labels"]["dgdr.nvidia.com/name"], "qwen")
        profiled = self.api.condition("DynamoGraphDeploymentRequest", "qwen", "Profiling", self.space)
        self.assertIn("configurations looked at", profiled["message"])
        # What it is for cannot change any more; its end leaves the graph serving.
        with self.assertRaises(ApiError) as refused:
            self.api.patch("DynamoGraphDeploymentRequest", "qwen", {"spec": {"sla": {"itl": 5}}}, self.space)
        self.assertIn("spec: Forbidden", refused.exception.message)
        self.api.delete("DynamoGraphDeploymentRequest", "qwen", self.space)
        eventually(lambda: self.api.get("DynamoGraphDeploymentRequest", "qwen", self.space) is None, "the request is gone")
        self.assertEqual(self.state("qwen-dgd"), "successful")

    def test_a_request_of_the_old_version_means_the_same(self):
        old = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest", "metadata": {"name": "old"}, "spec": {
            "model": "Qwen/Qwen3-8B", "backend": "vllm", "autoApply": False, "deploymentOverrides": {"name": "mine", "labels": {"a": "b"}},
            "profilingConfig": {"profilerImage": "p:1.0.0", "outputPVC": "out", "config": {
                "sla": {"ttft": 1000, "itl": 30, "isl": 2000, "osl": 200}, "sweep": {"any": [1, 2.5]}}}}}
        self.api.create(old, self.space)
        eventually(lambda: (self.api.get("DynamoGraphDeploymentRequest", "old", self.space).get("status") or {}).get("phase")
                   in ("Ready", "Failed"), "the request is over", 180)
        new = self.api.get("DynamoGraphDeploymentRequest", "old", self.space)
        self.assertEqual((new["status"]["phase"], new["spec"]["sla"], new["spec"]["workload"]),
                         ("Ready", {"ttft": 1000, "itl": 30}, {"isl": 2000, "osl": 200}))
        self.assertEqual(new["status"]["profilingResults"]["selectedConfig"]["metadata"]["name"], "mine")
        again = self.api.get("DynamoGraphDeploymentRequest", "old", self.space, "v1alpha1")
        self.assertEqual(again["spec"], old["spec"])
        self.assertEqual((again["status"]["state"], again["status"]["generatedDeployment"]["kind"]), ("Ready", "DynamoGraphDeployment"))

    def test_a_request_that_cannot_be_met_says_why(self):
        bad = json.loads(json.dumps(REQUEST))
        bad["spec"]["model"] = "nobody/knows-this"
        self.api.create(bad, self.space)
        eventually(lambda: (self.api.get("DynamoGraphDeploymentRequest", "qwen", self.space).get("status") or {}).get("phase")
                   == "Failed", "it has failed")
        self.assertIn("spec.model", self.api.condition("DynamoGraphDeploymentRequest", "qwen", "Validation", self.space)["message"])
        waiting = json.loads(json.dumps(REQUEST))
        waiting["metadata"]["name"] = "later"
        waiting["spec"]["autoApply"] = False
        self.api.create(waiting, self.space)
        eventually(lambda: (self.api.get("DynamoGraphDeploymentRequest", "later", self.space).get("status") or {}).get("phase")
                   == "Ready", "it is ready to be applied")
        self.assertIsNone(self.api.get("DynamoGraphDeployment", "later-dgd", self.space))
        chosen = self.api.get("DynamoGraphDeploymentRequest", "later", self.space)["status"]["profilingResults"]["selectedConfig"]
        self.assertEqual(chosen["kind"], "DynamoGraphDeployment")

    def test_the_command_line_does_the_same(self):
        config = str(self.plane.folder / "kubeconfig")
        goal = ("--model", "Qwen/Qwen3-8B", "--ttft", "1000", "--itl", "30", "--namespace", self.space, "--kubeconfig", config)
        dry = self.stator("deploy", *goal, "--dry-run")
        self.assertTrue(dry.stdout.startswith("# Qwen/Qwen3-8B on 32 h100_sxm GPUs"), dry.stdout[:200])
        manifest = yaml.safe_load(dry.stdout)
        self.assertIn(f"+ DynamoGraphDeployment {self.space}/qwen3-8b-dgd", dry.stderr)
        self.assertEqual(self.api.names("DynamoGraphDeployment", self.space), [])
        self.stator("deploy", *goal, "--wait", "120")
        self.assertEqual(self.state(manifest["metadata"]["name"]), "successful")

    def test_diff_tells_what_would_change(self):
        config = str(self.plane.folder / "kubeconfig")
        self.api.create(graph(), self.space)
        self.wait_ready()
        changed = graph()
        changed["spec"]["components"][0]["podTemplate"]["spec"]["containers"][0]["image"] = "reg/vllm-runtime:2.0.0"
        text = self.stator("operator", "diff", "-", "--kubeconfig", config, "--namespace", self.space, data=yaml.safe_dump(changed), code=1).stdout
        self.assertIn(f"~ Deployment {self.space}/chat-frontend", text)
        self.assertIn('.spec.template.spec.containers[name="main"].image: "reg/vllm-runtime:1.0.0" -> "reg/vllm-runtime:2.0.0"', text)
        self.assertEqual(self.api.get("Deployment", "chat-frontend", self.space)["spec"]["template"]["spec"]["containers"][0]["image"],
                         "reg/vllm-runtime:1.0.0")


class Models(ClusterTest):
    def test_a_model_lists_its_workers(self):
        made = graph()
        made["spec"]["components"][1]["modelRef"] = {"name": "Qwen/Qwen3-8B"}
        self.api.create(made, self.space)
        self.wait_ready()
        self.api.create({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoModel", "metadata": {"name": "base"},
                         "spec": {"modelName": "Qwen/Qwen3-8B", "baseModelName": "Qwen/Qwen3-8B"}}, self.space)
        eventually(lambda: (self.api.get("DynamoModel", "base", self.space).get("status") or {}).get("readyEndpoints") == 2,
                   "two workers are listed")
        status = self.api.get("DynamoModel", "base", self.space)["status"]
        self.assertTrue(status["endpoints"][0]["address"].endswith(":9090"))
        self.assertTrue(status["endpoints"][0]["podName"].startswith("chat-worker"))
        self.assertEqual(self.api.condition("DynamoModel", "base", "EndpointsReady", self.space)["status"], "True")
        # Adapters of a model that nobody serves wait, and can go.
        self.api.create({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoModel", "metadata": {"name": "lora"},
                         "spec": {"modelName": "l", "baseModelName": "other", "modelType": "lora", "source": {"uri": "file:///l"}}}, self.space)
        eventually(lambda: self.api.condition("DynamoModel", "lora", "ServicesFound", self.space).get("reason") == "NoServicesFound",
                   "nobody serves it")
        self.assertIn("nvidia.com/finalizer", self.api.get("DynamoModel", "lora", self.space)["metadata"]["finalizers"])
        self.api.delete("DynamoModel", "lora", self.space)
        eventually(lambda: self.api.get("DynamoModel", "lora", self.space) is None, "it is gone")


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        raise SystemExit(77)
    unittest.main()
