// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"

namespace stator::tokenizer {

/// A stretch of a text between two safe cuts, with what was computed from it. Immutable.
struct PrefixSegment {
  uint64_t key = 0;     ///< hash of scope and text up to its end
  uint64_t serial = 0;  ///< unique in the cache
  uint64_t parent = 0;  ///< serial of the segment before; of the first: the scope
  std::string text;
  std::vector<TokenId> ids;
  std::vector<blocks::SequenceHash> sequences;  ///< of the blocks that were filled up in it
};

/// What texts were encoded to, by prefix: a text that starts like an earlier one costs what is new
/// in it. A text is a path of segments from one safe cut to the next (split_text.h), and texts with
/// a common start share the segments of that start, so a conversation of n turns is kept once, not
/// n times.
///
/// I1  What find() returns was computed from exactly these bytes in this scope: keys are hashes,
///     but texts are compared byte by byte and a segment names its parent. Only the scope itself
///     is a 64-bit hash (of tokenizer fingerprint, options and the block hashes' own seed).
/// I2  At most `bytes_max` are kept after every call; the least recently used segments go first, a
///     path from its end, so what is left of it can still be found.
/// I3  No lock is held while text is hashed, compared, encoded or freed: about 0.2 µs per segment.
///
/// Thread-safe. One per process, for all models.
class PrefixCache {
 public:
  using Segment = std::shared_ptr<const PrefixSegment>;  // shared with requests that still copy it

  struct Counters {
    Counter hits;    ///< lookups that found at least one segment
    Counter misses;  ///< and those that found none
    Counter evictions;
    Gauge bytes;
  };

  PrefixCache(size_t bytes_max, Counters counters);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Found {
    uint64_t scope = 0;
    std::vector<Segment> path;   ///< of the longest known prefix
    std::vector<uint64_t> keys;  ///< of all segments asked for
  };
  /// The known segments of `text`, which is cut at `ends` (ascending).
  Found find(uint64_t scope, std::string_view text, std::span<const size_t> ends);

  /// Makes the segments of a path the most recently used, adding those that are not there.
  void keep(std::span<const Segment> path);

  uint64_t next_serial() { return last_serial_.fetch_add(1, std::memory_order_relaxed) + 1; }
  size_t bytes() const;
  size_t bytes_max() const { return bytes_max_; }

 private:
  using Order = std::list<Segment>;

  static size_t bytes_of(const PrefixSegment& segment);
  void evict(Order& evicted) STATOR_REQUIRES(mutex_);

  const size_t bytes_max_;
  const Counters counters_;
  mutable Mutex mutex_;
  Order order_ STATOR_GUARDED_BY(mutex_);  // most recently used first
  FlatMap<uint64_t, Order::iterator> by_key_ STATOR_GUARDED_BY(mutex_);
  size_t bytes_ STATOR_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> last_serial_{0};
};

}  // namespace stator::tokenizer
