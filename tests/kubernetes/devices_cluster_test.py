#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Snapshots, shared GPUs, shared claims and other schedulers' gangs on a real control plane, under the rights that we ship."""

import unittest

import yaml

from compatibility import add_devices
from control_plane import ApiError, PLURALS, eventually, missing
from rig import ClusterTest, graph

PLURALS.update({"PodSnapshot": "/apis/nvidia.com/v1alpha1:podsnapshots", "KaiGroup": "/apis/scheduling.run.ai/v2alpha2:podgroups",
                "KaiTopology": "/apis/kai.scheduler/v1alpha1:topologies:cluster"})


def crd(group: str, version: str, plural: str, kind: str, scope: str = "Namespaced") -> dict:
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"}, "spec": {
        "group": group, "scope": scope, "names": {"kind": kind, "listKind": kind + "List", "plural": plural, "singular": kind.lower()},
        "versions": [{"name": version, "served": True, "storage": True, "subresources": {"status": {}},
                      "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


SHARING = """
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: s}
spec:
  replicas: 1
  template:
    resourceClaimTemplates:
    - name: gpu
      templateSpec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}]}}}
    cliques:
    - {name: a, spec: {roleName: a, replicas: 2, podSpec: &pod {terminationGracePeriodSeconds: 1, containers: [{name: m, image: i}]}}}
    - {name: b, spec: {roleName: b, replicas: 1, podSpec: *pod}}
    podCliqueScalingGroups:
    - {name: g, cliqueNames: [a, b], resourceSharing: [{name: gpu, scope: PerReplica}]}
"""


class Devices(ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        add_devices(cls.plane)
        cls.api.create(crd("nvidia.com", "v1alpha1", "podsnapshots", "PodSnapshot"))

    def setUp(self):
        super().setUp()
        self.addCleanup(lambda: [self.api.delete("PodCliqueSet", name, self.space) for name in self.api.names("PodCliqueSet", self.space)])

    def worker(self, experimental: dict, **annotations: str) -> dict:
        made = graph()
        made["metadata"]["annotations"] = {f"nvidia.com/{key.replace('_', '-')}": value for key, value in annotations.items()}
        component = made["spec"]["components"][1]
        component.pop("scalingAdapter")
        component["experimental"] = experimental
        component["podTemplate"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        return made

    def pods(self, labels: str = "") -> list[dict]:
        return [pod for pod in self.api.list("Pod", self.space, labels) if not pod["metadata"].get("deletionTimestamp")]

    def test_pods_wait_for_a_snapshot_and_are_restored_from_it(self):
        self.api.create(self.worker({"checkpoint": {"startupPolicy": "WaitForCheckpoint"}}), self.space)
        eventually(lambda: self.state() == "waiting_for_checkpoint", "the graph waits", 120)
        snapshot = eventually(lambda: (self.api.list("PodSnapshot", self.space) or [None])[0], "a pod is to be captured", 120)
        name = snapshot["metadata"]["name"]
        captured = self.api.get("Pod", snapshot["spec"]["source"]["podRef"]["name"], self.space)
        self.assertEqual(captured["metadata"]["uid"], snapshot["spec"]["source"]["podRef"]["uid"])
        # What the agent on the node would say.
        self.api.patch("PodSnapshot", name, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, self.space, "status")
        self.wait_ready(seconds=180)
        checkpoint = self.api.get("DynamoCheckpoint", name, self.space)["status"]
        self.assertEqual((checkpoint["phase"], checkpoint["podSnapshotName"]), ("Ready", name))
        workers = self.pods("nvidia.com/dynamo-component-type=worker")
        self.assertEqual(len(workers), 2)
        for pod in workers:
            self.assertEqual(pod["metadata"]["labels"]["nvidia.com/snapshot-checkpoint-id"], checkpoint["checkpointID"])
        eventually(lambda: not self.api.names("Job", self.space), "the job is gone")
        self.assertNotIn("forbidden", self.operator.log())

    def test_a_server_and_two_engines_share_a_pods_gpus(self):
        self.api.create(self.worker({"gpuMemoryService": {}, "failover": {}}, dynamo_kube_discovery_mode="container"), self.space)
        self.wait_ready(seconds=180)
        pod = self.pods("nvidia.com/dynamo-component-type=worker")[0]
        self.assertEqual([each["name"] for each in pod["spec"]["containers"]], ["engine-0", "engine-1"])
        claim = self.api.get("ResourceClaim", pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"], self.space)
        self.assertEqual(len(claim["status"]["allocation"]["devices"]["results"]), 1)

    def test_a_group_of_engines_in_pods_of_their_own_ends_as_one(self):
        mode = {"mode": "InterPod"}
        self.api.create(self.worker({"gpuMemoryService": mode, "failover": mode}), self.space)
        self.wait_ready(seconds=180)
        engines = {pod["metadata"]["name"]: pod for pod in self.pods() if "-gms-" not in pod["metadata"]["name"] and "worker" in pod["metadata"]["name"]}
        self.assertEqual(len(engines), 4)  # two replicas with a shadow each
        self.assertEqual(len([pod for pod in self.pods() if "-gms-0" in pod["metadata"]["name"]]), 2)
        gone = next(iter(engines))
        self.api.patch("Pod", gone, {"status": {"phase": "Failed"}}, self.space, "status")
        eventually(lambda: gone not in {pod["metadata"]["name"] for pod in self.pods()}, "the failed one is replaced", 120)
        self.wait_ready(seconds=120)

    def test_pods_of_a_group_share_a_claim(self):
        self.api.create(yaml.safe_load(SHARING), self.space)
        eventually(lambda: (self.api.get("PodCliqueSet", "s", self.space).get("status") or {}).get("availableReplicas") == 1, "the set is available", 180)
        self.assertEqual(self.api.names("ResourceClaim", self.space), ["s-0-g-0-gpu"])
        claim = self.api.get("ResourceClaim", "s-0-g-0-gpu", self.space)
        self.assertEqual(len(claim["status"]["reservedFor"]), 3)


class OtherSchedulers(ClusterTest):
    """KAI is installed as far as its kinds go: what we tell it, and that pods are let go without a node of our choice."""

    def test_kai_is_told_of_gangs(self):
        for definition in (crd("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup"),
                           crd("kai.scheduler", "v1alpha1", "topologies", "Topology", "Cluster")):
            self.api.create(definition)
        self.api.apply({"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopologyBinding", "metadata": {"name": "t"},
                        "spec": {"levels": [{"domain": "rack", "key": "rack"}]}})
        self.addCleanup(lambda: self.api.delete("PodCliqueSet", "s", self.space))
        made = yaml.safe_load(SHARING)
        pods = made["spec"]["template"]
        pods["topologyConstraint"] = {"topologyName": "t", "pack": {"required": "rack"}}
        pods["podCliqueScalingGroups"][0].pop("resourceSharing")
        made["metadata"]["labels"] = {"kai.scheduler/queue": "q"}
        for each in pods["cliques"]:
            each["spec"]["podSpec"]["schedulerName"] = "kai-scheduler"

        def group():
            # The operator looks every other second at what is installed: a set that came before is told of the change by the next one.
            try:
                self.api.create(made, self.space)
            except ApiError as error:
                self.assertEqual(error.status, 409)
            value = self.api.get("KaiGroup", "s-0", self.space)
            if value is None:
                self.api.patch("PodCliqueSet", "s", {"metadata": {"annotations": {"again": str(len(self.api.list("Event", self.space)))}}}, self.space)
            return value
        told = eventually(group, "a PodGroup", 120, 1)
        self.assertEqual((told["spec"]["minMember"], told["spec"]["queue"]), (3, "q"))
        self.assertEqual(told["spec"]["topologyConstraint"], {"topology": "t", "requiredTopologyLevel": "rack"})
        self.assertEqual(self.api.get("KaiTopology", "t")["spec"]["levels"], [{"nodeLabel": "rack"}])
        eventually(lambda: len(self.api.list("Pod", self.space)) == 3 and not any(
            pod["spec"].get("schedulingGates") for pod in self.api.list("Pod", self.space)), "the pods are let go", 120)
        self.assertNotIn("forbidden", self.operator.log())


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        raise SystemExit(77)
    unittest.main()
