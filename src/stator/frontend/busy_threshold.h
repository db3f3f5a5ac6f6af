// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/frontend/model_catalog.h"

namespace stator::frontend {

// The bodies of GET and POST /busy_threshold: when a model's workers count as too busy for more.
// Field names are those of the reference system.

/// {"thresholds":[{"model":…, "active_decode_blocks_threshold":…, …}]} of all models; null = off.
std::string render_busy_thresholds(const ModelCatalog& catalog);

/// Changes the thresholds that the body names (-1 = off; null or absent = as it was) from the next
/// decision on, and returns the model's. kInvalidArgument names the field; kNotFound the model.
Result<std::string> set_busy_thresholds(const ModelCatalog& catalog, std::string_view body);

}  // namespace stator::frontend
