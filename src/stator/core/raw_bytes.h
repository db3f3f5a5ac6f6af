// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace stator {

static_assert(std::endian::native == std::endian::little, "files and frames are little-endian");

/// Copies a value to `at` of a record, as it is in memory: little-endian. There must be room.
template <typename T>
  requires std::is_trivially_copyable_v<T>
void put_raw(std::span<std::byte> out, size_t at, const T& value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}

template <typename T>
  requires std::is_trivially_copyable_v<T>
T get_raw(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace stator
