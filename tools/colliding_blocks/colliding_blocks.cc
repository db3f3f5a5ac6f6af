// SPDX-License-Identifier: Apache-2.0
// Finds another block of tokens with the same block hash (blocks/block_hash.h): what makes the
// colliding pairs in src/stator/kv/testdata. Not part of the build:
//
//   clang++-19 -std=c++23 -O2 -o /tmp/colliding_blocks tools/colliding_blocks/colliding_blocks.cc
//   echo 12 7 … (16 or 32 ids) | /tmp/colliding_blocks 3069      # ids of the answer are below 3069
//
// XXH3 over 64 or 128 bytes adds up independent lanes of 16 bytes, 4 tokens each, before a
// bijection. So four lanes with a given sum are wanted: Wagner's generalised birthday problem
// ("A Generalized Birthday Problem", CRYPTO 2002) with four lists of 2^22. Seconds on one core.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace {

constexpr uint64_t kSeed = 1337;
constexpr uint64_t kListBits = 22;
constexpr uint64_t kListSize = uint64_t{1} << kListBits;
constexpr uint64_t kLow = kListSize - 1;

using Lane = std::array<uint32_t, 4>;

uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Where in the secret the lane at `index` of `lanes` is mixed.
size_t secret_offset(size_t index, size_t lanes) {
  return index < lanes / 2 ? 32 * index : 32 * (lanes - 1 - index) + 16;
}

uint64_t value_of(const Lane& lane, size_t index, size_t lanes) {
  return XXH3_mix16B(reinterpret_cast<const xxh_u8*>(lane.data()),
                     XXH3_kSecret + secret_offset(index, lanes), kSeed);
}

Lane lane_of(uint64_t number, size_t index, uint32_t vocabulary) {
  Lane lane;
  for (uint64_t i = 0; i < lane.size(); ++i) {
    lane[i] = static_cast<uint32_t>(mix(number * 16 + index * 4 + i) % vocabulary);
  }
  return lane;
}

struct Sum {
  uint64_t value;
  uint32_t first;
  uint32_t second;
};

/// Pairs of members of lists `a` and `b` whose sum has these low bits.
std::vector<Sum> join(size_t a, size_t b, uint64_t low, size_t lanes, uint32_t vocabulary) {
  struct Member {
    uint64_t value;
    uint32_t number;
  };
  std::vector<Member> members(kListSize);
  for (uint32_t i = 0; i < kListSize; ++i) {
    members[i] = {value_of(lane_of(i, a, vocabulary), a, lanes), i};
  }
  std::ranges::sort(members, {}, [](const Member& m) { return m.value & kLow; });
  std::vector<Sum> sums;
  for (uint32_t i = 0; i < kListSize; ++i) {
    const uint64_t value = value_of(lane_of(i, b, vocabulary), b, lanes);
    const auto low_of = [](const Member& m) { return m.value & kLow; };
    for (const Member& m : std::ranges::equal_range(members, (low - value) & kLow, {}, low_of)) {
      sums.push_back({m.value + value, m.number, i});
    }
  }
  return sums;
}

}  // namespace

int main(int argc, char** argv) {
  const auto vocabulary = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 0);
  std::vector<uint32_t> victim;
  for (uint32_t id = 0; std::cin >> id;) {
    victim.push_back(id);
  }
  if (vocabulary == 0 || (victim.size() != 16 && victim.size() != 32)) {
    std::fprintf(stderr, "usage: echo <16 or 32 ids> | colliding_blocks VOCABULARY\n");
    return 2;
  }
  const size_t lanes = victim.size() / 4;
  uint64_t wanted = 0;  // the sum of the first four lanes
  for (size_t i = 0; i < 4; ++i) {
    Lane lane;
    std::copy_n(victim.begin() + static_cast<ptrdiff_t>(4 * i), 4, lane.begin());
    wanted += value_of(lane, i, lanes);
  }
  std::vector<Sum> left = join(0, 1, 0, lanes, vocabulary);
  std::ranges::sort(left, {}, &Sum::value);
  for (const Sum& right : join(2, 3, wanted, lanes, vocabulary)) {
    for (const Sum& match : std::ranges::equal_range(left, wanted - right.value, {}, &Sum::value)) {
      const uint32_t numbers[] = {match.first, match.second, right.first, right.second};
      std::vector<uint32_t> other = victim;
      for (size_t i = 0; i < 4; ++i) {
        const Lane lane = lane_of(numbers[i], i, vocabulary);
        std::ranges::copy(lane, other.begin() + static_cast<ptrdiff_t>(4 * i));
      }
      const size_t bytes = victim.size() * sizeof(uint32_t);
      if (XXH3_64bits_withSeed(other.data(), bytes, kSeed) ==
          XXH3_64bits_withSeed(victim.data(), bytes, kSeed)) {
        for (const uint32_t id : other) {
          std::printf("%u ", id);
        }
        std::printf("\n");
        return 0;
      }
    }
  }
  std::fprintf(stderr, "none found: change the constants of mix()\n");
  return 1;
}
