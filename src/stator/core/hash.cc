// SPDX-License-Identifier: Apache-2.0
#include "stator/core/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace stator {

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t xxh3_64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace stator
