// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stator::simulator {

/// The figures of a distribution that reports show, in the unit of what was added.
struct Summary {
  uint64_t count = 0;
  double mean = 0;
  double min = 0;
  double max = 0;
  double std = 0;  ///< population
  double p1 = 0, p5 = 0, p25 = 0, p50 = 0, p75 = 0, p90 = 0, p95 = 0, p99 = 0;
};

/// Collects whole numbers ≥ 0 (nanoseconds, say). Mean and deviation are exact and do not depend on
/// the order of additions. Percentiles are exact, the value at round((n − 1) · p / 100) of the
/// sorted list, up to kExactMax values; beyond that, and for weighted values, they come from
/// buckets 0.1 % wide. Memory is bounded by 8 MiB.
class Distribution {
 public:
  static constexpr size_t kExactMax = 1 << 20;

  void add(uint64_t value) {
    note(value, 1);
    if (buckets_.empty() && values_.size() < kExactMax) {
      values_.push_back(value);
      sorted_ = false;
      return;
    }
    spill();
    count_in(value, 1);
  }
  /// The same value so many times.
  void add(uint64_t value, uint64_t times);

  uint64_t count() const { return count_; }
  double mean() const;
  /// Sorts what was added, hence not const.
  double percentile(double p);
  /// Everything multiplied by `scale`.
  Summary summarize(double scale);
  /// The percentiles 0, 0.5, 1 … 100, multiplied by `scale`; empty if nothing was added.
  std::vector<double> curve(double scale);

 private:
  static constexpr uint32_t kFractionBits = 10;
  static size_t bucket_of(uint64_t value);
  static double middle_of(size_t bucket);
  void note(uint64_t value, uint64_t times);
  void count_in(uint64_t value, uint64_t times);
  void spill();

  std::vector<uint64_t> values_;  // while exact
  bool sorted_ = false;
  std::vector<uint64_t> buckets_;  // from then on
  // Where the last search in them ended: ranks are asked for in rising order.
  size_t reached_ = 0;
  uint64_t below_ = 0;  // the values of the buckets before that
  uint64_t count_ = 0;
  uint64_t min_ = ~0ULL;
  uint64_t max_ = 0;
  unsigned __int128 sum_ = 0;
  unsigned __int128 squares_ = 0;
};

}  // namespace stator::simulator
