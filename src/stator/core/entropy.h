// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace stator
