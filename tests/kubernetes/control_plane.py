# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane on loopback, made of the binaries of scripts/build_kubernetes.sh and Debian's etcd."""

from __future__ import annotations

import base64
import collections
import ctypes
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
TOKEN = "admin-of-the-test"


def binaries() -> pathlib.Path:
    return pathlib.Path(os.environ.get("STATOR_KUBERNETES", ROOT / "build" / "kubernetes"))


def missing() -> str:
    """Why there is no control plane here; empty if there is one."""
    absent = [part for part in PARTS if not (binaries() / part).exists()]
    if absent:
        return f"{binaries()} has no {', '.join(absent)}: scripts/build_kubernetes.sh {binaries()}"
    return "" if shutil.which("etcd") else "etcd is not installed: scripts/setup.sh test"


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def eventually(condition, what: str | Callable[[], str], seconds: float = 60, pause: float = 0.1):
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what() if callable(what) else what}")
        time.sleep(pause)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # a test that is killed leaves no servers


class ApiError(Exception):
    def __init__(self, status: int, body: dict):
        super().__init__(f"HTTP {status}: {body.get('message')}")
        self.status, self.message = status, body.get("message", "")


PLURALS = {
    "Pod": "/api/v1:pods", "Node": "/api/v1:nodes:cluster", "Service": "/api/v1:services", "Secret": "/api/v1:secrets",
    "Namespace": "/api/v1:namespaces:cluster", "ConfigMap": "/api/v1:configmaps", "ServiceAccount": "/api/v1:serviceaccounts",
    "PersistentVolume": "/api/v1:persistentvolumes:cluster", "PersistentVolumeClaim": "/api/v1:persistentvolumeclaims",
    "RuntimeClass": "/apis/node.k8s.io/v1:runtimeclasses:cluster", "Deployment": "/apis/apps/v1:deployments",
    "ReplicaSet": "/apis/apps/v1:replicasets", "StatefulSet": "/apis/apps/v1:statefulsets", "Job": "/apis/batch/v1:jobs",
    "Event": "/apis/events.k8s.io/v1:events", "Lease": "/apis/coordination.k8s.io/v1:leases",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2:horizontalpodautoscalers",
    "EndpointSlice": "/apis/discovery.k8s.io/v1:endpointslices",
    "Role": "/apis/rbac.authorization.k8s.io/v1:roles", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1:rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1:clusterroles:cluster",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1:clusterrolebindings:cluster",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1:customresourcedefinitions:cluster",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1:validatingwebhookconfigurations:cluster",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1:mutatingwebhookconfigurations:cluster",
    "NetworkPolicy": "/apis/networking.k8s.io/v1:networkpolicies", "Ingress": "/apis/networking.k8s.io/v1:ingresses",
    "PodDisruptionBudget": "/apis/policy/v1:poddisruptionbudgets",
    "DynamoGraphDeployment": "/apis/nvidia.com/v1beta1:dynamographdeployments",
    "DynamoComponentDeployment": "/apis/nvidia.com/v1beta1:dynamocomponentdeployments",
    "DynamoGraphDeploymentRequest": "/apis/nvidia.com/v1beta1:dynamographdeploymentrequests",
    "DynamoGraphDeploymentScalingAdapter": "/apis/nvidia.com/v1beta1:dynamographdeploymentscalingadapters",
    "DynamoModel": "/apis/nvidia.com/v1alpha1:dynamomodels",
    "DynamoWorkerMetadata": "/apis/nvidia.com/v1alpha1:dynamoworkermetadatas",
    "DynamoCheckpoint": "/apis/nvidia.com/v1alpha1:dynamocheckpoints",
    "PodCliqueSet": "/apis/grove.io/v1alpha1:podcliquesets", "PodClique": "/apis/grove.io/v1alpha1:podcliques",
    "PodCliqueScalingGroup": "/apis/grove.io/v1alpha1:podcliquescalinggroups",
    "ClusterTopologyBinding": "/apis/grove.io/v1alpha1:clustertopologybindings:cluster",
    "DeviceClass": "/apis/resource.k8s.io/v1:deviceclasses:cluster", "ResourceSlice": "/apis/resource.k8s.io/v1:resourceslices:cluster",
    "ResourceClaim": "/apis/resource.k8s.io/v1:resourceclaims",
    "PodGang": "/apis/scheduler.grove.io/v1alpha1:podgangs",
    "InferencePool": "/apis/inference.networking.k8s.io/v1:inferencepools",
    "InferenceObjective": "/apis/inference.networking.x-k8s.io/v1alpha2:inferenceobjectives",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1:leaderworkersets",
}


class Api:
    """The admin's view: objects as dictionaries."""

    def __init__(self, port: int, token: str = TOKEN):
        self.port, self.token = port, token
        self.context = ssl._create_unverified_context()

    def request(self, method: str, path: str, body=None, content: str = "application/json"):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=60)
        try:
            data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, {"Authorization": f"Bearer {self.token}", "Content-Type": content})
            response = connection.getresponse()
            text = response.read()
            is_json = "json" in (response.getheader("content-type") or "")
        finally:
            connection.close()
        value = json.loads(text) if is_json else {"message": text.decode(errors="replace")}
        if response.status >= 300:
            raise ApiError(response.status, value)
        return value

    @staticmethod
    def path(kind: str, space: str = "default", name: str = "", version: str = "") -> str:
        base, plural, *cluster = PLURALS[kind].split(":")
        if version:
            base = base[:base.rindex("/") + 1] + version
        middle = f"/namespaces/{space}" if space and not cluster else ""
        return f"{base}{middle}/{plural}" + (f"/{urllib.parse.quote(name)}" if name else "")

    def get(self, kind: str, name: str, space: str = "default", version: str = ""):
        try:
            return self.request("GET", self.path(kind, space, name, version))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, space: str = "default", labels: str = "") -> list[dict]:
        query = f"?labelSelector={urllib.parse.quote(labels)}" if labels else ""
        return self.request("GET", self.path(kind, space) + query)["items"]

    def names(self, kind: str, space: str = "default", labels: str = "") -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.list(kind, space, labels))

    def create(self, value: dict, space: str = "default"):
        version = value["apiVersion"].rsplit("/", 1)[-1]
        space = value["metadata"].get("namespace", space)
        return self.request("POST", self.path(value["kind"], space, version=version), value)

    def apply(self, value: dict, space: str = "default"):
        version = value["apiVersion"].rsplit("/", 1)[-1]
        space = value["metadata"].get("namespace", space)
        path = self.path(value["kind"], space, value["metadata"]["name"], version)
        return self.request("PATCH", path + "?fieldManager=test&force=true", value, "application/apply-patch+yaml")

    def patch(self, kind: str, name: str, patch: dict, space: str = "default", sub: str = ""):
        return self.request("PATCH", self.path(kind, space, name) + (f"/{sub}" if sub else ""), patch,
                            "application/merge-patch+json")

    def edit(self, kind: str, name: str, space: str, change) -> dict:
        """Reads, changes and writes; again, where a status was written meanwhile."""
        while True:
            value = self.get(kind, name, space)
            change(value)
            try:
                return self.request("PUT", self.path(kind, space, name), value)
            except ApiError as error:
                if error.status != 409:
                    raise

    def delete(self, kind: str, name: str, space: str = "default", grace: int | None = None):
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        return self.request("DELETE", self.path(kind, space, name) + query)

    def condition(self, kind: str, name: str, which: str, space: str = "default") -> dict:
        value = self.get(kind, name, space) or {}
        return next((each for each in (value.get("status") or {}).get("conditions") or [] if each["type"] == which), {})


class ControlPlane:
    def __init__(self, nodes: int = 4, gpus: int = 8, racks: int = 0, folder: str = "", cidr: str = "10.244.0.1/16",
                 audits: bool = False, live: bool = False):
        self.cidr = cidr  # of the pods' addresses
        self.live = live  # nodes labelled so are left to a LiveNode
        self.audits = audits  # each write of a service account becomes a line of audit.log
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="stator-kubernetes-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self.etcd_port, self.peer_port = free_ports(3)
        self.processes: dict[str, subprocess.Popen] = {}
        self.logs: list = []
        self.api = Api(self.port)
        try:
            self.start()
            for index in range(nodes):
                self.add_node(f"node-{index}", gpus, {"rack": f"r{index * racks // nodes}"} if racks else {})
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------------------- processes

    def spawn(self, name: str, *arguments: str) -> None:
        log = open(self.folder / f"{name}.log", "ab")
        self.logs.append(log)
        self.processes[name] = subprocess.Popen(arguments, cwd=self.folder, stdout=log, stderr=log,
                                                stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)

    def start(self) -> None:
        pki = self.folder / "pki"
        pki.mkdir(exist_ok=True)
        if not (pki / "sa.key").exists():
            subprocess.run(["openssl", "genrsa", "-out", pki / "sa.key", "2048"], check=True, capture_output=True)
            subprocess.run(["openssl", "rsa", "-in", pki / "sa.key", "-pubout", "-out", pki / "sa.pub"], check=True,
                           capture_output=True)
        (pki / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')
        self.write_kubeconfig("kubeconfig", TOKEN)
        client = f"http://127.0.0.1:{self.etcd_port}"
        self.spawn("etcd", "etcd", "--data-dir", "etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
                   "--listen-peer-urls", f"http://127.0.0.1:{self.peer_port}", "--unsafe-no-fsync")
        self.start_api_server()
        binary = binaries()
        self.spawn("controller-manager", str(binary / "kube-controller-manager"), "--kubeconfig=kubeconfig",
                   "--service-account-private-key-file=pki/sa.key", "--use-service-account-credentials=false",
                   "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000")
        scheduler = self.folder / "scheduler.yaml"
        scheduler.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
                             "clientConnection: {kubeconfig: kubeconfig, qps: 500, burst: 1000}\n"
                             "leaderElection: {leaderElect: false}\n")
        self.spawn("scheduler", str(binary / "kube-scheduler"), "--config=scheduler.yaml", "--secure-port=0")
        whose = ("--manage-all-nodes=false", "--manage-nodes-with-label-selector=!stator.dev/live") if self.live else ("--manage-all-nodes=true",)
        self.spawn("kwok", str(binary / "kwok"), "--kubeconfig=kubeconfig", *whose, f"--cidr={self.cidr}", "--node-lease-duration-seconds=40")

    def audit_arguments(self) -> list[str]:
        if not self.audits:
            return []
        (self.folder / "audit.yaml").write_text(json.dumps({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
                {"level": "Metadata", "userGroups": ["system:serviceaccounts"], "verbs": ["create", "update", "patch", "delete"]},
                {"level": "None"}]}))
        return ["--audit-policy-file=audit.yaml", "--audit-log-path=audit.log", "--audit-log-mode=blocking"]

    def writes_of(self, account: str) -> collections.Counter:
        """How often a service account wrote, by kind and verb; leases and events are no writes about anything."""
        counted: collections.Counter = collections.Counter()
        for line in (self.folder / "audit.log").read_text().splitlines():
            entry = json.loads(line)
            what = entry.get("objectRef", {})
            kind = what.get("resource", "") + ("/" + what["subresource"] if "subresource" in what else "")
            if entry["user"]["username"].endswith(f":{account}") and kind not in ("leases", "events", "selfsubjectreviews"):
                counted[f"{entry['verb']} {kind} {entry['responseStatus']['code']}"] += 1
        return counted

    def start_api_server(self) -> None:
        self.spawn("apiserver", str(binaries() / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
                   "--service-account-key-file=pki/sa.pub", "--service-account-signing-key-file=pki/sa.key",
                   "--service-account-issuer=https://kubernetes.default.svc", "--token-auth-file=pki/tokens.csv",
                   "--authorization-mode=RBAC", f"--secure-port={self.port}", "--bind-address=127.0.0.1",
                   "--cert-dir=pki", "--service-cluster-ip-range=10.0.0.0/16", "--allow-privileged=true",
                   "--max-requests-inflight=800", "--max-mutating-requests-inflight=400",
                   # kwok watches from version 0, which this gate turns into a streamed list; Debian's etcd (3.4.23) cannot serve
                   # one, so that kwok would see new pods only when it lists again, every half a minute.
                   "--feature-gates=WatchList=false", *self.audit_arguments())
        eventually(self.is_ready, "the API server is ready", 600)

    def is_ready(self) -> bool:
        try:
            return self.api.request("GET", "/readyz")["message"].startswith("ok")
        except (OSError, ApiError, http.client.HTTPException):
            return False

    def stop(self, name: str, how=signal.SIGTERM) -> None:
        process = self.processes.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart_api_server(self, down_seconds: float = 0) -> None:
        self.stop("apiserver", signal.SIGKILL)
        time.sleep(down_seconds)
        self.start_api_server()

    def close(self) -> None:
        for name in reversed(list(self.processes)):
            self.stop(name, signal.SIGKILL)
        for log in self.logs:
            log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------------------------- what is in it

    def write_kubeconfig(self, name: str, token: str, space: str = "default", port: int = 0) -> pathlib.Path:
        path = self.folder / name
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"https://127.0.0.1:{port or self.port}",
                                                      "insecure-skip-tls-verify": True}}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user", "namespace": space}}]}))
        return path

    def account_kubeconfig(self, space: str, account: str, port: int = 0) -> pathlib.Path:
        """What a pod with this service account could do, outside of a pod."""
        eventually(lambda: self.api.get("ServiceAccount", account, space), f"service account {account}")
        token = self.api.request("POST", self.api.path("ServiceAccount", space, account) + "/token",
                                 {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                                  "spec": {"expirationSeconds": 7200}})["status"]["token"]
        return self.write_kubeconfig(f"kubeconfig-{account}", token, space, port)

    def add_node(self, name: str, gpus: int = 8, labels: dict | None = None, more: dict | None = None) -> None:
        size = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus), **(more or {})}
        self.api.create({"apiVersion": "v1", "kind": "Node",
                         "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
                         "status": {"allocatable": size, "capacity": size}})

    def make_namespace(self, name: str) -> None:
        if self.api.get("Namespace", name) is None:
            self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        eventually(lambda: self.api.get("ServiceAccount", "default", name), f"namespace {name}")

    def kubectl(self, *arguments: str, data: str | None = None, check: bool = True) -> subprocess.CompletedProcess:
        return subprocess.run(["kubectl", "--kubeconfig", self.folder / "kubeconfig", *arguments], input=data, text=True,
                              capture_output=True, timeout=300, check=check)


def secret_text(secret: dict, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()
