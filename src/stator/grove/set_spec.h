// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/json/value.h"

namespace stator::grove {

/// A clique of a PodCliqueSet's template.
struct CliqueSpec {
  std::string name;
  const json::Value* entry = nullptr;  ///< of spec.template.cliques
  int64_t replicas = 1;
  int64_t min_available = 1;
  std::vector<std::string> starts_after = {};  ///< cliques that must be ready before
  std::string hash = {};                       ///< of what its pods are made of
  std::string group = {};                      ///< its scaling group; empty: none
};

/// Cliques that are scaled together.
struct GroupSpec {
  std::string name;
  const json::Value* entry = nullptr;  ///< of spec.template.podCliqueScalingGroups
  std::vector<std::string> cliques = {};
  int64_t replicas = 1;
  int64_t min_available = 1;
};

/// A PodCliqueSet, seen through its JSON, which must outlive it. What is missing or of the wrong
/// type has its default: whoever wrote it was told by the webhook.
struct SetSpec {
  const json::Value* object = nullptr;
  std::string space;
  std::string name;
  int64_t replicas = 0;
  bool on_delete = false;  ///< pods are replaced when users delete them
  std::string priority_class = {};
  Duration termination_delay = std::chrono::hours(4);
  std::vector<CliqueSpec> cliques = {};
  std::vector<GroupSpec> groups = {};
  std::string hash = {};  ///< of all cliques' hashes: the generation

  const CliqueSpec* find_clique(std::string_view clique) const;
};
SetSpec read_set(const json::Value& set);

/// "4h0m0s", "90s", "1.5h": a duration as Go writes it; `fallback` for what is none.
Duration parse_duration(std::string_view text, Duration fallback);

/// {topologyName, required, preferred} of a topologyConstraint, old field names included.
struct TopologyRule {
  std::string topology;
  std::string required;
  std::string preferred;
};
TopologyRule read_topology(const json::Value* constraint);

}  // namespace stator::grove
