// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "graphs.h"
#include "stator/operator/checkpoint.h"
#include "stator/operator/names.h"
#include "stator/operator/render.h"
#include "stator/operator/topology_labels.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::string_view kNow = "2026-01-01T00:00:00Z";

Value worker_with(std::string_view experimental, std::string_view discovery_mode = "container") {
  Value graph = from_yaml(kAggregated);
  graph["metadata"]["name"] = "chat";
  graph["metadata"]["uid"] = "u1";
  graph["metadata"]["annotations"][kAnnotationDiscoveryMode] = discovery_mode;
  graph["spec"]["components"].mutable_elements()->at(1)["experimental"] = from_yaml(experimental);
  return graph;
}

std::vector<Value> children(const Value& graph) {
  auto admitted = admit(graph, {});
  EXPECT_TRUE(admitted) << admitted.error().message();
  return admitted ? children_of_graph(*admitted, {}) : std::vector<Value>();
}

const Value& workload(const std::vector<Value>& objects) {
  for (const Value& object : objects) {
    if (object.text_at({"kind"}) == "Deployment" &&
        kube::name_of(object).name.starts_with("chat-worker")) {
      return object;
    }
  }
  static const Value kNone;
  return kNone;
}

std::string env_of(const Value& container, std::string_view name) {
  const Value* entry = kube::find_named(container.find("env"), name);
  return entry == nullptr ? "" : std::string(entry->text_at({"value"}));
}

TEST(GpuMemory, TheContainersOfAPodShareOneClaim) {
  const auto objects = children(
      worker_with("{gpuMemoryService: {extraClientContainers: [logger], deviceClassName: big}}"));
  const Value* claim = find_object(objects, "ResourceClaimTemplate", "chat-worker-gpu");
  ASSERT_NE(claim, nullptr);
  const Value& request =
      claim->at("spec").at("spec").at("devices").at("requests").at(size_t{0}).at("exactly");
  EXPECT_EQ(request.text_at({"deviceClassName"}), "big");
  EXPECT_EQ(kube::int_at(request, {"count"}, 0), 1);
  const Value& pod = workload(objects).at("spec").at("template").at("spec");
  EXPECT_EQ(pod.at("resourceClaims").at(size_t{0}).text_at({"resourceClaimTemplateName"}),
            "chat-worker-gpu");
  for (const std::string_view name : {"main", "logger"}) {
    const Value* container = kube::find_named(&pod.at("containers"), name);
    ASSERT_NE(container, nullptr);
    EXPECT_EQ(container->at("resources").at("claims").size(), 1U) << name;
    EXPECT_EQ(container->at("resources").at("limits").size(), 0U) << name;
    EXPECT_EQ(env_of(*container, "GMS_SOCKET_DIR"), "/gms-intrapod-control");
  }
  const Value* server = kube::find_named(&pod.at("initContainers"), "gms-server");
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->text_at({"restartPolicy"}), "Always");
  EXPECT_EQ(server->text_at({"image"}), "reg/vllm-runtime:1.2.3");
}

TEST(GpuMemory, AShadowIsASecondEngineInThePod) {
  const auto objects = children(worker_with("{gpuMemoryService: {}, failover: {}}"));
  const Value& pod = workload(objects).at("spec").at("template").at("spec");
  ASSERT_EQ(pod.at("containers").size(), 3U);
  EXPECT_EQ(kube::find_named(&pod.at("containers"), "main"), nullptr);
  const Value* shadow = kube::find_named(&pod.at("containers"), "engine-1");
  ASSERT_NE(shadow, nullptr);
  EXPECT_EQ(env_of(*shadow, "ENGINE_ID"), "1");
  EXPECT_EQ(env_of(*shadow, "DYN_SYSTEM_PORT"), "9091");
  EXPECT_EQ(env_of(*shadow, "FAILOVER_LOCK_PATH"), "/gms-intrapod-control/failover.lock");
  EXPECT_EQ(env_of(*shadow, "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS"), "");
  EXPECT_EQ(shadow->text_at({"livenessProbe", "httpGet", "port"}), "system-1");
  EXPECT_EQ(shadow->at("args").elements().back().text(), "29600");
}

TEST(GpuMemory, AShadowNeedsDiscoveryByContainer) {
  const auto refused = admit(worker_with("{gpuMemoryService: {}, failover: {}}", "pod"), {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("experimental.failover: Forbidden"), std::string::npos);
}

TEST(GpuMemory, ServersAndEnginesArePodsOfTheirOwn) {
  const auto objects = children(worker_with(
      "{gpuMemoryService: {mode: InterPod}, failover: {mode: InterPod, numShadows: 1}}"));
  const Value* set = find_object(objects, "PodCliqueSet", "chat");
  ASSERT_NE(set, nullptr);
  const Value& pods = set->at("spec").at("template");
  const Value* server = kube::find_named(&pods.at("cliques"), "worker-gms-0");
  const Value* engines = kube::find_named(&pods.at("cliques"), "worker");
  ASSERT_NE(server, nullptr);
  ASSERT_NE(engines, nullptr);
  EXPECT_EQ(kube::int_at(*server, {"spec", "replicas"}, 0), 1);
  EXPECT_EQ(kube::int_at(*engines, {"spec", "replicas"}, 0), 2);
  EXPECT_EQ(engines->at("spec").at("startsAfter").at(size_t{0}).text(), "worker-gms-0");
  EXPECT_EQ(engines->text_at({"spec", "podSpec", "restartPolicy"}), "Never");
  EXPECT_EQ(engines->text_at({"labels", kLabelEngineGroup}), "true");
  EXPECT_EQ(pods.text_at({"cliqueStartupType"}), "CliqueStartupTypeExplicit");
  const Value& group = pods.at("podCliqueScalingGroups").at(size_t{0});
  EXPECT_EQ(kube::int_at(group, {"replicas"}, 0), 2);
  EXPECT_EQ(group.at("resourceSharing").at(size_t{0}).text_at({"name"}), "worker-gpu-rank-0");
  EXPECT_EQ(group.at("resourceSharing").at(size_t{0}).at("filter").at("childCliqueNames").size(),
            2U);
  EXPECT_EQ(pods.at("resourceClaimTemplates").at(size_t{0}).text_at({"name"}), "worker-gpu-rank-0");
}

TEST(GpuMemory, EachNodeOfAnEngineHasAServerAndItsRank) {
  Value graph = worker_with("{gpuMemoryService: {mode: InterPod}}");
  graph["spec"]["components"].mutable_elements()->at(1)["multinode"] = from_yaml("{nodeCount: 2}");
  const auto objects = children(graph);
  const Value& cliques =
      find_object(objects, "PodCliqueSet", "chat")->at("spec").at("template").at("cliques");
  for (const std::string_view name :
       {"worker-gms-0", "worker-ldr", "worker-gms-1", "worker-wkr-1"}) {
    EXPECT_NE(kube::find_named(&cliques, name), nullptr) << name;
  }
}

// ---------------------------------------------------------------------------------- checkpoints

TEST(Checkpoints, APodWaitsForItsCheckpointAndIsRestoredFromIt) {
  GraphView view{.graph = worker_with("{checkpoint: {startupPolicy: WaitForCheckpoint}}"),
                 .components = {},
                 .adapters = {},
                 .cliques = {},
                 .now = std::string(kNow)};
  const Plan waiting = plan_graph(view, {});
  EXPECT_EQ(waiting.status.text_at({"state"}), "waiting_for_checkpoint");
  EXPECT_EQ(waiting.status.at("conditions").at(size_t{0}).text_at({"reason"}),
            "WaitingForCheckpoint");
  for (const Value& child : waiting.apply) {
    EXPECT_FALSE(kube::name_of(child).name.starts_with("chat-worker")) << json::to_text(child);
  }
  const auto made = std::ranges::find_if(waiting.create, [](const Value& each) {
    return each.text_at({"kind"}) == "DynamoCheckpoint";
  });
  ASSERT_NE(made, waiting.create.end());
  const std::string name = kube::name_of(*made).name;
  EXPECT_EQ(waiting.status.text_at({"checkpoints", "Worker", "checkpointName"}), name);

  Value ready = *made;
  ready["status"] = from_yaml("{phase: Ready, checkpointID: abc}");
  view.checkpoints = {ready};
  const Plan going = plan_graph(view, {});
  const auto worker = std::ranges::find_if(going.apply, [](const Value& each) {
    return each.text_at({"kind"}) == "DynamoComponentDeployment" &&
           each.text_at({"spec", "name"}) == "Worker";
  });
  ASSERT_NE(worker, going.apply.end());
  EXPECT_EQ(going.status.text_at({"checkpoints", "Worker", "checkpointID"}), "abc");

  const auto admitted = admit(view.graph, {});
  ASSERT_TRUE(admitted);
  const auto objects = children_of_graph(*admitted, {});
  Value pod = workload(objects).at("spec").at("template");
  EXPECT_EQ(checkpoint_of_pod(pod), name);
  EXPECT_EQ(restore_pod(pod, *made), std::nullopt);  // it starts cold
  const auto restored = restore_pod(pod, ready);
  ASSERT_TRUE(restored);
  EXPECT_EQ(kube::label_of(*restored, "nvidia.com/snapshot-is-restore-target"), "true");
  EXPECT_EQ(kube::label_of(*restored, kLabelSnapshotId), "abc");
  const Value* main = kube::find_named(&restored->at("spec").at("containers"), "main");
  EXPECT_EQ(env_of(*main, "DYN_SNAPSHOT_RESTORE_STANDBY"), "1");
  EXPECT_EQ(kube::int_at(*main, {"startupProbe", "periodSeconds"}, 0), 1);
  EXPECT_EQ(kube::int_at(*main, {"readinessProbe", "periodSeconds"}, 0), 1);
  EXPECT_EQ(restored->text_at({"spec", "securityContext", "seccompProfile", "localhostProfile"}),
            "profiles/block-iouring.json");
}

constexpr std::string_view kCheckpoint = R"(
apiVersion: nvidia.com/v1alpha1
kind: DynamoCheckpoint
metadata: {name: c, namespace: n, uid: u}
spec:
  job:
    podTemplateSpec:
      spec: {containers: [{name: main, image: i, livenessProbe: {exec: {command: [x]}}}]}
)";

TEST(Checkpoints, GoFromAJobToASnapshot) {
  CheckpointView view{.checkpoint = from_yaml(kCheckpoint), .now = std::string(kNow)};
  Plan plan = plan_checkpoint(view);
  EXPECT_EQ(plan.status.text_at({"phase"}), "Pending");
  EXPECT_NE(plan.status.text_at({"message"}).find("snapshot agent"), std::string_view::npos);

  view.has_agent = true;
  view.checkpoint["status"] = plan.status;
  plan = plan_checkpoint(view);
  EXPECT_EQ(plan.status.text_at({"phase"}), "Creating");
  ASSERT_EQ(plan.create.size(), 1U);
  const Value job = plan.create.front();
  EXPECT_EQ(kube::name_of(job).name, plan.status.text_at({"jobName"}));
  EXPECT_EQ(kube::int_at(job, {"spec", "activeDeadlineSeconds"}, 0), 3600);
  EXPECT_EQ(kube::int_at(job, {"spec", "backoffLimit"}, -1), 0);
  const Value& spec = job.at("spec").at("template").at("spec");
  EXPECT_EQ(spec.at("containers").at(size_t{0}).find("livenessProbe"), nullptr);

  view.job = job;
  view.pod = from_yaml(
      "{metadata: {name: p, uid: up}, status: {conditions: [{type: Ready, status: \"True\"}]}}");
  plan = plan_checkpoint(view);
  ASSERT_EQ(plan.create.size(), 1U);
  EXPECT_EQ(plan.create.front().text_at({"kind"}), "PodSnapshot");
  EXPECT_EQ(plan.create.front().text_at({"spec", "source", "podRef", "uid"}), "up");

  view.snapshot = plan.create.front();
  (*view.snapshot)["status"] = from_yaml("{conditions: [{type: Ready, status: \"True\"}]}");
  plan = plan_checkpoint(view);
  EXPECT_EQ(plan.status.text_at({"phase"}), "Ready");
  EXPECT_EQ(plan.status.text_at({"podSnapshotName"}), "c");
  view.checkpoint["status"] = plan.status;
  plan = plan_checkpoint(view);
  ASSERT_EQ(plan.remove.size(), 1U);
  EXPECT_EQ(plan.remove.front().resource.kind, "Job");
}

TEST(Checkpoints, AFailedJobSaysWhy) {
  CheckpointView view{.checkpoint = from_yaml(kCheckpoint), .now = std::string(kNow)};
  view.has_agent = true;
  view.job = from_yaml(
      "{kind: Job, status: {conditions: [{type: Failed, status: \"True\", message: too slow}]}}");
  const Plan plan = plan_checkpoint(view);
  EXPECT_EQ(plan.status.text_at({"phase"}), "Failed");
  EXPECT_EQ(plan.status.text_at({"message"}), "the job failed: too slow");
}

// ------------------------------------------------------------------------------ topology labels

TEST(TopologyLabels, AreTheNodes) {
  const Value node = from_yaml("{metadata: {name: n1, labels: {rack: r7, zone: z1}}}");
  Value pod = from_yaml(
      "{metadata: {annotations: {nvidia.com/topology-label-key: rack}}, spec: {nodeName: n1}}");
  TopologyLabels plan = plan_topology_labels(pod, node, {});
  ASSERT_TRUE(plan.patch);
  EXPECT_EQ(plan.patch->text_at({"metadata", "labels", "rack"}), "r7");
  kube::merge_patch(pod, *plan.patch);
  EXPECT_EQ(plan_topology_labels(pod, node, {}).patch, std::nullopt);

  const Value by_name = from_yaml(
      "{metadata: {annotations: {nvidia.com/topology-cluster-topology-name: t, "
      "stator.dev/topology-domain: area}}}");
  const std::vector<Value> topologies = {
      from_yaml("{metadata: {name: t}, spec: {levels: [{domain: area, key: zone}, {domain: rack, "
                "key: rack}]}}")};
  plan = plan_topology_labels(by_name, node, topologies);
  ASSERT_TRUE(plan.patch);
  EXPECT_EQ(json::to_text(plan.patch->at("metadata").at("labels")),
            "{\"nvidia.com/dynamo-topology.area\":\"z1\"}");

  const Value elsewhere = from_yaml("{metadata: {name: n2}}");
  plan = plan_topology_labels(
      from_yaml("{metadata: {annotations: {nvidia.com/topology-label-key: rack}}}"), elsewhere, {});
  EXPECT_EQ(plan.patch, std::nullopt);
  ASSERT_EQ(plan.events.size(), 1U);
  EXPECT_TRUE(plan.events.front().is_warning);
}

}  // namespace
}  // namespace stator::op
