// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "graphs.h"
#include "stator/operator/move_in.h"
#include "stator/operator/names.h"
#include "stator/operator/objects.h"
#include "stator/operator/reconcile.h"
#include "stator/operator/render.h"

namespace stator::op {
namespace {

using json::Value;

Value grove_graph() {
  Value graph = from_yaml(kAggregated);
  graph["metadata"]["name"] = "chat";
  graph["metadata"]["uid"] = "u1";
  graph["metadata"]["generation"] = 1;
  graph["metadata"]["annotations"][kAnnotationProvider] = "grove";
  return graph;
}

Value clique(std::string_view kind, std::string_view name, int64_t replicas,
             std::string_view mark) {
  Value made =
      from_yaml("{metadata: {namespace: llm, generation: 1}, status: {observedGeneration: 1}}");
  made["kind"] = kind;
  made["metadata"]["name"] = name;
  if (!mark.empty()) {
    made["metadata"]["annotations"][kAnnotationRestartAt] = mark;
  }
  made["spec"]["replicas"] = replicas;
  for (const std::string_view key :
       {"replicas", "updatedReplicas", "scheduledReplicas", "readyReplicas", "availableReplicas"}) {
    made["status"][key] = replicas;
  }
  return made;
}

GraphView view_of(Value graph, std::vector<Value> cliques) {
  return {.graph = std::move(graph),
          .components = {},
          .adapters = {},
          .cliques = std::move(cliques),
          .now = "2026-01-01T00:00:00Z"};
}

const Value* set_in(const Plan& plan) {
  const auto found = std::ranges::find_if(
      plan.apply, [](const Value& each) { return each.text_at({"kind"}) == "PodCliqueSet"; });
  return found == plan.apply.end() ? nullptr : &*found;
}

std::string mark_in(const Plan& plan, std::string_view name) {
  const Value* entry =
      kube::find_named(&set_in(plan)->at("spec").at("template").at("cliques"), name);
  return std::string(entry->text_at({"annotations", kAnnotationRestartAt}));
}

TEST(GrovePath, RestartsOneComponentAfterTheOther) {
  Value graph = grove_graph();
  graph["spec"]["restart"] = from_yaml("{id: one}");
  GraphView view = view_of(graph, {clique("PodClique", "chat-0-frontend", 1, ""),
                                   clique("PodClique", "chat-0-worker", 2, "")});
  Plan plan = plan_graph(view, {});
  EXPECT_EQ(mark_in(plan, "frontend"), "one");
  EXPECT_EQ(mark_in(plan, "worker"), "");
  EXPECT_EQ(plan.status.text_at({"restart", "phase"}), "Restarting");

  view.graph["status"] = plan.status;
  view.cliques.front() = clique("PodClique", "chat-0-frontend", 1, "one");
  plan = plan_graph(view, {});
  EXPECT_EQ(mark_in(plan, "frontend"), "one");
  EXPECT_EQ(mark_in(plan, "worker"), "one");

  view.graph["status"] = plan.status;
  view.cliques.back() = clique("PodClique", "chat-0-worker", 2, "one");
  plan = plan_graph(view, {});
  EXPECT_EQ(plan.status.text_at({"restart", "phase"}), "Completed");
  EXPECT_EQ(plan.status.text_at({"state"}), "successful");
}

TEST(GrovePath, SaysWhyItIsNotReady) {
  Value worker = clique("PodClique", "chat-0-worker", 2, "");
  worker["status"]["scheduledReplicas"] = 1;
  worker["status"]["readyReplicas"] = 1;
  const Plan plan = plan_graph(
      view_of(grove_graph(), {clique("PodClique", "chat-0-frontend", 1, ""), worker}), {});
  const Value& ready = plan.status.at("conditions").at(size_t{0});
  EXPECT_EQ(ready.text_at({"reason"}), "InsufficientCapacity");
  EXPECT_EQ(ready.text_at({"message"}), "not ready: Worker (no capacity for its pods)");
}

TEST(GrovePath, PodsOfNewSetsCarryTheWorkersGeneration) {
  const auto label = [](const Plan& plan, std::string_view name) {
    const Value* entry =
        kube::find_named(&set_in(plan)->at("spec").at("template").at("cliques"), name);
    return std::string(entry->text_at({"labels", kLabelWorkerHash}));
  };
  GraphView view = view_of(grove_graph(), {});
  Plan plan = plan_graph(view, {});
  const std::string hash = label(plan, "worker");
  EXPECT_EQ(hash.size(), 8U);
  EXPECT_EQ(label(plan, "frontend"), "");
  // A set of before keeps its pods as they are, until the workers change.
  view.set = *set_in(plan);
  for (Value& each : *(*view.set)["spec"]["template"]["cliques"].mutable_elements()) {
    each["labels"].erase(kLabelWorkerHash);
  }
  EXPECT_EQ(label(plan_graph(view, {}), "worker"), "");
  view.graph["spec"]["env"].mutable_elements()->at(0)["value"] = "new";
  EXPECT_NE(label(plan_graph(view, {}), "worker"), "");
  EXPECT_NE(label(plan_graph(view, {}), "worker"), hash);
}

TEST(GrovePath, AForcedGroupIsReadyWhenTheGroupIs) {
  Value graph = grove_graph();
  graph["spec"]["components"].mutable_elements()->at(1)["experimental"] =
      from_yaml("{grove: {forceScalingGroup: true}}");
  const Plan plan =
      plan_graph(view_of(graph, {clique("PodClique", "chat-0-frontend", 1, ""),
                                 clique("PodCliqueScalingGroup", "chat-0-worker", 2, "")}),
                 {});
  EXPECT_EQ(plan.status.text_at({"state"}), "successful");
  EXPECT_EQ(plan.status.text_at({"components", "Worker", "componentKind"}),
            "PodCliqueScalingGroup");
}

TEST(GrovePath, ASetOfAnotherOperatorStaysUntilItsGraphChanges) {
  Value graph = grove_graph();
  graph["status"] = from_yaml("{observedGeneration: 1, state: successful}");
  GraphView view = view_of(graph, {});
  view.set = from_yaml("{kind: PodCliqueSet, metadata: {name: chat, namespace: llm}}");
  Plan plan = plan_graph(view, {});
  EXPECT_EQ(set_in(plan), nullptr);
  ASSERT_TRUE(plan.patch);
  kube::merge_patch(view.graph, *plan.patch);
  // More replicas are more of the same; another image is not.
  view.graph["spec"]["components"].mutable_elements()->at(1)["replicas"] = 5;
  view.graph["metadata"]["generation"] = 2;
  EXPECT_EQ(set_in(plan_graph(view, {})), nullptr);
  view.graph["spec"]["components"].mutable_elements()->at(1)["modelRef"]["revision"] = "b";
  EXPECT_NE(set_in(plan_graph(view, {})), nullptr);
}

TEST(MoveIn, LeaderWorkerSetsKeepTheirNamesAndPods) {
  Value graph = from_yaml(kAggregated);
  graph["metadata"]["name"] = "chat";
  graph["metadata"]["uid"] = "u1";
  graph["metadata"]["generation"] = 1;
  graph["spec"]["components"].mutable_elements()->at(1)["multinode"] = from_yaml("{nodeCount: 2}");
  graph["status"] = from_yaml("{observedGeneration: 1, state: successful}");
  const auto admitted = admit(graph, {});
  ASSERT_TRUE(admitted);
  std::vector<Value> stored = make_component_deployments(Graph(*admitted, {}), {}, "0badcafe", "");
  for (Value& object : stored) {
    object["metadata"].erase("annotations");
    kube::set_owner(object, graph);
  }
  GraphView view = view_of(graph, {});
  view.components = stored;
  Plan plan = plan_graph(view, {});
  const auto worker = [](const Plan& made) {
    return std::ranges::find_if(made.apply, [](const Value& each) {
      return each.text_at({"kind"}) == "DynamoComponentDeployment" &&
             each.text_at({"spec", "name"}) == "Worker";
    });
  };
  ASSERT_NE(worker(plan), plan.apply.end());
  EXPECT_EQ(kube::name_of(*worker(plan)).name, "chat-worker-0badcafe");
  EXPECT_EQ(kube::annotation_of(*worker(plan), kAnnotationKeepsPods), "true");
  EXPECT_TRUE(plan.remove.empty());
  // A change rolls the set in place, under the name that it has.
  ASSERT_TRUE(plan.patch);
  kube::merge_patch(view.graph, *plan.patch);
  view.graph["spec"]["components"].mutable_elements()->at(1)["modelRef"]["revision"] = "b";
  plan = plan_graph(view, {});
  EXPECT_EQ(kube::name_of(*worker(plan)).name, "chat-worker-0badcafe");
  EXPECT_EQ(kube::annotation_of(*worker(plan), kAnnotationKeepsPods), "");
  EXPECT_TRUE(plan.remove.empty());
}

}  // namespace
}  // namespace stator::op
