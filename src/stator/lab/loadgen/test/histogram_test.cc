// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/histogram.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "stator/core/random.h"
#include "stator/lab/loadgen/statistics.h"

namespace stator::loadgen {
namespace {

TEST(Histogram, PercentilesAreWithinHalfAPercentOfTheExactOnes) {
  Random random(7);
  Histogram histogram;
  std::vector<double> values;
  for (int i = 0; i < 50'000; ++i) {
    const auto value = static_cast<int64_t>(std::exp(3 + 16 * random.uniform()));
    histogram.add(value);
    values.push_back(static_cast<double>(value));
  }

  const Summary exact = summarize(values);
  const Summary counted = summarize(histogram, 1);

  EXPECT_NEAR(counted.p50 / exact.p50, 1, 0.005);
  EXPECT_NEAR(counted.p99 / exact.p99, 1, 0.005);
  EXPECT_NEAR(counted.p1 / exact.p1, 1, 0.01);
  EXPECT_NEAR(counted.avg / exact.avg, 1, 1e-9);
  EXPECT_NEAR(counted.std / exact.std, 1, 1e-6);
  EXPECT_EQ(counted.min, exact.min);
  EXPECT_EQ(counted.max, exact.max);
}

TEST(Histogram, TakesAnyValue) {
  Histogram histogram;
  histogram.add(-5);
  histogram.add(INT64_MAX);
  histogram.add(0, 3);

  EXPECT_EQ(histogram.count(), 5U);
  EXPECT_EQ(histogram.smallest(), 0);
  EXPECT_EQ(histogram.largest(), Histogram::kNanosecondsMax);
  EXPECT_EQ(histogram.percentile(50), 0);
}

TEST(Histogram, MergedIsTheSameAsAddedToOne) {
  Histogram one;
  Histogram other;
  Histogram both;
  for (int64_t i = 0; i < 1000; ++i) {
    (i % 3 == 0 ? one : other).add(i * i);
    both.add(i * i);
  }

  one.merge(other);

  EXPECT_EQ(one.count(), both.count());
  for (const double percent : {0.0, 10.0, 50.0, 99.0, 100.0}) {
    EXPECT_EQ(one.percentile(percent), both.percentile(percent));
  }
}

TEST(HistogramSeries, LeavesOutWhatCameBefore) {
  HistogramSeries series(100);
  series.add(0, 1000);
  series.add(150, 2000);
  series.add(250, 3000);

  EXPECT_EQ(series.since(0).count(), 3U);
  EXPECT_EQ(series.since(100).count(), 2U);
  EXPECT_EQ(series.since(200).smallest(), 3000);
  EXPECT_EQ(series.since(400).count(), 0U);
}

TEST(HistogramSeries, NeverHasMoreThanItsPieces) {
  HistogramSeries series(100);
  for (int64_t at = 0; at < 1'000'000; at += 97) {
    series.add(at, 1);
  }

  EXPECT_LE(series.pieces().size(), HistogramSeries::kPiecesMax);
  EXPECT_EQ(series.piece_nanoseconds(), 12'800);
  EXPECT_EQ(series.since(0).count(), 10'310U);
}

TEST(HistogramSeries, OfThreadsWithDifferentPiecesMerge) {
  HistogramSeries fine(100);
  HistogramSeries coarse(100);
  fine.add(250, 1);
  for (int64_t at = 0; at < 100'000; at += 100) {
    coarse.add(at, 1);
  }

  fine.merge(coarse);

  EXPECT_EQ(fine.piece_nanoseconds(), coarse.piece_nanoseconds());
  EXPECT_EQ(fine.since(0).count(), 1001U);
}

}  // namespace
}  // namespace stator::loadgen
