// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/operator/field_check.h"

namespace stator::op {

inline constexpr std::array<std::string_view, 3> kBackends = {"sglang", "vllm", "trtllm"};

/// What was found, as an API server says it: '<kind> "<name>" is invalid: <first violation>'.
Status outcome(const FieldCheck& check, const json::Value& object);

/// metadata: a name, labels and annotations of strings.
void check_metadata(FieldCheck& check, const json::Value& object);

/// The object's spec; without one a violation is noted.
const json::Value* check_spec(FieldCheck& check, const json::Value& object);

/// Whether a text is a duration as Go writes it: 90s, 1h30m.
bool is_duration(std::string_view text);

}  // namespace stator::op
