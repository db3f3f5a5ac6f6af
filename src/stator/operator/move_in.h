// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stator/json/value.h"
#include "stator/operator/reconcile.h"

namespace stator::op {

/// Pods that another operator of these kinds made, and that stay as long as their component does
/// not change. Kept as an annotation of the graph (kAnnotationAdopted), so that it outlives us.
struct Adoption {
  std::string generation;  ///< what the workers' names and labels carry; empty: no workers
  std::map<std::string, std::string, std::less<>> made_of;  ///< component → made_of() of it

  bool keeps(const json::Value& component) const;
  /// Whether every worker of `desired` is kept: then their generation is, too.
  bool keeps_workers(const std::vector<json::Value>& desired) const;
};

/// A hash of what a component's pods are made of: of a DynamoComponentDeployment as we render it.
std::string made_of(const json::Value& component);

/// The same of a whole graph on the Grove path: everything but the numbers of replicas.
std::string made_of_graph(const Graph& graph);

std::optional<Adoption> read_adoption(const Graph& graph);
std::string to_text(const Adoption& adoption);

/// What of a graph that we see for the first time can be kept: all components are there, none made
/// by us, the other operator was done with this generation of the graph, workers are of one
/// generation, and main containers have the image, command and arguments that they should have.
/// `desired` is what we would make. Nothing, if any of this does not hold: then pods are replaced.
std::optional<Adoption> find_adoption(const GraphView& view, const Graph& graph,
                                      const std::vector<json::Value>& desired);

}  // namespace stator::op
