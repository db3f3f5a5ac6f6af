// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stator::loadgen {

/// Counts of durations in nanoseconds in buckets whose width grows with the value, 128 per power of
/// two: a percentile is within 0.4 % of the true one, sum, smallest and largest are exact. Always
/// 36 KiB, whatever is added. Single-threaded; merge the ones of several threads.
/// (The layout of HdrHistogram: G. Tene, hdrhistogram.org.)
class Histogram {
 public:
  static constexpr int kSubBits = 7;
  /// Longer durations (73 minutes) count as this one.
  static constexpr int64_t kNanosecondsMax = (int64_t{1} << 42) - 1;

  Histogram();

  void add(int64_t nanoseconds, uint64_t times = 1);
  void merge(const Histogram& other);

  uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  /// Population standard deviation.
  double deviation() const;
  int64_t smallest() const { return count_ == 0 ? 0 : smallest_; }
  int64_t largest() const { return largest_; }
  /// The value below which `percent` of the values lie; 0 when empty.
  double percentile(double percent) const;

 private:
  static size_t bucket_of(int64_t nanoseconds);
  static double middle_of(size_t bucket);

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  double sum_ = 0;
  double sum_of_squares_ = 0;
  int64_t smallest_ = INT64_MAX;
  int64_t largest_ = 0;
};

/// Histograms of consecutive pieces of a run, so that a warm-up found afterwards can be left out.
/// At most 128 pieces: when a run gets longer, neighbours merge and pieces are twice as long.
class HistogramSeries {
 public:
  static constexpr size_t kPiecesMax = 128;

  explicit HistogramSeries(int64_t piece_nanoseconds) : piece_nanoseconds_(piece_nanoseconds) {}

  /// `at` is the time within the run, ≥ 0, that decides to which piece the value belongs.
  void add(int64_t at, int64_t value, uint64_t times = 1);
  void merge(HistogramSeries other);
  /// All that was added with `at` in pieces that begin at or after `from`.
  Histogram since(int64_t from) const;

  int64_t piece_nanoseconds() const { return piece_nanoseconds_; }
  const std::vector<Histogram>& pieces() const { return pieces_; }

 private:
  void halve();

  int64_t piece_nanoseconds_;
  std::vector<Histogram> pieces_;
};

}  // namespace stator::loadgen
