// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace stator {

/// While it lives, Random::from_entropy() on this thread follows from a seed instead of the
/// operating system: for simulations, which must run the same way twice. Not nested.
class FixedEntropy {
 public:
  explicit FixedEntropy(uint64_t seed);
  FixedEntropy(const FixedEntropy&) = delete;
  FixedEntropy& operator=(const FixedEntropy&) = delete;
  ~FixedEntropy();

  /// The next seed of this thread; nothing outside of a scope.
  static std::optional<uint64_t> next();
};

/// 128 bits of the operating system's, also within a scope of FixedEntropy: secrets do not follow
/// from seeds, and what depends on them may not depend on their value.
std::array<uint64_t, 2> draw_hash_key();

}  // namespace stator
