# SPDX-License-Identifier: Apache-2.0
"""A node of a simulated cluster whose pods are real processes: what a kubelet would do, as far as `stator` can tell.

Each container runs as a child of the test, on its pod's address (127.20.0.0/16) in place of 0.0.0.0, with the environment of its manifest
and the rights of its service account. A pod is ready when its containers' readiness probes say so, gets SIGTERM when it is deleted, and
goes when its processes have ended."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

from control_plane import ApiError, ControlPlane, _die_with_parent
from rig import BINARY, clean_environment

SIZE = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}


def now(micro: bool = False) -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S" + (".%fZ" if micro else "Z"))


class Container:
    def __init__(self, pod: dict, spec: dict, address: str, kubeconfig: str):
        self.spec, self.address = spec, address
        self.env = {each["name"]: self.value_of(pod, each) for each in spec.get("env") or []}
        words = [self.expand(word) for word in [*(spec.get("command") or []), *(spec.get("args") or [])]]
        words = [BINARY if at == 0 and word == "stator" else address if word == "0.0.0.0" else word for at, word in enumerate(words)]
        if words[1:2] == ["epp"]:  # not in a cluster, as far as it can tell; its metrics would take the port of all pods
            at = words.index("--health-port") if "--health-port" in words else len(words)
            words = [*words[:at], *words[at + 2:], "--host", address, "--kubeconfig", kubeconfig]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(words, env={**clean_environment(), **self.env, "KUBECONFIG": kubeconfig}, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, preexec_fn=_die_with_parent)

    def value_of(self, pod: dict, entry: dict) -> str:
        path = (entry.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath")
        if path:
            return {"metadata.name": pod["metadata"]["name"], "metadata.namespace": pod["metadata"]["namespace"],
                    "metadata.uid": pod["metadata"]["uid"], "status.podIP": self.address}[path]
        return entry.get("value", "")

    def expand(self, word: str) -> str:
        return re.sub(r"\$\((\w+)\)", lambda found: self.env.get(found[1], found[0]), word)

    def is_ready(self) -> bool:
        probe = self.spec.get("readinessProbe")
        if self.process.poll() is not None or not probe:
            return self.process.poll() is None
        ports = {port.get("name"): port["containerPort"] for port in self.spec.get("ports") or []}
        check = probe.get("httpGet") or {}
        if not check:
            return True  # of gRPC: the gateway will notice
        connection = http.client.HTTPConnection(self.address, ports.get(check["port"], check["port"]), timeout=2)
        try:
            connection.request("GET", check["path"])
            return connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def text(self) -> str:
        return os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")


class Pod:
    def __init__(self, value: dict, address: str, kubeconfig: str):
        self.name, self.space, self.uid = (value["metadata"][key] for key in ("name", "namespace", "uid"))
        self.address, self.told_ready, self.is_ending = address, None, False
        self.containers = [Container(value, each, address, kubeconfig) for each in value["spec"]["containers"]]
        self.gates = {each["conditionType"] for each in value["spec"].get("readinessGates") or []}

    def opened(self, value: dict) -> list[dict]:
        """Conditions of others that the pod's readiness waits for, as far as they hold."""
        return [each for each in value["status"].get("conditions") or [] if each["type"] in self.gates and each["status"] == "True"]

    def status(self, ready: bool, opened: list[dict]) -> dict:
        words = {"ContainersReady": ready, "Ready": ready and len(opened) == len(self.gates)}
        conditions = [{"type": kind, "status": "True" if words.get(kind, True) else "False", "lastTransitionTime": now()}
                      for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")] + opened
        return {"phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}], "hostIP": "127.0.0.1", "startTime": now(),
                "conditions": conditions, "containerStatuses": [
                    {"name": each.spec["name"], "image": each.spec["image"], "imageID": "", "ready": ready, "started": True, "restartCount": 0,
                     "state": {"running": {"startedAt": now()}}} for each in self.containers]}

    def signal(self, how: int) -> None:
        for each in self.containers:
            if each.process.poll() is None:
                each.process.send_signal(how)

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        for each in self.containers:
            each.process.wait()
            each.log.close()


class LiveNode:
    """Needs a ControlPlane(live=True). `ended` has what processes said that ended without being asked to."""

    def __init__(self, plane: ControlPlane, name: str = "live-0"):
        self.plane, self.api, self.name = plane, plane.api, name
        self.pods: dict[str, Pod] = {}
        self.ended: list[str] = []
        self.accounts: dict[tuple[str, str], str] = {}
        self.next_address, self.running, self.renewed = 0, True, 0.0
        self.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "stator.dev/live": "true"}}, "status": {"allocatable": SIZE, "capacity": SIZE, "conditions": [
                {"type": "Ready", "status": "True", "reason": "Live", "lastHeartbeatTime": now(), "lastTransitionTime": now()}]}})
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while self.running:
            try:
                self.renew()
                self.look()
            except (ApiError, OSError, http.client.HTTPException):
                pass  # the API server is away: what runs goes on
            time.sleep(0.1)

    def renew(self) -> None:
        if time.monotonic() - self.renewed < 8:
            return
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name, "namespace": "kube-node-lease"},
                 "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now(micro=True)}}
        self.api.apply(lease, "kube-node-lease")
        self.renewed = time.monotonic()

    def look(self) -> None:
        found = self.api.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}")["items"]
        for value in found:
            uid = value["metadata"]["uid"]
            if uid not in self.pods and not value["metadata"].get("deletionTimestamp"):
                self.pods[uid] = self.start(value)
            elif uid not in self.pods:
                self.forget(value["metadata"]["name"], value["metadata"]["namespace"])
            else:
                self.follow(self.pods[uid], value)
        for uid in set(self.pods) - {value["metadata"]["uid"] for value in found}:
            self.pods.pop(uid).close()

    def start(self, value: dict) -> Pod:
        self.next_address += 1
        address = f"127.20.{self.next_address // 250}.{self.next_address % 250 + 1}"
        key = (value["metadata"]["namespace"], value["spec"].get("serviceAccountName", "default"))
        if key not in self.accounts:
            self.accounts[key] = str(self.plane.account_kubeconfig(*key))
        return Pod(value, address, self.accounts[key])

    def follow(self, pod: Pod, value: dict) -> None:
        if value["metadata"].get("deletionTimestamp"):
            if not pod.is_ending:
                pod.is_ending = True
                pod.signal(signal.SIGTERM)
            if all(each.process.poll() is not None for each in pod.containers):
                self.forget(pod.name, pod.space)
            return
        for each in pod.containers:
            if each.process.poll() is not None and not pod.is_ending:
                self.ended.append(f"{pod.name} ended with {each.process.returncode}: {each.text()[-3000:]}")
                pod.is_ending = True
        ready = all(each.is_ready() for each in pod.containers)
        opened = pod.opened(value)
        if (ready, len(opened)) != pod.told_ready:
            self.api.patch("Pod", pod.name, {"status": pod.status(ready, opened)}, pod.space, "status")
            pod.told_ready = (ready, len(opened))

    def forget(self, name: str, space: str) -> None:
        with contextlib.suppress(ApiError):  # gone by itself
            self.api.delete("Pod", name, space, 0)

    def logs(self) -> str:
        return "\n".join(f"=== {pod.name}\n{each.text()[-4000:]}" for pod in list(self.pods.values()) for each in pod.containers)

    def close(self) -> None:
        self.running = False
        self.thread.join()
        for pod in self.pods.values():
            pod.close()
