// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stator/json/value.h"
#include "stator/operator/graph.h"

namespace stator::op {

/// What a graph should have in the cluster. `hash` is the generation of its workers where they roll
/// as one (Deployments only), else empty.
///
/// All of these are functions of the graph and the environment alone: no clock, no cluster.

/// Objects that come before any workload: accounts, roles, claims, the picker's configuration.
std::vector<json::Value> make_shared_objects(const Graph& graph, const Environment& environment);

/// DynamoComponentDeployments, one for each component: self-contained, so that each can be turned
/// into its workload alone.
std::vector<json::Value> make_component_deployments(const Graph& graph,
                                                    const Environment& environment,
                                                    std::string_view hash,
                                                    std::string_view restart_id);

/// Whether no graph has made a component: then it brings its accounts itself.
bool is_alone(const json::Value& component);

/// Deployment or LeaderWorkerSet first, then Services and Ingress of a component (v1beta1), and
/// what a graph would have made for it, if none has.
std::vector<json::Value> make_component_objects(const json::Value& component,
                                                const Environment& environment);

/// The restart that each component's pods are of; components that were never restarted are absent.
using Restarts = std::map<std::string, std::string, std::less<>>;

/// What the pods of a PodCliqueSet carry beside the graph.
struct GroveMarks {
  std::string hash;        ///< generation of the workers; empty: there are none
  bool tells_pods = true;  ///< whether the workers' pods carry it, and a namespace of their own
  Restarts restarts = {};
};
/// The PodCliqueSet of a graph first, then the Services of its components.
std::vector<json::Value> make_grove_objects(const Graph& graph, const Environment& environment,
                                            const GroveMarks& marks);
/// Whether a component is a PodCliqueScalingGroup of the set; else it is a PodClique.
bool is_scaling_group(const Component& component);

/// One DynamoGraphDeploymentScalingAdapter for each component that asks for one.
std::vector<json::Value> make_scaling_adapters(const Graph& graph);

/// Services of a component, the base model's among them; in all paths the same.
struct ServiceContext {
  const Graph& graph;
  const Component& component;
  const Environment& environment;
  std::string name;  ///< of the Service
  std::string worker_hash = {};
};
std::vector<json::Value> make_services(const ServiceContext& context);
/// Ingress, HTTPRoute or VirtualService of a frontend, as far as they are enabled.
std::vector<json::Value> make_entries(const ServiceContext& context);

/// The generation to put into names: the hash of the workers where they roll as one, else "".
std::string rolling_hash(const Graph& graph);

/// A graph around a component on its own.
json::Value graph_around(const json::Value& component);

}  // namespace stator::op
