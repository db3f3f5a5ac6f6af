// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/json/value.h"

namespace stator::op {

/// The spec of a DynamoGraphDeploymentRequest of v1alpha1 (`profilingConfig`, `useMocker`,
/// `deploymentOverrides`) in the fields of v1beta1, and the other direction. Fields without a
/// counterpart are left out; who needs them back keeps the original (see convert.h).
json::Value request_spec_to_beta(const json::Value& spec);
json::Value request_spec_to_alpha(const json::Value& spec);

/// Its status: state and phase, the deployment and its name, the manifest that was made.
json::Value request_status_to_beta(const json::Value& status);
json::Value request_status_to_alpha(const json::Value& status);

}  // namespace stator::op
