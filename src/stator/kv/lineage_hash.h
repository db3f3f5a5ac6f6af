// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "stator/blocks/block_hash.h"

namespace stator::kv {

/// The positional lineage hash of a block: 128 bits that hold its place in the sequence, its
/// sequence hash and a fragment of its parent's. Byte-compatible with NVIDIA Dynamo's block
/// manager, so that file and object names carry over.
///
///   bits from the top: mode (2) | position (P) | sequence hash (64) | parent's low bits (R)
///   mode 0: P = 8, R = 54; mode 1: P = 16, R = 46; mode 2: P = 24, R = 38
///
/// A name, no proof: 64-bit hashes are forged in seconds. Who serves bytes compares the tokens.
class LineageHash {
 public:
  /// Positions are below this.
  static constexpr uint32_t kPositionsMax = 1U << 24;

  constexpr LineageHash() noexcept = default;
  constexpr LineageHash(uint64_t high, uint64_t low) noexcept : high_(high), low_(low) {}

  /// Of the first block of a sequence.
  static LineageHash root(blocks::LocalHash first);
  /// Of a block at `position` > 0 with this sequence hash behind one with that. Nothing for a
  /// position beyond the limit.
  static std::optional<LineageHash> make(uint32_t position, blocks::SequenceHash current,
                                         blocks::SequenceHash parent);
  /// Of the block behind this one.
  std::optional<LineageHash> extend(blocks::LocalHash child) const;

  uint32_t position() const;
  blocks::SequenceHash current() const;
  /// The low bits of the parent's sequence hash, as many as the mode has; 0 for a first block.
  uint64_t parent_fragment() const;

  /// "pos:b58(current)[:b58(parent)]": base58 of eight big-endian bytes.
  std::string text() const;
  static std::optional<LineageHash> parse(std::string_view text);
  std::array<std::byte, 16> big_endian() const;
  static LineageHash from_big_endian(const std::array<std::byte, 16>& bytes);

  uint64_t high() const { return high_; }
  uint64_t low() const { return low_; }
  friend constexpr auto operator<=>(const LineageHash&, const LineageHash&) noexcept = default;
  template <typename H>
  friend H AbslHashValue(
      H state, const LineageHash& hash) {  // NOLINT(readability-identifier-naming): absl's hook
    return H::combine(std::move(state), hash.high_, hash.low_);
  }

 private:
  uint64_t high_ = 0;
  uint64_t low_ = 0;
};

}  // namespace stator::kv
