#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the recipes beside this file: a model's cache, graphs of vLLM servers with Stator workers beside them, load for them, a gateway.

  deploy/recipes/make_recipes.py [FOLDER]

  <model>/model-cache/{pvc,download}.yaml        a claim that all nodes read, and the job that fills it at a pinned revision
  <model>/vllm/{agg,disagg}/{deploy,perf}.yaml   the graph, and a job that measures it
  <model>/gaie/{deploy,http-route}.yaml          the same behind a gateway, with the endpoint picker"""

import pathlib
import sys

import yaml

STATOR, VLLM = "stator:0.1.0", "vllm/vllm-openai:v0.32.0"
EVENTS = ('{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558",'
          '"topic":"kv-events"}')
# name, on the hub, GPUs of a server, servers (alone; prefill and decode), size of the claim, more of vLLM's flags
MODELS = (
    ("qwen3-0.6b", "Qwen/Qwen3-0.6B", 1, 2, (1, 1), "10Gi", ()),
    ("qwen3-32b-fp8", "Qwen/Qwen3-32B-FP8", 2, 2, (1, 1), "60Gi", ()),
    ("llama-3.3-70b", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 4, 2, (1, 1), "120Gi", ()),
    ("gpt-oss-120b", "openai/gpt-oss-120b", 2, 4, (2, 2), "120Gi", ("--async-scheduling",)),
)


def named(kind: str, api: str, name: str, **rest) -> dict:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **rest}


def cache(model: str, hub: str, size: str) -> dict[str, list[dict]]:
    claim = named("PersistentVolumeClaim", "v1", "model-cache", spec={
        "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}})
    job = named("Job", "batch/v1", f"{model}-download", spec={"backoffLimit": 3, "template": {"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "download", "image": "python:3.12-slim", "command": ["sh", "-c"],
                        # REVISION: a commit of the model's repository, so that what is served does not change by itself.
                        "args": ["pip install -q huggingface_hub && hf download \"$MODEL\" --revision \"$REVISION\" --local-dir \"/models/$MODEL\""],
                        "env": [{"name": "MODEL", "value": hub}, {"name": "REVISION", "value": "main"}],
                        "envFrom": [{"secretRef": {"name": "hf-token-secret"}}],
                        "volumeMounts": [{"name": "model-cache", "mountPath": "/models"}]}],
        "volumes": [{"name": "model-cache", "persistentVolumeClaim": {"claimName": "model-cache"}}]}}})
    return {"model-cache/pvc.yaml": [claim], "model-cache/download.yaml": [job]}


def worker(name: str, kind: str, replicas: int, hub: str, gpus: int, more: tuple, sidecar: bool = False) -> dict:
    """A vLLM server with a Stator worker beside it, which routes, keeps streams and drains."""
    role = kind if kind in ("prefill", "decode") else "aggregated"
    serve = ["serve", f"/models/{hub}", "--served-model-name", hub, "--port", "8100", "--enable-prompt-tokens-details",
             "--tensor-parallel-size", str(gpus), "--kv-events-config", EVENTS, *more]
    if role != "aggregated":
        serve += ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_%s"}' % ("producer" if role == "prefill" else "consumer")]
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    mount = {"name": "model-cache", "mountPath": "/models", "readOnly": True}
    containers = [
        {"name": "main", "image": STATOR, "command": ["stator", "worker", f"/models/{hub}"],
         "args": ["--engine", "vllm", "--url", "http://127.0.0.1:8100", "--role", role, "--model-name", hub,
                  "--discovery", "kubernetes:$(POD_NAMESPACE)", "--worker-listen-host", "$(POD_IP)", "--rpc-insecure",
                  "--system-host", "0.0.0.0", "--system-port", "9090"],
         "env": [address, {"name": "STATOR_SYSTEM_TOKEN", "valueFrom": {"secretKeyRef": {"name": "stator-system-token", "key": "token"}}}],
         "volumeMounts": [mount]},
        {"name": "engine", "image": VLLM, "command": ["vllm"], "args": serve,
         "env": [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
         "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}, "volumeMounts": [mount]}]
    if sidecar:  # what the gateway reaches: a frontend that gives each request to the worker that the picker named
        containers.append({"name": "frontend", "image": STATOR, "args": [
            "frontend", "--host", "0.0.0.0", "--port", "8000", "--router-mode", "direct", "--discovery", "kubernetes:$(POD_NAMESPACE)"],
            "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]})
    return {"name": name, "type": kind, "replicas": replicas, "scalingAdapter": {}, "sharedMemorySize": "16Gi", **(
        {"frontendSidecar": "frontend"} if sidecar else {}), "podTemplate": {"spec": {
            "containers": containers, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [{"name": "model-cache", "persistentVolumeClaim": {"claimName": "model-cache", "readOnly": True}}]}}}


def frontend() -> dict:
    return {"name": "Frontend", "type": "frontend", "replicas": 1, "podTemplate": {"spec": {"containers": [{"name": "main", "image": STATOR}]}}}


def graph(name: str, components: list[dict]) -> dict:
    return named("DynamoGraphDeployment", "nvidia.com/v1beta1", name, spec={"backendFramework": "vllm", "components": components})


def perf(name: str, hub: str) -> dict:
    return named("Job", "batch/v1", f"{name}-perf", spec={"backoffLimit": 0, "template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "bench", "image": STATOR, "args": [
            "bench", "--url", f"http://{name}-frontend:8000", "--model", hub, "--concurrency", "32", "--requests", "512",
            "--input-tokens", "4000", "--output-tokens", "500"]}]}}})


def gateway(model: str, hub: str, gpus: int, servers: int, more: tuple) -> dict[str, list[dict]]:
    name = f"{model}-gaie"
    picker = {"name": "Picker", "type": "epp", "replicas": 1, "eppConfig": {"config": {"plugins": []}},
              "podTemplate": {"spec": {"containers": [{"name": "main", "image": STATOR}]}}}
    route = named("HTTPRoute", "gateway.networking.k8s.io/v1", name, spec={
        "parentRefs": [{"name": "inference-gateway"}], "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "timeouts": {"request": "300s"},
            "backendRefs": [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": f"{name}-pool"}]}]})
    return {"gaie/deploy.yaml": [graph(name, [picker, worker("Worker", "worker", servers, hub, gpus, more, sidecar=True)])],
            "gaie/http-route.yaml": [route]}


def recipes() -> dict[str, list[dict]]:
    files: dict[str, list[dict]] = {}
    for model, hub, gpus, alone, (prefill, decode), size, more in MODELS:
        both = {**cache(model, hub, size), **gateway(model, hub, gpus, alone, more)}
        layouts = {"agg": [worker("Worker", "worker", alone, hub, gpus, more)],
                   "disagg": [worker("Prefill", "prefill", prefill, hub, gpus, more), worker("Decode", "decode", decode, hub, gpus, more)]}
        for layout, workers in layouts.items():
            both[f"vllm/{layout}/deploy.yaml"] = [graph(f"{model}-{layout}", [frontend(), *workers])]
            both[f"vllm/{layout}/perf.yaml"] = [perf(f"{model}-{layout}", hub)]
            both[f"vllm/{layout}/kustomization.yaml"] = [{"resources": ["deploy.yaml"]}]  # a base for deploy/kustomize
        files |= {f"{model}/{path}": documents for path, documents in both.items()}
    return files


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for path, documents in recipes().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("# Made by deploy/recipes/make_recipes.py: change that.\n" + yaml.dump_all(
            documents, Dumper=Dumper, sort_keys=False, width=140))


if __name__ == "__main__":
    main()
