// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/grove/names.h"
#include "stator/kube/object.h"

namespace stator::grove {
namespace {

using json::Value;

/// Which PodCliques a clique waits for: parents in its own group replica, else those of its base
/// gang. A scaled gang waits for its base gang anyway.
void add_parents(Layout& layout) {
  for (CliqueInstance& clique : layout.cliques) {
    for (const std::string& parent : clique.spec->starts_after) {
      for (const CliqueInstance& other : layout.cliques) {
        const bool same_gang = other.gang == clique.gang;
        const bool own_replica = other.group == clique.group &&
                                 (other.group.empty() || other.group_index == clique.group_index);
        const bool same_group =
            !clique.spec->group.empty() && clique.spec->group == other.spec->group;
        if (other.spec->name == parent && same_gang && (own_replica || !same_group)) {
          clique.starts_after.push_back(other.name);
        }
      }
    }
  }
}

int64_t pods_of(const SetSpec& spec, const GroupSpec& group) {
  int64_t pods = 0;
  for (const std::string& member : group.cliques) {
    const CliqueSpec* clique = spec.find_clique(member);
    pods += clique == nullptr ? 0 : clique->replicas;
  }
  return pods;
}

void add_group(const SetSpec& spec, const GroupInstance& group, Layout& layout) {
  const std::string base = fmt::format("{}-{}", spec.name, group.set_index);
  for (int64_t index = 0; index < group.replicas; ++index) {
    const bool is_base = index < group.spec->min_available;
    for (const std::string& member : group.spec->cliques) {
      const CliqueSpec* clique = spec.find_clique(member);
      if (clique == nullptr) {
        continue;
      }
      layout.cliques.push_back(
          {.name = fmt::format("{}-{}-{}", group.name, index, member),
           .spec = clique,
           .set_index = group.set_index,
           .replicas = clique->replicas,
           .min_available = clique->min_available,
           .gang =
               is_base ? base : fmt::format("{}-{}", group.name, index - group.spec->min_available),
           .base_gang = is_base ? "" : base,
           .group = group.name,
           .group_index = index,
           .group_pods = pods_of(spec, *group.spec)});
    }
  }
}

const Value* condition_of(const Value& object, std::string_view type) {
  const Value* conditions = object.find_at({"status", "conditions"});
  if (conditions != nullptr) {
    for (const Value& condition : conditions->elements()) {
      if (condition.text_at({"type"}) == type) {
        return &condition;
      }
    }
  }
  return nullptr;
}

/// Of a required node affinity that names one node.
std::string_view pinned_node(const Value& pod) {
  const Value* terms =
      pod.find_at({"spec", "affinity", "nodeAffinity",
                   "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"});
  if (terms == nullptr || terms->size() == 0) {
    return {};
  }
  for (const Value& field : terms->elements().front().at("matchFields").elements()) {
    if (field.text_at({"key"}) == "metadata.name" && field.at("values").size() == 1) {
      return field.at("values").at(size_t{0}).text();
    }
  }
  return {};
}

}  // namespace

Layout lay_out(const SetSpec& spec, const SetView& view) {
  Layout layout;
  for (int64_t index = 0; index < spec.replicas; ++index) {
    const std::string base = fmt::format("{}-{}", spec.name, index);
    for (const CliqueSpec& clique : spec.cliques) {
      if (!clique.group.empty()) {
        continue;
      }
      CliqueInstance instance{.name = fmt::format("{}-{}", base, clique.name),
                              .spec = &clique,
                              .set_index = index,
                              .replicas = clique.replicas,
                              .min_available = clique.min_available,
                              .gang = base};
      if (const Value* live = find_object(view.cliques, instance.name)) {
        instance.replicas =
            std::max<int64_t>(0, kube::int_at(*live, {"spec", "replicas"}, clique.replicas));
      }
      layout.cliques.push_back(std::move(instance));
    }
    for (const GroupSpec& group : spec.groups) {
      GroupInstance instance{.name = fmt::format("{}-{}", base, group.name),
                             .spec = &group,
                             .set_index = index,
                             .replicas = group.replicas};
      if (const Value* live = find_object(view.groups, instance.name)) {
        instance.replicas =
            std::max<int64_t>(0, kube::int_at(*live, {"spec", "replicas"}, group.replicas));
      }
      add_group(spec, instance, layout);
      layout.groups.push_back(std::move(instance));
    }
  }
  add_parents(layout);
  return layout;
}

const Value* find_object(const std::vector<Value>& objects, std::string_view name) {
  const auto it = std::ranges::find_if(
      objects, [&](const Value& object) { return object.text_at({"metadata", "name"}) == name; });
  return it == objects.end() ? nullptr : &*it;
}

bool is_terminating(const Value& pod) {
  return pod.find_at({"metadata", "deletionTimestamp"}) != nullptr;
}

bool is_over(const Value& pod) {
  const std::string_view phase = pod.text_at({"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

bool is_ready(const Value& pod) {
  const Value* condition = condition_of(pod, "Ready");
  return condition != nullptr && condition->text_at({"status"}) == "True" && !is_terminating(pod);
}

bool is_scheduled(const Value& pod) {
  return !pod.text_at({"spec", "nodeName"}).empty();
}

bool is_gated(const Value& pod) {
  const Value* gates = pod.find_at({"spec", "schedulingGates"});
  return kube::find_named(gates, kGate) != nullptr;
}

std::string_view node_of(const Value& pod) {
  const std::string_view bound = pod.text_at({"spec", "nodeName"});
  return bound.empty() ? pinned_node(pod) : bound;
}

}  // namespace stator::grove
