// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/json/value.h"
#include "stator/operator/field_check.h"

namespace stator::op {

/// Where a pod template stands: `owner`.`key`, and the container that it must have.
struct PodPlace {
  std::string owner;
  std::string_view key;
  std::string_view main;
};

/// What an API server would say of a pod template's parts that children are made of, while it can
/// still be said to the user: names, images, environment, words, ports, quantities, volumes.
void check_pod_template(FieldCheck& check, const json::Value& owner, const PodPlace& place);

}  // namespace stator::op
