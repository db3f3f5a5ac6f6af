// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/pod_groups.h"

#include <algorithm>
#include <map>
#include <set>

#include "stator/grove/names.h"
#include "stator/kube/object.h"

namespace stator::grove {
namespace {

using json::Value;

constexpr std::string_view kVolcanoQueue = "scheduling.grove.io/volcano-queue";
constexpr std::string_view kKaiQueue = "kai.scheduler/queue";

std::string_view queue_in(const Value& labelled, std::string_view key) {
  const std::string_view label = labelled.at("labels").text_at({key});
  return label.empty() ? labelled.at("annotations").text_at({key}) : label;
}

/// A label or annotation of the set, else of one of its cliques.
std::string_view queue_of(const SetContext& context, std::string_view key) {
  if (const std::string_view own = queue_in(context.spec.object->at("metadata"), key);
      !own.empty()) {
    return own;
  }
  for (const CliqueSpec& clique : context.spec.cliques) {
    if (const std::string_view own = queue_in(*clique.entry, key); !own.empty()) {
      return own;
    }
  }
  return {};
}

/// {topology, requiredTopologyLevel, preferredTopologyLevel}; null where there is no rule.
Value kai_constraint(const Value& ruled, std::string_view topology) {
  const Value& pack = ruled.at("topologyConstraint").at("packConstraint");
  if (pack.size() == 0 || topology.empty()) {
    return {};
  }
  Value made = Value::object();
  made["topology"] = topology;
  for (const auto& [ours, theirs] : {std::pair("required", "requiredTopologyLevel"),
                                     std::pair("preferred", "preferredTopologyLevel")}) {
    if (const std::string_view level = pack.text_at({ours}); !level.empty()) {
      made[theirs] = level;
    }
  }
  return made;
}

void add_constraint(Value& target, Value constraint) {
  if (!constraint.is_null()) {
    target["topologyConstraint"] = std::move(constraint);
  }
}

Value make_kai_group(const SetContext& context, const Value& gang) {
  Value group = Value::object();
  group["apiVersion"] = "scheduling.run.ai/v2alpha2";
  Value spec = Value::object();
  const std::string_view topology = kube::annotation_of(gang, kTopologyName);
  std::map<std::string, std::string, std::less<>> parents;
  spec["subGroups"] = Value::array();
  for (const Value& config : gang.at("spec").at("topologyConstraintGroupConfigs").elements()) {
    Value sub = Value::object();
    sub["name"] = config.text_at({"name"});
    sub["minSubGroup"] = config.at("podGroupNames").size();
    add_constraint(sub, kai_constraint(config, topology));
    spec["subGroups"].push_back(std::move(sub));
    for (const Value& member : config.at("podGroupNames").elements()) {
      parents.emplace(member.text(), config.text_at({"name"}));
    }
  }
  int64_t least = 0;
  for (const Value& pods : gang.at("spec").at("podgroups").elements()) {
    const int64_t own = kube::int_at(pods, {"minReplicas"}, 1);
    least += own;
    Value sub = Value::object();
    sub["name"] = pods.text_at({"name"});
    sub["minMember"] = own;
    if (const auto parent = parents.find(pods.text_at({"name"})); parent != parents.end()) {
      sub["parent"] = parent->second;
    }
    add_constraint(sub, kai_constraint(pods, topology));
    spec["subGroups"].push_back(std::move(sub));
  }
  spec["minMember"] = least;
  if (const std::string_view queue = queue_of(context, kKaiQueue); !queue.empty()) {
    spec["queue"] = queue;
    group["metadata"]["labels"][kKaiQueue] = queue;
  }
  add_constraint(spec, kai_constraint(gang.at("spec"), topology));
  group["spec"] = std::move(spec);
  return group;
}

Value make_volcano_group(const SetContext& context, const Value& gang) {
  Value group = Value::object();
  group["apiVersion"] = "scheduling.volcano.sh/v1beta1";
  int64_t least = 0;
  for (const Value& pods : gang.at("spec").at("podgroups").elements()) {
    least += kube::int_at(pods, {"minReplicas"}, 1);
  }
  group["spec"]["minMember"] = least;
  const std::string_view queue = queue_of(context, kVolcanoQueue);
  group["spec"]["queue"] = queue.empty() ? std::string_view("default") : queue;
  return group;
}

/// KAI knows topologies by an object of its own.
std::vector<Value> make_topologies(const SetContext& context, const std::vector<Value>& gangs) {
  std::set<std::string> names;
  for (const Value& gang : gangs) {
    names.emplace(kube::annotation_of(gang, kTopologyName));
  }
  std::vector<Value> made;
  for (const std::string& name : names) {
    const Value* binding = find_object(context.view.topologies, name);
    if (binding == nullptr) {
      continue;
    }
    Value topology = kube::make_object(kube::resource_of("Topology"), {"", name});
    for (const Value& level : binding->at("spec").at("levels").elements()) {
      Value label = Value::object();
      label["nodeLabel"] = level.text_at({"key"});
      topology["spec"]["levels"].push_back(std::move(label));
    }
    kube::set_owner(topology, *binding);
    made.push_back(std::move(topology));
  }
  return made;
}

}  // namespace

Placer placer_of(const SetContext& context) {
  if (context.spec.cliques.empty()) {
    return Placer::kOwn;
  }
  const std::string_view name =
      context.spec.cliques.front().entry->text_at({"spec", "podSpec", "schedulerName"});
  if (name == kKaiScheduler && context.view.has_kai) {
    return Placer::kKai;
  }
  return name == kVolcanoScheduler && context.view.has_volcano ? Placer::kVolcano : Placer::kOwn;
}

bool is_placed_by_others(const Value& pod) {
  const std::string_view name = pod.text_at({"spec", "schedulerName"});
  return name == kKaiScheduler || name == kVolcanoScheduler;
}

void prepare_for_placer(const SetContext& context, const CliqueInstance& clique, Value& pod) {
  Value& metadata = pod["metadata"];
  switch (placer_of(context)) {
    case Placer::kKai:
      metadata["annotations"]["pod-group-name"] = clique.gang;
      metadata["annotations"]["kai.scheduler/skip-podgrouper"] = "true";
      metadata["labels"]["kai.scheduler/subgroup-name"] = clique.name;
      return;
    case Placer::kVolcano:
      metadata["annotations"]["scheduling.volcano.sh/group-name"] = clique.gang;
      metadata["annotations"]["scheduling.k8s.io/group-name"] = clique.gang;
      return;
    case Placer::kOwn:
      // Not there: we place, and the cluster's own one binds.
      if (is_placed_by_others(pod)) {
        pod["spec"].erase("schedulerName");
      }
  }
}

std::vector<Value> make_pod_groups(const SetContext& context, const std::vector<Value>& gangs) {
  const Placer placer = placer_of(context);
  if (placer == Placer::kOwn) {
    return {};
  }
  std::vector<Value> made =
      placer == Placer::kKai ? make_topologies(context, gangs) : std::vector<Value>();
  for (const Value& gang : gangs) {
    const Value* stored = find_object(context.view.gangs, kube::name_of(gang).name);
    if (stored == nullptr) {
      continue;  // comes back with a uid
    }
    Value group =
        placer == Placer::kKai ? make_kai_group(context, gang) : make_volcano_group(context, gang);
    group["kind"] = "PodGroup";
    group["metadata"]["name"] = kube::name_of(gang).name;
    group["metadata"]["namespace"] = context.spec.space;
    for (const json::Member& label : gang.at("metadata").at("labels").members()) {
      group["metadata"]["labels"][label.key] = label.value;
    }
    if (!context.spec.priority_class.empty()) {
      group["spec"]["priorityClassName"] = context.spec.priority_class;
    }
    kube::set_owner(group, *stored);
    made.push_back(std::move(group));
  }
  return made;
}

}  // namespace stator::grove
