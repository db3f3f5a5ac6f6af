// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stator::transfer {

/// What agents tell each other of the "ucx" backend: where the worker is reached, and the keys of
/// the registered memory. Little-endian: address (length u32, bytes), number of keys u32, then for
/// each addr u64, len u64, key (length u32, bytes).
struct UcxInfo {
  struct Key {
    uint64_t addr = 0;
    uint64_t len = 0;
    std::string packed;
    friend bool operator==(const Key&, const Key&) = default;
  };
  std::string address;
  std::vector<Key> keys;
  friend bool operator==(const UcxInfo&, const UcxInfo&) = default;
};
std::string encode(const UcxInfo& info);
/// Nothing: malformed.
std::optional<UcxInfo> decode_ucx_info(std::string_view bytes);

}  // namespace stator::transfer
