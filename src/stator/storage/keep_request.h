// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace stator::storage {

/// What an engine asks of a keeper of KV memory (`stator kv hold`), one packet: "STKEEP1\0",
/// bytes u64 little-endian, name (1 … 200 bytes).
struct KeepRequest {
  static constexpr size_t kHead = 16;
  static constexpr size_t kNameMax = 200;
  uint64_t bytes = 0;
  std::string name;
  friend bool operator==(const KeepRequest&, const KeepRequest&) = default;
};
/// A longer name is cut.
std::string encode(const KeepRequest& request);
/// Nothing: it is none.
std::optional<KeepRequest> decode_keep_request(std::span<const std::byte> packet);

}  // namespace stator::storage
