// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/router/index/ttl_index.h"
#include "stator/router/kv_index.h"

namespace stator::router {

struct IndexBenchConfig {
  uint32_t workers = 16;
  uint32_t blocks_per_hash = 1;  ///< blocks that one hash id of the trace stands for
  bool opaque_names = false;     ///< external ids that are not the sequence hashes
};

/// One stream of stores and lookups, the same for every index, so that figures can be compared:
/// request i belongs to worker i mod N; the blocks of its prompt that this worker does not hold are
/// stored, nothing is evicted; then every request is looked up. Hashing is done beforehand.
class IndexBench {
 public:
  struct Lookups {
    double p50_ns = 0;
    double p99_ns = 0;
    uint64_t score_sum = 0;  ///< matched blocks over all requests and workers
  };

  /// `prompts`: per request, the hash ids of its blocks in order.
  IndexBench(std::span<const std::vector<uint64_t>> prompts, const IndexBenchConfig& config);

  uint64_t requests() const { return queries_.size(); }
  uint64_t blocks() const { return blocks_; }

  /// Stores everything; returns the seconds it took, all of it applied.
  double store_all(KvIndex& index, const Clock& clock) const;
  /// The same for an index that learns from decisions: request i was sent to worker i mod N.
  double route_all(TtlIndex& index, const Clock& clock) const;
  /// Looks every request up once, each timed.
  Lookups look_up_all(const KvIndex& index, const Clock& clock) const;
  /// Takes the blocks of `runs` random events away and stores them again: what a writer does while
  /// readers look up.
  void churn(KvIndex& index, Random& random, uint32_t runs) const;

 private:
  struct Update {
    WorkerKey worker;
    kv::KvEvent event;
  };

  // Nothing but these hashes, one prompt's behind the other's, as the race gives them to others:
  // most of a lookup is waiting for them.
  std::vector<std::vector<blocks::SequenceHash>> queries_;
  std::vector<Update> updates_;
  uint32_t workers_ = 1;
  uint64_t blocks_ = 0;
};

}  // namespace stator::router
