// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/json/value.h"

namespace stator::grove {

/// Whether a pod may run on a node, as the cluster's scheduler sees it: nodeSelector, required node
/// affinity (without the node we chose), taints, cordons. Resources are counted elsewhere.
bool may_run_on(const json::Value& pod_spec, const json::Value& node);

/// Equal for pods that may run on the same nodes.
std::string placement_signature(const json::Value& pod_spec);

/// The label selectors of pods that a pod must not share a node with: its required anti-affinity
/// over kubernetes.io/hostname, in its own namespace.
std::vector<const json::Value*> apart_from(const json::Value& pod_spec);

/// Whether a label selector finds a pod.
bool selects(const json::Value& selector, const json::Value& pod);

}  // namespace stator::grove
