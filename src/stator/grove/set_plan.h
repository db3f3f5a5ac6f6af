// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stator/grove/layout.h"
#include "stator/kube/child_writer.h"
#include "stator/kube/object.h"

namespace stator::grove {

struct PodRemoval {
  kube::ObjectName name;
  std::string uid;
};

/// What a reconciliation of a set wants done, in this order. Nothing here has happened yet.
struct SetPlan {
  std::vector<json::Value> apply;   ///< children, with their owner
  std::vector<json::Value> create;  ///< pods; one that is there already is fine
  std::vector<PodRemoval> remove_pods;
  std::vector<std::pair<kube::Resource, kube::ObjectName>> remove;  ///< cliques, groups, gangs, …
  std::vector<std::pair<json::Value, json::Value>> statuses;  ///< objects, and their new status
  std::vector<kube::Happening> events;                        ///< about the set
  Duration again{};  ///< look again after so long (a delay that runs); zero: when something changes
};

/// Decides what a PodCliqueSet needs next: its cliques, groups, gangs and pods; replacement of pods
/// whose template has changed, one replica at a time, without a gang below its minimum by our doing
/// except for the pod that is just replaced; the end of gangs whose minimum was breached for longer
/// than the termination delay. Pods stay behind their gate: who places gangs opens it.
SetPlan plan_set(const SetView& view);

}  // namespace stator::grove
