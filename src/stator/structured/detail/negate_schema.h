// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "stator/json/value.h"

namespace stator::structured {

/// A schema of which every value breaks `schema`. It may leave out values that break it in a way
/// that has no schema; nothing if that leaves none. References are looked up in `root`.
std::optional<json::Value> negate_schema(const json::Value& schema, const json::Value& root);

}  // namespace stator::structured
