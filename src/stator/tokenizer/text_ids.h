// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "stator/core/hash.h"
#include "stator/core/ids.h"
#include "stator/tokenizer/huge_pages.h"

namespace stator::tokenizer {

/// The texts of a vocabulary and their ids: a map made once, with all texts in one piece of memory.
/// 20 bytes per text beside the text itself, a fifth of the time of a general map. Texts come from
/// a file that the operator chose: the hash has no secret.
class TextIds {
 public:
  static constexpr TokenId kNone = UINT32_MAX;

  TextIds() = default;
  /// Room for so many texts of so many bytes together, which are not exceeded: views stay valid,
  /// also when the object moves.
  TextIds(size_t texts, size_t bytes);

  /// The last id of a text wins.
  void insert_or_assign(std::string_view text, TokenId id);

  /// The text's id, or kNone.
  TokenId find(std::string_view text) const { return find(text, hash_of(text)); }

  /// The same in three steps, so that several look-ups wait for memory together.
  static uint64_t hash_of(std::string_view text) { return xxh3_64(text); }
  void prefetch(uint64_t hash) const {
    if (!slots_.empty()) {
      __builtin_prefetch(&slots_[hash & mask()]);
    }
  }
  TokenId find(std::string_view text, uint64_t hash) const;

  size_t size() const { return entries_.size(); }
  /// In the order of insertion.
  std::string_view text(size_t index) const {
    return {texts_.data() + entries_[index].begin, entries_[index].bytes};
  }
  TokenId id(size_t index) const { return entries_[index].id; }

 private:
  struct Entry {
    uint32_t begin;  // in texts_
    uint32_t bytes;
    TokenId id;
  };
  static constexpr uint64_t kTagMask = ~uint64_t{UINT32_MAX};

  size_t mask() const { return slots_.size() - 1; }
  /// The slot of the text, or the free one where it belongs.
  size_t slot_of(std::string_view text, uint64_t hash) const;

  std::vector<char> texts_;
  std::vector<Entry> entries_;
  HugeVector<uint64_t> slots_;  // upper half of the hash | index + 1; 0: free. A power of two
};

}  // namespace stator::tokenizer
