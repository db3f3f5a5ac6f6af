#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A graph with an endpoint picker, Envoy in front, real `stator` processes in place of the simulated pods: one answer is
streamed through all of it, and goes on being while the workers are replaced."""

import http.client
import json
import unittest

import yaml

from control_plane import ApiError, eventually, free_ports, missing
from envoy_process import Envoy
from rig import POOL_CRD, ClusterTest, ROOT, Stator

GRAPH = """
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: chat}
spec:
  components:
  - name: Picker
    type: epp
    eppConfig: {config: {plugins: []}}
    podTemplate: {spec: {containers: [{name: main, image: "stator:0.1.0"}]}}
  - name: Worker
    type: worker
    replicas: 2
    podTemplate: {spec: {containers: [{name: main, image: "stator:0.1.0", args: ["one"]}]}}
"""


class Traffic(ClusterTest):
    cidr = "127.10.0.1/16"  # what the pods are told to have is where their stand-ins listen

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.api.create(POOL_CRD)
        eventually(lambda: cls.api.condition("CustomResourceDefinition", POOL_CRD["metadata"]["name"], "Established").get("status")
                   == "True", "InferencePools are served")

    def is_accepted(self) -> bool:
        try:
            return bool(self.api.create(yaml.safe_load(GRAPH), self.space))
        except ApiError as error:
            self.assertIn("which is not installed", error.message)
            return False

    def workers(self) -> dict[str, str]:
        """Addresses of the pods that are there and ready."""
        pods = self.api.list("Pod", self.space, "nvidia.com/dynamo-component-type=worker")
        return {pod["metadata"]["uid"]: pod["status"]["podIP"] for pod in pods if not pod["metadata"].get("deletionTimestamp")
                and pod["status"].get("podIP") and any(each["type"] == "Ready" and each["status"] == "True"
                                                        for each in pod["status"].get("conditions", []))}

    def end_stand_ins(self) -> None:
        """A pod that is gone took its server with it, and another one may get its address."""
        there = {pod["metadata"]["uid"] for pod in self.api.list("Pod", self.space)}
        for uid in set(self.servers) - there:
            self.servers.pop(uid).close()

    def stand_in(self, uid: str, address: str) -> None:
        server = Stator("serve", str(ROOT / "models/demo"), "--host", address, "--port", "8000")
        self.addCleanup(server.close)
        self.servers[uid] = server

    def start_envoy(self, picker_port: int) -> int:
        envoy = Envoy(self.plane.folder, "127.0.0.1", picker_port)
        self.addCleanup(envoy.close)
        return envoy.port

    def stream(self, gateway: int, content: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", gateway, timeout=60)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(
                {"model": "demo", "stream": True, "max_tokens": 16, "temperature": 0,
                 "messages": [{"role": "user", "content": content}]}), {"content-type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                return answer.status, answer.read().decode(errors="replace")
            text = ""
            for line in answer:
                if line.startswith(b"data: {"):
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            return answer.status, text
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def test_an_answer_streams_through_envoy_picker_and_graph(self):
        self.servers: dict[str, Stator] = {}
        # The operator looks every other second at what is installed.
        eventually(self.is_accepted, "graphs with a picker are accepted")
        self.wait_ready(seconds=120)
        pool = self.api.get("InferencePool", "chat-pool", self.space)
        self.assertEqual(pool["spec"]["targetPorts"], [{"number": 8000}])
        for uid, address in eventually(lambda: len(self.workers()) == 2 and self.workers(), "two workers").items():
            self.stand_in(uid, address)
        # The picker has the rights that the operator gave its account, and no others.
        account = self.plane.account_kubeconfig(self.space, "epp-serviceaccount")
        port, health = free_ports(2)
        picker = Stator("epp", "--pool-name", "chat-pool", "--pool-namespace", self.space, "--kubeconfig", str(account),
                        "--host", "127.0.0.1", "--grpc-port", str(port), "--grpc-health-port", str(health), "--secure-serving",
                        announce=False)
        self.addCleanup(picker.close)
        gateway = self.start_envoy(port)
        got = [(0, "")]

        def is_answered():
            got.append(self.stream(gateway, "What is a KV cache?"))
            return got[-1][0] == 200 and got[-1]
        status, text = eventually(is_answered, lambda: f"an answer; the last one is {got[-1]}; the picker says: {picker.log()}")
        self.assertTrue(text)
        self.assertEqual(self.stream(gateway, "What is a KV cache?"), (200, text))

        # The workers are replaced under traffic: no stream is lost, none is altered.
        self.api.edit("DynamoGraphDeployment", "chat", self.space,
                      lambda value: value["spec"]["components"][1]["podTemplate"]["spec"]["containers"][0].update(args=["two"]))
        seen: list[tuple[int, str]] = []

        def rolled():
            self.end_stand_ins()
            for uid, address in self.workers().items():
                if uid not in self.servers:
                    self.stand_in(uid, address)
            seen.append(self.stream(gateway, "What is a KV cache?"))
            graph = self.api.get("DynamoGraphDeployment", "chat", self.space)
            return (graph["status"].get("rollingUpdate") or {}).get("phase") == "Completed" and len(seen) > 20
        eventually(rolled, "the workers have rolled", 180, 0)
        # A stand-in starts when its pod is ready already: until it listens a choice of it may fail, and says so at once.
        self.assertEqual({text for status, text in seen if status == 200}, {text})
        self.assertLess(sum(status != 200 for status, _ in seen), len(seen) // 2)
        eventually(lambda: all(self.stream(gateway, "again")[0] == 200 for _ in range(3)), "the new workers serve")
        self.assertNotIn("forbidden", picker.log())


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        raise SystemExit(77)
    unittest.main()
