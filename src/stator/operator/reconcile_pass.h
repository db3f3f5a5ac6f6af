// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stator/operator/reconcile.h"

namespace stator::op {

/// Why a component is not ready.
enum class Shortage : uint8_t { kUnknown, kCapacity, kUpdating, kPods };

struct ComponentState {
  bool is_ready = false;
  Shortage shortage = Shortage::kUnknown;
};

/// What the parts of one pass over a graph share.
struct Pass {
  const GraphView& view;
  const Environment& environment;
  const Graph& graph;
  Plan plan = {};
  json::Value components = json::Value::object();  ///< of the status
  std::vector<std::pair<std::string, Shortage>> not_ready = {};
  std::vector<std::string> waiting = {};  ///< components whose checkpoint is not ready
  json::Value topology = {};              ///< the condition TopologyLevelsAvailable, or null
  bool rolls = false;
};

void report_component(Pass& pass, const Component& component, const ComponentState& state,
                      const json::Value& replicas);
/// Of a component's replica counts: pods without a node, pods of an older spec, or pods that start.
Shortage shortage_of(const json::Value& replicas, int64_t desired);
/// The components of spec.restart in the order in which they are restarted.
std::vector<std::string> restart_order(const Graph& graph, const json::Value& restart);

/// The Grove path: one PodCliqueSet, scaled and restarted through its cliques.
void plan_grove_path(Pass& pass, json::Value& status);

}  // namespace stator::op
