// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "stator/json/value.h"
#include "stator/operator/field_check.h"

namespace stator::op {

/// One container of a list: name, image, environment, words, ports, quantities, mounts.
void check_container(FieldCheck& check, const json::Value& containers, size_t index,
                     const std::string& path);

/// A list of environment entries: each has a name and at most one source of its value.
void check_env(FieldCheck& check, const json::Value& parent, const std::string& path,
               std::string_view key);

}  // namespace stator::op
