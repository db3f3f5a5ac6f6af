// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::op {

/// The GPUs of a cluster, as far as a request needs to know.
struct Hardware {
  std::string sku;  ///< "h100_sxm"
  int64_t vram_mb = 0;
  int64_t gpus_per_node = 0;
  int64_t gpus = 0;
};

/// Of the nodes' labels (nvidia.com/gpu.product, .count, .memory) or their allocatable GPUs; of
/// several kinds, the one with most nodes, then the one with most memory. At most 32 GPUs are taken
/// for granted. kNotFound when no node says what its GPUs are.
Result<Hardware> discover_hardware(const std::vector<json::Value>& nodes);

/// What a DynamoGraphDeploymentRequest's spec.hardware says, over what was discovered.
Hardware hardware_of(const json::Value& request, const Hardware& discovered);

/// A request turned into a graph.
struct Sizing {
  json::Value graph;     ///< DynamoGraphDeployment, v1beta1, with the request's overrides
  json::Value selected;  ///< the configuration and what it should yield
  std::string why;       ///< for people: goal, choice, what limits
  bool goal_met = false;
};

/// Searches the configurations of `request` (a DynamoGraphDeploymentRequest in v1beta1) on this
/// hardware. kInvalidArgument names the field that is wrong or the model that is not known;
/// kUnavailable when nothing fits.
Result<Sizing> size_request(const json::Value& request, const Hardware& hardware);

}  // namespace stator::op
