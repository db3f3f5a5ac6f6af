// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

namespace stator {

/// Where randomness comes from: cores take a `Random&`, so a seed reproduces a run.
/// Not thread-safe: one per shard or core. xoshiro256** (Blackman and Vigna, 2018).
class Random {
 public:
  explicit Random(uint64_t seed);
  /// Seeded from the operating system.
  static Random from_entropy();

  uint64_t next();
  /// Uniform in [0, bound); bound > 0. Lemire's multiply-shift with rejection: no modulo bias.
  uint64_t below(uint64_t bound);
  /// Uniform in [0, 1) with 53 bits.
  double uniform();
  uint64_t seed() const { return seed_; }

 private:
  uint64_t seed_;
  uint64_t state_[4];
};

/// One well-mixed word from a counter: the basis of reproducible per-(seed, index, token) draws.
/// splitmix64's finaliser (Steele et al., 2014).
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace stator
