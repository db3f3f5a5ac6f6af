// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/huge_pages.h"

namespace stator::tokenizer {

/// Longest token that a text starts with: a double-array trie over the bytes of a vocabulary. One
/// step costs one load of eight bytes. A vocabulary of 128,000 tokens makes about 400,000 nodes
/// (3 MiB). Immutable.
class TokenTrie {
 public:
  struct Match {
    TokenId token;
    uint32_t bytes;  ///< 0: no token starts the text
  };
  using Entry = std::pair<std::string_view, TokenId>;

  TokenTrie() = default;

  /// Sorts `entries`; contents are not empty and differ.
  explicit TokenTrie(std::span<Entry> entries);

  Match find_longest(std::string_view text) const {
    Match best{0, 0};
    uint32_t base = kRootBase;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto label = static_cast<unsigned char>(text[i]);
      const Unit unit = units_[base ^ label];
      if (unit.label != label || unit.is_free != 0) {
        break;
      }
      if (unit.token != kNone) {
        best = {unit.token, static_cast<uint32_t>(i + 1)};
      }
      base = unit.base;
      if (base == 0) {
        break;
      }
    }
    return best;
  }

 private:
  static constexpr TokenId kNone = UINT32_MAX;
  static constexpr uint32_t kRootBase = 0x100;  // 0 says: no children
  static constexpr uint32_t kBlock = 256;       // siblings share one: base ^ label

  // Two parents never share a base, so the label alone tells whose child a unit is.
  struct Unit {
    uint32_t base : 23;
    uint32_t label : 8;
    uint32_t is_free : 1;
    TokenId token;
  };
  static_assert(sizeof(Unit) == 8);

  class Builder;
  HugeVector<Unit> units_ = HugeVector<Unit>(2 * kBlock, Unit{0, 0, 1, kNone});
};

}  // namespace stator::tokenizer
