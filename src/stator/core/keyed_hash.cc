// SPDX-License-Identifier: Apache-2.0
#include "stator/core/keyed_hash.h"

#include <bit>
#include <cstring>

#include "stator/core/entropy.h"

namespace stator {
namespace {

uint64_t word_at(const char* bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

/// The names are those of the paper.
struct SipState {
  uint64_t v0;
  uint64_t v1;
  uint64_t v2;
  uint64_t v3;

  explicit SipState(const HashKey& key)
      : v0(key[0] ^ 0x736f6d6570736575ULL),
        v1(key[1] ^ 0x646f72616e646f6dULL),
        v2(key[0] ^ 0x6c7967656e657261ULL),
        v3(key[1] ^ 0x7465646279746573ULL) {}

  void round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32) + v3;
    v2 += v1;
    v3 = std::rotl(v3, 21) ^ v0;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void take(uint64_t word) {
    v3 ^= word;
    round();
    v0 ^= word;
  }
  uint64_t finish() {
    v2 ^= 0xff;
    round();
    round();
    round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

uint64_t keyed_hash(const HashKey& key, std::string_view text) {
  SipState state(key);
  const char* at = text.data();
  const size_t whole = text.size() & ~size_t{7};
  for (const char* end = at + whole; at != end; at += 8) {
    state.take(word_at(at));
  }
  uint64_t last = uint64_t{text.size()} << 56U;
  const size_t rest = text.size() - whole;
  if (rest > 0) {
    uint64_t tail = 0;
    std::memcpy(&tail, at, rest);
    last |= tail;
  }
  state.take(last);
  return state.finish();
}

uint64_t keyed_hash(std::string_view text) {
  static const HashKey key = draw_hash_key();
  return keyed_hash(key, text);
}

}  // namespace stator
