// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::op {

/// What Grove's users leave out of a PodCliqueSet: replicas of cliques 1, minAvailable = replicas,
/// minReplicas of autoscalers, the termination delay 4 h, a headless Service that publishes
/// addresses which are not ready.
void set_defaults_of_set(json::Value& set);

/// Whether a PodCliqueSet or a ClusterTopologyBinding may be stored; `old`: what is stored, null
/// for a new one. kInvalidArgument in the words of an API server, the first violation only.
Status validate_set(const json::Value& object, const json::Value* old);

}  // namespace stator::op
