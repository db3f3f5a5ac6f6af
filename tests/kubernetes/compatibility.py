#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other people's manifests on a real control plane: accepted and ready on simulated nodes, or refused for a reason.

  tests/kubernetes/compatibility.py --grove DIR --dynamo DIR [--out docs/kubernetes/compatibility.md] [--render-only]

DIR is a checkout of ai-dynamo/grove or ai-dynamo/dynamo, or a bare repository of it; without one it is cloned. Nothing of them stays."""

import argparse
import concurrent.futures
import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

import yaml

from control_plane import ApiError, ControlPlane, eventually, missing
from rig import POOL_CRD, install, operator_command, start_operator

KINDS = ("DynamoGraphDeployment", "DynamoComponentDeployment", "DynamoGraphDeploymentRequest", "PodCliqueSet")
# What needs hardware or services that a control plane alone does not have.
NOT_OURS = {"a template: it needs values": re.compile(r"\$\{[A-Z]|<[a-z-]+>|\{\{|\$glob:|\$\(inputs")}

NO_MANIFESTS = re.compile(r"/crd|/charts/|/templates/|/patch-|^\.github/|testdata/.*/output\.yaml")
# What people make before they apply a manifest, as its README says: here it is there as soon as it is named.
CLAIM = re.compile(r"(?:claimName|pvcName):\s*[\"']?([a-z0-9][a-z0-9.-]*)")
V1ALPHA1_CLAIM = re.compile(r"pvcs:\s*\n(?:\s*#.*\n)*(?:\s*-?\s*(?:create: (?:true|false)|name: \S+)\s*\n)+")


def refused(text: str, message: str) -> tuple[str, str]:
    """Of a template, a refusal says nothing about its manifests."""
    text = re.sub(r"#.*", "", text)
    why = next((why for why, pattern in NOT_OURS.items() if pattern.search(text)), "")
    return ("skipped", why) if why else ("refused", message)


def manifests_of(source: str, url: str) -> list[tuple[str, str]]:
    """(path, text) of every YAML file with one of the kinds."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(source) if source else pathlib.Path(folder) / "repo"
        if not source:
            subprocess.run(["git", "clone", "--depth", "1", "--filter=blob:limit=256k", url, str(path)], check=True)
        bare = (path / "HEAD").exists() and (path / "objects").exists()
        git = ["git", "--git-dir", str(path)] if bare else ["git", "-C", str(path)]
        is_git = bare or (path / ".git").exists()
        if is_git:
            names = subprocess.run([*git, "ls-tree", "-r", "--name-only", "HEAD"], check=True, capture_output=True, text=True).stdout.split("\n")
            read = lambda name: subprocess.run([*git, "show", f"HEAD:{name}"], check=True, capture_output=True).stdout.decode(errors="replace")
        else:
            names = [str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()]
            read = lambda name: (path / name).read_text(errors="replace")
        found = []
        for name in sorted(names):
            if not name.endswith((".yaml", ".yml")) or NO_MANIFESTS.search(name):
                continue
            text = read(name)
            if any(f"kind: {kind}" in text for kind in KINDS):
                found.append((name, text))
        return found


# Product, nodes, GPUs of a node, MiB of a GPU, architecture of the CPU.
PRODUCTS = (("NVIDIA-H100-80GB-HBM3", 40, 8, 81559, "amd64"), ("NVIDIA-H200", 24, 8, 143771, "amd64"), ("NVIDIA-B200", 24, 8, 183359, "amd64"),
            ("NVIDIA-GB200", 16, 4, 189471, "arm64"), ("NVIDIA-GB300", 16, 4, 288000, "arm64"))
DEVICES = {"rdma/ib": "64", "rdma/shared_ib": "64", "vpc.amazonaws.com/efa": "64", "ephemeral-storage": "20Ti", "cpu": "256", "memory": "4Ti",
           "pods": "110", **{f"networking.gke.io.networks/rdma-{number}{suffix}": "64" for number in range(8) for suffix in ("", ".IP")}}


def add_nodes(plane: ControlPlane) -> None:
    index = 0
    for product, count, gpus, memory, architecture in PRODUCTS:
        for _ in range(count):
            plane.add_node(f"node-{index}", gpus, {
                "nvidia.com/gpu.product": product, "nvidia.com/gpu.count": str(gpus), "nvidia.com/gpu.memory": str(memory),
                "nvidia.com/gpu.present": "true", "kubernetes.io/arch": architecture, "kubernetes.io/os": "linux",
                "node_role.e2e.grove.nvidia.com": "agent", "type": "kwok", "zone": f"z{index // 20}", "block": f"b{index // 10}",
                "rack": f"r{index // 5}", "topology.kubernetes.io/zone": f"z{index // 20}", "topology.kubernetes.io/block": f"b{index // 10}",
                "topology.kubernetes.io/rack": f"r{index // 5}"}, DEVICES)
            index += 1


def add_devices(plane: ControlPlane) -> None:
    """What a driver for dynamic resources would tell of each node's GPUs."""
    plane.api.create({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}, "spec": {
        "selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]}})
    for node in plane.api.list("Node"):
        name = node["metadata"]["name"]
        plane.api.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{name}-gpus"}, "spec": {
            "driver": "gpu.nvidia.com", "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(int(node["status"]["allocatable"]["nvidia.com/gpu"]))]}})


class Trial:
    def __init__(self, plane: ControlPlane, pods_max: int):
        self.plane, self.api, self.pods_max = plane, plane.api, pods_max
        self.lock = threading.Lock()

    def result(self, number: str, text: str, seconds: float) -> tuple[str, str]:
        try:
            documents = [each for each in yaml.safe_load_all(text) if isinstance(each, dict) and each.get("kind")]
        except yaml.YAMLError as error:
            return "skipped", f"no YAML as it stands: {str(error).splitlines()[0]}"
        space = f"trial-{number}"
        self.plane.make_namespace(space)
        self.make_claims(text, space)
        self.add_nodes_for(documents)
        try:
            return self.run(text, documents, space, seconds)
        finally:
            for kind in KINDS:
                for name in self.api.names(kind, space):
                    with contextlib.suppress(ApiError):  # gone with its owner
                        self.api.delete(kind, name, space)
            with contextlib.suppress(ApiError):
                self.api.request("DELETE", self.api.path("Pod", space) + "?gracePeriodSeconds=0")

    def add_nodes_for(self, part) -> None:
        """Nodes as a manifest selects them, where the cluster has none."""
        if isinstance(part, list):
            for each in part:
                self.add_nodes_for(each)
        if not isinstance(part, dict):
            return
        labels = part.get("nodeSelector")
        if isinstance(labels, dict) and labels:
            with self.lock:
                nodes = [each["metadata"]["labels"] for each in self.api.list("Node")]
                if not any(labels.items() <= each.items() for each in nodes):
                    for number in range(8):
                        self.plane.add_node(f"node-{len(nodes) + number}", 8, {"topology.kubernetes.io/zone": "z0", **labels}, DEVICES)
        for each in part.values():
            self.add_nodes_for(each)

    def make_claims(self, text: str, space: str) -> None:
        names = set(CLAIM.findall(text))
        for block in V1ALPHA1_CLAIM.findall(text):
            names |= set(re.findall(r"name: [\"']?([a-z0-9][a-z0-9.-]*)", block))
        for name in names:
            size = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
            self.api.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{space}-{name}"}, "spec": {
                **size, "capacity": {"storage": "1Ti"}, "hostPath": {"path": "/x"}, "claimRef": {"namespace": space, "name": name}}})
            self.api.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
                **size, "volumeName": f"{space}-{name}", "resources": {"requests": {"storage": "1Gi"}}}}, space)

    @staticmethod
    def pods_of(document: dict) -> int:
        """Of a PodCliqueSet, as far as one can tell without scaling groups."""
        spec = document["spec"]
        cliques = spec.get("template", {}).get("cliques", [])
        return spec.get("replicas", 1) * sum(each["spec"].get("replicas", 1) for each in cliques)

    def run(self, text: str, documents: list[dict], space: str, seconds: float) -> tuple[str, str]:
        watched = []
        pods = sum(self.pods_of(document) for document in documents if document["kind"] == "PodCliqueSet")
        suffix = "?dryRun=All" if pods > self.pods_max else ""
        for document in documents:
            kind = document["kind"]
            document.setdefault("metadata", {}).pop("namespace", None)
            if kind not in KINDS:
                if kind in ("ConfigMap", "Secret", "ServiceAccount"):
                    try:
                        self.api.create(document, space)
                    except ApiError as error:
                        return "skipped", f"{kind}: {error.message.splitlines()[0][:160]}"
                continue
            try:
                document["metadata"]["namespace"] = space
                self.api.request("POST", self.api.path(kind, space, version=document["apiVersion"].split("/")[-1]) + suffix, document)
            except ApiError as error:
                message = re.sub(r'^admission webhook "[^"]*" denied the request: ', "", error.message)
                return refused(text, message.splitlines()[0][:240])
            watched.append((kind, document["metadata"]["name"]))
        if not watched:
            return "skipped", "none of these kinds"
        if suffix:
            return "accepted", f"{pods} pods: not made"
        if re.search(r"ComputeDomain|resourceSharing|deviceClassName|resourceClaims:", text):
            return "accepted", "its pods need devices of classes that only a driver has: not waited for"
        end = time.monotonic() + seconds
        waiting = "nothing to wait for"
        while time.monotonic() < end:
            states = [self.state(kind, name, space) for kind, name in watched]
            if all(state == "" for state in states):
                return "ready", ""
            waiting = next(state for state in states if state)
            if waiting.startswith("failed"):
                return "refused", waiting
            time.sleep(0.5)
        return "not ready", waiting

    def state(self, kind: str, name: str, space: str) -> str:
        """Empty when it is ready."""
        value = self.api.get(kind, name, space) or {}
        status = value.get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions", [])}
        if kind == "PodCliqueSet":
            want = value["spec"].get("replicas", 0)
            return "" if status.get("availableReplicas", -1) >= want else f"{status.get('availableReplicas')} of {want} replicas available"
        if kind == "DynamoGraphDeploymentRequest":
            if status.get("phase") == "Failed":
                return "failed: " + conditions.get("Succeeded", {}).get("message", "")[:200]
            return "" if status.get("phase") in ("Ready", "Deployed") else f"phase {status.get('phase')}"
        which = "Ready" if kind == "DynamoGraphDeployment" else "Available"
        if status.get("state") == "failed":
            return "failed: " + conditions.get(which, {}).get("message", "")[:200]
        return "" if conditions.get(which, {}).get("status") == "True" else conditions.get(which, {}).get("message", "no status yet")[:200]


def render(text: str) -> tuple[str, str]:
    """What the operator makes of it without a cluster: the same checks as its webhooks, and all children."""
    done = operator_command("render", "-", "--namespace", "trial", data=text)
    if done.returncode == 0:
        return "renders", f"{len(yaml.safe_load(done.stdout)['items'])} objects"
    return refused(text, done.stderr.strip().splitlines()[-1].removeprefix("stator: ")[:240])


def table(title: str, rows: list[tuple[str, str, str]]) -> list[str]:
    return [f"## {title}", "", "| Manifest | Result | Why |", "|---|---|---|",
            *(f"| `{name}` | {outcome} | {why.replace('|', '/')} |" for name, outcome, why in rows), ""]


HEAD = ["# Manifests of others", "",
        "Made by `tests/kubernetes/compatibility.py`: each manifest of Dynamo's and Grove's repositories is applied to a real API server with the",
        "operator and its webhooks, on simulated nodes; with `--render-only` it goes through `stator operator render` (the same checks, and all",
        "children). *Refused* rows have the message that users see.", ""]


def tries(arguments, sources: dict) -> dict[str, list[tuple[str, str, str]]]:
    """Each manifest on one control plane, several at a time."""
    results: dict[str, list[tuple[str, str, str]]] = {}
    plane = ControlPlane(0)
    try:
        add_nodes(plane)
        add_devices(plane)
        plane.api.create({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"})
        install(plane)
        plane.api.create(POOL_CRD)
        for name in ("grove-topology", "h100-topology", "gb200-topology", "topology"):
            plane.api.apply({"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopologyBinding", "metadata": {"name": name}, "spec": {
                "levels": [{"domain": "zone", "key": "topology.kubernetes.io/zone"}, {"domain": "block", "key": "topology.kubernetes.io/block"},
                           {"domain": "rack", "key": "topology.kubernetes.io/rack"}, {"domain": "host", "key": "kubernetes.io/hostname"}]}})
        operator = start_operator(plane)
        eventually(lambda: plane.api.get("ValidatingWebhookConfiguration", "stator-operator"), "the webhooks are known", 600)
        trial = Trial(plane, arguments.pods_max)
        for title, found in sources.items():
            def attempt(numbered, title=title):
                number, (name, text) = numbered
                try:
                    outcome, why = trial.result(f"{title}-{number}", text, arguments.seconds)
                except (ApiError, OSError, AssertionError) as error:
                    outcome, why = "not tried", repr(error)[:200]
                print(f"{outcome:10} {name} {why}", flush=True)
                return name, outcome, why
            with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
                results[title] = list(pool.map(attempt, enumerate(found)))
        operator.close()
    finally:
        plane.close()
    return results


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--grove", default="")
    parser.add_argument("--dynamo", default="")
    parser.add_argument("--only", choices=("grove", "dynamo"))
    parser.add_argument("--out", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--match", default="")
    parser.add_argument("--render-only", action="store_true", help="without a control plane")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--pods-max", type=int, default=200, help="larger sets are only created, not waited for")
    arguments = parser.parse_args()
    if missing() and not arguments.render_only:
        print(f"skipped: {missing()}")
        return 77
    places = {"grove": (arguments.grove, "https://github.com/ai-dynamo/grove"), "dynamo": (arguments.dynamo, "https://github.com/ai-dynamo/dynamo")}
    sources = {title: [each for each in manifests_of(*place) if re.search(arguments.match, each[0])] for title, place in places.items()
               if (not arguments.only or arguments.only == title) and (place[0] or arguments.only)}
    if arguments.render_only:
        results = {title: [(name, *render(text)) for name, text in found] for title, found in sources.items()}
    else:
        results = tries(arguments, sources)
    counts: dict[str, int] = {}
    for _, outcome, _ in (row for rows in results.values() for row in rows):
        counts[outcome] = counts.get(outcome, 0) + 1
    print(counts)
    if arguments.out:
        lines = [*HEAD, ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) + ".", ""]
        for title, rows in results.items():
            lines += table(title, rows)
        pathlib.Path(arguments.out).write_text("\n".join(lines).rstrip() + "\n")
    return 1 if counts.get("not ready") or counts.get("not tried") else 0


if __name__ == "__main__":
    sys.exit(main())
