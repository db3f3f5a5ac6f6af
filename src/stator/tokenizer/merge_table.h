// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/huge_pages.h"

namespace stator::tokenizer {

/// What merging two adjacent tokens gives, and how early: the lowest rank merges first.
struct MergeRule {
  uint32_t rank;
  TokenId merged;
};

inline constexpr uint32_t kNoRank = UINT32_MAX;

/// Pair of tokens to MergeRule: open addressing with 16-byte slots at most two thirds full, so a
/// lookup is usually one cache line. It is the innermost loop of encoding.
class MergeTable {
 public:
  MergeTable() : slots_(2) {}

  /// `merges` is the number of rules to come; ranks and tokens are below 2^32 - 1.
  explicit MergeTable(size_t merges);

  /// The last rule for a pair wins.
  void insert(TokenId left, TokenId right, MergeRule rule);

  /// Before `insert`, so that several wait for memory together.
  void prefetch(TokenId left, TokenId right) const {
    __builtin_prefetch(&slots_[slot_of(make_key(left, right))], 1);
  }

  /// The rule for the pair; rank kNoRank if there is none.
  MergeRule find(TokenId left, TokenId right) const {
    const uint64_t key = make_key(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.key == key || slot.key == kEmpty) {
        return slot.rule;
      }
    }
  }

 private:
  // No token has the id 2^32 - 1.
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    MergeRule rule{kNoRank, 0};
  };

  static uint64_t make_key(TokenId left, TokenId right) {
    return (static_cast<uint64_t>(left) << 32) | right;
  }
  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  }

  HugeVector<Slot> slots_;  // a power of two
  int shift_ = 63;
};

}  // namespace stator::tokenizer
