#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams through a graph whose pods are real processes, while its workers and frontends are replaced and its workers are scaled: none is
lost, none is altered."""

import collections
import http.client
import json
import threading
import time
import unittest

import yaml

from control_plane import ControlPlane, eventually, missing
from live_node import LiveNode
from rig import ROOT, ClusterTest, install, start_operator

GRAPH = f"""
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {{name: chat, annotations: {{stator.dev/routable-gate: "true"}}}}
spec:
  components:
  - name: Frontend
    type: frontend
    replicas: 2
    podTemplate: {{spec: {{containers: [{{name: main, image: "stator:0.1.0"}}]}}}}
  - name: Worker
    type: worker
    replicas: 2
    scalingAdapter: {{}}
    podTemplate:
      spec:
        containers:
        - name: main
          image: stator:0.1.0
          command: [stator, worker, {ROOT}/models/demo]
          args: [--engine, sim, --sim-speedup, "1", --discovery, kubernetes:$(POD_NAMESPACE), --worker-listen-host, $(POD_IP), --rpc-insecure,
                 --system-host, 0.0.0.0, --system-port, "9090"]
          env:
          - {{name: POD_IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}
          - {{name: STATOR_SYSTEM_TOKEN, value: secret}}
"""
PROMPTS = [f"Tell me about number {number}." for number in range(6)]


class Streams:
    """Clients that always have a stream open, each at a frontend that the Service has as ready."""

    def __init__(self, api, space: str):
        self.api, self.space, self.running = api, space, True
        self.endpoints: list[str] = []
        self.texts: dict[str, set[str]] = collections.defaultdict(set)
        self.lost: list[str] = []
        self.done = self.turned_away = 0
        self.threads = [threading.Thread(target=self.follow_service, daemon=True)]
        self.threads += [threading.Thread(target=self.stream_on, args=(prompt,), daemon=True) for prompt in PROMPTS]
        for each in self.threads:
            each.start()

    def follow_service(self) -> None:
        while self.running:
            # As the endpoints' controller finds them; it takes no loopback addresses.
            pods = self.api.list("Pod", self.space, "nvidia.com/dynamo-component-type=frontend")
            self.endpoints = [pod["status"]["podIP"] for pod in pods if not pod["metadata"].get("deletionTimestamp") and any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or [])]
            time.sleep(0.1)

    def stream_on(self, prompt: str) -> None:
        turn = hash(prompt)
        while self.running:
            endpoints = self.endpoints
            if not endpoints:
                time.sleep(0.05)
                continue
            turn += 1
            self.one(endpoints[turn % len(endpoints)], prompt)

    def one(self, address: str, prompt: str) -> None:
        connection = http.client.HTTPConnection(address, 8000, timeout=120)
        status, text, last = 0, "", ""
        try:
            connection.request("POST", "/v1/completions", json.dumps({"model": "demo", "prompt": prompt, "max_tokens": 120, "temperature": 0,
                                                                      "ignore_eos": True, "stream": True}), {"content-type": "application/json"})
            answer = connection.getresponse()
            status = answer.status
            for raw in answer:
                line = raw.decode().strip()
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0].get("text") or ""
                last = line or last
        except (OSError, http.client.HTTPException, KeyError, ValueError) as error:
            last = repr(error)
        finally:
            connection.close()
        if status == 200 and last == "data: [DONE]":
            self.texts[prompt].add(text)
            self.done += 1
        elif status in (0, 503) and not text:
            self.turned_away += 1  # of a frontend that goes: nothing was promised, the client asks the next one
            time.sleep(0.05)
        else:
            self.lost.append(f"{address}: {status}, after {len(text)} characters: {last[-200:]}")

    def close(self) -> None:
        self.running = False
        for each in self.threads:
            each.join()


class LiveStreams(ClusterTest):
    @classmethod
    def setUpClass(cls):
        cls.plane = ControlPlane(0, live=True)
        cls.addClassCleanup(cls.plane.close)
        cls.api = cls.plane.api
        install(cls.plane)
        cls.node = LiveNode(cls.plane)
        cls.addClassCleanup(cls.node.close)
        cls.operator = start_operator(cls.plane)
        cls.addClassCleanup(cls.operator.close)
        eventually(lambda: cls.api.get("ValidatingWebhookConfiguration", "stator-operator"), "the webhooks are known", 240)

    def change(self, index: int, value: str) -> None:
        def set_build(graph):
            main = graph["spec"]["components"][index]["podTemplate"]["spec"]["containers"][0]
            main["env"] = [each for each in main.get("env") or [] if each["name"] != "BUILD"] + [{"name": "BUILD", "value": value}]
        self.api.edit("DynamoGraphDeployment", "chat", self.space, set_build)

    def pods_with(self, component: str, build: str) -> list[str]:
        pods = self.api.list("Pod", self.space, f"nvidia.com/dynamo-component-type={component}")
        return [{each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}.get("BUILD") == build for pod in pods]

    def wait_for(self, streams: Streams, what: str, condition) -> None:
        """And for some more streams, so that each step is seen by whole ones."""
        eventually(condition, lambda: f"{what}: {self.node.ended} {self.node.logs()}", 180)
        seen = streams.done
        eventually(lambda: streams.done >= seen + 2 * len(PROMPTS) or streams.lost, lambda: f"{what}: streams go on {self.node.logs()}", 120)

    def test_no_stream_is_lost_or_altered(self):
        self.api.create(yaml.safe_load(GRAPH), self.space)
        eventually(lambda: self.state() == "successful", lambda: f"the graph is ready: {self.node.ended} {self.node.logs()}", 180)
        streams = Streams(self.api, self.space)
        self.addCleanup(streams.close)
        self.wait_for(streams, "it serves", lambda: streams.done >= len(PROMPTS))
        for pod in self.api.list("Pod", self.space, "nvidia.com/dynamo-component-type=worker"):  # ready since a frontend knows them
            self.assertEqual(pod["spec"]["readinessGates"], [{"conditionType": "stator.dev/routable"}])
            self.assertIn(("stator.dev/routable", "True"), [(each["type"], each["status"]) for each in pod["status"]["conditions"]])
        self.change(1, "two")
        self.wait_for(streams, "the workers have rolled", lambda: self.state() == "successful" and self.pods_with("worker", "two") == [True, True])
        self.change(0, "two")
        self.wait_for(streams, "the frontends have rolled", lambda: self.state() == "successful" and self.pods_with("frontend", "two") == [True, True])
        for replicas in (3, 1):
            self.api.patch("DynamoGraphDeploymentScalingAdapter", "chat-worker", {"spec": {"replicas": replicas}}, self.space, "scale")
            self.wait_for(streams, f"{replicas} workers", lambda: self.state() == "successful" and len(self.pods_with("worker", "two")) == replicas)
        streams.close()
        print(f"{streams.done} streams, {len(streams.lost)} lost, {sum(len(texts) - 1 for texts in streams.texts.values())} altered, "
              f"{streams.turned_away} turned away before they began", flush=True)
        self.assertEqual(streams.lost, [])
        self.assertEqual({prompt: len(texts) for prompt, texts in streams.texts.items()}, dict.fromkeys(PROMPTS, 1))
        self.assertEqual(self.node.ended, [])


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        raise SystemExit(77)
    unittest.main()
