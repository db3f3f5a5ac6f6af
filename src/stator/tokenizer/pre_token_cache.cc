// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/pre_token_cache.h"

#include "stator/core/assert.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace stator::tokenizer {
namespace {

template <typename Word>
uint64_t load(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

}  // namespace

PreTokenCache& PreTokenCache::of_this_thread() {
  thread_local PreTokenCache cache;
  return cache;
}

PreTokenCache::Key PreTokenCache::make_key(std::string_view piece, uint32_t instance) {
  const size_t n = piece.size();
  STATOR_ASSERT(n >= 1 && n <= kPieceBytesMax, "only short pieces have a key");
  const char* first = piece.data();
  const char* end = first + n;
  Key key{{}, instance, static_cast<uint32_t>(n)};
  if (n >= 16) {
    key.words = {load<uint64_t>(first), load<uint64_t>(first + 8), load<uint64_t>(end - 16),
                 load<uint64_t>(end - 8)};
  } else if (n >= 8) {
    key.words = {load<uint64_t>(first), load<uint64_t>(end - 8)};
  } else if (n >= 4) {
    key.words = {load<uint32_t>(first), load<uint32_t>(end - 4)};
  } else if (n >= 2) {
    key.words = {load<uint16_t>(first), load<uint16_t>(end - 2)};
  } else {
    key.words = {static_cast<unsigned char>(*first)};
  }
  return key;
}

size_t PreTokenCache::slot_of(const Key& key) {
  // Multiply-and-fold per word; the constants are odd 64-bit fractions of the golden ratio and of
  // pi.
  constexpr uint64_t kA = 0x9E3779B97F4A7C15ULL;
  constexpr uint64_t kB = 0x243F6A8885A308D3ULL;
  const uint64_t low = (key.words[0] ^ kB) * kA ^ std::rotl(key.words[1] * kB, 32);
  const uint64_t high = (key.words[2] ^ kA) * kB ^ std::rotl(key.words[3] * kA, 32);
  const uint64_t tag = (static_cast<uint64_t>(key.instance) << 8 | key.bytes) * kB;
  uint64_t hash = (low ^ std::rotl(high, 17) ^ tag) * kA;
  hash ^= hash >> 29;
  return static_cast<size_t>((hash * kB) >> (64 - std::countr_zero(kEntries)));
}

std::span<const TokenId> PreTokenCache::find(const Key& key) const {
  const Entry& entry = entries_[slot_of(key)];
  if (entry.words == key.words && entry.bytes == key.bytes && entry.instance == key.instance) {
    return {entry.ids.data(), entry.count};
  }
  return {};
}

void PreTokenCache::insert(const Key& key, std::span<const TokenId> ids) {
  if (ids.empty() || ids.size() > kIdsMax) {
    return;
  }
  Entry& entry = entries_[slot_of(key)];
  entry.words = key.words;
  entry.instance = key.instance;
  entry.bytes = static_cast<uint8_t>(key.bytes);
  entry.count = static_cast<uint8_t>(ids.size());
  std::ranges::copy(ids, entry.ids.begin());
}

}  // namespace stator::tokenizer
