// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/kube/object.h"

namespace stator::grove {

/// A cluster as gangs are placed in it.
struct ScheduleView {
  std::vector<json::Value> nodes;
  std::vector<json::Value> pods;  ///< all of them, ours and others
  std::vector<json::Value> gangs;
  std::vector<json::Value> topologies;
  /// Nodes that were chosen for pods of which the copy does not know yet, by uid.
  std::map<std::string, std::string> assumed = {};
  WallTime now{};
};

/// What is to be done with a pod behind our gate.
struct Release {
  const json::Value* pod = nullptr;  ///< in the view
  std::string node = {};             ///< chosen now; empty: it has one already
  bool opens = false;                ///< the gate goes, so that it starts
};

struct Schedule {
  std::vector<Release> releases;
  /// Pods of gangs that were let go and cannot all be bound (others took the room): they start
  /// anew.
  std::vector<const json::Value*> resets;
  std::map<kube::ObjectName, std::string> waiting;  ///< gangs that found no room, and why
  std::map<kube::ObjectName, double> scores;        ///< of gangs placed now: share of wishes met
  uint64_t placed = 0;                              ///< gangs
};

/// Places gangs: all of a gang's minimum, or nothing of it. Base gangs before those scaled from
/// them, higher priority first, then the older ones. A gang that runs has missing pods replaced
/// within the same domains. Pods start in the order of their cliques: those of a clique stay behind
/// the gate, with their node chosen, until the cliques before it have their minimum ready. Pure.
Schedule schedule_gangs(const ScheduleView& view);

/// A merge patch that gives a pod its node and, if `opens`, takes the gate away.
json::Value release_patch(const Release& release);

}  // namespace stator::grove
