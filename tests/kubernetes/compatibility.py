#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other people's manifests on a real control plane: accepted and ready on simulated nodes, or refused for a reason.

  tests/kubernetes/compatibility.py --grove DIR --dynamo DIR [--out docs/kubernetes/compatibility.md]

DIR is a checkout of ai-dynamo/grove or ai-dynamo/dynamo, or a bare repository of it; without one it is cloned. Nothing of them stays."""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import yaml

from control_plane import ApiError, ControlPlane, eventually, missing
from rig import install, start_operator

KINDS = ("DynamoGraphDeployment", "DynamoComponentDeployment", "DynamoGraphDeploymentRequest", "PodCliqueSet")
# What needs hardware or services that a control plane alone does not have.
NOT_OURS = {"examples need values": re.compile(r"\$\{|<[a-z-]+>|\{\{")}


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
            if not name.endswith((".yaml", ".yml")) or "/crd" in name or "/charts/" in name or "/templates/" in name:
                continue
            text = read(name)
            if any(f"kind: {kind}" in text for kind in KINDS):
                found.append((name, text))
        return found


class Trial:
    def __init__(self, plane: ControlPlane):
        self.plane, self.api, self.number = plane, plane.api, 0

    def result(self, text: str, seconds: float) -> tuple[str, str]:
        for why, pattern in NOT_OURS.items():
            if pattern.search(text):
                return "skipped", why
        try:
            documents = [each for each in yaml.safe_load_all(text) if isinstance(each, dict) and each.get("kind")]
        except yaml.YAMLError as error:
            return "skipped", f"no YAML as it stands: {str(error).splitlines()[0]}"
        self.number += 1
        space = f"trial-{self.number}"
        self.plane.make_namespace(space)
        try:
            return self.run(documents, space, seconds)
        finally:
            for kind in KINDS:
                for name in self.api.names(kind, space):
                    self.api.delete(kind, name, space)
            for pod in self.api.names("Pod", space):
                try:
                    self.api.delete("Pod", pod, space, 0)
                except ApiError:
                    pass

    def run(self, documents: list[dict], space: str, seconds: float) -> tuple[str, str]:
        watched = []
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
                self.api.create(document, space)
            except ApiError as error:
                message = re.sub(r'^admission webhook "[^"]*" denied the request: ', "", error.message)
                return "refused", message.splitlines()[0][:240]
            watched.append((kind, document["metadata"]["name"]))
        # The simulated kubelets of a small machine start some pods each second.
        replicas = sum(document["spec"].get("replicas", 1) for document in documents if document["kind"] == "PodCliqueSet")
        end = time.monotonic() + max(seconds, replicas * 1.0)
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


def main() -> int:
    if missing():
        print(f"skipped: {missing()}")
        return 77
    parser = argparse.ArgumentParser()
    parser.add_argument("--grove", default="")
    parser.add_argument("--dynamo", default="")
    parser.add_argument("--only", choices=("grove", "dynamo"))
    parser.add_argument("--out", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--match", default="")
    arguments = parser.parse_args()
    sources = {"grove": (arguments.grove, "https://github.com/ai-dynamo/grove"), "dynamo": (arguments.dynamo, "https://github.com/ai-dynamo/dynamo")}
    plane = ControlPlane(0)
    lines = ["# Manifests of others", "",
             "Made by `tests/kubernetes/compatibility.py`: each manifest of Dynamo's and Grove's repositories is applied to a real API server with the",
             "operator and its webhooks, on simulated nodes. *Refused* rows have the message that users see.", ""]
    counts: dict[str, int] = {}
    try:
        for index in range(40):
            plane.add_node(f"node-{index}", 8, {
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559",
                "node_role.e2e.grove.nvidia.com": "agent", "type": "kwok", "zone": f"z{index // 20}", "block": f"b{index // 10}", "rack": f"r{index // 5}",
                "topology.kubernetes.io/zone": f"z{index // 20}", "topology.kubernetes.io/block": f"b{index // 10}",
                "topology.kubernetes.io/rack": f"r{index // 5}"})
        install(plane)
        for name in ("grove-topology", "h100-topology", "gb200-topology", "topology"):
            plane.api.apply({"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopologyBinding", "metadata": {"name": name}, "spec": {
                "levels": [{"domain": "zone", "key": "topology.kubernetes.io/zone"}, {"domain": "block", "key": "topology.kubernetes.io/block"},
                           {"domain": "rack", "key": "topology.kubernetes.io/rack"}, {"domain": "host", "key": "kubernetes.io/hostname"}]}})
        operator = start_operator(plane)
        eventually(lambda: plane.api.get("ValidatingWebhookConfiguration", "stator-operator"), "the webhooks are known")
        trial = Trial(plane)
        for title, (source, url) in sources.items():
            if (arguments.only and arguments.only != title) or (not source and not arguments.only):
                continue
            lines += [f"## {title}", "", "| Manifest | Result | Why |", "|---|---|---|"]
            for name, text in manifests_of(source, url):
                if arguments.match not in name:
                    continue
                try:
                    outcome, why = trial.result(text, arguments.seconds)
                except KeyboardInterrupt:
                    lines += ["", "(stopped here)"]
                    break
                counts[outcome] = counts.get(outcome, 0) + 1
                lines.append(f"| `{name}` | {outcome} | {why.replace('|', '/')} |")
                print(f"{outcome:10} {name} {why}", flush=True)
            lines.append("")
        operator.close()
    finally:
        plane.close()
    lines[5:5] = [", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) + ".", ""]
    print(counts)
    if arguments.out:
        pathlib.Path(arguments.out).write_text("\n".join(lines).rstrip() + "\n")
    return 1 if counts.get("not ready") else 0


if __name__ == "__main__":
    sys.exit(main())
