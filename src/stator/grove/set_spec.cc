// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/set_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "stator/kube/object.h"

namespace stator::grove {
namespace {

using json::Value;

const Value::Array& list_at(const Value* object, std::string_view key) {
  static const Value kNone;
  return object == nullptr ? kNone.elements() : object->at(key).elements();
}

/// Everything that makes a clique's pods: a change of it replaces them.
std::string hash_of(const Value& clique, std::string_view priority) {
  Value hashed = Value::object();
  hashed["podSpec"] = clique.at("spec").at("podSpec");
  hashed["labels"] = clique.at("labels");
  hashed["annotations"] = clique.at("annotations");
  hashed["priority"] = priority;
  return kube::short_hash(json::to_text(kube::sorted(hashed)));
}

CliqueSpec read_clique(const Value& entry, std::string_view startup, const CliqueSpec* before,
                       std::string_view priority) {
  CliqueSpec clique{.name = std::string(entry.text_at({"name"})), .entry = &entry};
  clique.replicas = std::max<int64_t>(1, kube::int_at(entry, {"spec", "replicas"}, 1));
  clique.min_available = std::clamp<int64_t>(
      kube::int_at(entry, {"spec", "minAvailable"}, clique.replicas), 1, clique.replicas);
  if (startup == "CliqueStartupTypeInOrder" && before != nullptr) {
    clique.starts_after.push_back(before->name);
  } else if (startup == "CliqueStartupTypeExplicit") {
    for (const Value& parent : list_at(&entry.at("spec"), "startsAfter")) {
      clique.starts_after.emplace_back(parent.text());
    }
  }
  clique.hash = hash_of(entry, priority);
  return clique;
}

}  // namespace

const CliqueSpec* SetSpec::find_clique(std::string_view clique) const {
  const auto it = std::ranges::find(cliques, clique, &CliqueSpec::name);
  return it == cliques.end() ? nullptr : &*it;
}

SetSpec read_set(const Value& set) {
  SetSpec spec{.object = &set,
               .space = kube::name_of(set).space,
               .name = kube::name_of(set).name,
               .replicas = std::max<int64_t>(0, kube::int_at(set, {"spec", "replicas"}, 0))};
  const Value* pods = set.find_at({"spec", "template"});
  spec.on_delete = set.text_at({"spec", "updateStrategy", "type"}) == "OnDelete";
  if (pods == nullptr) {
    return spec;
  }
  spec.priority_class = pods->text_at({"priorityClassName"});
  spec.termination_delay =
      parse_duration(pods->text_at({"terminationDelay"}), spec.termination_delay);
  const std::string_view startup = pods->text_at({"cliqueStartupType"});
  const Value::Array& entries = list_at(pods, "cliques");
  spec.cliques.reserve(entries.size());
  for (const Value& entry : entries) {
    const CliqueSpec* before = spec.cliques.empty() ? nullptr : &spec.cliques.back();
    spec.cliques.push_back(read_clique(entry, startup, before, spec.priority_class));
  }
  for (const Value& entry : list_at(pods, "podCliqueScalingGroups")) {
    GroupSpec group{.name = std::string(entry.text_at({"name"})), .entry = &entry};
    group.replicas = std::max<int64_t>(0, kube::int_at(entry, {"replicas"}, 1));
    group.min_available = std::max<int64_t>(1, kube::int_at(entry, {"minAvailable"}, 1));
    for (const Value& member : list_at(&entry, "cliqueNames")) {
      group.cliques.emplace_back(member.text());
      const auto clique = std::ranges::find(spec.cliques, member.text(), &CliqueSpec::name);
      if (clique != spec.cliques.end()) {
        clique->group = group.name;
      }
    }
    spec.groups.push_back(std::move(group));
  }
  std::string all;
  for (const CliqueSpec& clique : spec.cliques) {
    all += clique.name + "=" + clique.hash + ";";
  }
  spec.hash = kube::short_hash(all);
  return spec;
}

Duration parse_duration(std::string_view text, Duration fallback) {
  constexpr std::array<std::pair<std::string_view, double>, 6> kUnits = {
      {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}}};
  double seconds = 0;
  if (text.empty()) {
    return fallback;
  }
  while (!text.empty()) {
    double number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc()) {
      return fallback;
    }
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    const auto unit = std::ranges::find_if(
        kUnits, [&](const auto& each) { return text.starts_with(each.first); });
    if (unit == kUnits.end()) {
      return fallback;
    }
    seconds += number * unit->second;
    text.remove_prefix(unit->first.size());
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

TopologyRule read_topology(const Value* constraint) {
  TopologyRule rule;
  if (constraint == nullptr || !constraint->is_object()) {
    return rule;
  }
  rule.topology = constraint->text_at({"topologyName"});
  rule.required = constraint->text_at({"pack", "required"});
  if (rule.required.empty()) {
    rule.required = constraint->text_at({"packDomain"});
  }
  rule.preferred = constraint->text_at({"pack", "preferred"});
  return rule;
}

}  // namespace stator::grove
