// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/json/value.h"

namespace stator::op {

/// A service of v1alpha1 as a component of v1beta1, without its name; fields without a counterpart
/// are left out.
json::Value component_to_beta(const json::Value& service);
/// The other direction.
json::Value component_to_alpha(const json::Value& component);

}  // namespace stator::op
