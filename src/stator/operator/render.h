// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/operator/graph.h"

namespace stator::op {

/// A DynamoGraphDeployment or DynamoComponentDeployment of either version as a v1beta1 object with
/// defaults, validated; others of our kinds are validated only. kInvalidArgument as validate_graph.
Result<json::Value> admit(const json::Value& object, const Environment& environment);

/// The children of an admitted graph, in the order in which they are applied.
std::vector<json::Value> children_of_graph(const json::Value& graph,
                                           const Environment& environment);

/// What the operator would make of manifests, without a cluster: graphs and components become their
/// children; lists are taken apart; objects of other kinds stay as they are. Stops at the first
/// manifest that is refused.
Result<std::vector<json::Value>> render(std::span<const json::Value> manifests,
                                        const Environment& environment);

}  // namespace stator::op
