// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "stator/grove/gang_schedule.h"
#include "stator/grove/names.h"
#include "stator/grove/set_plan.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"

namespace stator::grove {
namespace {

using json::Value;

Value from_yaml(std::string_view text) {
  auto documents = kube::parse_yaml(text, "test");
  EXPECT_TRUE(documents) << documents.error().message();
  return std::move(documents->at(0));
}

constexpr std::string_view kSharing = R"(
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: s, namespace: n, uid: set, generation: 1, labels: {kai.scheduler/queue: q}}
spec:
  replicas: 1
  template:
    priorityClassName: high
    topologyConstraint: {topologyName: t, pack: {required: rack}}
    resourceClaimTemplates:
    - name: own
      templateSpec: {spec: {devices: {requests: [{name: d, exactly: {deviceClassName: c}}]}}}
    resourceSharing:
    - {name: own, scope: AllReplicas}
    - {name: own, scope: PerReplica, filter: {childScalingGroupNames: [g]}}
    - {name: nowhere, scope: AllReplicas, filter: {childCliqueNames: [a]}}
    cliques:
    - name: a
      resourceSharing: [{name: outer, scope: PerReplica}]
      spec:
        roleName: a
        replicas: 2
        podSpec: &pod
          schedulerName: kai-scheduler
          containers: [{name: m, image: i}]
          initContainers: [{name: x, image: i}]
    - name: b
      labels: {nvidia.com/dynamo-failover-engine-group-member: "true"}
      spec: {roleName: b, replicas: 2, podSpec: *pod}
    - name: c
      spec: {roleName: c, replicas: 1, podSpec: *pod}
    podCliqueScalingGroups:
    - name: g
      cliqueNames: [b, c]
      resourceSharing: [{name: own, scope: PerReplica, filter: {childCliqueNames: [b]}}]
)";

/// What plans make, stored with uids, until nothing new comes.
SetView settled(SetView view) {
  int uids = 0;
  for (int round = 0; round < 4; ++round) {
    const SetPlan plan = plan_set(view);
    const auto put = [&](const Value& child) {
      const std::string_view kind = child.text_at({"kind"});
      std::vector<Value>* list = kind == "PodClique"               ? &view.cliques
                                 : kind == "PodCliqueScalingGroup" ? &view.groups
                                 : kind == "PodGang"               ? &view.gangs
                                 : kind == "Pod"                   ? &view.pods
                                 : kind == "ResourceClaim"         ? &view.claims
                                                                   : nullptr;
      if (list != nullptr && find_object(*list, kube::name_of(child).name) == nullptr) {
        list->push_back(child);
        list->back()["metadata"]["uid"] = "u" + std::to_string(++uids);
      }
    };
    std::ranges::for_each(plan.apply, put);
    std::ranges::for_each(plan.create, put);
  }
  return view;
}

SetView start() {
  SetView view{.set = from_yaml(kSharing)};
  view.topologies = {from_yaml(
      "{apiVersion: grove.io/v1alpha1, kind: ClusterTopologyBinding, metadata: {name: t, uid: ut}, "
      "spec: {levels: [{domain: rack, key: rack-label}]}}")};
  view.claim_templates = {from_yaml(
      "{metadata: {name: outer, namespace: n}, spec: {spec: {devices: {requests: [{name: o}]}}}}")};
  return view;
}

std::set<std::string> names_of(const std::vector<Value>& objects) {
  std::set<std::string> names;
  for (const Value& object : objects) {
    names.insert(kube::name_of(object).name);
  }
  return names;
}

std::set<std::string> claims_of(const SetView& view, std::string_view clique,
                                std::string_view index) {
  std::set<std::string> names;
  for (const Value& pod : view.pods) {
    if (kube::label_of(pod, kClique) != clique || kube::label_of(pod, kPodIndex) != index) {
      continue;
    }
    for (const Value& claim : pod.at("spec").at("resourceClaims").elements()) {
      names.emplace(claim.text_at({"resourceClaimName"}));
    }
    for (const std::string_view key : {"containers", "initContainers"}) {
      const Value& container = pod.at("spec").at(key).at(size_t{0});
      EXPECT_EQ(container.at("resources").at("claims").size(), names.size());
    }
  }
  return names;
}

TEST(Claims, AreSharedAtEachLevel) {
  const SetView view = settled(start());
  EXPECT_EQ(names_of(view.claims), (std::set<std::string>{"s-all-own", "s-0-own", "s-0-a-0-outer",
                                                          "s-0-a-1-outer", "s-0-g-0-own"}));
  EXPECT_EQ(claims_of(view, "s-0-a", "1"),
            (std::set<std::string>{"s-all-own", "s-all-nowhere", "s-0-a-1-outer"}));
  EXPECT_EQ(claims_of(view, "s-0-g-0-b", "0"),
            (std::set<std::string>{"s-all-own", "s-0-own", "s-0-g-0-own"}));
  EXPECT_EQ(claims_of(view, "s-0-g-0-c", "0"), (std::set<std::string>{"s-all-own", "s-0-own"}));
  const SetPlan plan = plan_set(view);
  EXPECT_TRUE(std::ranges::any_of(plan.events, [](const kube::Happening& each) {
    return each.reason == "ClaimTemplateMissing" && each.note.find("nowhere") != std::string::npos;
  }));
}

TEST(Claims, GoWithTheirReplicas) {
  SetView view = settled(start());
  for (Value& clique : view.cliques) {
    if (kube::name_of(clique).name == "s-0-a") {
      clique["spec"]["replicas"] = 1;
    }
  }
  const SetPlan plan = plan_set(view);
  ASSERT_EQ(plan.remove.size(), 1U);
  EXPECT_EQ(plan.remove.front().second.name, "s-0-a-1-outer");
}

TEST(PodGroups, SayTheGangInKaisWords) {
  SetView view = start();
  view.has_kai = true;
  view = settled(view);
  const SetPlan plan = plan_set(view);
  const auto group = std::ranges::find_if(plan.apply, [](const Value& each) {
    return each.text_at({"kind"}) == "PodGroup" && kube::name_of(each).name == "s-0";
  });
  ASSERT_NE(group, plan.apply.end());
  EXPECT_EQ(group->text_at({"apiVersion"}), "scheduling.run.ai/v2alpha2");
  EXPECT_EQ(kube::int_at(*group, {"spec", "minMember"}, 0), 5);
  EXPECT_EQ(group->text_at({"spec", "queue"}), "q");
  EXPECT_EQ(group->text_at({"spec", "priorityClassName"}), "high");
  EXPECT_EQ(group->text_at({"spec", "topologyConstraint", "requiredTopologyLevel"}), "rack-label");
  EXPECT_EQ(group->at("spec").at("subGroups").size(), 3U);
  EXPECT_TRUE(std::ranges::any_of(
      plan.apply, [](const Value& each) { return each.text_at({"kind"}) == "Topology"; }));
  const Value& pod = view.pods.front();
  EXPECT_EQ(pod.text_at({"spec", "schedulerName"}), "kai-scheduler");
  EXPECT_EQ(kube::annotation_of(pod, "pod-group-name"), "s-0");

  // Its scheduler chooses the nodes: the gates go when all pods are there, and no node is chosen.
  const ScheduleView schedule{.nodes = {},
                              .pods = view.pods,
                              .gangs = view.gangs,
                              .topologies = view.topologies,
                              .now = view.now};
  const Schedule opened = schedule_gangs(schedule);
  EXPECT_EQ(opened.releases.size(), view.pods.size());
  for (const Release& release : opened.releases) {
    EXPECT_TRUE(release.opens);
    EXPECT_EQ(release.node, "");
  }
  SetView less = view;
  less.pods.pop_back();
  const Schedule held = schedule_gangs({.nodes = {},
                                        .pods = less.pods,
                                        .gangs = view.gangs,
                                        .topologies = view.topologies,
                                        .now = view.now});
  EXPECT_TRUE(held.releases.empty());
}

TEST(PodGroups, SayTheGangInVolcanosWords) {
  SetView view = start();
  view.has_volcano = true;
  for (Value& entry : *view.set["spec"]["template"]["cliques"].mutable_elements()) {
    entry["spec"]["podSpec"]["schedulerName"] = "volcano";
  }
  view = settled(view);
  const SetPlan plan = plan_set(view);
  const auto group = std::ranges::find_if(
      plan.apply, [](const Value& each) { return each.text_at({"kind"}) == "PodGroup"; });
  ASSERT_NE(group, plan.apply.end());
  EXPECT_EQ(group->text_at({"apiVersion"}), "scheduling.volcano.sh/v1beta1");
  EXPECT_EQ(kube::int_at(*group, {"spec", "minMember"}, 0), 5);
  EXPECT_EQ(group->text_at({"spec", "queue"}), "default");
  EXPECT_EQ(kube::annotation_of(view.pods.front(), "scheduling.k8s.io/group-name"), "s-0");
}

TEST(Failover, AGroupOfEnginesEndsAsOne) {
  SetView view = settled(start());
  for (Value& pod : view.pods) {
    const bool is_first_engine = kube::label_of(pod, kClique) == "s-0-g-0-b";
    if (is_first_engine && kube::label_of(pod, kPodIndex) == "0") {
      pod["status"]["phase"] = "Failed";
    }
    // The other node of the same engine.
    if (kube::label_of(pod, kClique) == "s-0-g-0-c") {
      pod["metadata"]["labels"][kEngineGroup] = "true";
    }
  }
  const SetPlan plan = plan_set(view);
  std::set<std::string> removed;
  for (const PodRemoval& removal : plan.remove_pods) {
    const Value* pod = find_object(view.pods, removal.name.name);
    removed.insert(std::string(kube::label_of(*pod, kClique)) + "/" +
                   std::string(kube::label_of(*pod, kPodIndex)));
  }
  EXPECT_EQ(removed, (std::set<std::string>{"s-0-g-0-b/0", "s-0-g-0-c/0"}));
}

}  // namespace
}  // namespace stator::grove
