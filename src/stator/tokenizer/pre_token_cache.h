// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"

namespace stator::tokenizer {

/// Ids of recently seen pieces. Words repeat, so most pieces of a text cost one cache line here
/// instead of a merge. One cache per thread for all tokenizers (told apart by a process-wide
/// number), hence no locks, no lifetime to manage and a fixed 2 MiB per encoding thread.
/// Direct-mapped: a newer piece evicts the one in its slot. Pieces over 32 bytes or 6 ids are not
/// kept.
class PreTokenCache {
 public:
  static constexpr size_t kPieceBytesMax = 32;
  static constexpr size_t kIdsMax = 6;
  static constexpr size_t kEntries = 32768;

  /// A piece of 1 to kPieceBytesMax bytes of tokenizer `instance`, ready for comparison:
  /// overlapping loads of its ends, which with the length determine it.
  struct Key {
    std::array<uint64_t, 4> words;
    uint32_t instance;
    uint32_t bytes;
    bool operator==(const Key&) const = default;
  };
  static Key make_key(std::string_view piece, uint32_t instance);

  static PreTokenCache& of_this_thread();

  /// Fetches the entry of `key` into the processor's cache.
  void prefetch(const Key& key) const { __builtin_prefetch(&entries_[slot_of(key)]); }

  /// The ids kept for `key`; empty if there are none. Valid until the next insert.
  std::span<const TokenId> find(const Key& key) const;

  /// Keeps `ids` if they are 1 to kIdsMax.
  void insert(const Key& key, std::span<const TokenId> ids);

 private:
  struct alignas(64) Entry {
    std::array<uint64_t, 4> words{};
    uint32_t instance = 0;
    uint8_t bytes = 0;
    uint8_t count = 0;
    std::array<TokenId, kIdsMax> ids{};
  };
  static_assert(sizeof(Entry) == 64, "one cache line per entry");

  PreTokenCache() : entries_(kEntries) {}
  static size_t slot_of(const Key& key);

  std::vector<Entry> entries_;
};

}  // namespace stator::tokenizer
