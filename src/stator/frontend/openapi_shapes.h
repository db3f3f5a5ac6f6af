// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace stator::frontend {

/// A JSON Schema that /openapi.json names in `components`.
struct Shape {
  std::string_view name;
  std::string_view json;
};

/// Of bodies that are not read with the tables of api/field_catalog.h, and of answers; sorted.
/// Objects are open: answers may gain members.
std::span<const Shape> list_shapes();

}  // namespace stator::frontend
