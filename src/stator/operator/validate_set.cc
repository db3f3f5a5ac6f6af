// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/validate_set.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "stator/kube/object.h"
#include "stator/operator/field_check.h"
#include "stator/operator/names.h"
#include "stator/operator/validate_object.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::array<std::string_view, 3> kStartup = {
    "CliqueStartupTypeAnyOrder", "CliqueStartupTypeInOrder", "CliqueStartupTypeExplicit"};
constexpr std::array<std::string_view, 2> kUpdates = {"RollingRecreate", "OnDelete"};

void set_default(Value& object, std::string_view key, Value value) {
  if (const Value* own = object.find(key); own == nullptr || own->is_null()) {
    object[key] = std::move(value);
  }
}

bool is_dns_label(std::string_view name) {
  return !name.empty() && name.size() <= 63 && name.front() != '-' && name.back() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

/// What the rules look at, once.
struct SetView {
  const Value& pods;  ///< spec.template
  std::string name;
  std::map<std::string, const Value*> cliques;
  std::map<std::string, std::string> group_of;  ///< clique → scaling group
};

void check_scale_config(FieldCheck& check, const Value& owner, const std::string& path,
                        std::string_view key, int64_t min_available) {
  const Value* scale = check.object(owner, path, key);
  if (scale == nullptr) {
    return;
  }
  const std::string own = fmt::format("{}.{}", path, key);
  const auto least = check.integer(*scale, own, "minReplicas");
  const auto most = check.integer(*scale, own, "maxReplicas");
  if (!most) {
    check.required(own + ".maxReplicas");
  } else if (least && *least > *most) {
    check.invalid(own + ".maxReplicas", *scale->find("maxReplicas"),
                  fmt::format("must not be less than minReplicas, {}", *least));
  }
  if (least && *least < min_available) {
    check.invalid(own + ".minReplicas", *scale->find("minReplicas"),
                  fmt::format("must not be less than minAvailable, {}", min_available));
  }
}

void check_pod_spec(FieldCheck& check, const Value& spec, const std::string& path) {
  const Value* pod = check.object(spec, path, "podSpec");
  if (pod == nullptr) {
    check.required(path + ".podSpec");
    return;
  }
  for (const std::string_view key : {"topologySpreadConstraints", "nodeName"}) {
    if (const Value* value = pod->find(key);
        value != nullptr && value->size() + value->text().size() > 0) {
      check.forbidden(fmt::format("{}.podSpec.{}", path, key),
                      "gangs are placed by topologyConstraint");
    }
  }
  const Value* containers = check.array(*pod, path + ".podSpec", "containers");
  if (containers == nullptr || containers->size() == 0) {
    check.required(path + ".podSpec.containers");
  }
}

void check_clique(FieldCheck& check, const SetView& view, const Value& clique,
                  const std::string& path) {
  if (!clique.is_object()) {
    check.invalid(path, clique, "must be an object");
    return;
  }
  if (!is_dns_label(clique.text_at({"name"}))) {
    check.invalid(path + ".name", clique.at("name"),
                  "must be lower-case letters, digits and hyphens, with a letter or digit at both "
                  "ends");
  }
  const Value* spec = check.object(clique, path, "spec");
  if (spec == nullptr) {
    check.required(path + ".spec");
    return;
  }
  const std::string own = path + ".spec";
  const auto replicas = check.at_least(*spec, own, "replicas", 1);
  const auto least = check.at_least(*spec, own, "minAvailable", 1);
  if (least && replicas && *least > *replicas) {
    check.invalid(own + ".minAvailable", *spec->find("minAvailable"),
                  fmt::format("must not be more than replicas, {}", *replicas));
  }
  const bool is_grouped = view.group_of.contains(std::string(clique.text_at({"name"})));
  if (is_grouped && spec->find("autoScalingConfig") != nullptr) {
    check.forbidden(own + ".autoScalingConfig",
                    "members of a scaling group scale together: set scaleConfig of the group");
  }
  check_scale_config(check, *spec, own, "autoScalingConfig", least.value_or(1));
  if (const Value* after = check.array(*spec, own, "startsAfter")) {
    for (size_t i = 0; i < after->size(); ++i) {
      const std::string name(after->elements()[i].text());
      if (!view.cliques.contains(name) || name == clique.text_at({"name"})) {
        check.invalid(fmt::format("{}.startsAfter[{}]", own, i), after->elements()[i],
                      "must be the name of another clique");
      }
    }
  }
  check_pod_spec(check, *spec, own);
}

void check_cycles(FieldCheck& check, const SetView& view) {
  std::map<std::string, int> state;  // 1: on the way, 2: done
  const std::function<bool(const std::string&)> visit = [&](const std::string& name) {
    if (state[name] != 0) {
      return state[name] == 2;
    }
    state[name] = 1;
    const auto clique = view.cliques.find(name);
    const Value* after =
        clique == view.cliques.end() ? nullptr : clique->second->find_at({"spec", "startsAfter"});
    if (after != nullptr) {
      for (const Value& parent : after->elements()) {
        if (!visit(std::string(parent.text()))) {
          return false;
        }
      }
    }
    state[name] = 2;
    return true;
  };
  for (const auto& [name, clique] : view.cliques) {
    if (!visit(name)) {
      check.invalid("spec.template.cliques", Value(name), "startsAfter must not go in a circle");
      return;
    }
  }
}

void check_group(FieldCheck& check, const SetView& view, const Value& group,
                 const std::string& path) {
  if (!group.is_object()) {
    check.invalid(path, group, "must be an object");
    return;
  }
  if (!is_dns_label(group.text_at({"name"}))) {
    check.invalid(path + ".name", group.at("name"),
                  "must be lower-case letters, digits and hyphens");
  }
  const Value* members = check.array(group, path, "cliqueNames");
  if (members == nullptr || members->size() == 0) {
    check.required(path + ".cliqueNames");
    return;
  }
  for (size_t i = 0; i < members->size(); ++i) {
    const std::string name(members->elements()[i].text());
    const std::string own = fmt::format("{}.cliqueNames[{}]", path, i);
    if (!view.cliques.contains(name)) {
      check.invalid(own, members->elements()[i], "must be the name of a clique");
    } else if (view.group_of.at(name) != group.text_at({"name"})) {
      check.invalid(own, members->elements()[i], "is in another scaling group, too");
    }
  }
  const auto replicas = check.at_least(group, path, "replicas", 1);
  const auto least = check.at_least(group, path, "minAvailable", 1);
  if (replicas && least && *least > *replicas) {
    check.invalid(path + ".minAvailable", *group.find("minAvailable"),
                  fmt::format("must not be more than replicas, {}", *replicas));
  }
  check_scale_config(check, group, path, "scaleConfig", least.value_or(1));
}

void check_names(FieldCheck& check, const SetView& view) {
  for (const auto& [name, clique] : view.cliques) {
    const auto group = view.group_of.find(name);
    const size_t all =
        view.name.size() + name.size() + (group == view.group_of.end() ? 0 : group->second.size());
    if (all > kGroveNameMax) {
      check.invalid(
          fmt::format("spec.template.cliques[{}].name", name), Value(name),
          fmt::format("the set's name, its scaling group's and this one have {} characters "
                      "together, {} are allowed in the names of pods",
                      all, kGroveNameMax));
    }
  }
}

std::multiset<std::string> names_in(const Value* list) {
  std::multiset<std::string> names;
  if (list != nullptr) {
    for (const Value& element : list->elements()) {
      names.emplace(element.text_at({"name"}));
    }
  }
  return names;
}

void check_frozen(FieldCheck& check, const Value& pods, const Value& old) {
  const Value* before = old.find_at({"spec", "template"});
  if (before == nullptr) {
    return;
  }
  for (const std::string_view key : {"cliques", "podCliqueScalingGroups"}) {
    if (names_in(before->find(key)) != names_in(pods.find(key))) {
      check.forbidden(fmt::format("spec.template.{}", key), "members cannot be added or removed");
    }
  }
  if (before->text_at({"cliqueStartupType"}) != pods.text_at({"cliqueStartupType"})) {
    check.forbidden("spec.template.cliqueStartupType", "field is immutable");
  }
}

/// What the scheduler that places the gangs cannot do.
void check_placer(FieldCheck& check, const Value& object, const Value& pods,
                  const std::string& scheduler) {
  if (scheduler == "volcano") {
    for (const std::string_view key : {"cliques", "podCliqueScalingGroups"}) {
      const auto& parts = pods.at(key).elements();
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].find("topologyConstraint") != nullptr) {
          check.forbidden(fmt::format("spec.template.{}[{}].topologyConstraint", key, i),
                          "schedulerName volcano places without topologies");
        }
      }
    }
    if (pods.find("topologyConstraint") != nullptr) {
      check.forbidden("spec.template.topologyConstraint",
                      "schedulerName volcano places without topologies");
    }
    return;
  }
  constexpr std::string_view kQueue = "kai.scheduler/queue";
  std::string_view queue = kube::label_of(object, kQueue);
  for (size_t i = 0; i < pods.at("cliques").size(); ++i) {
    const std::string_view own = pods.at("cliques").at(i).text_at({"labels", kQueue});
    if (!own.empty() && !queue.empty() && own != queue) {
      check.invalid(fmt::format("spec.template.cliques[{}].labels[{}]", i, kQueue), Value(own),
                    fmt::format("all of a set is in one queue, {}", queue));
    }
    queue = queue.empty() ? own : queue;
  }
}

void check_set(FieldCheck& check, const Value& object, const Value& spec, const Value* old) {
  check.at_least(spec, "spec", "replicas", 0);
  if (const Value* strategy = check.object(spec, "spec", "updateStrategy")) {
    check.one_of(*strategy, "spec.updateStrategy", "type", kUpdates);
  }
  const Value* pods = check.object(spec, "spec", "template");
  const Value* cliques = pods == nullptr ? nullptr : check.array(*pods, "spec.template", "cliques");
  if (cliques == nullptr || cliques->size() == 0) {
    check.required("spec.template.cliques");
    return;
  }
  check.one_of(*pods, "spec.template", "cliqueStartupType", kStartup);
  if (const auto delay = check.string(*pods, "spec.template", "terminationDelay");
      delay && !is_duration(*delay)) {
    check.invalid("spec.template.terminationDelay", *pods->find("terminationDelay"),
                  "must be a duration, such as 4h or 1h30m");
  }
  SetView view{.pods = *pods, .name = kube::name_of(object).name, .cliques = {}, .group_of = {}};
  for (size_t i = 0; i < cliques->size(); ++i) {
    const Value& clique = cliques->elements()[i];
    if (!view.cliques.emplace(clique.text_at({"name"}), &clique).second) {
      check.invalid(fmt::format("spec.template.cliques[{}].name", i), clique.at("name"),
                    "is the name of another clique");
    }
  }
  const Value* groups = check.array(*pods, "spec.template", "podCliqueScalingGroups");
  if (groups != nullptr) {
    for (const Value& group : groups->elements()) {
      for (const Value& member : group.at("cliqueNames").elements()) {
        view.group_of.emplace(member.text(), group.text_at({"name"}));
      }
    }
  }
  for (size_t i = 0; i < cliques->size(); ++i) {
    check_clique(check, view, cliques->elements()[i], fmt::format("spec.template.cliques[{}]", i));
  }
  for (size_t i = 0; groups != nullptr && i < groups->size(); ++i) {
    check_group(check, view, groups->elements()[i],
                fmt::format("spec.template.podCliqueScalingGroups[{}]", i));
  }
  std::set<std::string> schedulers;
  for (const Value& clique : cliques->elements()) {
    schedulers.emplace(clique.text_at({"spec", "podSpec", "schedulerName"}));
  }
  if (schedulers.size() > 1) {
    check.invalid("spec.template.cliques", Value(*schedulers.rbegin()),
                  "all cliques must have the same schedulerName");
  }
  check_placer(check, object, *pods, *schedulers.begin());
  if (check.ok()) {
    check_cycles(check, view);
    check_names(check, view);
  }
  if (old != nullptr) {
    check_frozen(check, *pods, *old);
  }
}

void check_topology(FieldCheck& check, const Value& spec) {
  const Value* levels = check.array(spec, "spec", "levels");
  if (levels == nullptr || levels->size() == 0) {
    check.required("spec.levels");
    return;
  }
  std::set<std::string> domains;
  std::set<std::string> keys;
  for (size_t i = 0; i < levels->size(); ++i) {
    const Value& level = levels->elements()[i];
    const std::string path = fmt::format("spec.levels[{}]", i);
    if (level.text_at({"domain"}).empty()) {
      check.required(path + ".domain");
    } else if (!domains.emplace(level.text_at({"domain"})).second) {
      check.invalid(path + ".domain", level.at("domain"), "is the domain of another level");
    }
    if (level.text_at({"key"}).empty()) {
      check.required(path + ".key");
    } else if (!keys.emplace(level.text_at({"key"})).second) {
      check.invalid(path + ".key", level.at("key"), "is the key of another level");
    }
  }
}

}  // namespace

void set_defaults_of_set(Value& set) {
  Value* pods = set.find("spec") == nullptr ? nullptr : set.find("spec")->find("template");
  if (pods == nullptr || !pods->is_object()) {
    return;
  }
  set_default(*pods, "terminationDelay", "4h0m0s");
  set_default(*pods, "headlessServiceConfig", Value{{"publishNotReadyAddresses", true}});
  const auto default_scale = [](Value& owner, std::string_view key, const Value& replicas) {
    if (Value* scale = owner.find(key); scale != nullptr && scale->is_object()) {
      set_default(*scale, "minReplicas", replicas);
    }
  };
  if (Value* cliques = pods->find("cliques"); cliques != nullptr && cliques->is_array()) {
    for (Value& clique : *cliques->mutable_elements()) {
      Value* spec = clique.find("spec");
      if (spec == nullptr || !spec->is_object()) {
        continue;
      }
      if (kube::int_at(*spec, {"replicas"}, 0) == 0) {
        (*spec)["replicas"] = 1;
      }
      set_default(*spec, "minAvailable", spec->at("replicas"));
      default_scale(*spec, "autoScalingConfig", spec->at("replicas"));
      if (Value* pod = spec->find("podSpec"); pod != nullptr && pod->is_object()) {
        set_default(*pod, "restartPolicy", "Always");
        set_default(*pod, "terminationGracePeriodSeconds", 30);
      }
    }
  }
  if (Value* groups = pods->find("podCliqueScalingGroups");
      groups != nullptr && groups->is_array()) {
    for (Value& group : *groups->mutable_elements()) {
      if (!group.is_object()) {
        continue;
      }
      set_default(group, "replicas", 1);
      set_default(group, "minAvailable", 1);
      default_scale(group, "scaleConfig", group.at("replicas"));
    }
  }
}

Status validate_set(const Value& object, const Value* old) {
  FieldCheck check;
  const std::string_view kind = object.text_at({"kind"});
  check_metadata(check, object);
  const Value* spec = check_spec(check, object);
  if (spec == nullptr) {
    return outcome(check, object);
  }
  if (old != nullptr && old->find("spec") != nullptr && kube::same(*old->find("spec"), *spec)) {
    return {};
  } else if (kind == "PodCliqueSet") {
    check_set(check, object, *spec, old);
  } else {
    check_topology(check, *spec);
  }
  return outcome(check, object);
}

}  // namespace stator::op
