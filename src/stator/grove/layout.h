// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/grove/set_spec.h"

namespace stator::grove {

/// A PodCliqueSet and what is there of it.
struct SetView {
  json::Value set;
  std::vector<json::Value> cliques;  ///< PodCliques
  std::vector<json::Value> groups;   ///< PodCliqueScalingGroups
  std::vector<json::Value> gangs;    ///< PodGangs
  std::vector<json::Value> pods;
  std::vector<json::Value> topologies;            ///< ClusterTopologyBindings, all
  std::vector<json::Value> claims = {};           ///< ResourceClaims of the set
  std::vector<json::Value> claim_templates = {};  ///< ResourceClaimTemplates, all
  bool has_kai = false;                           ///< the KAI scheduler is installed
  bool has_volcano = false;                       ///< Volcano is
  WallTime now{};
};

/// A PodCliqueScalingGroup that there should be.
struct GroupInstance {
  std::string name;
  const GroupSpec* spec = nullptr;
  int64_t set_index = 0;
  int64_t replicas = 1;  ///< as it was scaled, else the template's
};

/// A PodClique that there should be.
struct CliqueInstance {
  std::string name;
  const CliqueSpec* spec = nullptr;
  int64_t set_index = 0;
  int64_t replicas = 1;
  int64_t min_available = 1;
  std::string gang;            ///< the PodGang of its pods
  std::string base_gang = {};  ///< that must run before; empty: it is one
  std::string group = {};      ///< its PodCliqueScalingGroup; empty: none
  int64_t group_index = 0;
  int64_t group_pods = 0;                      ///< pods of one replica of the group
  std::vector<std::string> starts_after = {};  ///< PodCliques of the same gang
};

struct Layout {
  std::vector<GroupInstance> groups;
  std::vector<CliqueInstance> cliques;
};

/// Every clique and group of every replica of the set, with the gang each belongs to: replica i has
/// the base gang "<set>-<i>" with its standalone cliques and the first minAvailable replicas of
/// each group; each further replica of a group is a gang of its own.
Layout lay_out(const SetSpec& spec, const SetView& view);

const json::Value* find_object(const std::vector<json::Value>& objects, std::string_view name);

// What a pod is at.
bool is_terminating(const json::Value& pod);
bool is_over(const json::Value& pod);  ///< Succeeded or Failed
bool is_ready(const json::Value& pod);
bool is_scheduled(const json::Value& pod);
bool is_gated(const json::Value& pod);  ///< by our gate
/// The node that was chosen for it while its gate still holds it, else the one it is on, else "".
std::string_view node_of(const json::Value& pod);

}  // namespace stator::grove
