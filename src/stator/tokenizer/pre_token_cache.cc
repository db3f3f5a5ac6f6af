// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/pre_token_cache.h"

#include "stator/core/assert.h"
#include "stator/core/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace stator::tokenizer {
namespace {

uint64_t load(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

}  // namespace

PreTokenCache& PreTokenCache::slot_of_this_thread() {
  thread_local PreTokenCache cache;
  return cache;
}

PreTokenCache& PreTokenCache::of_this_thread() {
  PreTokenCache& cache = slot_of_this_thread();
  if (cache.short_entries_.empty()) [[unlikely]] {
    cache.allocate();
  }
  return cache;
}

void PreTokenCache::drop_this_thread() {
  slot_of_this_thread() = PreTokenCache();
}

void PreTokenCache::allocate() {
  short_entries_.resize(size_t{1} << kShortEntriesLog2);
  long_entries_.resize(size_t{1} << kLongEntriesLog2);
  wide_entries_.resize(size_t{1} << kWideEntriesLog2);
}

void PreTokenCache::insert(const PieceKey& key, uint32_t place, uint32_t instance,
                           std::span<const TokenId> ids) {
  if (ids.empty()) {
    return;
  }
  // A new piece may come several times before it is kept.
  if (holds(short_entries_[place], key, instance) ||
      holds(short_entries_[beside(place)], key, instance)) {
    return;
  }
  // An older piece stays where it is found first: frequent ones come early.
  const bool is_taken = short_entries_[place].ids.back() != 0;
  const bool is_other_taken = short_entries_[beside(place)].ids.back() != 0;
  const bool goes_here = !is_taken || (is_other_taken && (next_way_++ & 1) != 0);
  ShortEntry& entry = short_entries_[goes_here ? place : beside(place)];
  entry.key = key;
  const bool is_all = ids.size() <= kShortIdsMax;
  std::ranges::copy(ids.first(is_all ? ids.size() : 0), entry.ids.begin());
  entry.ids.back() =
      (instance << kCountBits) | (is_all ? static_cast<uint32_t>(ids.size()) : kMoreIds);
}

PreTokenCache::LongKey PreTokenCache::make_long_key(std::string_view piece, uint32_t instance) {
  STATOR_ASSERT(is_long(piece.size()), "other pieces have no such key");
  const char* first = piece.data();
  const char* end = first + piece.size();
  LongKey key{{load(first), load(first + 8), load(end - 16), load(end - 8)},
              instance,
              static_cast<uint32_t>(piece.size()),
              0};
  // Multiply-and-fold per word; the constants are odd 64-bit fractions of the golden ratio and of
  // pi.
  constexpr uint64_t kA = 0x9E3779B97F4A7C15ULL;
  constexpr uint64_t kB = 0x243F6A8885A308D3ULL;
  const uint64_t low = (key.words[0] ^ kB) * kA ^ std::rotl(key.words[1] * kB, 32);
  const uint64_t high = (key.words[2] ^ kA) * kB ^ std::rotl(key.words[3] * kA, 32);
  uint64_t hash = (low ^ std::rotl(high, 17) ^ key.bytes) * kA;
  hash ^= hash >> 29;
  key.place = static_cast<uint32_t>((hash * kB) >> (64 - kLongEntriesLog2));
  return key;
}

std::span<const TokenId> PreTokenCache::find(const LongKey& key) const {
  for (const uint32_t place : {key.place, key.place ^ 1}) {
    const LongEntry& entry = long_entries_[place];
    if (holds(entry, key)) {
      return {entry.ids.data(), entry.count};
    }
  }
  return {};
}

void PreTokenCache::insert(const LongKey& key, std::span<const TokenId> ids) {
  if (ids.empty() || ids.size() > kLongIdsMax) {
    return;
  }
  LongEntry& near = long_entries_[key.place];
  LongEntry& neighbour = long_entries_[key.place ^ 1];
  if (holds(near, key) || holds(neighbour, key)) {
    return;
  }
  LongEntry& entry = near.is_newer != 0 ? neighbour : near;
  near.is_newer = 0;
  neighbour.is_newer = 0;
  entry.words = key.words;
  entry.instance = key.instance;
  entry.bytes = static_cast<uint8_t>(key.bytes);
  entry.count = static_cast<uint8_t>(ids.size());
  entry.is_newer = 1;
  std::ranges::copy(ids, entry.ids.begin());
}

PreTokenCache::WideKey PreTokenCache::make_wide_key(std::string_view piece, uint32_t instance) {
  STATOR_ASSERT(piece.size() <= kWideBytesMax, "longer pieces have no key");
  return {piece, xxh3_64(piece, instance), instance};
}

std::span<const TokenId> PreTokenCache::find(const WideKey& key) const {
  const WideEntry& entry = wide_entries_[place_of(key)];
  const bool is_same = entry.hash == key.hash && entry.instance == key.instance &&
                       std::string_view(entry.text.data(), entry.bytes) == key.piece;
  return is_same ? std::span(entry.ids).first(entry.count) : std::span<const TokenId>();
}

void PreTokenCache::insert(const WideKey& key, std::span<const TokenId> ids) {
  if (ids.empty() || ids.size() > kWideIdsMax) {
    return;
  }
  WideEntry& entry = wide_entries_[place_of(key)];
  entry.hash = key.hash;
  entry.instance = key.instance;
  entry.bytes = static_cast<uint16_t>(key.piece.size());
  entry.count = static_cast<uint16_t>(ids.size());
  std::ranges::copy(ids, entry.ids.begin());
  std::ranges::copy(key.piece, entry.text.begin());
}

}  // namespace stator::tokenizer
