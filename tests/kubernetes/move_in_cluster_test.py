#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A namespace goes from another operator of the same kinds to ours, as docs/kubernetes/move_from_dynamo.md says: pods stay."""

import unittest

import yaml

from control_plane import ApiError, ControlPlane, eventually, missing
from rig import graph, install, operator_command, start_operator

OLD = "0badcafe"  # the generation of the other operator's workers
OURS = "stator.dev/"


class MoveIn(unittest.TestCase):
    space = "llm"

    def setUp(self):
        self.plane = ControlPlane(2)
        self.addCleanup(self.plane.close)
        self.api = self.plane.api
        install(self.plane)
        self.plane.make_namespace(self.space)

    def pods(self) -> dict[str, str]:
        """uid → name of the pods that are there and ready."""
        return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in self.api.list("Pod", self.space)
                if not pod["metadata"].get("deletionTimestamp") and
                any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))}

    def state(self) -> str:
        value = self.api.get("DynamoGraphDeployment", "chat", self.space)
        status = value.get("status") or {}
        return status.get("state", "") if status.get("observedGeneration") == value["metadata"]["generation"] else ""

    def leave_as_another_operator(self) -> None:
        """What another operator leaves: the same names and labels, its own generation, its own idea of a pod."""
        done = operator_command("render", "-", "--namespace", self.space, data=yaml.safe_dump(graph()))
        text = done.stdout
        hashes = {each["metadata"]["labels"]["nvidia.com/dynamo-worker-hash"] for each in yaml.safe_load(text)["items"]
                  if "nvidia.com/dynamo-worker-hash" in each["metadata"].get("labels", {})}
        self.assertEqual(len(hashes), 1, done.stderr)
        children = yaml.safe_load(text.replace(hashes.pop(), OLD))["items"]
        owner = self.api.create(graph(), self.space)
        owners = {"DynamoComponentDeployment": [owner]}
        for kind in ("ServiceAccount", "Role", "RoleBinding", "DynamoComponentDeployment", "Service", "Deployment"):
            for child in (each for each in children if each["kind"] == kind):
                meta = child["metadata"]
                meta["annotations"] = {key: value for key, value in meta.get("annotations", {}).items() if not key.startswith(OURS)}
                if kind == "Deployment":
                    owner = next(each for each in owners[kind] if each["metadata"]["name"] == meta["name"])
                    main = child["spec"]["template"]["spec"]["containers"][0]
                    main["env"].append({"name": "ANOTHER", "value": "operator"})
                else:
                    owner = owners["DynamoComponentDeployment"][0]
                meta["ownerReferences"] = [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                                            "uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}]
                made = self.api.create(child, self.space)
                if kind == "DynamoComponentDeployment":
                    owners.setdefault("Deployment", []).append(made)
        self.api.patch("DynamoGraphDeployment", "chat", {
            "metadata": {"annotations": {"nvidia.com/current-worker-hash-v2": OLD}}}, self.space)
        self.api.patch("DynamoGraphDeployment", "chat", {"status": {"state": "successful", "observedGeneration": 1}}, self.space, "status")

    def test_pods_stay_until_their_component_changes(self):
        self.leave_as_another_operator()
        before = eventually(lambda: len(self.pods()) == 3 and self.pods(), "the other operator's pods run")
        operator = start_operator(self.plane)
        self.addCleanup(operator.close)
        eventually(lambda: self.api.condition("DynamoGraphDeployment", "chat", "Ready", self.space).get("status") == "True"
                   and self.state() == "successful", "the graph is ours, and ready", 120)
        self.assertEqual(self.pods(), before)
        self.assertIn("PodsKept", {each["reason"] for each in self.api.list("Event", self.space)})
        self.assertEqual(self.api.names("Deployment", self.space), ["chat-frontend", f"chat-worker-{OLD}"])

        # More workers are more of the same.
        self.api.patch("DynamoGraphDeploymentScalingAdapter", "chat-worker", {"spec": {"replicas": 3}}, self.space, "scale")
        eventually(lambda: len(self.pods()) == 4, "one worker more", 120)
        self.assertLessEqual(before.items(), self.pods().items())

        # Other workers are a generation of ours; the frontend stays.
        def is_changed() -> bool:
            value = self.api.get("DynamoGraphDeployment", "chat", self.space)
            value["spec"]["components"][1]["podTemplate"]["spec"]["containers"][0]["args"] = ["changed"]
            try:
                return bool(self.api.request("PUT", self.api.path("DynamoGraphDeployment", self.space, "chat"), value))
            except ApiError as error:
                self.assertEqual(error.status, 409)  # its status was written meanwhile
                return False
        eventually(is_changed, "other workers are asked for")
        eventually(lambda: self.state() == "successful" and f"chat-worker-{OLD}" not in self.api.names("Deployment", self.space),
                   "the workers have rolled", 240)
        frontend = {uid for uid, name in before.items() if "frontend" in name}
        eventually(lambda: len(self.pods()) == 4, "the old workers are gone", 120)
        self.assertEqual(set(before) & set(self.pods()), frontend)
        self.assertNotIn("forbidden", operator.log())


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        raise SystemExit(77)
    unittest.main()
