// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stator/json/value.h"
#include "stator/kube/child_writer.h"
#include "stator/kube/object.h"
#include "stator/operator/graph.h"

namespace stator::op {

using PlannedEvent = kube::Happening;

struct Removal {
  kube::Resource resource;
  kube::ObjectName name;
  std::string uid;
};

struct Scale {
  kube::Resource resource;
  kube::ObjectName name;
  int64_t replicas = 0;
};

/// What a reconciliation wants done, in this order. Nothing here has happened yet.
struct Plan {
  std::optional<json::Value> patch;  ///< merge patch of the object itself (finalizer, annotations)
  std::optional<json::Value> replicas;  ///< JSON patch of the object's spec (adapters)
  std::vector<json::Value> apply;       ///< children, with their owner
  std::vector<json::Value> create;      ///< children that others change later: made once
  std::vector<Removal> remove;
  std::vector<Scale> scales;  ///< of workloads that have a scale subresource
  std::vector<std::pair<json::Value, json::Value>>
      statuses;                      ///< other objects, and their new status
  json::Value status;                ///< of the object; null: leave it
  std::vector<PlannedEvent> events;  ///< after the status
};

/// A graph and what is there of it.
struct GraphView {
  json::Value graph;                    ///< as the server gives it, either version
  std::vector<json::Value> components;  ///< its DynamoComponentDeployments, all generations
  std::vector<json::Value> adapters;
  std::vector<json::Value> cliques;           ///< PodCliques and PodCliqueScalingGroups
  std::string now;                            ///< RFC 3339, for conditions
  std::optional<json::Value> set = {};        ///< its PodCliqueSet, if that is there
  std::vector<json::Value> checkpoints = {};  ///< DynamoCheckpoints of its namespace
};
Plan plan_graph(const GraphView& view, const Environment& environment);

/// A component and its workload, if that is there.
struct ComponentView {
  json::Value component;
  std::optional<json::Value> workload;  ///< Deployment or LeaderWorkerSet
  std::string now;
};
Plan plan_component(const ComponentView& view, const Environment& environment);

using kube::set_condition;

}  // namespace stator::op
