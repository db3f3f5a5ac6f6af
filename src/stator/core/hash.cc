// SPDX-License-Identifier: Apache-2.0
#include "stator/core/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace stator {
namespace {

// Links of block chains are hashed by the million: a length the compiler knows takes half the time.
constexpr size_t kLinkBytes = 16;
[[gnu::flatten]] inline uint64_t hash_link(const std::byte* bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, kLinkBytes, seed);
}

}  // namespace

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed) {
  if (bytes.size() == kLinkBytes) {
    return hash_link(bytes.data(), seed);
  }
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t xxh3_64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace stator
