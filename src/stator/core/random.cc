// SPDX-License-Identifier: Apache-2.0
#include "stator/core/random.h"

#include <bit>
#include <random>

#include "stator/core/assert.h"
#include "stator/core/entropy.h"

namespace stator {
namespace {

thread_local std::optional<uint64_t> t_fixed_entropy;

}  // namespace

FixedEntropy::FixedEntropy(uint64_t seed) {
  STATOR_ASSERT(!t_fixed_entropy, "entropy is fixed once at a time");
  t_fixed_entropy = seed;
}

FixedEntropy::~FixedEntropy() {
  t_fixed_entropy.reset();
}

std::optional<uint64_t> FixedEntropy::next() {
  if (t_fixed_entropy) {
    t_fixed_entropy = mix64(*t_fixed_entropy);
  }
  return t_fixed_entropy;
}

std::array<uint64_t, 2> draw_hash_key() {
  std::random_device device;
  std::array<uint64_t, 2> key{};
  for (uint64_t& word : key) {
    word = (static_cast<uint64_t>(device()) << 32) | device();
  }
  return key;
}

Random::Random(uint64_t seed) : seed_(seed), state_{} {
  for (uint64_t& word : state_) {
    word = mix64(seed);
    seed += 0x9E3779B97F4A7C15ULL;
  }
}

Random Random::from_entropy() {
  if (const auto fixed = FixedEntropy::next()) {
    return Random(*fixed);
  }
  std::random_device device;
  return Random((static_cast<uint64_t>(device()) << 32) | device());
}

uint64_t Random::next() {
  uint64_t* s = state_;
  const uint64_t result = std::rotl(s[1] * 5, 7) * 9;
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = std::rotl(s[3], 45);
  return result;
}

uint64_t Random::below(uint64_t bound) {
  STATOR_ASSERT(bound > 0, "below() needs a positive bound");
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(next()) * bound;
  auto low = static_cast<uint64_t>(product);
  if (low < bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while (low < threshold) {
      product = static_cast<Wide>(next()) * bound;
      low = static_cast<uint64_t>(product);
    }
  }
  return static_cast<uint64_t>(product >> 64);
}

double Random::uniform() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

}  // namespace stator
