// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/operator/graph.h"

namespace stator::op {

struct Admission {
  const json::Value* old = nullptr;  ///< the stored object in v1beta1; null: it is created
  bool is_stored =
      false;  ///< it is in the cluster already: what holds at creation only does not count
  bool is_operator = false;  ///< the writer is the operator itself
  /// The object was written in v1alpha1: fields are named as there.
  bool was_alpha = false;
};

/// Whether a graph may be stored. `graph` is in v1beta1 with defaults set. kInvalidArgument, in the
/// words of an API server:
///
///   DynamoGraphDeployment "chat" is invalid: spec.components[1].replicas: Invalid value: -1: must
///   be at least 0
///
/// The first violation only. An update that leaves an invalid old field as it was passes.
Status validate_graph(const json::Value& graph, const Environment& environment,
                      const Admission& admission = {});

/// The same for a DynamoComponentDeployment, a DynamoGraphDeploymentScalingAdapter, a
/// DynamoGraphDeploymentRequest, a DynamoModel or a DynamoCheckpoint; other kinds pass.
Status validate_other(const json::Value& object, const Environment& environment,
                      const Admission& admission = {});

}  // namespace stator::op
