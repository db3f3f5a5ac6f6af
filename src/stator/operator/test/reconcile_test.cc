// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/reconcile.h"

#include <gtest/gtest.h>

#include <set>

#include "graphs.h"
#include "stator/operator/controller.h"
#include "stator/operator/names.h"
#include "stator/operator/render.h"
#include "stator/operator/rollout.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::string_view kNow = "2026-01-01T00:00:00Z";

/// A cluster of one graph: what a plan says is done at once, and workloads become what is asked.
class World {
 public:
  explicit World(Value graph) : graph_(std::move(graph)) {
    graph_["metadata"]["uid"] = "u1";
    graph_["metadata"]["generation"] = 1;
  }

  Plan step(bool workloads_ready = true) {
    GraphView view{.graph = graph_, .adapters = adapters_, .now = std::string(kNow)};
    for (auto& [name, component] : components_) {
      view.components.push_back(component);
    }
    Plan plan = plan_graph(view, {});
    if (plan.patch) {
      kube::merge_patch(graph_, *plan.patch);
    }
    for (const Value& child : plan.apply) {
      if (child.text_at({"kind"}) == "DynamoComponentDeployment") {
        Value& stored = components_[kube::name_of(child).name];
        Value status =
            stored.is_object() && stored.find("status") ? *stored.find("status") : Value();
        stored = child;
        stored["metadata"]["generation"] = 1;
        if (workloads_ready) {
          status = ready_status(kube::int_at(child, {"spec", "replicas"}, 1));
          status["restartedAt"] = kube::annotation_of(child, kAnnotationRestartAt);
        }
        stored["status"] = status;
      }
    }
    for (const Value& child : plan.create) {
      if (child.text_at({"kind"}) == "DynamoGraphDeploymentScalingAdapter") {
        adapters_.push_back(child);
      }
    }
    for (const Removal& removal : plan.remove) {
      components_.erase(removal.name.name);
    }
    if (!plan.status.is_null()) {
      graph_["status"] = plan.status;
    }
    return plan;
  }

  static Value ready_status(int64_t replicas) {
    Value status =
        from_yaml("{observedGeneration: 1, conditions: [{type: Available, status: \"True\"}]}");
    for (const std::string_view key :
         {"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"}) {
      kube::at(status, {"component"})[key] = replicas;
    }
    return status;
  }

  std::string state() const { return std::string(graph_.text_at({"status", "state"})); }
  Value graph_;
  std::map<std::string, Value> components_;
  std::vector<Value> adapters_;
};

TEST(Reconcile, BringsAGraphToReadyAndThenRestsOnIt) {
  World world(from_yaml(kAggregated));
  const Plan first = world.step();
  EXPECT_NE(first.patch, std::nullopt);
  EXPECT_EQ(world.state(), "pending");
  world.step();
  EXPECT_EQ(world.state(), "successful");
  const Value before = *world.graph_.find("status");
  const Plan third = world.step();
  EXPECT_EQ(third.patch, std::nullopt);
  EXPECT_TRUE(kube::same(third.status, before));
  EXPECT_TRUE(third.remove.empty());
}

TEST(Reconcile, ABrokenGraphSaysWhyAndCanBeDeleted) {
  Value broken = from_yaml(kAggregated);
  broken["spec"]["backendFramework"] = "tgi";
  World world(broken);
  const Plan plan = world.step();
  EXPECT_EQ(world.state(), "failed");
  EXPECT_TRUE(plan.apply.empty());
  world.graph_["metadata"]["deletionTimestamp"] = kNow;
  world.graph_["metadata"]["finalizers"] =
      json::parse("[\"other\",\"nvidia.com/finalizer\"]").value();
  const Plan last = world.step();
  ASSERT_TRUE(last.patch);
  EXPECT_EQ(json::to_text(*last.patch->find_at({"metadata", "finalizers"})), "[\"other\"]");
}

TEST(Reconcile, NewWorkersReplaceOldOnesStepByStep) {
  World world(from_yaml(kAggregated));
  world.step();
  world.step();
  const std::string old_hash(kube::annotation_of(world.graph_, kAnnotationWorkerHash));
  Value& worker = world.graph_["spec"]["components"].mutable_elements()->at(1);
  worker["modelRef"]["revision"] = "b";
  world.graph_["metadata"]["generation"] = 2;
  int steps = 0;
  while (steps < 20) {
    world.step();
    ++steps;
    int64_t serving = 0;
    for (const auto& [name, component] : world.components_) {
      serving += kube::label_of(component, kLabelComponent) == "Worker"
                     ? kube::int_at(component, {"status", "component", "availableReplicas"}, 0)
                     : 0;
    }
    ASSERT_GE(serving, 2) << steps;
    if (world.state() == "successful") {
      break;
    }
  }
  EXPECT_EQ(world.state(), "successful");
  EXPECT_NE(kube::annotation_of(world.graph_, kAnnotationWorkerHash), old_hash);
  EXPECT_EQ(world.components_.size(), 2U);
  EXPECT_EQ(world.graph_.text_at({"status", "rollingUpdate", "phase"}), "Completed");
}

TEST(Reconcile, ALostAnnotationLeaksNoGeneration) {
  World world(from_yaml(kAggregated));
  world.step();
  world.step();
  world.graph_["metadata"]["annotations"].erase(kAnnotationWorkerHash);
  Value& worker = world.graph_["spec"]["components"].mutable_elements()->at(1);
  worker["modelRef"]["revision"] = "b";
  for (int i = 0; i < 20; ++i) {
    world.step();
  }
  EXPECT_EQ(world.components_.size(), 2U);
}

/// What Dynamo's operator leaves: components with a generation of its own, and a graph it was done
/// with.
World moved_in() {
  World world(from_yaml(kAggregated));
  world.step();
  world.step();
  std::map<std::string, Value> foreign;
  for (auto [name, component] : world.components_) {
    component["metadata"]["annotations"].erase(kAnnotationMadeBy);
    Value owner = from_yaml("{kind: DynamoGraphDeployment, uid: u1, controller: true}");
    component["metadata"]["ownerReferences"] = Value::array();
    component["metadata"]["ownerReferences"].push_back(std::move(owner));
    if (!kube::label_of(component, kLabelWorkerHash).empty()) {
      component["metadata"]["labels"][kLabelWorkerHash] = "0badcafe";
      component["metadata"]["name"] = "chat.one-worker-0badcafe";
    }
    foreign.emplace(kube::name_of(component).name, component);
  }
  world.components_ = std::move(foreign);
  world.adapters_.clear();
  world.graph_["metadata"].erase("annotations");
  world.graph_["metadata"].erase("finalizers");
  return world;
}

TEST(MoveIn, KeepsThePodsOfTheOperatorBefore) {
  World world = moved_in();
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& [name, component] : world.components_) {
      found.insert(name);
    }
    return found;
  };
  const std::set<std::string> before = names();
  for (int i = 0; i < 4; ++i) {
    world.step();
    EXPECT_EQ(names(), before);
  }
  EXPECT_EQ(world.state(), "successful");
  EXPECT_EQ(world.graph_.find_at({"status", "rollingUpdate"}), nullptr);
  for (const auto& [name, component] : world.components_) {
    EXPECT_EQ(kube::annotation_of(component, kAnnotationKeepsPods), "true") << name;
  }
  // Another number of workers is no other pod.
  world.graph_["spec"]["components"].mutable_elements()->at(1)["replicas"] = 3;
  world.step();
  EXPECT_EQ(names(), before);
  // Other arguments are: the old generation is replaced, the frontend stays.
  Value& worker = world.graph_["spec"]["components"].mutable_elements()->at(1);
  worker["podTemplate"]["spec"]["containers"].mutable_elements()->at(0)["args"] =
      from_yaml("[other]");
  for (int i = 0; i < 20; ++i) {
    world.step();
  }
  EXPECT_FALSE(names().contains("chat.one-worker-0badcafe"));
  EXPECT_EQ(names().size(), 2U);
  EXPECT_EQ(kube::annotation_of(world.components_.at("chat.one-frontend"), kAnnotationKeepsPods),
            "true");
}

TEST(MoveIn, ReplacesPodsThatRunSomethingElse) {
  World world = moved_in();
  Value& worker = world.components_.at("chat.one-worker-0badcafe");
  worker["spec"]["podTemplate"]["spec"]["containers"].mutable_elements()->at(0)["image"] = "older";
  for (int i = 0; i < 20; ++i) {
    world.step();
  }
  EXPECT_FALSE(world.components_.contains("chat.one-worker-0badcafe"));
}

TEST(MoveIn, AKeptWorkloadIsWrittenWithoutItsTemplate) {
  World world = moved_in();
  world.step();
  const Value component = world.components_.at("chat.one-frontend");
  ComponentView view{.component = component, .workload = std::nullopt, .now = std::string(kNow)};
  const Value whole = plan_component(view, {}).apply.front();
  EXPECT_NE(whole.find_at({"spec", "template"}), nullptr);
  // The other operator's one is there: it keeps its pods.
  view.workload = whole;
  (*view.workload)["metadata"].erase("annotations");
  const Value kept = plan_component(view, {}).apply.front();
  EXPECT_EQ(kept.find_at({"spec", "template"}), nullptr);
  EXPECT_EQ(kept.find_at({"spec", "selector"}), nullptr);
  EXPECT_NE(kept.find_at({"spec", "replicas"}), nullptr);
  // What we have written once we go on writing; a restart is ours to do.
  view.workload = whole;
  EXPECT_NE(plan_component(view, {}).apply.front().find_at({"spec", "template"}), nullptr);
  (*view.workload)["metadata"].erase("annotations");
  view.component["metadata"]["annotations"][kAnnotationRestartAt] = "now";
  EXPECT_NE(plan_component(view, {}).apply.front().find_at({"spec", "template"}), nullptr);
}

TEST(Reconcile, AnAdapterScalesItsComponent) {
  World world(from_yaml(kAggregated));
  world.step();
  ASSERT_EQ(world.adapters_.size(), 1U);
  world.adapters_[0]["spec"]["replicas"] = 6;
  const Plan plan = world.step();
  ASSERT_TRUE(plan.replicas);
  EXPECT_EQ(json::to_text(*plan.replicas),
            R"([{"op":"test","path":"/spec/components/1/name","value":"Worker"},)"
            R"({"op":"add","path":"/spec/components/1/replicas","value":6}])");
  ASSERT_EQ(plan.statuses.size(), 1U);
  EXPECT_NE(plan.statuses[0].second.text_at({"selector"}).find("Worker"), std::string_view::npos);
}

TEST(Reconcile, RestartsOneComponentAfterTheOther) {
  World world(from_yaml(kAggregated));
  world.step();
  world.step();
  world.graph_["spec"]["restart"]["id"] = "r1";
  world.step(false);
  ASSERT_NE(world.graph_.find_at({"status", "restart", "inProgress"}), nullptr)
      << json::to_text(*world.graph_.find("status"));
  EXPECT_EQ(json::to_text(*world.graph_.find_at({"status", "restart", "inProgress"})),
            "[\"Frontend\"]");
  for (int i = 0; i < 4; ++i) {
    world.step();
  }
  EXPECT_EQ(world.graph_.text_at({"status", "restart", "phase"}), "Completed");
  for (const auto& [name, component] : world.components_) {
    EXPECT_EQ(kube::annotation_of(component, kAnnotationRestartAt), "r1");
  }
}

TEST(Rollout, NeverServesLessOrRunsMoreThanAllowed) {
  for (int64_t desired = 0; desired < 6; ++desired) {
    for (int64_t surge = 0; surge < 3; ++surge) {
      for (int64_t missing = 0; missing < 3; ++missing) {
        RolloutView view{.desired = desired,
                         .surge = surge,
                         .unavailable = missing,
                         .old_spec = desired,
                         .old_available = desired};
        int steps = 0;
        while ((view.old_spec > 0 || view.new_spec < desired) && steps++ < 50) {
          const RolloutTargets next = plan_rollout(view);
          const int64_t extra = surge == 0 && missing == 0 ? 1 : surge;
          ASSERT_LE(next.old_replicas + next.new_replicas, desired + extra);
          ASSERT_GE(next.old_replicas + view.new_available, std::min(desired, desired - missing));
          view.old_spec = view.old_available = next.old_replicas;
          view.new_spec = view.new_available = next.new_replicas;
        }
        EXPECT_EQ(view.new_spec, desired);
        EXPECT_EQ(view.old_spec, 0);
      }
    }
  }
}

TEST(Covers, IgnoresWhatOthersAdded) {
  const Value live =
      from_yaml("{spec: {replicas: 2, list: [{name: b, v: 1}, {name: a, v: 2, d: 3}], extra: 1}}");
  EXPECT_TRUE(kube::covers(live, from_yaml("{spec: {replicas: 2, list: [{name: a, v: 2}]}}")));
  EXPECT_FALSE(kube::covers(live, from_yaml("{spec: {replicas: 3}}")));
  EXPECT_FALSE(kube::covers(live, from_yaml("{spec: {list: [{name: c}]}}")));
  EXPECT_FALSE(kube::covers(live, from_yaml("{spec: {list: []}}")));
  EXPECT_TRUE(kube::covers(from_yaml("{list: []}"), from_yaml("{list: []}")));
}

}  // namespace
}  // namespace stator::op
