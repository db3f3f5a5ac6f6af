// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "stator/api/field_reader.h"

namespace stator::api {

/// One known key of an object and how to read its value into `Target`. Tables are sorted by name,
/// so that a key costs a binary search; `is_sorted_table` keeps them so.
template <typename Target>
struct Field {
  std::string_view name;
  void (*read)(Target& target, const Path& path);
};

template <typename Target>
constexpr bool is_sorted_table(std::span<const Field<Target>> table) {
  return std::ranges::is_sorted(table, {}, &Field<Target>::name);
}

/// Appends the table's keys.
template <typename Target>
void append_names(std::span<const Field<Target>> table, std::vector<std::string_view>& out) {
  for (const Field<Target>& field : table) {
    out.push_back(field.name);
  }
}

/// Reads the value of `key`, or answers false if the table does not know it.
template <typename Target>
bool read_known(std::span<const Field<Target>> table, std::string_view key, Target& target,
                const Path& path) {
  const auto field = std::ranges::lower_bound(table, key, {}, &Field<Target>::name);
  if (field == table.end() || field->name != key) {
    return false;
  }
  field->read(target, path);
  return true;
}

}  // namespace stator::api
