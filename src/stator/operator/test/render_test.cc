// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/render.h"

#include <gtest/gtest.h>

#include <set>

#include "graphs.h"
#include "stator/operator/crds.h"

namespace stator::op {
namespace {

using json::Value;

std::vector<Value> rendered(const Value& manifest, const Environment& environment = {}) {
  auto objects = render(std::span(&manifest, 1), environment);
  EXPECT_TRUE(objects) << objects.error().message();
  return objects ? std::move(*objects) : std::vector<Value>();
}

const Value& main_of(const Value& workload) {
  return workload.find_at({"spec", "template", "spec", "containers"})->elements().front();
}

std::string args_of(const Value& container) {
  std::string line;
  for (const std::string_view key : {"command", "args"}) {
    if (const Value* words = container.find(key)) {
      for (const Value& word : words->elements()) {
        line += (line.empty() ? "" : " ") + std::string(word.text());
      }
    }
  }
  return line;
}

std::string_view env_of(const Value& container, std::string_view name) {
  const Value* entry = kube::find_named(container.find("env"), name);
  return entry == nullptr ? std::string_view() : entry->text_at({"value"});
}

std::string worker_name(const std::vector<Value>& objects) {
  for (const Value& object : objects) {
    const std::string name = kube::name_of(object).name;
    if (object.text_at({"kind"}) == "Deployment" && name.starts_with("chat.one-worker-")) {
      return name;
    }
  }
  return "";
}

TEST(Render, MakesDeploymentsServicesAndTheRest) {
  const auto objects = rendered(from_yaml(kAggregated));
  EXPECT_NE(find_object(objects, "Deployment", "chat.one-frontend"), nullptr);
  EXPECT_NE(find_object(objects, "DynamoComponentDeployment", "chat.one-frontend"), nullptr);
  EXPECT_NE(find_object(objects, "Service", "chat-one-frontend"), nullptr);
  EXPECT_NE(find_object(objects, "Role", "chat.one-k8s-service-discovery-role"), nullptr);
  const Value* model =
      find_object(objects, "Service", "dynamo-model-" + kube::short_hash("Qwen/Qwen3-0.6B"));
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->text_at({"spec", "clusterIP"}), "None");
  const Value* adapter =
      find_object(objects, "DynamoGraphDeploymentScalingAdapter", "chat.one-worker");
  ASSERT_NE(adapter, nullptr);
  EXPECT_EQ(kube::int_at(*adapter, {"spec", "replicas"}, 0), 2);
  const std::string name = worker_name(objects);
  EXPECT_EQ(name.size(), std::string("chat.one-worker-").size() + 8);
}

TEST(Render, WorkersHaveTheirTypesDefaultsUnderWhatTheUserWrote) {
  const auto objects = rendered(from_yaml(kAggregated));
  const Value* worker = find_object(objects, "Deployment", worker_name(objects));
  ASSERT_NE(worker, nullptr);
  const Value& main = main_of(*worker);
  EXPECT_EQ(env_of(main, "DYN_NAMESPACE"), "llm-chat-one");
  EXPECT_EQ(env_of(main, "DYN_NAMESPACE_WORKER_SUFFIX"),
            worker->text_at({"metadata", "labels", "nvidia.com/dynamo-worker-hash"}));
  EXPECT_EQ(env_of(main, "SHARED"), "own");
  EXPECT_EQ(env_of(main, "COMMON"), "1");
  EXPECT_EQ(env_of(main, "DYN_SYSTEM_PORT"), "9191");
  EXPECT_EQ(env_of(main, "VLLM_CACHE_ROOT"), "/root/.cache/vllm");
  EXPECT_EQ(args_of(main), "python3 -m dynamo.vllm --model Qwen/Qwen3-0.6B");
  EXPECT_EQ(main.text_at({"livenessProbe", "httpGet", "path"}), "/live");
  EXPECT_EQ(kube::int_at(main, {"startupProbe", "failureThreshold"}, 0), 720);
  const Value& pod = *worker->find_at({"spec", "template", "spec"});
  EXPECT_EQ(kube::find_named(pod.find("volumes"), "model-cache")
                ->text_at({"persistentVolumeClaim", "claimName"}),
            "model-cache");
  EXPECT_EQ(
      kube::find_named(pod.find("volumes"), "shared-memory")->text_at({"emptyDir", "sizeLimit"}),
      "8Gi");
  EXPECT_EQ(kube::int_at(pod, {"securityContext", "fsGroup"}, 0), 1000);
  EXPECT_EQ(pod.text_at({"serviceAccountName"}), "chat.one-k8s-service-discovery");
  EXPECT_EQ(pod.find("containers")->elements()[1].text_at({"name"}), "logger");
  EXPECT_EQ(kube::int_at(*worker, {"spec", "strategy", "rollingUpdate", "maxSurge"}, 0), 1);
  EXPECT_EQ(worker->text_at({"spec", "strategy", "rollingUpdate", "maxUnavailable"}), "25%");
}

TEST(Render, UsersCannotTakeOverSystemLabels) {
  const auto objects = rendered(from_yaml(kAggregated));
  const Value* frontend = find_object(objects, "Deployment", "chat.one-frontend");
  const Value& labels = *frontend->find_at({"spec", "template", "metadata", "labels"});
  EXPECT_EQ(labels.text_at({"team"}), "blue");
  EXPECT_EQ(labels.text_at({"nvidia.com/dynamo-component"}), "Frontend");
  EXPECT_EQ(labels.text_at({"nvidia.com/selector"}),
            frontend->text_at({"spec", "selector", "matchLabels", "nvidia.com/selector"}));
}

TEST(Render, TheGenerationChangesWithTheWorkersOnly) {
  const auto before = worker_name(rendered(from_yaml(kAggregated)));
  Value scaled = from_yaml(kAggregated);
  scaled["spec"]["components"].mutable_elements()->at(1)["replicas"] = 5;
  EXPECT_EQ(worker_name(rendered(scaled)), before);
  Value changed = from_yaml(kAggregated);
  kube::at(changed["spec"]["components"].mutable_elements()->at(1), {"modelRef"})["revision"] = "b";
  EXPECT_NE(worker_name(rendered(changed)), before);
}

constexpr std::string_view kMultinode = R"(
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: big}
spec:
  pvcs:
  - {name: models, create: true, size: 10Gi, storageClass: fast, volumeAccessMode: ReadWriteMany}
  services:
    Frontend: {componentType: frontend, ingress: {enabled: true, hostPrefix: x-}, extraPodSpec: {mainContainer: {image: "reg/sglang-runtime:1.0.0"}}}
    decode:
      componentType: worker
      subComponentType: decode
      replicas: 3
      multinode: {nodeCount: 4}
      resources: {limits: {gpu: "8", custom: {rdma/ib: "8"}}}
      extraPodSpec: {mainContainer: {image: "reg/sglang-runtime:1.0.0", command: [python3, -m, dynamo.sglang], args: [--tp, "32"]}}
)";

TEST(Render, SeveralNodesBecomeALeaderWorkerSet) {
  const auto objects = rendered(from_yaml(kMultinode));
  const Value* set = find_object(objects, "LeaderWorkerSet", "big-decode-0");
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(kube::int_at(*set, {"spec", "replicas"}, 0), 3);
  EXPECT_EQ(kube::int_at(*set, {"spec", "leaderWorkerTemplate", "size"}, 0), 4);
  const Value& leader =
      set->find_at({"spec", "leaderWorkerTemplate", "leaderTemplate", "spec", "containers"})
          ->elements()[0];
  const Value& worker =
      set->find_at({"spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers"})
          ->elements()[0];
  EXPECT_EQ(
      args_of(leader),
      "python3 -m dynamo.sglang --tp 32 --dist-init-addr $(LWS_LEADER_ADDRESS):29500 --nnodes 4 "
      "--node-rank 0");
  EXPECT_TRUE(args_of(worker).ends_with("--node-rank $(LWS_WORKER_INDEX)"));
  EXPECT_NE(leader.find("readinessProbe"), nullptr);
  EXPECT_EQ(worker.find("readinessProbe"), nullptr);
  EXPECT_EQ(worker.text_at({"resources", "limits", "nvidia.com/gpu"}), "8");
  EXPECT_EQ(worker.text_at({"resources", "limits", "rdma/ib"}), "8");
}

TEST(Render, FieldsThatOnlyTheOldVersionHasAreActedOn) {
  const auto objects = rendered(from_yaml(kMultinode));
  const Value* claim = find_object(objects, "PersistentVolumeClaim", "models");
  ASSERT_NE(claim, nullptr);
  EXPECT_EQ(claim->text_at({"spec", "resources", "requests", "storage"}), "10Gi");
  const Value* ingress = find_object(objects, "Ingress", "big-frontend");
  ASSERT_NE(ingress, nullptr);
  EXPECT_EQ(ingress->find_at({"spec", "rules"})->elements()[0].text_at({"host"}), "x-big.local");
}

TEST(Render, OnTheGrovePathOneSetHoldsAllCliques) {
  const auto objects = rendered(from_yaml(kMultinode), {.has_grove = true});
  const Value* set = find_object(objects, "PodCliqueSet", "big");
  ASSERT_NE(set, nullptr);
  const Value& pods = *set->find_at({"spec", "template"});
  EXPECT_EQ(pods.text_at({"terminationDelay"}), "4h");
  ASSERT_EQ(pods.find("cliques")->size(), 3U);
  const Value* worker = kube::find_named(pods.find("cliques"), "decode-wkr");
  ASSERT_NE(worker, nullptr);
  EXPECT_EQ(kube::int_at(*worker, {"spec", "replicas"}, 0), 3);
  const Value& container = worker->find_at({"spec", "podSpec", "containers"})->elements()[0];
  EXPECT_EQ(args_of(container),
            "sh -c exec \"$@\" --node-rank $((GROVE_PCLQ_POD_INDEX + 1)) engine python3 -m "
            "dynamo.sglang --tp 32 --dist-init-addr "
            "$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-decode-ldr-0.$(GROVE_HEADLESS_SERVICE):29500 "
            "--nnodes 4");
  const Value* group = kube::find_named(pods.find("podCliqueScalingGroups"), "decode");
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(kube::int_at(*group, {"replicas"}, 0), 3);
  EXPECT_EQ(kube::int_at(*group, {"minAvailable"}, 0), 1);
  EXPECT_EQ(find_object(objects, "Deployment", "big-frontend"), nullptr);
}

TEST(Render, PickersGetAPoolAndTheirConfiguration) {
  const auto objects = rendered(from_yaml(R"(
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: g}
spec:
  components:
  - name: epp
    type: epp
    eppConfig: {config: {plugins: [{type: kv-aware-scorer}]}}
    podTemplate: {spec: {containers: [{name: main, image: "reg/stator:1"}]}}
)"));
  const Value* pool = find_object(objects, "InferencePool", "g-pool");
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(pool->text_at({"spec", "endpointPickerRef", "name"}), "g-epp");
  EXPECT_EQ(kube::int_at(*pool, {"spec", "endpointPickerRef", "port", "number"}, 0), 9002);
  const Value* config = find_object(objects, "ConfigMap", "g-epp-config");
  ASSERT_NE(config, nullptr);
  EXPECT_NE(config->text_at({"data", "epp-config-dynamo.yaml"}).find("kind: EndpointPickerConfig"),
            std::string_view::npos);
  const Value& main = main_of(*find_object(objects, "Deployment", "g-epp"));
  EXPECT_TRUE(args_of(main).starts_with("stator epp --pool-name g-pool --pool-namespace default"));
}

TEST(Render, LeavesForeignObjectsAsTheyAreAndTakesListsApart) {
  const auto objects = rendered(from_yaml(R"(
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {n: "123"}}
)"));
  ASSERT_EQ(objects.size(), 1U);
  EXPECT_EQ(json::to_text(objects[0]),
            R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"n":"123"}})");
}

TEST(Crds, NameEveryKindOnce) {
  const auto crds = make_crds({.webhook_service = "sys/hooks", .ca_bundle = "Q0E="});
  EXPECT_EQ(crds.size(), 12U);
  const Value* graph =
      find_object(crds, "CustomResourceDefinition", "dynamographdeployments.nvidia.com");
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(graph->text_at({"spec", "conversion", "webhook", "clientConfig", "service", "name"}),
            "hooks");
  EXPECT_EQ(graph->text_at({"spec", "conversion", "webhook", "clientConfig", "caBundle"}), "Q0E=");
  EXPECT_EQ(graph->find_at({"spec", "versions"})->size(), 2U);
}

TEST(Render, TensorRtLeadersHaveAKeyForTheirWorkers) {
  Value graph = from_yaml(R"(
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: big, namespace: llm}
spec:
  backendFramework: trtllm
  components:
  - name: W
    type: worker
    multinode: {nodeCount: 2}
    podTemplate:
      spec:
        containers: [{name: main, image: "r/trt:1.0.0", command: [python3], args: [-m, dynamo.trtllm], resources: {limits: {nvidia.com/gpu: "8"}}}]
)");
  const Environment environment;
  const auto made = children_of_graph(admit(graph, environment).value(), environment);
  const Value* secret = find_object(made, "Secret", "big-mpi-ssh");
  ASSERT_NE(secret, nullptr);
  EXPECT_EQ(secret->find("data"), nullptr);  // whoever makes it fills it in
  bool is_mounted = false;
  for (const Value& object : made) {
    if (object.text_at({"kind"}) == "LeaderWorkerSet") {
      is_mounted =
          json::to_text(object).find("\"secretName\":\"big-mpi-ssh\"") != std::string::npos;
    }
  }
  EXPECT_TRUE(is_mounted);
}

TEST(Render, WhatUsersMountOrRepeatIsTheirs) {
  Value graph = from_yaml(kAggregated);
  Value& pod = graph["spec"]["components"].mutable_elements()->at(1)["podTemplate"]["spec"];
  pod["volumes"] = from_yaml("[{name: dshm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]");
  Value& main = pod["containers"].mutable_elements()->at(0);
  main["volumeMounts"].push_back(from_yaml("{name: dshm, mountPath: /dev/shm}"));
  main["env"].push_back(from_yaml("{name: SHARED, value: last}"));
  const auto made = render(std::vector<Value>{graph}, {});
  ASSERT_TRUE(made) << made.error().message();
  for (const Value& object : *made) {
    if (object.text_at({"kind"}) != "Deployment" ||
        kube::name_of(object).name.find("worker") == std::string::npos) {
      continue;
    }
    const Value& spec = object.at("spec").at("template").at("spec");
    const Value& container = spec.at("containers").at(size_t{0});
    std::multiset<std::string> paths;
    std::multiset<std::string> names;
    for (const Value& mount : container.at("volumeMounts").elements()) {
      paths.emplace(mount.text_at({"mountPath"}));
    }
    for (const Value& entry : container.at("env").elements()) {
      names.emplace(entry.text_at({"name"}));
    }
    EXPECT_EQ(paths.count("/dev/shm"), 1U);
    EXPECT_EQ(kube::find_named(&spec.at("volumes"), "shared-memory"), nullptr);
    EXPECT_EQ(names.count("SHARED"), 1U);
    EXPECT_EQ(kube::find_named(&container.at("env"), "SHARED")->text_at({"value"}), "last");
  }
}

TEST(Render, AComponentOnItsOwnBringsItsAccount) {
  const std::vector<Value> manifests = {from_yaml(R"(
apiVersion: nvidia.com/v1beta1
kind: DynamoComponentDeployment
metadata: {name: alone, namespace: llm}
spec:
  backendFramework: vllm
  name: decode
  type: decode
  podTemplate: {spec: {containers: [{name: main, image: reg/vllm-runtime:1.2.3}]}}
)")};
  const auto made = render(manifests, {});
  ASSERT_TRUE(made) << made.error().message();
  const Value* deployment = find_object(*made, "Deployment", "alone");
  ASSERT_NE(deployment, nullptr);
  const std::string account(
      deployment->text_at({"spec", "template", "spec", "serviceAccountName"}));
  EXPECT_NE(find_object(*made, "ServiceAccount", account), nullptr) << account;
}

}  // namespace
}  // namespace stator::op
