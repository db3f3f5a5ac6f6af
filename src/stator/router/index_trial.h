// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/core/result.h"

namespace stator::router {

/// Random events of pretended engines, applied to a ChainIndex and to the oracle alike, with
/// lookups in between that must agree. Rounds of `round` operations start from nothing and take
/// turns: a perfect link, where both must say the same; a link that loses, repeats and reorders,
/// and an index with too little memory, where the index may say less but never more.
struct IndexTrialConfig {
  uint64_t operations = 100'000'000;  ///< events and lookups
  uint64_t round = 200'000;
  uint64_t seed = 1;
};

struct IndexTrialTally {
  uint64_t operations = 0;
  uint64_t events = 0;
  uint64_t lookups = 0;
  uint64_t event_blocks = 0;    ///< stored or removed
  uint64_t matched_blocks = 0;  ///< found by the index, over all lookups and workers
  uint64_t oracle_blocks = 0;   ///< found by the oracle
  uint64_t evicted_blocks = 0;  ///< by the index with too little memory
};

/// kInternal at the first disagreement, naming seed, round and step.
Result<IndexTrialTally> run_index_trial(const IndexTrialConfig& config);

}  // namespace stator::router
