// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "stator/core/random.h"
#include "stator/grove/gang_schedule.h"
#include "stator/grove/names.h"
#include "stator/grove/set_plan.h"
#include "stator/kube/lease.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"

namespace stator::grove {
namespace {

using json::Value;
using namespace std::chrono_literals;

Value from_yaml(std::string_view text) {
  auto documents = kube::parse_yaml(text, "test");
  EXPECT_TRUE(documents) << documents.error().message();
  return std::move(documents->at(0));
}

constexpr std::string_view kTwoRoles = R"(
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: s, namespace: n, uid: set, generation: 1}
spec:
  replicas: 1
  template:
    terminationDelay: 1m
    cliqueStartupType: CliqueStartupTypeExplicit
    cliques:
    - name: ldr
      spec: {roleName: l, replicas: 1, minAvailable: 1, podSpec: &pod {containers: [{name: m, image: i, env: [{name: MINE, value: "1"}], resources: {limits: {nvidia.com/gpu: "8"}}}]}}
    - name: wkr
      spec: {roleName: w, replicas: 2, minAvailable: 2, startsAfter: [ldr], podSpec: *pod}
    podCliqueScalingGroups:
    - {name: g, cliqueNames: [ldr, wkr], replicas: 2, minAvailable: 1}
)";

/// A cluster that does what the plans say, and binds and readies what may run.
class World {
 public:
  explicit World(std::string_view set, int nodes = 8) : set_(from_yaml(set)) {
    for (int i = 0; i < nodes; ++i) {
      add_node(i);
    }
  }

  void add_node(int i) {
    Value node = from_yaml(
        "{kind: Node, metadata: {labels: {}}, status: {allocatable: {cpu: \"64\", memory: 64Gi, "
        "pods: \"100\", nvidia.com/gpu: \"8\"}}}");
    node["metadata"]["name"] = fmt::format("node-{}", i);
    node["metadata"]["labels"]["rack"] = fmt::format("rack-{}", i / 4);
    nodes_.push_back(std::move(node));
  }

  void reconcile() {
    SetView view{.set = set_,
                 .cliques = list("PodClique"),
                 .groups = list("PodCliqueScalingGroup"),
                 .gangs = list("PodGang"),
                 .pods = list("Pod"),
                 .topologies = topologies_,
                 .now = now_};
    const SetPlan plan = plan_set(view);
    events_.insert(events_.end(), plan.events.begin(), plan.events.end());
    for (const Value& child : plan.apply) {
      put(child);
    }
    for (const Value& pod : plan.create) {
      put(pod);
    }
    for (const PodRemoval& removal : plan.remove_pods) {
      objects_.erase({"Pod", removal.name.name});
    }
    for (const auto& [resource, name] : plan.remove) {
      objects_.erase({resource.kind, name.name});
      std::erase_if(objects_, [&](const auto& each) {  // the garbage collector
        return kube::label_of(each.second, kClique) == name.name;
      });
    }
    for (const auto& [object, status] : plan.statuses) {
      if (object.text_at({"kind"}) == "PodCliqueSet") {
        set_["status"] = status;
      } else if (auto found = objects_.find(
                     {std::string(object.text_at({"kind"})), kube::name_of(object).name});
                 found != objects_.end()) {
        found->second["status"] = status;
      }
    }
  }

  void schedule() {
    const ScheduleView view{.nodes = nodes_,
                            .pods = list("Pod"),
                            .gangs = list("PodGang"),
                            .topologies = topologies_,
                            .now = now_};
    const Schedule schedule = schedule_gangs(view);
    waiting_ = schedule.waiting.size();
    for (const Release& release : schedule.releases) {
      Value& pod = objects_.at({"Pod", kube::name_of(*release.pod).name});
      Value patch = release_patch(release);
      patch.erase("metadata");
      kube::merge_patch(pod, patch);
    }
    for (auto& [key, pod] : objects_) {
      if (key.first == "Pod" && !is_gated(pod) && !is_scheduled(pod)) {
        ASSERT_FALSE(node_of(pod).empty()) << key.second;
        pod["spec"]["nodeName"] = std::string(node_of(pod));
      }
    }
  }

  void ready(const std::function<bool(const Value&)>& which = [](const Value&) { return true; }) {
    for (auto& [key, pod] : objects_) {
      if (key.first == "Pod" && is_scheduled(pod) && !is_ready(pod) && which(pod)) {
        pod["status"] =
            from_yaml("{phase: Running, conditions: [{type: Ready, status: \"True\"}]}");
      }
    }
  }

  void settle() {
    for (int i = 0; i < 12; ++i) {
      reconcile();
      schedule();
      ready();
    }
    reconcile();
  }

  void put(Value object) {
    const std::pair<std::string, std::string> key(object.text_at({"kind"}),
                                                  kube::name_of(object).name);
    const auto stored = objects_.find(key);
    if (stored != objects_.end()) {
      if (key.first == "Pod") {
        return;
      }
      object["metadata"]["uid"] = std::string(kube::uid_of(stored->second));
      if (const Value* status = stored->second.find("status")) {
        object["status"] = *status;
      }
      objects_[key] = std::move(object);
      return;
    }
    object["metadata"]["uid"] = fmt::format("uid-{}", ++uids_);
    object["metadata"]["creationTimestamp"] = kube::rfc3339(now_);
    objects_[key] = std::move(object);
  }

  std::vector<Value> list(const std::string& kind) const {
    std::vector<Value> found;
    for (const auto& [key, object] : objects_) {
      if (key.first == kind) {
        found.push_back(object);
      }
    }
    return found;
  }

  int64_t count(const std::function<bool(const Value&)>& which) const {
    const auto pods = list("Pod");
    return std::ranges::count_if(pods, which);
  }

  Value set_;
  std::vector<Value> nodes_;
  std::vector<Value> topologies_;
  std::map<std::pair<std::string, std::string>, Value> objects_;
  std::vector<kube::Happening> events_;
  size_t waiting_ = 0;
  WallTime now_{std::chrono::seconds(1'800'000'000)};
  int uids_ = 0;
};

TEST(Gangs, PodsThatKeepApartGetNodesOfTheirOwn) {
  World world(R"(
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: s, namespace: n, uid: set, generation: 1}
spec:
  replicas: 2
  template:
    cliques:
    - name: w
      spec:
        roleName: w
        replicas: 3
        minAvailable: 2
        podSpec:
          containers: [{name: m, image: i, resources: {limits: {nvidia.com/gpu: "1"}}}]
          affinity:
            podAntiAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
              - topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchExpressions: [{key: app.kubernetes.io/part-of, operator: In, values: [s]}]
)");
  world.settle();
  std::set<std::string> nodes;
  for (const Value& pod : world.list("Pod")) {
    EXPECT_TRUE(is_ready(pod));
    nodes.emplace(node_of(pod));
  }
  EXPECT_EQ(nodes.size(), 6U);
}

TEST(Sets, BecomeCliquesGroupsGangsAndPods) {
  World world(kTwoRoles);
  world.settle();
  EXPECT_EQ(world.list("PodClique").size(), 4U);
  EXPECT_EQ(world.list("PodCliqueScalingGroup").size(), 1U);
  EXPECT_EQ(world.list("Service").size(), 1U);
  ASSERT_EQ(world.list("PodGang").size(), 2U);  // the base, and the second replica of the group
  EXPECT_EQ(world.count(is_ready), 6);
  const Value pod = world.list("Pod").front();
  EXPECT_EQ(pod.text_at({"spec", "hostname"}), "s-0-g-0-ldr-0");
  EXPECT_EQ(pod.text_at({"spec", "subdomain"}), "s-0");
  const Value& env = pod.at("spec").at("containers").at(size_t{0}).at("env");
  EXPECT_EQ(kube::find_named(&env, "GROVE_PCSG_TEMPLATE_NUM_PODS")->text_at({"value"}), "3");
  EXPECT_EQ(kube::find_named(&env, "GROVE_HEADLESS_SERVICE")->text_at({"value"}),
            "s-0.n.svc.cluster.local");
  EXPECT_EQ(env.elements().back().text_at({"name"}), "MINE");
  EXPECT_EQ(kube::int_at(world.set_, {"status", "availableReplicas"}, 0), 1);
  // A second look at the same state wants nothing.
  SetView view{.set = world.set_,
               .cliques = world.list("PodClique"),
               .groups = world.list("PodCliqueScalingGroup"),
               .gangs = world.list("PodGang"),
               .pods = world.list("Pod"),
               .topologies = {},
               .now = world.now_};
  const SetPlan plan = plan_set(view);
  EXPECT_TRUE(plan.create.empty() && plan.remove_pods.empty() && plan.statuses.empty());
}

TEST(Gangs, WaitUntilAllOfTheirMinimumFits) {
  World world(kTwoRoles, 2);  // three pods with a node each are wanted
  world.settle();
  EXPECT_EQ(world.count(is_scheduled), 0);
  EXPECT_EQ(world.waiting_, 1U);
  world.add_node(2);
  world.settle();
  EXPECT_EQ(world.count(is_ready), 3);  // the scaled gang still waits
  EXPECT_EQ(world.waiting_, 1U);
  for (int i = 3; i < 6; ++i) {
    world.add_node(i);
  }
  world.settle();
  EXPECT_EQ(world.count(is_ready), 6);
}

TEST(Gangs, StartInOrder) {
  World world(kTwoRoles);
  const auto is_worker = [](const Value& pod) {
    return kube::label_of(pod, kClique).ends_with("wkr");
  };
  for (int i = 0; i < 6; ++i) {
    world.reconcile();
    world.schedule();
  }
  EXPECT_EQ(world.count([&](const Value& pod) { return is_worker(pod) && is_scheduled(pod); }), 0);
  // Their nodes are kept for them meanwhile.
  EXPECT_EQ(world.count([&](const Value& pod) { return is_worker(pod) && !node_of(pod).empty(); }),
            4);
  world.ready();
  world.schedule();
  EXPECT_EQ(world.count([&](const Value& pod) { return is_worker(pod) && is_scheduled(pod); }), 4);
}

TEST(Gangs, KeepTogetherByTopology) {
  std::string text(kTwoRoles);
  World world(text);
  world.topologies_.push_back(
      from_yaml("{metadata: {name: t}, spec: {levels: [{domain: rack, key: rack}, {domain: host, "
                "key: host}]}}"));
  world.set_["spec"]["template"]["podCliqueScalingGroups"].mutable_elements()->at(
      0)["topologyConstraint"] = from_yaml("{topologyName: t, pack: {required: rack}}");
  world.settle();
  EXPECT_EQ(world.count(is_ready), 6);
  std::map<std::string, std::set<std::string>> racks;
  for (const Value& pod : world.list("Pod")) {
    const int node = std::stoi(std::string(node_of(pod)).substr(5));
    racks[std::string(kube::label_of(pod, kGang))].insert(fmt::format("rack-{}", node / 4));
  }
  for (const auto& [gang, names] : racks) {
    EXPECT_EQ(names.size(), 1U) << gang;
  }
  // A lost pod comes back into the same rack.
  const Value lost = world.list("Pod").front();
  world.objects_.erase({"Pod", kube::name_of(lost).name});
  world.settle();
  EXPECT_EQ(world.count(is_ready), 6);
}

TEST(Updates, ReplaceOneReplicaOfAGroupAfterTheOther) {
  World world(kTwoRoles);
  world.settle();
  kube::find_named(world.set_["spec"]["template"].find("cliques"), "wkr")
      ->find("spec")
      ->find("podSpec")
      ->find("containers")
      ->mutable_elements()
      ->at(0)["image"] = "new";
  int64_t least = 6;
  for (int i = 0; i < 40; ++i) {
    world.reconcile();
    world.schedule();
    world.ready([&](const Value&) { return i % 3 == 2; });
    least = std::min(least, world.count(is_ready));
  }
  world.settle();
  EXPECT_GE(least, 3);
  EXPECT_EQ(world.count(is_ready), 6);
  EXPECT_EQ(world.count([](const Value& pod) {
    return pod.at("spec").at("containers").at(size_t{0}).text_at({"image"}) == "new";
  }),
            4);
  EXPECT_EQ(kube::int_at(world.set_, {"status", "updatedReplicas"}, 0), 1);
}

TEST(Gangs, EndAsAWholeWhenTheirMinimumIsGoneForTooLong) {
  World world(kTwoRoles, 6);
  world.settle();
  // A node dies with the pod on it; none is free for another.
  const Value lost = world.list("Pod").front();
  const std::string node(node_of(lost));
  std::erase_if(world.nodes_, [&](const Value& each) { return kube::name_of(each).name == node; });
  world.objects_.erase({"Pod", kube::name_of(lost).name});
  std::set<std::string> before;
  for (const Value& pod : world.list("Pod")) {
    before.emplace(kube::uid_of(pod));
  }
  world.settle();
  EXPECT_TRUE(world.events_.empty());
  world.now_ += 61s;
  world.reconcile();
  ASSERT_EQ(world.events_.size(), 1U);
  EXPECT_EQ(world.events_[0].reason, "GangTerminated");
  EXPECT_EQ(world.count(
                [&](const Value& pod) { return before.contains(std::string(kube::uid_of(pod))); }),
            0);
}

TEST(Gangs, ThatWereEndedGetTheWholeDelayAgain) {
  World world(kTwoRoles, 6);
  world.settle();
  const Value lost = world.list("Pod").front();
  const std::string node(node_of(lost));
  std::erase_if(world.nodes_, [&](const Value& each) { return kube::name_of(each).name == node; });
  world.objects_.erase({"Pod", kube::name_of(lost).name});
  world.reconcile();
  world.now_ += 61s;
  const auto before = world.objects_;
  world.reconcile();
  ASSERT_EQ(world.events_.size(), 1U);
  const auto uids = [&] {
    std::set<std::string> found;
    for (const Value& pod : world.list("Pod")) {
      found.emplace(kube::uid_of(pod));
    }
    return found;
  };
  const auto made = uids();
  ASSERT_FALSE(made.empty());
  // Nothing of it is running yet: that is how it begins, no new breach. A copy of the cluster that
  // still shows the old status changes nothing.
  world.reconcile();
  EXPECT_EQ(uids(), made);
  for (auto& [key, object] : world.objects_) {
    if (const auto old = before.find(key); old != before.end() && key.first == "PodClique") {
      object["status"] = old->second.at("status");
    }
  }
  world.now_ += 30s;
  world.reconcile();
  EXPECT_EQ(uids(), made);
  EXPECT_EQ(world.events_.size(), 1U);
}

TEST(Gangs, AreNeverPartlyThereWhateverComesAndGoes) {
  Random random(7);
  World world(kTwoRoles, 3);
  world.set_["spec"]["replicas"] = 3;
  int added = 3;
  for (int step = 0; step < 60; ++step) {
    const auto what = random.below(5);
    if (what == 0) {
      world.add_node(added++);
    } else if (what == 1 && !world.objects_.empty()) {
      if (auto* group = world.objects_.contains({"PodCliqueScalingGroup", "s-0-g"})
                            ? &world.objects_.at({"PodCliqueScalingGroup", "s-0-g"})
                            : nullptr) {
        (*group)["spec"]["replicas"] = static_cast<int64_t>(1 + random.below(3));
      }
    }
    world.reconcile();
    world.schedule();
    world.ready([&](const Value&) { return random.below(2) == 0; });
    std::map<std::string, std::pair<int64_t, int64_t>> gangs;  // chosen, all
    for (const Value& pod : world.list("Pod")) {
      auto& [chosen, all] = gangs[std::string(kube::label_of(pod, kGang))];
      chosen += node_of(pod).empty() ? 0 : 1;
      ++all;
    }
    for (const auto& [gang, counts] : gangs) {
      EXPECT_TRUE(counts.first == 0 || counts.first >= 3) << gang << " step " << step;
    }
  }
}

TEST(Durations, ReadAsGoWritesThem) {
  EXPECT_EQ(parse_duration("4h0m0s", 1s), 4h);
  EXPECT_EQ(parse_duration("1.5m", 1s), 90s);
  EXPECT_EQ(parse_duration("250ms", 1s), 250ms);
  EXPECT_EQ(parse_duration("soon", 7s), 7s);
  EXPECT_EQ(parse_duration("", 7s), 7s);
}

}  // namespace
}  // namespace stator::grove
