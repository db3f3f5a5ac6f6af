// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace stator::loadgen {
namespace {

constexpr size_t kPerPower = size_t{1} << Histogram::kSubBits;
constexpr int kTopBit = std::bit_width(static_cast<uint64_t>(Histogram::kNanosecondsMax)) - 1;
constexpr size_t kBuckets = (static_cast<size_t>(kTopBit - Histogram::kSubBits) + 2) * kPerPower;

}  // namespace

Histogram::Histogram() : buckets_(kBuckets, 0) {}

size_t Histogram::bucket_of(int64_t nanoseconds) {
  const auto value = static_cast<uint64_t>(nanoseconds);
  if (value < kPerPower) {
    return value;
  }
  const int shift = static_cast<int>(std::bit_width(value)) - 1 - kSubBits;
  return (static_cast<size_t>(shift) + 1) * kPerPower + ((value >> shift) & (kPerPower - 1));
}

double Histogram::middle_of(size_t bucket) {
  if (bucket < kPerPower) {
    return static_cast<double>(bucket);
  }
  const size_t shift = bucket / kPerPower - 1;
  const uint64_t low = (kPerPower + bucket % kPerPower) << shift;
  return static_cast<double>(low) + static_cast<double>((uint64_t{1} << shift) - 1) / 2;
}

void Histogram::add(int64_t nanoseconds, uint64_t times) {
  const int64_t value = std::clamp<int64_t>(nanoseconds, 0, kNanosecondsMax);
  const auto number = static_cast<double>(value);
  const auto weight = static_cast<double>(times);
  buckets_[bucket_of(value)] += times;
  count_ += times;
  sum_ += number * weight;
  sum_of_squares_ += number * number * weight;
  smallest_ = std::min(smallest_, value);
  largest_ = std::max(largest_, value);
}

void Histogram::merge(const Histogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) {
    buckets_[i] += other.buckets_[i];
  }
  count_ += other.count_;
  sum_ += other.sum_;
  sum_of_squares_ += other.sum_of_squares_;
  smallest_ = std::min(smallest_, other.smallest_);
  largest_ = std::max(largest_, other.largest_);
}

double Histogram::deviation() const {
  if (count_ == 0) {
    return 0;
  }
  const double average = mean();
  return std::sqrt(
      std::max(0.0, sum_of_squares_ / static_cast<double>(count_) - average * average));
}

double Histogram::percentile(double percent) const {
  if (count_ == 0) {
    return 0;
  }
  const double rank = percent / 100 * static_cast<double>(count_ - 1);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (static_cast<double>(seen) > rank) {
      return std::clamp(middle_of(i), static_cast<double>(smallest_),
                        static_cast<double>(largest_));
    }
  }
  return static_cast<double>(largest_);
}

void HistogramSeries::add(int64_t at, int64_t value, uint64_t times) {
  auto piece = static_cast<size_t>(std::max<int64_t>(0, at) / piece_nanoseconds_);
  while (piece >= kPiecesMax) {
    halve();
    piece /= 2;
  }
  if (piece >= pieces_.size()) {
    pieces_.resize(piece + 1);
  }
  pieces_[piece].add(value, times);
}

void HistogramSeries::halve() {
  for (size_t i = 0; i < pieces_.size(); i += 2) {
    if (i + 1 < pieces_.size()) {
      pieces_[i].merge(pieces_[i + 1]);
    }
    if (i > 0) {
      std::swap(pieces_[i / 2], pieces_[i]);
    }
  }
  pieces_.resize((pieces_.size() + 1) / 2);
  piece_nanoseconds_ *= 2;
}

void HistogramSeries::merge(HistogramSeries other) {
  while (other.piece_nanoseconds_ < piece_nanoseconds_) {
    other.halve();
  }
  while (piece_nanoseconds_ < other.piece_nanoseconds_) {
    halve();
  }
  if (pieces_.size() < other.pieces_.size()) {
    pieces_.resize(other.pieces_.size());
  }
  for (size_t i = 0; i < other.pieces_.size(); ++i) {
    pieces_[i].merge(other.pieces_[i]);
  }
}

Histogram HistogramSeries::since(int64_t from) const {
  Histogram all;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (static_cast<int64_t>(i) * piece_nanoseconds_ >= from) {
      all.merge(pieces_[i]);
    }
  }
  return all;
}

}  // namespace stator::loadgen
