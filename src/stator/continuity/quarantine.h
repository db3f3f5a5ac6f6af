// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"

namespace stator::continuity {

/// Requests that cost several workers their life, by fingerprint: the same request again would only
/// cost more. A pure core.
///
/// Q1  An entry lives for `time`; at most `entries_max` are kept, the oldest goes first.
class Quarantine {
 public:
  struct Limits {
    Duration time = std::chrono::seconds(60);
    size_t entries_max = 1024;
  };
  explicit Quarantine(Limits limits) : limits_(limits) {}

  /// Restarts the entry's time if it is there already. Amortised O(1), like the next one.
  void add(uint64_t fingerprint, TimePoint now);
  /// What is left of its time; zero: it is not in quarantine.
  Duration left(uint64_t fingerprint, TimePoint now);
  size_t size() const { return entries_.size(); }

 private:
  void expire(TimePoint now);

  struct Entry {
    uint64_t fingerprint;
    TimePoint until;
    uint64_t serial;  // tells a renewed entry's stay from its earlier one
  };
  const Limits limits_;
  uint64_t next_serial_ = 0;
  std::deque<Entry> order_;  // by `until`; may name entries that were renewed
  FlatMap<uint64_t, Entry> entries_;
};

}  // namespace stator::continuity
