// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/api/field_reader.h"

namespace stator::protocols::anthropic {

/// The value of a `cache_control`: the seconds that its `ttl` says ("5m", "1h"; 300 without one);
/// 0 for null. Members nobody knows are passed over.
uint32_t read_cache_control(api::FieldReader& in, const api::Path& path);

}  // namespace stator::protocols::anthropic
