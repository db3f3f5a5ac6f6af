// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/distribution.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace stator::simulator {

// A bucket has the leading kFractionBits + 1 bits of its values in common.
size_t Distribution::bucket_of(uint64_t value) {
  const auto bits = static_cast<uint32_t>(std::bit_width(value));
  if (bits <= kFractionBits + 1) {
    return value;
  }
  const uint32_t shift = bits - kFractionBits - 1;
  return (size_t{shift} << kFractionBits) + (value >> shift);
}

double Distribution::middle_of(size_t bucket) {
  constexpr size_t kExactBelow = size_t{2} << kFractionBits;
  if (bucket < kExactBelow) {
    return static_cast<double>(bucket);
  }
  const size_t shift = (bucket >> kFractionBits) - 1;
  const size_t leading = bucket - (shift << kFractionBits);
  return std::ldexp(static_cast<double>(leading) + 0.5, static_cast<int>(shift));
}

void Distribution::note(uint64_t value, uint64_t times) {
  count_ += times;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<unsigned __int128>(value) * times;
  squares_ += static_cast<unsigned __int128>(value) * value * times;
}

void Distribution::count_in(uint64_t value, uint64_t times) {
  const size_t bucket = bucket_of(value);
  if (bucket >= buckets_.size()) {
    buckets_.resize(bucket + 1);
  }
  buckets_[bucket] += times;
  reached_ = below_ = 0;
}

void Distribution::spill() {
  for (const uint64_t value : values_) {
    count_in(value, 1);
  }
  values_ = {};
}

void Distribution::add(uint64_t value, uint64_t times) {
  if (times == 0) {
    return;
  }
  note(value, times);
  spill();
  count_in(value, times);
}

double Distribution::mean() const {
  return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

double Distribution::percentile(double p) {
  if (count_ == 0) {
    return 0;
  }
  const auto rank = static_cast<uint64_t>(std::llround(static_cast<double>(count_ - 1) * p / 100));
  if (buckets_.empty()) {
    if (!sorted_) {
      std::ranges::sort(values_);
      sorted_ = true;
    }
    return static_cast<double>(values_[rank]);
  }
  if (rank < below_) {
    reached_ = below_ = 0;
  }
  while (below_ + buckets_[reached_] <= rank) {
    below_ += buckets_[reached_++];
  }
  return std::clamp(middle_of(reached_), static_cast<double>(min_), static_cast<double>(max_));
}

std::vector<double> Distribution::curve(double scale) {
  constexpr int kSteps = 200;
  std::vector<double> values;
  for (int i = 0; count_ > 0 && i <= kSteps; ++i) {
    values.push_back(percentile(100.0 * i / kSteps) * scale);
  }
  return values;
}

Summary Distribution::summarize(double scale) {
  Summary summary{.count = count_};
  if (count_ == 0) {
    return summary;
  }
  const auto count = static_cast<double>(count_);
  // count · Σx² − (Σx)² is exact only in wider numbers; around the mean it is accurate enough.
  const double mean_square = static_cast<double>(squares_) / count;
  const double variance = std::max(0.0, mean_square - mean() * mean());
  summary.mean = mean() * scale;
  summary.min = static_cast<double>(min_) * scale;
  summary.max = static_cast<double>(max_) * scale;
  summary.std = std::sqrt(variance) * scale;
  summary.p1 = percentile(1) * scale;
  summary.p5 = percentile(5) * scale;
  summary.p25 = percentile(25) * scale;
  summary.p50 = percentile(50) * scale;
  summary.p75 = percentile(75) * scale;
  summary.p90 = percentile(90) * scale;
  summary.p95 = percentile(95) * scale;
  summary.p99 = percentile(99) * scale;
  return summary;
}

}  // namespace stator::simulator
