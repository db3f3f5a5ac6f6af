#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operator on a real control plane: graphs from creation to deletion, webhooks, conversion, who leads."""

import time
import unittest

import yaml

from control_plane import ApiError, eventually, missing, secret_text
from rig import ClusterTest, graph, start_operator


class Graphs(ClusterTest):
    def pods(self, labels="nvidia.com/dynamo-graph-deployment-name=chat"):
        return [pod for pod in self.api.list("Pod", self.space, labels) if not pod["metadata"].get("deletionTimestamp")]

    def test_a_graph_lives_scales_rolls_restarts_and_goes(self):
        self.api.create(graph(), self.space)
        self.wait_ready()
        self.assertEqual(len(self.pods()), 3)
        ready = self.api.condition("DynamoGraphDeployment", "chat", "Ready", self.space)
        self.assertEqual((ready["status"], ready["reason"]), ("True", "AllResourcesAreReady"))
        reasons = {each["reason"] for each in self.api.list("Event", self.space)
                   if each["regarding"]["kind"] == "DynamoGraphDeployment"}
        self.assertIn("Ready", reasons)

        # An autoscaler would write the scale subresource; the workers follow.
        self.api.patch("DynamoGraphDeploymentScalingAdapter", "chat-worker", {"spec": {"replicas": 3}}, self.space, "scale")
        eventually(lambda: len(self.pods()) == 4, "three workers")
        self.wait_ready()
        # Whoever scales past the adapter is told so.
        with self.assertRaises(ApiError) as refused:
            self.api.edit("DynamoGraphDeployment", "chat", self.space, lambda value: value["spec"]["components"][1].update(replicas=7))
        self.assertIn("spec.components[1].replicas", refused.exception.message)

        # A change by hand is undone.
        self.api.patch("Deployment", "chat-frontend", {"spec": {"replicas": 5}}, self.space)
        eventually(lambda: self.api.get("Deployment", "chat-frontend", self.space)["spec"]["replicas"] == 1, "drift is repaired")

        # New workers are another generation; the frontend stays.
        eventually(lambda: len(self.pods()) == 4, "the extra frontends are gone")
        frontend = next(pod["metadata"]["uid"] for pod in self.pods() if "frontend" in pod["metadata"]["name"])
        old = self.api.names("DynamoComponentDeployment", self.space)
        self.api.edit("DynamoGraphDeployment", "chat", self.space,
                      lambda value: value["spec"]["components"][1]["podTemplate"]["spec"]["containers"][0].update(args=["changed"]))
        eventually(lambda: self.api.names("DynamoComponentDeployment", self.space) not in (old, [])
                   and len(self.api.names("DynamoComponentDeployment", self.space)) == 2 and self.state() == "successful",
                   "the workers have rolled", 120)
        update = self.api.get("DynamoGraphDeployment", "chat", self.space)["status"]["rollingUpdate"]
        self.assertEqual(update["phase"], "Completed")
        self.assertIn(frontend, {pod["metadata"]["uid"] for pod in self.pods()})

        # A restart replaces every pod.
        before = {pod["metadata"]["uid"] for pod in self.pods()}
        self.api.patch("DynamoGraphDeployment", "chat", {"spec": {"restart": {"id": "one"}}}, self.space)
        eventually(lambda: self.api.get("DynamoGraphDeployment", "chat", self.space)["status"].get("restart", {}).get("phase")
                   == "Completed", "the restart is over", 120)
        eventually(lambda: len(self.pods()) == 4 and not before & {pod["metadata"]["uid"] for pod in self.pods()},
                   "every pod is new")

        self.api.delete("DynamoGraphDeployment", "chat", self.space)
        for kind in ("DynamoGraphDeployment", "DynamoComponentDeployment", "Deployment", "Pod", "Role",
                     "DynamoGraphDeploymentScalingAdapter"):
            eventually(lambda kind=kind: not self.api.names(kind, self.space), f"no {kind} is left")
        self.assertNotIn("forbidden", self.operator.log())

    def test_one_error_names_the_field_and_what_is_allowed(self):
        cases = [
            (lambda g: g["spec"]["components"][0].update(type="epp"), "spec.components[0].eppConfig: Required value"),
            (lambda g: g["spec"]["components"][1].update(minAvailable=1), "spec.components[1].minAvailable: Forbidden"),
            (lambda g: g["spec"]["components"][1]["podTemplate"]["spec"]["containers"][0].pop("image"),
             "spec.components[1].podTemplate.spec.containers[0].image: Required value"),
            (lambda g: g["spec"].update(restart={"id": "x"}), "spec.restart: Forbidden: must be unset at creation"),
            (lambda g: g["spec"]["components"][1].update(sharedMemorySize="much"), "spec.components[1].sharedMemorySize: Invalid value"),
        ]
        for change, expected in cases:
            made = graph()
            change(made)
            with self.assertRaises(ApiError) as refused:
                self.api.create(made, self.space)
            self.assertEqual(refused.exception.status, 422)
            self.assertIn(expected, refused.exception.message)
        with self.assertRaises(ApiError) as refused:
            self.api.create({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoModel", "metadata": {"name": "m"},
                             "spec": {"modelName": "m", "baseModelName": "b", "modelType": "lora"}}, self.space)
        self.assertIn("spec.source.uri: Required value", refused.exception.message)
        self.assertEqual(self.api.names("DynamoGraphDeployment", self.space), [])

    def test_both_versions_are_one_object_and_unknown_fields_stay(self):
        made = yaml.safe_load("""
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: old, annotations: {mine: kept}}
spec:
  pvcs: [{name: cache, create: false}]
  envs: [{name: A, value: b}]
  services:
    Frontend: {componentType: frontend, replicas: 1, extraPodSpec: {mainContainer: {image: "r/vllm-runtime:1.0.0"}}}
    Decode:
      componentType: worker
      subComponentType: decode
      dynamoNamespace: old
      replicas: 1
      resources: {limits: {gpu: "1"}}
      futureField: {nested: [1, 2.50]}
      extraPodSpec: {futurePodField: x, mainContainer: {image: "r/vllm-runtime:1.0.0", args: ["a"]}}
""")
        self.api.create(made, self.space)
        self.wait_ready("old")
        # A field that this API server's pods do not have costs that field, not the deployment, and is told.
        notes = [each["note"] for each in self.api.list("Event", self.space) if each["reason"] == "FieldIgnored"]
        self.assertTrue(any("futurePodField" in note for note in notes), notes)
        back = self.api.get("DynamoGraphDeployment", "old", self.space, "v1alpha1")
        self.assertEqual(back["metadata"]["annotations"]["mine"], "kept")
        decode = back["spec"]["services"]["Decode"]
        for key, value in made["spec"]["services"]["Decode"].items():
            self.assertEqual(decode[key], value, key)
        self.assertEqual(back["spec"]["pvcs"], made["spec"]["pvcs"])
        beta = self.api.get("DynamoGraphDeployment", "old", self.space)
        self.assertEqual({each["name"]: each["type"] for each in beta["spec"]["components"]},
                         {"Decode": "decode", "Frontend": "frontend"})
        # A change in one version, and what only the other one knows is still there.
        self.api.edit("DynamoGraphDeployment", "old", self.space, lambda value: value["spec"]["components"][0].update(replicas=2))
        again = self.api.get("DynamoGraphDeployment", "old", self.space, "v1alpha1")["spec"]["services"]["Decode"]
        self.assertEqual((again["replicas"], again["futureField"], again["dynamoNamespace"]), (2, {"nested": [1, 2.5]}, "old"))

    def test_defaults_are_stored(self):
        made = graph()
        del made["spec"]["components"][1]["replicas"]
        self.api.create(made, self.space)
        stored = self.api.get("DynamoGraphDeployment", "chat", self.space)
        self.assertEqual([each["replicas"] for each in stored["spec"]["components"]], [1, 1])
        self.assertEqual(stored["metadata"]["annotations"]["nvidia.com/workload-provider"], "component")


class Leaders(ClusterTest):
    def test_a_lost_certificate_is_made_anew_and_believed(self):
        secret = self.api.get("Secret", "stator-webhook-certificate", "stator-system")
        old = secret_text(secret, "tls.crt")
        self.assertIn("BEGIN CERTIFICATE", old)
        self.api.delete("Secret", "stator-webhook-certificate", "stator-system")
        # The next operator makes another one; the API server believes it once it is told of the new authority.
        other = start_operator(self.plane)
        self.addCleanup(other.close)
        eventually(lambda: self.api.get("Secret", "stator-webhook-certificate", "stator-system"), "a new certificate")
        self.assertNotEqual(secret_text(self.api.get("Secret", "stator-webhook-certificate", "stator-system"), "tls.crt"), old)

        def is_refused():
            try:
                self.api.create(graph(priorityClassName="high"), self.space)
            except ApiError as error:
                return "only valid on the Grove path" in error.message
            return False
        eventually(is_refused, "a broken graph is refused by name")
        self.assertNotIn("PRIVATE KEY", other.log() + self.operator.log())

    def test_one_of_two_works_and_the_other_takes_over(self):
        second = start_operator(self.plane, webhooks=False)
        self.addCleanup(second.close)
        self.addCleanup(self.delete_graphs)  # while it is there: it takes the finalizers away
        holder = self.api.get("Lease", "stator-operator", "stator-system")["spec"]["holderIdentity"]
        time.sleep(1)
        self.assertNotIn("leading", second.log())
        self.operator.terminate()
        self.assertEqual(self.operator.wait(), 0)
        eventually(lambda: self.api.get("Lease", "stator-operator", "stator-system")["spec"]["holderIdentity"]
                   not in (holder, ""), "the second one leads")
        for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
            self.api.delete(kind, "stator-operator")  # nobody serves them any more
        self.api.create(graph(), self.space)
        self.wait_ready()
        lease = self.api.get("Lease", "stator-operator", "stator-system")
        self.assertGreaterEqual(lease["spec"]["leaseTransitions"], 1)


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        raise SystemExit(77)
    unittest.main()
