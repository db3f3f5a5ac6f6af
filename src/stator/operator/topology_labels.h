// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/json/value.h"
#include "stator/kube/child_writer.h"
#include "stator/kube/client.h"

namespace stator::op {

/// What is to be done about a pod that wants to know its place (kvTransferPolicy): a merge patch
/// with the labels, and what could not be found.
struct TopologyLabels {
  std::optional<json::Value> patch;
  std::vector<kube::Happening> events;
};

/// Copies the node's topology label to a pod that is on it: the label that
/// nvidia.com/topology-label-key names under the same key; or, of the ClusterTopologyBinding that
/// nvidia.com/topology-cluster-topology-name names, those of its domains under
/// nvidia.com/dynamo-topology.<domain>. A label that the node does not have is a warning and no
/// label. Pure.
TopologyLabels plan_topology_labels(const json::Value& pod, const json::Value& node,
                                    const std::vector<json::Value>& topologies);

struct TopologyOptions {
  std::string space = {};  ///< only this namespace; empty: all
  std::string holder = {};
  std::function<bool(std::string_view)> wanted = {};  ///< null: all namespaces
};
/// Does so for each pod of ours with the label stator.dev/wants-topology. The client must have been
/// stopped before it is destroyed.
class TopologyLabeller {
 public:
  virtual ~TopologyLabeller() = default;
};
std::unique_ptr<TopologyLabeller> start_topology_labeller(kube::Client& client,
                                                          TopologyOptions options, Clock& clock);

}  // namespace stator::op
