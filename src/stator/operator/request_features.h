// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/json/value.h"

namespace stator::op {

/// What `spec.features` of a DynamoGraphDeploymentRequest adds to the graph that was sized for it.
///
///   planner           a component of type planner with this configuration; workers get scaling
///                     adapters, by which it scales them
///   mocker.enabled    workers are simulated: no GPUs, one node, the model's name only
///
/// `spec.image` is the image of both; without one the workers' own.
void add_features(const json::Value& request, json::Value& graph);

}  // namespace stator::op
