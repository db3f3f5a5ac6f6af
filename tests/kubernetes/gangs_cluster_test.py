#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gangs on a real scheduler: all or nothing, in order, together, ended and replaced as a whole."""

import unittest

import yaml

from control_plane import ApiError, eventually, missing
from rig import ClusterTest

SET = """
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: s}
spec:
  replicas: 1
  template:
    terminationDelay: 3s
    cliqueStartupType: CliqueStartupTypeExplicit
    topologyConstraint: {topologyName: t, pack: {required: rack}}
    cliques:
    - name: ldr
      spec:
        roleName: leader
        replicas: 1
        podSpec: &pod
          terminationGracePeriodSeconds: 1
          schedulerName: kai-scheduler
          containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: "8"}}}]
    - name: wkr
      spec: {roleName: worker, replicas: 2, startsAfter: [ldr], podSpec: *pod}
    podCliqueScalingGroups:
    - {name: g, cliqueNames: [ldr, wkr], replicas: 1, minAvailable: 1}
"""


class Gangs(ClusterTest):
    nodes, racks = 6, 2  # a rack has room for one gang of three pods with a node each

    def setUp(self):
        super().setUp()
        self.api.apply({"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopologyBinding", "metadata": {"name": "t"},
                        "spec": {"levels": [{"domain": "rack", "key": "rack"}, {"domain": "host", "key": "kubernetes.io/hostname"}]}})
        self.addCleanup(lambda: [self.api.delete("PodCliqueSet", name, self.space) for name in self.api.names("PodCliqueSet", self.space)])

    def pods(self):
        return [pod for pod in self.api.list("Pod", self.space) if not pod["metadata"].get("deletionTimestamp")]

    def ready(self):
        return [pod for pod in self.pods() if any(each["type"] == "Ready" and each["status"] == "True"
                                                  for each in pod["status"].get("conditions", []))]

    def rack(self, pod):
        return self.api.get("Node", pod["spec"]["nodeName"])["metadata"]["labels"]["rack"]

    def test_gangs_live_as_wholes(self):
        self.api.create(yaml.safe_load(SET), self.space)
        eventually(lambda: len(self.ready()) == 3, "the first gang runs", 120)
        self.assertEqual(len({self.rack(pod) for pod in self.ready()}), 1)

        def time_of(pod):
            return next(each["lastTransitionTime"] for each in pod["status"]["conditions"] if each["type"] == "PodScheduled"
                        and each["status"] == "True")
        leader = next(pod for pod in self.ready() if "ldr" in pod["metadata"]["name"])
        leader_ready = next(each["lastTransitionTime"] for each in leader["status"]["conditions"] if each["type"] == "Ready")
        for pod in self.ready():
            if pod is not leader and "wkr" in pod["metadata"]["name"]:
                self.assertGreaterEqual(time_of(pod), leader_ready)
        value = self.api.get("PodCliqueSet", "s", self.space)
        self.assertEqual(value["status"]["availableReplicas"], 1)

        # Two more replicas of the group: the other rack takes one of them, the third finds no room and none of it runs.
        self.api.patch("PodCliqueScalingGroup", "s-0-g", {"spec": {"replicas": 3}}, self.space, "scale")
        eventually(lambda: len(self.ready()) == 6 and len(self.pods()) == 9, "a second gang runs", 120)
        for name in self.api.names("PodGang", self.space):
            mine = [pod for pod in self.pods() if pod["metadata"]["labels"]["grove.io/podgang"] == name]
            bound = [pod for pod in mine if pod["spec"].get("nodeName")]
            self.assertIn(len(bound), (0, 3), name)
        self.api.patch("PodCliqueScalingGroup", "s-0-g", {"spec": {"replicas": 2}}, self.space, "scale")
        eventually(lambda: len(self.pods()) == 6, "the third gang is gone")

        # A pod that is deleted comes back where its gang is.
        gone = self.ready()[0]
        rack = self.rack(gone)
        self.api.delete("Pod", gone["metadata"]["name"], self.space, 0)
        eventually(lambda: len(self.ready()) == 6 and gone["metadata"]["uid"] not in
                   {pod["metadata"]["uid"] for pod in self.pods()}, "it was replaced", 120)
        again = next(pod for pod in self.ready() if pod["spec"]["hostname"] == gone["spec"]["hostname"]
                     and pod["metadata"]["labels"]["grove.io/podgang"] == gone["metadata"]["labels"]["grove.io/podgang"])
        self.assertEqual(self.rack(again), rack)

        # A new template replaces one replica of the group after the other.
        def renew(value):
            for clique in value["spec"]["template"]["cliques"]:
                clique["spec"]["podSpec"]["containers"][0]["image"] = "newer"
        self.api.edit("PodCliqueSet", "s", self.space, renew)
        least = [6]

        def is_new():
            least.append(len(self.ready()))
            return len(self.ready()) == 6 and all(pod["spec"]["containers"][0]["image"] == "newer" for pod in self.ready())
        eventually(is_new, "all pods are new", 180)
        self.assertGreaterEqual(min(least), 3)

    def test_broken_sets_are_refused_by_field(self):
        for change, expected in (
                (lambda s: s["spec"]["template"]["cliques"][1]["spec"].update(startsAfter=["nobody"]),
                 "spec.template.cliques[1].spec.startsAfter[0]: Invalid value"),
                (lambda s: s["spec"]["template"]["podCliqueScalingGroups"][0].update(minAvailable=4),
                 "must not be more than replicas, 1"),
                (lambda s: s["spec"]["template"]["cliques"][0]["spec"]["podSpec"].update(nodeName="n"),
                 "spec.template.cliques[0].spec.podSpec.nodeName: Forbidden")):
            made = yaml.safe_load(SET)
            change(made)
            with self.assertRaises(ApiError) as refused:
                self.api.create(made, self.space)
            self.assertIn(expected, refused.exception.message)

    def test_a_graph_of_several_nodes_runs_as_gangs(self):
        self.api.create({
            "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "big"},
            "spec": {"backendFramework": "sglang", "components": [
                {"name": "Frontend", "type": "frontend", "podTemplate": {"spec": {"containers": [{"name": "main", "image": "r/sglang-runtime:1.0.0"}]}}},
                {"name": "Worker", "type": "worker", "multinode": {"nodeCount": 2}, "podTemplate": {"spec": {"containers": [
                    {"name": "main", "image": "r/sglang-runtime:1.0.0", "command": ["python3", "-m", "dynamo.sglang"],
                     "args": ["--tp", "16"], "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}}]}}, self.space)
        self.wait_ready("big", 120)
        self.assertEqual(self.api.names("PodCliqueSet", self.space), ["big"])
        self.assertEqual(len(self.ready()), 3)
        self.api.delete("DynamoGraphDeployment", "big", self.space)
        eventually(lambda: not self.api.names("Pod", self.space), "all of it is gone", 120)


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        raise SystemExit(77)
    unittest.main()
