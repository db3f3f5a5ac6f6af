// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "stator/kube/object.h"
#include "stator/operator/field_check.h"
#include "stator/operator/label_syntax.h"
#include "stator/operator/names.h"
#include "stator/operator/validate_component.h"
#include "stator/operator/validate_container.h"
#include "stator/operator/validate_object.h"

namespace stator::op {
namespace {

using json::Value;

constexpr size_t kComponentsMax = 25;
constexpr size_t kServiceNameMax = 63;
constexpr size_t kHashSize = 9;  // of a generation of workers: "-" and 8 digits

struct GraphRules {
  const Graph& graph;
  const Value& spec;
  const Value* old_spec;
  const Environment& environment;
  const Admission& admission;
};

std::string component_path(const GraphRules& rules, size_t index) {
  return rules.admission.was_alpha
             ? fmt::format("spec.services[{}]", rules.graph.components()[index].name())
             : fmt::format("spec.components[{}]", index);
}

void check_components(FieldCheck& check, const GraphRules& rules) {
  const auto& components = rules.graph.components();
  const std::string list = rules.admission.was_alpha ? "spec.services" : "spec.components";
  if (components.empty()) {
    check.required(list, "a graph has at least one component");
    return;
  }
  if (components.size() > kComponentsMax) {
    check.forbidden(list,
                    fmt::format("{} components, at most {}", components.size(), kComponentsMax));
  }
  std::set<std::string> names;
  size_t pickers = 0;
  for (size_t i = 0; i < components.size(); ++i) {
    const Component& component = components[i];
    const std::string path = component_path(rules, i);
    const Value* old = rules.old_spec == nullptr
                           ? nullptr
                           : kube::find_named(rules.old_spec->find("components"), component.name());
    if (old != nullptr && kube::same(*old, component.spec())) {
      names.insert(lower(component.name()));
      pickers += component.type() == "epp" ? 1 : 0;
      continue;  // what was accepted once stays acceptable
    }
    if (!names.insert(lower(component.name())).second) {
      check.invalid(path + ".name", Value(component.name()),
                    "is the name of another component (case does not count)");
    }
    check_component(
        check,
        {.environment = rules.environment,
         .admission = rules.admission,
         .provider = rules.graph.provider(),
         .backend = rules.graph.backend(),
         .old = old,
         .path = path,
         .discovery_mode = std::string(rules.graph.annotation(kAnnotationDiscoveryMode))},
        component);
    pickers += component.type() == "epp" ? 1 : 0;
    if (pickers > 1) {
      check.forbidden(path + ".type", "a graph has at most one component of type epp");
    }
    if (!check.ok()) {
      return;
    }
  }
}

void check_component_set(FieldCheck& check, const GraphRules& rules) {
  if (rules.old_spec == nullptr || rules.graph.provider() != Provider::kGrove) {
    return;
  }
  std::set<std::string> before;
  std::set<std::string> after;
  if (const Value* components = rules.old_spec->find("components")) {
    for (const Value& component : components->elements()) {
      before.emplace(component.text_at({"name"}));
    }
  }
  for (const Component& component : rules.graph.components()) {
    after.insert(component.name());
  }
  if (before != after) {
    check.forbidden("spec.components",
                    "component topology is immutable: the components of a graph on the Grove path "
                    "cannot be added or removed after creation");
  }
}

/// Services are named after the graph and the component: letters first, 63 characters in all.
void check_service_names(FieldCheck& check, const GraphRules& rules) {
  if (rules.old_spec != nullptr || rules.admission.is_stored) {
    return;
  }
  const std::string& name = rules.graph.name();
  if (!name.empty() && (name.front() < 'a' || name.front() > 'z')) {
    check.invalid("metadata.name", Value(name),
                  "must start with a letter: Services are named after it");
  }
  if (rules.graph.provider() == Provider::kGrove) {
    return;  // a tighter rule
  }
  for (size_t i = 0; i < rules.graph.components().size(); ++i) {
    const Component& component = rules.graph.components()[i];
    const size_t hash = component.is_worker() ? kHashSize : 0;
    const size_t all = name.size() + 1 + component.name().size() + hash;
    if (all > kServiceNameMax) {
      check.invalid(component_path(rules, i) + ".name", Value(component.name()),
                    fmt::format("the graph's name and this one need {} characters of {} in the "
                                "names of Services: shorten one of them",
                                all, kServiceNameMax));
    }
  }
}

/// A PodCliqueSet's, a group's and a clique's name stand in one pod's host name.
void check_grove_names(FieldCheck& check, const GraphRules& rules) {
  if (rules.graph.provider() != Provider::kGrove || rules.old_spec != nullptr) {
    return;
  }
  const size_t set = rules.graph.name().size();
  for (size_t i = 0; i < rules.graph.components().size(); ++i) {
    const Component& component = rules.graph.components()[i];
    const size_t own = component.name().size();
    const size_t all = component.is_multinode() ? set + own + own + 4 : set + own;
    if (all > kGroveNameMax) {
      check.invalid(
          component_path(rules, i) + ".name", Value(component.name()),
          fmt::format("the graph's name and this one need {} characters of {} in the names "
                      "of pods: shorten one of them",
                      all, kGroveNameMax));
    }
  }
}

void check_restart(FieldCheck& check, const GraphRules& rules) {
  const Value* restart = check.object(rules.spec, "spec", "restart");
  if (restart == nullptr) {
    return;
  }
  if (rules.admission.old == nullptr && !rules.admission.is_stored) {
    check.forbidden("spec.restart", "must be unset at creation: set spec.restart.id afterwards");
    return;
  }
  const auto id = check.string(*restart, "spec.restart", "id");
  if (!id || id->empty()) {
    check.required("spec.restart.id");
    return;
  }
  const std::string_view phase =
      rules.admission.old == nullptr
          ? std::string_view()
          : rules.admission.old->text_at({"status", "rollingUpdate", "phase"});
  const bool rolls = phase == "Pending" || phase == "InProgress";
  if (rolls && rules.old_spec != nullptr && rules.old_spec->text_at({"restart", "id"}) != *id) {
    check.forbidden("spec.restart.id", "cannot change while a rolling update is in progress");
  }
  const Value* strategy = check.object(*restart, "spec.restart", "strategy");
  if (strategy == nullptr) {
    return;
  }
  constexpr std::array<std::string_view, 2> kTypes = {"Sequential", "Parallel"};
  check.one_of(*strategy, "spec.restart.strategy", "type", kTypes);
  const Value* order = check.array(*strategy, "spec.restart.strategy", "order");
  if (order == nullptr || order->size() == 0) {
    return;
  }
  if (strategy->text_at({"type"}) == "Parallel") {
    check.forbidden("spec.restart.strategy.order", "has no meaning when type is Parallel");
  }
  std::multiset<std::string> named;
  for (const Value& name : order->elements()) {
    named.emplace(name.text());
  }
  std::multiset<std::string> all;
  for (const Component& component : rules.graph.components()) {
    all.insert(component.name());
  }
  if (named != all) {
    check.invalid("spec.restart.strategy.order", *order, "must name every component exactly once");
  }
}

void check_topology(FieldCheck& check, const GraphRules& rules) {
  const Value* topology = check.object(rules.spec, "spec", "topologyConstraint");
  bool any_component = false;
  for (const Component& component : rules.graph.components()) {
    any_component = any_component || component.spec().find("topologyConstraint") != nullptr;
  }
  if (topology == nullptr) {
    if (any_component) {
      check.required("spec.topologyConstraint",
                     "components have topologyConstraint: name the ClusterTopologyBinding here");
    }
  } else {
    if (topology->text_at({"clusterTopologyName"}).empty()) {
      check.required("spec.topologyConstraint.clusterTopologyName");
    }
    const auto domain = check.string(*topology, "spec.topologyConstraint", "packDomain");
    if ((!domain || domain->empty()) && !any_component) {
      check.required("spec.topologyConstraint.packDomain", "no component sets one");
    } else if (domain && !domain->empty() && !is_domain_name(*domain)) {
      check.invalid("spec.topologyConstraint.packDomain", *topology->find("packDomain"),
                    "must be lower-case letters, digits and hyphens");
    }
    if (rules.graph.provider() != Provider::kGrove) {
      check.forbidden("spec.topologyConstraint",
                      "only valid on the Grove path: set the annotation nvidia.com/enable-grove to "
                      "\"true\"");
    }
  }
}

void check_transfer_policy(FieldCheck& check, const GraphRules& rules) {
  const Value* experimental = check.object(rules.spec, "spec", "experimental");
  const Value* policy = experimental == nullptr
                            ? nullptr
                            : check.object(*experimental, "spec.experimental", "kvTransferPolicy");
  if (policy == nullptr) {
    return;
  }
  const std::string path = "spec.experimental.kvTransferPolicy";
  if (policy->text_at({"labelKey"}).empty() == policy->text_at({"clusterTopologyName"}).empty()) {
    check.invalid(path, *policy, "set exactly one of labelKey and clusterTopologyName");
  }
  const auto domain = check.string(*policy, path, "domain");
  if (!domain || domain->empty()) {
    check.required(path + ".domain");
  } else if (!is_domain_name(*domain)) {
    check.invalid(path + ".domain", *policy->find("domain"),
                  "must be lower-case letters, digits and hyphens");
  }
  const auto label = check.string(*policy, path, "labelKey");
  if (label && !label->empty() && !is_label_key(*label)) {
    check.invalid(path + ".labelKey", *policy->find("labelKey"), "must be a label's key");
  }
  const auto topology = check.string(*policy, path, "clusterTopologyName");
  if (topology && !topology->empty() && !is_dns_subdomain(*topology)) {
    check.invalid(path + ".clusterTopologyName", *policy->find("clusterTopologyName"),
                  "must be lower-case letters, digits, hyphens and dots");
  } else if (topology && !topology->empty() && rules.graph.provider() != Provider::kGrove) {
    check.forbidden(path + ".clusterTopologyName", "needs the Grove path: set labelKey instead");
  }
  constexpr std::array<std::string_view, 2> kEnforcement = {"required", "preferred"};
  check.one_of(*policy, path, "enforcement", kEnforcement);
  const bool is_preferred = policy->text_at({"enforcement"}) == "preferred";
  const Value* weight = policy->find("preferredWeight");
  if (is_preferred != (weight != nullptr)) {
    check.invalid(path + ".preferredWeight", weight == nullptr ? Value() : *weight,
                  "belongs to enforcement preferred, and must be there then");
  } else if (weight != nullptr &&
             (weight->as_double().value_or(-1) < 0 || weight->as_double().value_or(2) > 1)) {
    check.invalid(path + ".preferredWeight", *weight, "must be from 0 to 1");
  }
}

/// The first field of an override that is not the set's topologyConstraint; empty: there is none.
std::string foreign_field(const Value& value) {
  for (const json::Member& member : value.members()) {
    if (member.key != "spec") {
      return member.key;
    }
    for (const json::Member& part : member.value.members()) {
      if (part.key != "template") {
        return "spec." + part.key;
      }
      for (const json::Member& field : part.value.members()) {
        if (field.key != "topologyConstraint") {
          return "spec.template." + field.key;
        }
      }
    }
  }
  return {};
}

bool has_typed_topology(const GraphRules& rules) {
  return rules.spec.find("topologyConstraint") != nullptr ||
         std::ranges::any_of(rules.graph.components(), [](const Component& component) {
           return component.spec().find("topologyConstraint") != nullptr;
         });
}

void check_override(FieldCheck& check, const GraphRules& rules) {
  const Value* own = check.object(rules.spec, "spec", "providerOverride");
  if (own == nullptr) {
    return;
  }
  constexpr std::array<std::string_view, 1> kVersions = {"grove.io/v1alpha1"};
  constexpr std::array<std::string_view, 1> kTargets = {"PodCliqueSet"};
  check.one_of(*own, "spec.providerOverride", "apiVersion", kVersions);
  check.one_of(*own, "spec.providerOverride", "target", kTargets);
  if (rules.graph.provider() != Provider::kGrove) {
    check.forbidden("spec.providerOverride", "only the Grove path can be overridden");
  }
  const Value* value = check.object(*own, "spec.providerOverride", "value");
  if (value == nullptr) {
    check.required("spec.providerOverride.value");
    return;
  }
  if (const std::string field = foreign_field(*value); !field.empty()) {
    check.forbidden("spec.providerOverride.value." + field,
                    "only spec.template.topologyConstraint can be overridden");
  }
  const Value* topology = value->find_at({"spec", "template", "topologyConstraint"});
  const std::string path = "spec.providerOverride.value.spec.template.topologyConstraint";
  if (topology == nullptr) {
    return;
  }
  if (!topology->is_object()) {
    check.invalid(path, *topology, "must be an object");
    return;
  }
  check.string(*topology, path, "topologyName");
  check.object(*topology, path, "pack");
  if (has_typed_topology(rules)) {
    check.forbidden("spec.providerOverride.value",
                    "cannot be combined with topologyConstraint of the graph or its components");
  }
}

void check_immutable(FieldCheck& check, const GraphRules& rules) {
  if (rules.old_spec == nullptr) {
    return;
  }
  for (const std::string_view key : {"backendFramework", "topologyConstraint"}) {
    const Value* before = rules.old_spec->find(key);
    const Value* after = rules.spec.find(key);
    const bool had = before != nullptr && !before->is_null();
    const bool has = after != nullptr && !after->is_null();
    if (had != has || (had && !kube::same(*before, *after))) {
      check.forbidden(fmt::format("spec.{}", key), "field is immutable");
    }
  }
  const Value* before = rules.old_spec->find_at({"experimental", "kvTransferPolicy"});
  const Value* after = rules.spec.find_at({"experimental", "kvTransferPolicy"});
  if ((before == nullptr) != (after == nullptr) ||
      (before != nullptr && !kube::same(*before, *after))) {
    check.forbidden("spec.experimental.kvTransferPolicy", "field is immutable");
  }
  const std::string_view provider = kube::annotation_of(*rules.admission.old, kAnnotationProvider);
  if (!provider.empty() &&
      provider != kube::annotation_of(rules.graph.object(), kAnnotationProvider)) {
    check.forbidden("metadata.annotations[nvidia.com/workload-provider]", "field is immutable");
  }
}

/// "1.2.3", with or without a leading v, a pre-release or build behind it; parts may be missing.
bool is_release(std::string_view text) {
  text.remove_prefix(text.starts_with('v') ? 1 : 0);
  const std::string_view numbers = text.substr(0, text.find_first_of("-+"));
  size_t parts = 1;
  bool is_digit = false;
  for (const char c : numbers) {
    const bool is_dot = c == '.';
    if ((!is_dot && (c < '0' || c > '9')) || (is_dot && !is_digit)) {
      return false;
    }
    parts += is_dot ? 1 : 0;
    is_digit = !is_dot;
  }
  return is_digit && parts <= 3;
}

void check_rollout(FieldCheck& check, const Graph& graph) {
  for (const std::string_view key : {kAnnotationMaxSurge, kAnnotationMaxUnavailable}) {
    std::string_view value = graph.annotation(key);
    const std::string_view whole = value;
    value.remove_suffix(value.ends_with('%') ? 1 : 0);
    const bool is_number = !value.empty() && value.size() <= 9 &&
                           std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; });
    if (!whole.empty() && !is_number) {
      check.invalid(fmt::format("metadata.annotations[{}]", key), Value(whole),
                    "must be a number of pods or a percentage, such as 1 or 25%");
    } else if (key == kAnnotationMaxUnavailable && whole.ends_with('%') &&
               (value.size() > 3 || (value.size() == 3 && value > "100"))) {
      check.invalid(fmt::format("metadata.annotations[{}]", key), Value(whole),
                    "must be at most 100%");
    }
  }
}

void check_annotations(FieldCheck& check, const Graph& graph) {
  constexpr std::array<std::string_view, 2> kProviders = {"component", "grove"};
  constexpr std::array<std::string_view, 2> kGroveUpdates = {"RollingRecreate", "OnDelete"};
  constexpr std::array<std::string_view, 2> kStrategies = {"RollingUpdate", "Recreate"};
  constexpr std::array<std::string_view, 2> kDiscovery = {"kubernetes", "etcd"};
  constexpr std::array<std::string_view, 2> kModes = {"pod", "container"};
  constexpr std::array<std::string_view, 6> kFlags = {"true",  "false", "True",
                                                      "False", "TRUE",  "FALSE"};
  const std::array<std::pair<std::string_view, std::span<const std::string_view>>, 6> kRules = {
      {{kAnnotationProvider, kProviders},
       {kAnnotationGroveUpdate, kGroveUpdates},
       {kAnnotationStrategy, kStrategies},
       {kAnnotationDiscovery, kDiscovery},
       {kAnnotationDiscoveryMode, kModes},
       {kAnnotationEnableGrove, kFlags}}};
  for (const auto& [key, allowed] : kRules) {
    const std::string_view value = graph.annotation(key);
    if (!value.empty() && std::ranges::find(allowed, value) == allowed.end()) {
      check.unsupported(fmt::format("metadata.annotations[{}]", key), value, allowed);
    }
  }
  if (const std::string_view value = graph.annotation(kAnnotationVllmExecutor);
      !value.empty() && !is_executor(value)) {
    check.invalid(fmt::format("metadata.annotations[{}]", kAnnotationVllmExecutor), Value(value),
                  "must be \"mp\" or \"ray\"");
  }
  if (const std::string_view value = graph.annotation(kAnnotationOrigin);
      !value.empty() && !is_release(value)) {
    check.invalid(fmt::format("metadata.annotations[{}]", kAnnotationOrigin), Value(value),
                  "must be a version, such as 1.2.3");
  }
  check_rollout(check, graph);
}

void check_spec_fields(FieldCheck& check, const GraphRules& rules) {
  check.one_of(rules.spec, "spec", "backendFramework", kBackends);
  check_env(check, rules.spec, "spec", "env");
  check_annotation_map(check, rules.spec, "spec", "annotations");
  check_labels(check, rules.spec, "spec", "labels");
  const auto priority = check.string(rules.spec, "spec", "priorityClassName");
  if (priority && !priority->empty() && rules.graph.provider() != Provider::kGrove) {
    check.forbidden("spec.priorityClassName", "only valid on the Grove path");
  }
}

}  // namespace

Status validate_graph(const Value& graph_object, const Environment& environment,
                      const Admission& admission) {
  FieldCheck check;
  check_metadata(check, graph_object);
  const Value* spec = check_spec(check, graph_object);
  if (!check.ok()) {
    return outcome(check, graph_object);
  }
  check.array(*spec, "spec", "components");
  if (!check.ok()) {
    return outcome(check, graph_object);
  }
  const Graph graph(graph_object, environment);
  const GraphRules rules{graph, *spec,
                         admission.old == nullptr ? nullptr : admission.old->find("spec"),
                         environment, admission};
  if (rules.old_spec != nullptr && kube::same(*rules.old_spec, *spec) &&
      kube::annotation_of(*admission.old, kAnnotationProvider) ==
          graph.annotation(kAnnotationProvider)) {
    return {};  // metadata and status may always be written
  }
  check_annotations(check, graph);
  check_spec_fields(check, rules);
  check_component_set(check, rules);
  check_components(check, rules);
  if (check.ok()) {
    check_service_names(check, rules);
    check_grove_names(check, rules);
    check_restart(check, rules);
    check_topology(check, rules);
    check_transfer_policy(check, rules);
    check_override(check, rules);
    check_immutable(check, rules);
  }
  return outcome(check, graph_object);
}

}  // namespace stator::op
