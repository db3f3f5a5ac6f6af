# SPDX-License-Identifier: Apache-2.0
"""A control plane with Stator's operator in it, running under the rights of deploy/kubernetes/operator.yaml."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import yaml

import control_plane
from control_plane import ControlPlane, eventually
from stator_process import BINARY, Stator, clean_environment

ROOT = control_plane.ROOT

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

POOL_CRD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "inferencepools.inference.networking.k8s.io",
                         "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api-inference-extension/pull/1173"}},
            "spec": {"group": "inference.networking.k8s.io", "scope": "Namespaced",
                     "names": {"kind": "InferencePool", "listKind": "InferencePoolList", "plural": "inferencepools", "singular": "inferencepool"},
                     "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                                   "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


def operator_command(*arguments: str, data: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, "operator", *arguments], input=data, env=clean_environment(), capture_output=True,
                          text=True, timeout=120)


def install(plane: ControlPlane) -> None:
    """CRDs, accounts and roles, as the documentation says; the operator itself runs beside the cluster."""
    plane.kubectl("apply", "--server-side", "-f", "-", data=operator_command("crds").stdout)
    documents = [each for each in yaml.safe_load_all((ROOT / "deploy/kubernetes/operator.yaml").read_text())
                 if each["kind"] not in ("Deployment", "Service")]
    plane.kubectl("apply", "-f", "-", data=yaml.safe_dump_all(documents))


def start_operator(plane: ControlPlane, *arguments: str, webhooks: bool = True, port: int = 0) -> Stator:
    """`port`: where it reaches the API server, if not there itself."""
    account = plane.account_kubeconfig("stator-system", "stator-operator", port)
    hooks = ("--webhook-port", "0", "--webhook-url", "https://127.0.0.1") if webhooks else ()
    # Nobody restarts it here: a machine that is too busy must not cost it its lease.
    return Stator("operator", "--kubeconfig", str(account), "--lease-namespace", "stator-system", "--lease-seconds", "60",
                  *hooks, *arguments, announce=False)


def graph(name: str = "chat", **changes) -> dict:
    made = yaml.safe_load(GRAPH)
    made["metadata"]["name"] = name
    made["spec"].update(changes)
    return made


class ClusterTest(unittest.TestCase):
    """One control plane and one operator for all tests of a class; each test has a namespace of its own."""

    nodes, racks, cidr = 4, 2, "10.244.0.1/16"
    operator_arguments: tuple[str, ...] = ()

    @classmethod
    def setUpClass(cls):
        cls.plane = ControlPlane(cls.nodes, racks=cls.racks, cidr=cls.cidr)
        cls.addClassCleanup(cls.plane.close)
        cls.api = cls.plane.api
        install(cls.plane)
        cls.operator = start_operator(cls.plane, *cls.operator_arguments)
        cls.addClassCleanup(cls.operator.close)
        eventually(lambda: (cls.api.get("Lease", "stator-operator", "stator-system") or {}).get("spec", {})
                   .get("holderIdentity"), "the operator leads", 240)
        eventually(lambda: cls.api.get("ValidatingWebhookConfiguration", "stator-operator"), "the webhooks are known", 240)

    def setUp(self):
        self.space = self.id().split(".")[-1].replace("_", "-")[:50].strip("-")
        self.plane.make_namespace(self.space)
        self.addCleanup(self.delete_graphs)

    def delete_graphs(self) -> None:
        """What a test made goes with it: the next one needs the nodes."""
        for name in self.api.names("DynamoGraphDeployment", self.space):
            self.api.delete("DynamoGraphDeployment", name, self.space)
        eventually(lambda: not self.api.names("Deployment", self.space) and not self.api.names("PodCliqueSet", self.space),
                   "the graphs are gone", 120)
        for name in self.api.names("Pod", self.space):
            with contextlib.suppress(control_plane.ApiError):  # gone by itself
                self.api.delete("Pod", name, self.space, 0)

    def state(self, name: str = "chat") -> str:
        value = self.api.get("DynamoGraphDeployment", name, self.space) or {}
        status = value.get("status", {})
        current = status.get("observedGeneration") == value.get("metadata", {}).get("generation")
        return status.get("state", "") if current else ""

    def wait_ready(self, name: str = "chat", seconds: float = 60) -> None:
        eventually(lambda: self.state(name) == "successful", f"graph {name} is ready", seconds)
