// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stator/operator/reconcile.h"

namespace stator::op {

/// A DynamoGraphDeploymentRequest and what is there of it.
struct RequestView {
  json::Value request;
  std::optional<json::Value> graph;  ///< the one that status.dgdName names
  std::vector<json::Value> nodes;    ///< only looked at while the request is new
  std::string now;                   ///< RFC 3339
};

/// The next step of a request: (new) → Ready, or Deploying → Deployed. The search runs here (rapid:
/// milliseconds). A graph is made once and owned by nobody: it outlives its request. Deleted by a
/// user it stays deleted (Failed). `plan.create` has the graph, and its refusal is final: see
/// refuse_request().
Plan plan_request(const RequestView& view);

/// The status of a request whose graph the API server refused.
json::Value refuse_request(const json::Value& request, std::string_view why,
                           const std::string& now);

}  // namespace stator::op
