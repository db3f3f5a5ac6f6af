// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/set_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "stator/grove/names.h"
#include "stator/grove/pod_groups.h"
#include "stator/grove/resource_claims.h"
#include "stator/kube/object.h"

namespace stator::grove {
namespace {

using json::Value;

void add_place(Value& labels, const CliqueInstance& clique) {
  labels[kGang] = clique.gang;
  if (!clique.base_gang.empty()) {
    labels[kBaseGang] = clique.base_gang;
  }
  labels[kSetIndex] = std::to_string(clique.set_index);
  if (!clique.group.empty()) {
    labels[kGroup] = clique.group;
    labels[kGroupIndex] = std::to_string(clique.group_index);
  }
  labels[kTemplateHash] = clique.spec->hash;
}

Value make_service(const SetContext& context, int64_t index) {
  Value service = make_managed(context, "Service", fmt::format("{}-{}", context.spec.name, index),
                               "pcs-headless-service");
  service["metadata"]["labels"][kSetIndex] = std::to_string(index);
  Value& spec = service["spec"];
  spec["clusterIP"] = "None";
  spec["selector"][kPartOf] = context.spec.name;
  spec["selector"][kSetIndex] = std::to_string(index);
  spec["publishNotReadyAddresses"] = kube::bool_at(
      *context.spec.object,
      {"spec", "template", "headlessServiceConfig", "publishNotReadyAddresses"}, true);
  kube::set_owner(service, *context.spec.object);
  return service;
}

Value make_autoscaler(const SetContext& context, std::string_view kind, const std::string& target,
                      const Value& scale, int64_t replicas) {
  Value scaler = make_managed(context, "HorizontalPodAutoscaler", target, "pcs-hpa");
  Value& spec = scaler["spec"];
  spec["scaleTargetRef"]["apiVersion"] = "grove.io/v1alpha1";
  spec["scaleTargetRef"]["kind"] = kind;
  spec["scaleTargetRef"]["name"] = target;
  spec["minReplicas"] = kube::int_at(scale, {"minReplicas"}, replicas);
  spec["maxReplicas"] = kube::int_at(scale, {"maxReplicas"}, replicas);
  if (const Value* metrics = scale.find("metrics")) {
    spec["metrics"] = *metrics;
  }
  kube::set_owner(scaler, *context.spec.object);
  return scaler;
}

Value make_group(const SetContext& context, const GroupInstance& group) {
  Value object =
      make_managed(context, "PodCliqueScalingGroup", group.name, "pcs-podcliquescalinggroup");
  object["metadata"]["labels"][kSetIndex] = std::to_string(group.set_index);
  if (const Value* annotations = group.spec->entry->find("annotations")) {
    object["metadata"]["annotations"] = *annotations;
  }
  object["spec"]["replicas"] = group.replicas;
  object["spec"]["minAvailable"] = group.spec->min_available;
  for (const std::string& clique : group.spec->cliques) {
    object["spec"]["cliqueNames"].push_back(clique);
  }
  kube::set_owner(object, *context.spec.object);
  return object;
}

Value make_clique(const SetContext& context, const CliqueInstance& clique, const Value& owner) {
  Value object = make_managed(context, "PodClique", clique.name,
                              clique.group.empty() ? "pcs-podclique" : "pcsg-podclique");
  Value& labels = object["metadata"]["labels"];
  if (const Value* own = clique.spec->entry->find("labels")) {
    kube::merge_patch(labels, *own);
  }
  add_place(labels, clique);
  if (const Value* annotations = clique.spec->entry->find("annotations")) {
    object["metadata"]["annotations"] = *annotations;
  }
  Value& spec = object["spec"];
  spec["roleName"] = clique.spec->entry->at("spec").at("roleName");
  spec["replicas"] = clique.replicas;
  spec["minAvailable"] = clique.min_available;
  spec["podSpec"] = clique.spec->entry->at("spec").at("podSpec");
  for (const std::string& parent : clique.starts_after) {
    spec["startsAfter"].push_back(parent);
  }
  kube::set_owner(object, owner);
  return object;
}

Value env_entry(std::string_view name, std::string value) {
  Value entry = Value::object();
  entry["name"] = name;
  entry["value"] = std::move(value);
  return entry;
}

Value make_env(const SetContext& context, const CliqueInstance& clique, int64_t index) {
  const std::string service = fmt::format("{}-{}", context.spec.name, clique.set_index);
  Value env = Value::array();
  env.push_back(env_entry("GROVE_PCS_NAME", context.spec.name));
  env.push_back(env_entry("GROVE_PCS_INDEX", std::to_string(clique.set_index)));
  env.push_back(env_entry("GROVE_PCLQ_NAME", clique.name));
  env.push_back(env_entry("GROVE_PCLQ_POD_INDEX", std::to_string(index)));
  env.push_back(env_entry("GROVE_HEADLESS_SERVICE",
                          fmt::format("{}.{}.svc.cluster.local", service, context.spec.space)));
  if (!clique.group.empty()) {
    env.push_back(env_entry("GROVE_PCSG_NAME", clique.group));
    env.push_back(env_entry("GROVE_PCSG_INDEX", std::to_string(clique.group_index)));
    env.push_back(env_entry("GROVE_PCSG_TEMPLATE_NUM_PODS", std::to_string(clique.group_pods)));
  }
  return env;
}

void prepend_env(Value& containers, const Value& env) {
  for (Value& container : *containers.mutable_elements()) {
    Value merged = env;
    for (const Value& own : container.at("env").elements()) {
      if (Value* same = kube::find_named(&merged, own.text_at({"name"}))) {
        *same = own;
      } else {
        merged.push_back(own);
      }
    }
    container["env"] = std::move(merged);
  }
}

/// The levels of a topology: domain → node label.
const Value* find_topology(const SetContext& context, std::string_view name) {
  return find_object(context.view.topologies, name);
}

std::string_view key_of(const SetContext& context, std::string_view topology,
                        std::string_view domain) {
  const Value* binding = find_topology(context, topology);
  if (binding == nullptr || domain.empty()) {
    return {};
  }
  for (const Value& level : binding->at("spec").at("levels").elements()) {
    if (level.text_at({"domain"}) == domain) {
      return level.text_at({"key"});
    }
  }
  return {};
}

const Value* set_constraint(const SetContext& context) {
  return context.spec.object->find_at({"spec", "template", "topologyConstraint"});
}

/// The topology that a rule means: its own, else the group's, else the set's.
std::string topology_of(const SetContext& context, const CliqueSpec* clique,
                        const GroupSpec* group) {
  for (const Value* constraint :
       {clique == nullptr ? nullptr : clique->entry->find("topologyConstraint"),
        group == nullptr ? nullptr : group->entry->find("topologyConstraint"),
        set_constraint(context)}) {
    if (std::string name = read_topology(constraint).topology; !name.empty()) {
      return name;
    }
  }
  return {};
}

/// {packConstraint: {required, preferred}} in node labels; null where there is no rule.
Value pack_of(const SetContext& context, const Value* constraint, const std::string& topology) {
  const TopologyRule rule = read_topology(constraint);
  Value pack = Value::object();
  if (const std::string_view key = key_of(context, topology, rule.required); !key.empty()) {
    pack["required"] = key;
  }
  if (const std::string_view key = key_of(context, topology, rule.preferred); !key.empty()) {
    pack["preferred"] = key;
  }
  if (pack.size() == 0) {
    return {};
  }
  Value made = Value::object();
  made["packConstraint"] = std::move(pack);
  return made;
}

const GroupSpec* group_spec(const SetContext& context, const CliqueInstance& clique) {
  for (const GroupInstance& group : context.layout.groups) {
    if (group.name == clique.group) {
      return group.spec;
    }
  }
  return nullptr;
}

/// A clique's part of its gang.
Value make_pod_group(const SetContext& context, const CliqueInstance& clique,
                     const std::vector<const Value*>& pods) {
  std::vector<std::string> names;
  for (const Value* pod : pods) {
    if (kube::label_of(*pod, kClique) == clique.name &&
        kube::label_of(*pod, kGang) == clique.gang && !is_terminating(*pod)) {
      names.push_back(kube::name_of(*pod).name);
    }
  }
  std::ranges::sort(names);
  Value group = Value::object();
  group["name"] = clique.name;
  group["minReplicas"] = clique.min_available;
  group["podReferences"] = Value::array();
  for (const std::string& name : names) {
    Value reference = Value::object();
    reference["namespace"] = context.spec.space;
    reference["name"] = name;
    group["podReferences"].push_back(std::move(reference));
  }
  const GroupSpec* scaling = group_spec(context, clique);
  Value pack = pack_of(context, clique.spec->entry->find("topologyConstraint"),
                       topology_of(context, clique.spec, scaling));
  if (!pack.is_null()) {
    group["topologyConstraint"] = std::move(pack);
  }
  return group;
}

/// Rules of a gang as a whole, and of the replicas of scaling groups in it.
void add_rules(const SetContext& context, const std::string& gang_name, bool is_scaled,
               Value& gang) {
  Value whole = pack_of(context, set_constraint(context), topology_of(context, nullptr, nullptr));
  std::map<std::string, std::pair<const GroupSpec*, Value>> replicas;
  for (const CliqueInstance& clique : context.layout.cliques) {
    if (clique.gang == gang_name && !clique.group.empty()) {
      auto& [spec, names] = replicas[fmt::format("{}-{}", clique.group, clique.group_index)];
      spec = group_spec(context, clique);
      names.push_back(clique.name);
    }
  }
  for (auto& [name, replica] : replicas) {
    auto& [spec, names] = replica;
    Value pack = pack_of(context, spec->entry->find("topologyConstraint"),
                         topology_of(context, nullptr, spec));
    if (pack.is_null()) {
      continue;
    }
    if (is_scaled) {
      whole = std::move(pack);
      continue;
    }
    Value config = Value::object();
    config["name"] = name;
    config["podGroupNames"] = std::move(names);
    config["topologyConstraint"] = std::move(pack);
    gang["spec"]["topologyConstraintGroupConfigs"].push_back(std::move(config));
  }
  if (!whole.is_null()) {
    gang["spec"]["topologyConstraint"] = std::move(whole);
  }
}

}  // namespace

Value make_managed(const SetContext& context, std::string_view kind, std::string name,
                   std::string_view part) {
  Value object = kube::make_object(kube::resource_of(kind), {context.spec.space, name});
  Value& labels = object["metadata"]["labels"];
  // Users find what is theirs by their own labels.
  if (const Value* own = context.spec.object->find_at({"metadata", "labels"})) {
    labels = *own;
  }
  labels[kManagedBy] = kManager;
  labels[kPartOf] = context.spec.name;
  labels[kPart] = part;
  labels[kAppName] = name;
  return object;
}

std::vector<Value> make_set_objects(const SetContext& context) {
  std::vector<Value> made;
  for (int64_t index = 0; index < context.spec.replicas; ++index) {
    made.push_back(make_service(context, index));
  }
  for (const GroupInstance& group : context.layout.groups) {
    made.push_back(make_group(context, group));
    if (const Value* scale = group.spec->entry->find("scaleConfig")) {
      made.push_back(make_autoscaler(context, "PodCliqueScalingGroup", group.name, *scale,
                                     group.spec->replicas));
    }
  }
  for (const CliqueInstance& clique : context.layout.cliques) {
    const Value* owner =
        clique.group.empty() ? context.spec.object : find_object(context.view.groups, clique.group);
    if (owner == nullptr) {
      continue;  // its group is made in this pass, and comes back with a uid
    }
    made.push_back(make_clique(context, clique, *owner));
    const Value* scale = clique.spec->entry->find_at({"spec", "autoScalingConfig"});
    if (scale != nullptr && clique.group.empty()) {
      made.push_back(
          make_autoscaler(context, "PodClique", clique.name, *scale, clique.spec->replicas));
    }
  }
  return made;
}

Value make_pod(const SetContext& context, const CliqueInstance& instance, const Value& clique,
               int64_t index, const std::string& name) {
  Value pod = make_managed(context, "Pod", name,
                           instance.group.empty() ? "pcs-podclique" : "pcsg-podclique");
  Value& labels = pod["metadata"]["labels"];
  if (const Value* own = instance.spec->entry->find("labels")) {
    kube::merge_patch(labels, *own);
  }
  add_place(labels, instance);
  labels[kClique] = instance.name;
  labels[kPodIndex] = std::to_string(index);
  if (const Value* annotations = instance.spec->entry->find("annotations")) {
    pod["metadata"]["annotations"] = *annotations;
  }
  if (!instance.starts_after.empty()) {
    std::string parents;
    for (const std::string& parent : instance.starts_after) {
      parents += (parents.empty() ? "" : ",") + parent;
    }
    pod["metadata"]["annotations"][kStartsAfter] = parents;
  }
  pod["spec"] = instance.spec->entry->at("spec").at("podSpec");
  Value& spec = pod["spec"];
  const Value env = make_env(context, instance, index);
  for (const std::string_view key : {"initContainers", "containers"}) {
    if (Value* containers = spec.find(key); containers != nullptr && containers->is_array()) {
      prepend_env(*containers, env);
    }
  }
  Value gate = Value::object();
  gate["name"] = kGate;
  spec["schedulingGates"].push_back(std::move(gate));
  spec["hostname"] = fmt::format("{}-{}", instance.name, index);
  spec["subdomain"] = fmt::format("{}-{}", context.spec.name, instance.set_index);
  if (!context.spec.priority_class.empty()) {
    spec["priorityClassName"] = context.spec.priority_class;
  }
  add_claims(context, instance, index, spec);
  prepare_for_placer(context, instance, pod);
  kube::set_owner(pod, clique);
  return pod;
}

std::vector<Value> make_gangs(const SetContext& context, const std::vector<const Value*>& pods) {
  std::vector<Value> gangs;
  std::map<std::string, size_t> index;
  for (const CliqueInstance& clique : context.layout.cliques) {
    const auto [found, is_new] = index.try_emplace(clique.gang, gangs.size());
    if (is_new) {
      Value gang = make_managed(context, "PodGang", clique.gang, "podgang");
      gang["metadata"]["labels"][kSetIndex] = std::to_string(clique.set_index);
      if (!clique.base_gang.empty()) {
        gang["metadata"]["labels"][kBaseGang] = clique.base_gang;
      }
      const std::string topology = topology_of(context, clique.spec, group_spec(context, clique));
      if (!topology.empty()) {
        gang["metadata"]["annotations"][kTopologyName] = topology;
      }
      gang["spec"]["podgroups"] = Value::array();
      if (!context.spec.priority_class.empty()) {
        gang["spec"]["priorityClassName"] = context.spec.priority_class;
      }
      add_rules(context, clique.gang, !clique.base_gang.empty(), gang);
      kube::set_owner(gang, *context.spec.object);
      gangs.push_back(std::move(gang));
    }
    gangs[found->second]["spec"]["podgroups"].push_back(make_pod_group(context, clique, pods));
  }
  return gangs;
}

std::vector<std::string> missing_levels(const SetContext& context, bool& topology_missing) {
  std::vector<std::string> missing;
  topology_missing = false;
  const auto look = [&](const Value* constraint, const std::string& topology) {
    const TopologyRule rule = read_topology(constraint);
    if (rule.required.empty() && rule.preferred.empty()) {
      return;
    }
    if (find_topology(context, topology) == nullptr) {
      topology_missing = true;
      return;
    }
    for (const std::string& domain : {rule.required, rule.preferred}) {
      if (!domain.empty() && key_of(context, topology, domain).empty()) {
        missing.push_back(domain);
      }
    }
  };
  look(set_constraint(context), topology_of(context, nullptr, nullptr));
  for (const CliqueSpec& clique : context.spec.cliques) {
    const auto group = std::ranges::find(context.spec.groups, clique.group, &GroupSpec::name);
    const GroupSpec* own = group == context.spec.groups.end() ? nullptr : &*group;
    look(clique.entry->find("topologyConstraint"), topology_of(context, &clique, own));
  }
  for (const GroupSpec& group : context.spec.groups) {
    look(group.entry->find("topologyConstraint"), topology_of(context, nullptr, &group));
  }
  std::ranges::sort(missing);
  missing.erase(std::ranges::unique(missing).begin(), missing.end());
  return missing;
}

}  // namespace stator::grove
