#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Broken manifests, each refused by `stator operator render` with one line that names the field and says what is allowed."""

import concurrent.futures
import json
import subprocess
import unittest

import yaml

from stator_process import BINARY, clean_environment

POD = {"spec": {"containers": [{"name": "main", "image": "r/vllm-runtime:1.0.0", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
GRAPH = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "g"}, "spec": {
    "backendFramework": "vllm", "components": [{"name": "Frontend", "type": "frontend", "podTemplate": POD},
                                               {"name": "W", "type": "worker", "replicas": 2, "podTemplate": POD}]}}
ALPHA = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": "g"}, "spec": {"services": {
    "W": {"componentType": "worker", "replicas": 1, "extraPodSpec": {"mainContainer": {"image": "r/vllm-runtime:1.0.0"}}}}}}
REQUEST = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "metadata": {"name": "r"}, "spec": {
    "model": "m", "hardware": {"gpuSku": "h100_sxm", "totalGpus": 8}}}
MODEL = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoModel", "metadata": {"name": "m"}, "spec": {"modelName": "m", "baseModelName": "b"}}
ADAPTER = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentScalingAdapter", "metadata": {"name": "a"}, "spec": {
    "replicas": 1, "dgdRef": {"name": "g", "componentName": "W"}}}
ADAPTER_ALPHA = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentScalingAdapter", "metadata": {"name": "a"}, "spec": {
    "replicas": 1, "dgdRef": {"name": "g", "serviceName": "W"}}}
REQUEST_ALPHA = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest", "metadata": {"name": "r"}, "spec": {
    "model": "m", "backend": "vllm", "profilingConfig": {"config": {"sla": {"ttft": 100, "isl": 3000}}}}}
COMPONENT = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoComponentDeployment", "metadata": {"name": "c"}, "spec": {
    "name": "W", "type": "worker", "podTemplate": POD}}
CHECKPOINT = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoCheckpoint", "metadata": {"name": "c"}, "spec": {
    "job": {"podTemplateSpec": POD}}}
CLIQUE = {"roleName": "x", "replicas": 1, "podSpec": {"containers": [{"name": "m", "image": "i"}]}}
SET = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "s", "labels": {"kai.scheduler/queue": "p"}}, "spec": {"replicas": 1, "template": {
    "cliques": [{"name": "a", "spec": CLIQUE}, {"name": "b", "spec": CLIQUE}],
    "podCliqueScalingGroups": [{"name": "g", "cliqueNames": ["a"]}]}}}
TOPOLOGY = {"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopologyBinding", "metadata": {"name": "t"}, "spec": {"levels": [
    {"domain": "rack", "key": "rack"}, {"domain": "host", "key": "kubernetes.io/hostname"}]}}

W, S = "spec.components[1]", "spec.template.cliques[0].spec"
GPU_MEMORY = W + ".experimental.gpuMemoryService"
# What is taken, where, the new value (None: the field goes), the field that the refusal names, and a word of what is allowed.
CASES = [
    (GRAPH, "metadata.name", None, "metadata.name", "Required"),
    (GRAPH, "metadata.name", "Big_Name", "metadata.name", "lower-case"),
    (GRAPH, "metadata.labels", ["a"], "metadata.labels", "object"),
    (GRAPH, "metadata.annotations", {"a": 1}, "metadata.annotations[a]", "string"),
    (GRAPH, "metadata.annotations", {"nvidia.com/workload-provider": "nomad"}, "metadata.annotations[nvidia.com/workload-provider]", '"grove"'),
    (GRAPH, "metadata.annotations", {"nvidia.com/deployment-strategy": "Slow"}, "nvidia.com/deployment-strategy", '"Recreate"'),
    (GRAPH, "metadata.annotations", {"nvidia.com/deployment-rolling-update-max-surge": "lots"}, "max-surge", "%"),
    (GRAPH, "apiVersion", "nvidia.com/v2", "apiVersion", "v1beta1"),
    (GRAPH, "spec", None, "spec", "Required"),
    (GRAPH, "spec", "x", "spec", "object"),
    (GRAPH, "spec.backendFramework", "tgi", "spec.backendFramework", '"trtllm"'),
    (GRAPH, "spec.components", {}, "spec.components", "array"),
    (GRAPH, "spec.components", [], "spec.components", "at least one"),
    (GRAPH, "spec.components", [7], "spec.components[0]", "object"),
    (GRAPH, "spec.components.1.name", None, W + ".name", "1 to 63"),
    (GRAPH, "spec.components.1.name", 7, W + ".name", "string"),
    (GRAPH, "spec.components.1.name", "FRONTEND", W + ".name", "another component"),
    (GRAPH, "spec.components.1.name", "x" * 64, W + ".name", "63"),
    (GRAPH, "spec.components.1.type", "gpu", W + ".type", '"prefill"'),
    (GRAPH, "spec.components.1.type", ["worker"], W + ".type", "string"),
    (GRAPH, "spec.components.1.replicas", 1.5, W + ".replicas", "integer"),
    (GRAPH, "spec.components.1.replicas", 10**10, W + ".replicas", "at most 2147483647"),
    (GRAPH, "spec.components.1.replicas", 10**30, W + ".replicas", "at most 2147483647"),
    (GRAPH, "spec.components.1.minAvailable", 0, W + ".minAvailable", "at least 1"),
    (GRAPH, "spec.components.1.multinode", {"nodeCount": 1}, W + ".multinode.nodeCount", "at least 2"),
    (GRAPH, "spec.components.1.multinode", {"nodeCount": 10**10}, W + ".multinode.nodeCount", "at most"),
    (GRAPH, "spec.components.1.multinode", True, W + ".multinode", "object"),
    (GRAPH, "spec.components.1.scalingAdapter", True, W + ".scalingAdapter", "object"),
    (GRAPH, "spec.components.1.sharedMemorySize", "-1Gi", W + ".sharedMemorySize", "at least 0"),
    (GRAPH, "spec.components.1.sharedMemorySize", {}, W + ".sharedMemorySize", "quantity"),
    (GRAPH, "spec.components.1.modelRef", {"revision": "1"}, W + ".modelRef.name", "Required"),
    (GRAPH, "spec.components.1.podTemplate", None, W + ".podTemplate.spec.containers", "main"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.name", "other", W + ".podTemplate.spec.containers", "main"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.env", [{"value": "x"}], W + ".podTemplate.spec.containers[0].env[0].name", "Required"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.env", [{"name": "A", "value": 1}],
     W + ".podTemplate.spec.containers[0].env[0].value", "string"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.args", ["--port", 8000], W + ".podTemplate.spec.containers[0].args[1]", "quote"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.resources", {"limits": {"nvidia.com/gpu": "one"}},
     W + ".podTemplate.spec.containers[0].resources.limits[nvidia.com/gpu]", "quantity"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.ports", [{"containerPort": 70000}],
     W + ".podTemplate.spec.containers[0].ports[0].containerPort", "65535"),
    (GRAPH, "spec.components.1.podTemplate.spec.terminationGracePeriodSeconds", "soon",
     W + ".podTemplate.spec.terminationGracePeriodSeconds", "number"),
    (GRAPH, "spec.components.1.frontendSidecar", "nobody", W + ".frontendSidecar", "container"),
    (GRAPH, "spec.components.1.compilationCache", {"mountPath": "/x"}, W + ".compilationCache.pvcName", "Required"),
    (GRAPH, "spec.components.1.eppConfig", {"config": {}}, W + ".eppConfig", "epp"),
    (GRAPH, "spec.components.1.runtimeVersionOverride", "1.02.0", W + ".runtimeVersionOverride", "MAJOR.MINOR.PATCH"),
    (GRAPH, "spec.components.1.topologyConstraint", {"packDomain": "Rack!"}, W + ".topologyConstraint.packDomain", "lower-case"),
    (GRAPH, "spec.components.1.experimental", {"gpuMemoryService": {"mode": "Everywhere"}}, GPU_MEMORY + ".mode", '"InterPod"'),
    (GRAPH, "spec.components.1.experimental", {"gpuMemoryService": {"extraClientPods": ["x"]}}, GPU_MEMORY + ".extraClientPods", "not supported"),
    (GRAPH, "spec.components.1.experimental", {"gpuMemoryService": {"extraClientContainers": ["x"]}},
     GPU_MEMORY + ".extraClientContainers[0]", "container"),
    (GRAPH, "spec.components.1.experimental", {"failover": {"numShadows": 2}}, W + ".experimental.failover.numShadows", "1"),
    (GRAPH, "spec.components.1.experimental", {"failover": {"mode": "IntraPod"}}, W + ".experimental.failover", "gpuMemoryService"),
    (GRAPH, "spec.components.1.experimental", {"checkpoint": {"startupPolicy": "Later"}}, W + ".experimental.checkpoint.startupPolicy",
     '"WaitForCheckpoint"'),
    (GRAPH, "spec.components.1.experimental", {"checkpoint": {"job": {}, "checkpointRef": "x"}}, W + ".experimental.checkpoint", "not both"),
    (GRAPH, "spec.components.1.experimental", {"checkpoint": {"targetContainerName": "nobody"}},
     W + ".experimental.checkpoint.targetContainerName", "container"),
    (GRAPH, "spec.experimental", {"kvTransferPolicy": {"domain": "rack"}}, "spec.experimental.kvTransferPolicy", "labelKey"),
    (GRAPH, "spec.experimental", {"kvTransferPolicy": {"domain": "rack", "labelKey": "rack", "enforcement": "preferred"}},
     "spec.experimental.kvTransferPolicy.preferredWeight", "preferred"),
    (GRAPH, "spec.experimental", {"kvTransferPolicy": {"domain": "rack", "labelKey": "rack", "enforcement": "preferred", "preferredWeight": 2}},
     "spec.experimental.kvTransferPolicy.preferredWeight", "0 to 1"),
    (GRAPH, "spec.restart", {"id": "x"}, "spec.restart", "creation"),
    (GRAPH, "spec.priorityClassName", "high", "spec.priorityClassName", "Grove"),
    (GRAPH, "spec.topologyConstraint", {"packDomain": "rack"}, "spec.topologyConstraint.clusterTopologyName", "Required"),
    (GRAPH, "spec.providerOverride", {"apiVersion": "v1", "value": {}}, "spec.providerOverride.apiVersion", "grove.io/v1alpha1"),
    (GRAPH, "spec.env", [{"value": "x"}], "spec.env[0].name", "Required"),
    (GRAPH, "spec.labels", {"a": 1}, "spec.labels[a]", "string"),
    (GRAPH, "spec.labels", {"a": "b c"}, "spec.labels[a]", "63 letters"),
    (GRAPH, "spec.annotations", {"a b": "c"}, "spec.annotations[a b]", "[prefix/]name"),
    (GRAPH, "metadata.labels", {"a": "x" * 64}, "metadata.labels[a]", "at most 63"),
    (GRAPH, "metadata.annotations", {"a": "x" * 300_000}, "metadata.annotations", "at most 262144"),
    (GRAPH, "metadata.namespace", "A_B", "metadata.namespace", "lower-case"),
    (GRAPH, "metadata.name", "1a", "metadata.name", "start with a letter"),
    (GRAPH, "metadata.name", "g" * 60, "spec.components[0].name", "63"),
    (GRAPH, "metadata.name", "g" * 254, "metadata.name", "253"),
    (GRAPH, "metadata.annotations", {"nvidia.com/enable-grove": "perhaps"}, "metadata.annotations[nvidia.com/enable-grove]", '"true"'),
    (GRAPH, "metadata.annotations", {"nvidia.com/deployment-rolling-update-max-unavailable": "200%"}, "max-unavailable", "100%"),
    (GRAPH, "kind", "DynamoGraphDeploymnt", "kind", '"DynamoGraphDeployment"'),
    (GRAPH, "kind", "", "kind", "Required"),
    (GRAPH, "spec.env", [{"name": "A", "value": "x", "valueFrom": {}}], "spec.env[0].valueFrom", "not both"),
    (GRAPH, "spec.components.1.podTemplate.metadata", {"labels": {"-a": "b"}}, W + ".podTemplate.metadata.labels[-a]", "[prefix/]name"),
    (GRAPH, "spec.components.1.podTemplate.metadata", {"annotations": {"dynamo.nvidia.com/gpu-power-limit": "much"}},
     W + ".podTemplate.metadata.annotations[dynamo.nvidia.com/gpu-power-limit]", "watts"),
    (GRAPH, "spec.components.1.podTemplate.spec.restartPolicy", "Sometimes", W + ".podTemplate.spec.restartPolicy", '"OnFailure"'),
    (GRAPH, "spec.components.1.podTemplate.spec.nodeSelector", {"a": 1}, W + ".podTemplate.spec.nodeSelector[a]", "quote"),
    (GRAPH, "spec.components.1.podTemplate.spec.volumes", [{"emptyDir": {}}], W + ".podTemplate.spec.volumes[0].name", "Required"),
    (GRAPH, "spec.components.1.podTemplate.spec.tolerations", [{"operator": "Is"}], W + ".podTemplate.spec.tolerations[0].operator", '"Exists"'),
    (GRAPH, "spec.components.1.podTemplate.spec.initContainers", [{"name": "x"}], W + ".podTemplate.spec.initContainers[0].image", "Required"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.imagePullPolicy", "Maybe",
     W + ".podTemplate.spec.containers[0].imagePullPolicy", '"IfNotPresent"'),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.volumeMounts", [{"name": "x"}],
     W + ".podTemplate.spec.containers[0].volumeMounts[0].mountPath", "Required"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.resources", {"limits": {"nvidia.com/gpu": "0.5"}},
     W + ".podTemplate.spec.containers[0].resources.limits[nvidia.com/gpu]", "integer"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.resources", {"limits": {"cpu": "1"}, "requests": {"cpu": "1500m"}},
     W + ".podTemplate.spec.containers[0].resources.requests[cpu]", "limit"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.resources", {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}},
     W + ".podTemplate.spec.containers[0].resources.requests[nvidia.com/gpu]", "equal"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.livenessProbe", {"periodSeconds": "often"},
     W + ".podTemplate.spec.containers[0].livenessProbe.periodSeconds", "number"),
    (GRAPH, "spec.components.1.podTemplate.spec.containers.0.ports", [{"containerPort": 1, "protocol": "http"}],
     W + ".podTemplate.spec.containers[0].ports[0].protocol", '"TCP"'),
    (GRAPH, "spec.components.1.experimental", {"grove": {"forceScalingGroup": "yes"}}, W + ".experimental.grove.forceScalingGroup", "boolean"),
    (GRAPH, "spec.experimental", {"kvTransferPolicy": {"domain": "rack", "labelKey": "a b"}}, "spec.experimental.kvTransferPolicy.labelKey", "key"),
    (REQUEST_ALPHA, "spec.profilingConfig", "x", "spec.profilingConfig", "object"),
    (REQUEST_ALPHA, "spec.profilingConfig.config.sla.ttft", "fast", "spec.profilingConfig.config.sla.ttft", "number"),
    (REQUEST_ALPHA, "spec.profilingConfig.config.sla.isl", -5, "spec.profilingConfig.config.sla.isl", "at least 1"),
    (REQUEST_ALPHA, "spec.backend", "tgi", "spec.backend", '"vllm"'),
    (ADAPTER_ALPHA, "spec.dgdRef.serviceName", None, "spec.dgdRef.serviceName", "Required"),
    (ALPHA, "spec.services", ["W"], "spec.services", "object"),
    (ALPHA, "spec.services.W", "x", "spec.services[W]", "object"),
    (ALPHA, "spec.services.W.replicas", "two", "spec.services[W].replicas", "number"),
    (COMPONENT, "spec.type", "gpu", "spec.type", '"worker"'),
    (COMPONENT, "spec.podTemplate", None, "spec.podTemplate.spec.containers", "main"),
    (REQUEST, "spec.model", None, "spec.model", "Required"),
    (REQUEST, "spec.backend", "tgi", "spec.backend", '"auto"'),
    (REQUEST, "spec.hardware.gpuSku", "abacus", "spec.hardware.gpuSku", '"h100_sxm"'),
    (REQUEST, "spec.hardware.totalGpus", 0, "spec.hardware.totalGpus", "at least 1"),
    (REQUEST, "spec.workload", {"isl": -5}, "spec.workload.isl", "at least 1"),
    (REQUEST, "spec.workload", {"concurrency": 1, "requestRate": 1}, "spec.workload", "not both"),
    (REQUEST, "spec.sla", {"ttft": "fast"}, "spec.sla.ttft", "number"),
    (REQUEST, "spec.sla", {"optimizationType": "best"}, "spec.sla.optimizationType", '"throughput"'),
    (REQUEST, "spec.searchStrategy", "lazy", "spec.searchStrategy", '"rapid"'),
    (REQUEST, "spec.autoApply", "yes", "spec.autoApply", "boolean"),
    (REQUEST, "spec.overrides", {"dgd": {"spec": {}}}, "spec.overrides.dgd", "apiVersion"),
    (MODEL, "spec.baseModelName", None, "spec.baseModelName", "Required"),
    (MODEL, "spec.modelType", "dora", "spec.modelType", '"lora"'),
    (MODEL, "spec.source", {"uri": "ftp://x"}, "spec.source.uri", "hf://"),
    (ADAPTER, "spec.replicas", None, "spec.replicas", "Required"),
    (ADAPTER, "spec.replicas", -1, "spec.replicas", "at least 0"),
    (ADAPTER, "spec.dgdRef.name", None, "spec.dgdRef.name", "Required"),
    (CHECKPOINT, "spec.job.podTemplateSpec.spec.containers", [], "spec.job.podTemplateSpec.spec.containers", "main"),
    (CHECKPOINT, "spec.job.targetContainerName", "x", "spec.job.targetContainerName", "container"),
    (CHECKPOINT, "spec.job.activeDeadlineSeconds", 0, "spec.job.activeDeadlineSeconds", "at least 1"),
    (SET, "spec.template.cliques", [], "spec.template.cliques", "Required"),
    (SET, "spec.template.cliques.0", "x", "spec.template.cliques[0]", "object"),
    (SET, "spec.template.cliques.0.name", "A", "spec.template.cliques[0].name", "lower-case"),
    (SET, "spec.template.cliques.1.name", "a", "spec.template.cliques[1].name", "another clique"),
    (SET, "spec.template.cliques.0.spec.replicas", -1, S + ".replicas", "at least"),
    (SET, "spec.template.cliques.0.spec.replicas", 10**10, S + ".replicas", "at most 2147483647"),
    (SET, "spec.template.cliques.0.spec.minAvailable", 2, S + ".minAvailable", "replicas"),
    (SET, "spec.template.cliques.0.spec.podSpec", None, S + ".podSpec", "Required"),
    (SET, "spec.template.cliques.0.spec.podSpec.nodeName", "n", S + ".podSpec.nodeName", "topologyConstraint"),
    (SET, "spec.template.cliques.0.spec.podSpec.schedulerName", "x", "spec.template.cliques", "schedulerName"),
    (SET, "spec.template.cliques.0.spec.startsAfter", ["nobody"], S + ".startsAfter[0]", "another clique"),
    (SET, "spec.template.cliques.0.spec.autoScalingConfig", {"maxReplicas": 2}, S + ".autoScalingConfig", "scaleConfig"),
    (SET, "spec.template.cliqueStartupType", "Random", "spec.template.cliqueStartupType", '"CliqueStartupTypeInOrder"'),
    (SET, "spec.template.terminationDelay", "soon", "spec.template.terminationDelay", "4h"),
    (SET, "spec.template.podCliqueScalingGroups.0.cliqueNames", ["z"], "spec.template.podCliqueScalingGroups[0].cliqueNames[0]", "clique"),
    (SET, "spec.template.podCliqueScalingGroups.0.minAvailable", 2, "spec.template.podCliqueScalingGroups[0].minAvailable", "replicas"),
    (SET, "spec.updateStrategy", {"type": "Sometimes"}, "spec.updateStrategy.type", '"OnDelete"'),
    (SET, "spec.template.cliques.0.labels", {"kai.scheduler/queue": "q"}, "spec.template.cliques[0].labels[kai.scheduler/queue]", "one queue"),
    (TOPOLOGY, "spec.levels", [], "spec.levels", "Required"),
    (TOPOLOGY, "spec.levels.1.domain", "rack", "spec.levels[1].domain", "another level"),
]


def broken(manifest: dict, path: str, value) -> str:
    made = json.loads(json.dumps(manifest))  # parts that are written once above are several here
    *way, last = path.split(".")
    at = made
    for step in way:
        at = at[int(step)] if isinstance(at, list) else at[step]
    if isinstance(at, list):
        at[int(last)] = value
    elif value is None:
        del at[last]
    else:
        at[last] = value
    return yaml.safe_dump(made)


def render(text: str) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, "operator", "render", "-"], input=text, env=clean_environment(), capture_output=True, text=True, timeout=120)


class Refusals(unittest.TestCase):
    def test_manifests_are_accepted_as_they_are(self):
        for manifest in (GRAPH, ALPHA, REQUEST, REQUEST_ALPHA, MODEL, ADAPTER, ADAPTER_ALPHA, COMPONENT, CHECKPOINT, SET, TOPOLOGY):
            done = render(yaml.safe_dump(manifest))
            self.assertEqual((done.returncode, done.stderr), (0, ""), manifest["kind"])

    def test_each_broken_one_is_refused_by_name(self):
        texts = [broken(manifest, path, value) for manifest, path, value, *_ in CASES]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            results = list(pool.map(render, texts))
        for (manifest, path, value, field, allowed), done in zip(CASES, results):
            with self.subTest(kind=manifest["kind"], path=path, value=str(value)[:60]):
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                lines = done.stderr.strip().splitlines()
                self.assertEqual(len(lines), 1, lines)
                self.assertIn(field, lines[0])
                self.assertIn(allowed, lines[0])

    def test_lists_that_are_none_and_what_is_no_object(self):
        for text, wanted in (("kind: List\napiVersion: v1\nitems: 7\n", "items"), ("7\n", "no Kubernetes object"), ("[]\n", "no Kubernetes object"),
                             ("metadata: {name: x}\nkind: Pod\n", "apiVersion")):
            done = render(text)
            self.assertEqual((done.returncode, len(done.stderr.strip().splitlines())), (2, 1), text)
            self.assertIn(wanted, done.stderr)

    def test_start_up_order_must_not_go_in_a_circle(self):
        made = json.loads(json.dumps(SET))
        made["spec"]["template"]["podCliqueScalingGroups"] = []
        made["spec"]["template"]["cliqueStartupType"] = "CliqueStartupTypeExplicit"
        first, second = (each["spec"] for each in made["spec"]["template"]["cliques"])
        first["startsAfter"], second["startsAfter"] = ["b"], ["a"]
        done = render(yaml.safe_dump(made))
        self.assertEqual(done.returncode, 2)
        self.assertIn("spec.template.cliques", done.stderr)
        self.assertIn("circle", done.stderr)


if __name__ == "__main__":
    unittest.main()
