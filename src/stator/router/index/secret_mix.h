// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/core/random.h"

namespace stator::router {

/// Spreads block hashes over a table's slots in a way that nobody outside of this process knows.
/// Whoever chooses tokens chooses block hashes, and with a known spread 20,000 prompts made in 16 s
/// put their first blocks behind one another and made every look-up 1,000 times as slow. One
/// multiplication to 128 bits, folded; two secret words from Random::from_entropy().
class SecretMix {
 public:
  SecretMix() : SecretMix(Random::from_entropy()) {}

  uint64_t operator()(uint64_t value) const {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(value ^ mask_) * factor_;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

 private:
  explicit SecretMix(Random random) : mask_(random.next()), factor_(random.next() | 1) {}

  uint64_t mask_;
  uint64_t factor_;
};

}  // namespace stator::router
