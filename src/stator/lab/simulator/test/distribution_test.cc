// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stator/core/random.h"

namespace stator::simulator {
namespace {

TEST(Distribution, IsEmptyAtFirst) {
  Distribution distribution;

  EXPECT_EQ(distribution.summarize(1).count, 0);
  EXPECT_EQ(distribution.percentile(99), 0);
}

TEST(Distribution, GivesExactFiguresOfFewValues) {
  Distribution distribution;
  for (const uint64_t value : {40, 10, 30, 20}) {
    distribution.add(value);
  }

  const Summary summary = distribution.summarize(0.5);

  EXPECT_EQ(summary.count, 4);
  EXPECT_DOUBLE_EQ(summary.mean, 12.5);
  EXPECT_DOUBLE_EQ(summary.min, 5);
  EXPECT_DOUBLE_EQ(summary.max, 20);
  EXPECT_DOUBLE_EQ(summary.p50, 15);  // rank round(1.5) = 2
  EXPECT_DOUBLE_EQ(summary.p99, 20);
  EXPECT_NEAR(summary.std, std::sqrt(125.0) * 0.5, 1e-9);
}

TEST(Distribution, WeightsCountLikeRepetitions) {
  Distribution weighted;
  Distribution repeated;
  for (const auto& [value, times] : std::vector<std::pair<uint64_t, uint64_t>>{{5, 3}, {900, 2}}) {
    weighted.add(value, times);
    for (uint64_t i = 0; i < times; ++i) {
      repeated.add(value);
    }
  }
  weighted.add(7, 0);

  EXPECT_EQ(weighted.count(), repeated.count());
  EXPECT_EQ(weighted.mean(), repeated.mean());
  EXPECT_EQ(weighted.percentile(50), repeated.percentile(50));
  EXPECT_EQ(weighted.summarize(1).std, repeated.summarize(1).std);
}

TEST(Distribution, BucketsAreATenthOfAPercentWide) {
  Random random(1);
  Distribution distribution;
  std::vector<uint64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(random.next() >> random.below(60));
    distribution.add(values.back(), 1);
  }
  std::ranges::sort(values);

  for (const double p : {0.0, 1.0, 25.0, 50.0, 75.0, 99.0, 100.0}) {
    const auto exact = static_cast<double>(values[static_cast<size_t>(
        std::llround(static_cast<double>(values.size() - 1) * p / 100))]);
    EXPECT_NEAR(distribution.percentile(p), exact, exact * 0.001) << p;
  }
}

TEST(Distribution, KeepsItsFiguresWhenItTurnsToBuckets) {
  Distribution distribution;
  const uint64_t count = Distribution::kExactMax + 10;
  for (uint64_t i = 0; i < count; ++i) {
    distribution.add(1'000'000 + i);
  }

  EXPECT_EQ(distribution.count(), count);
  EXPECT_NEAR(distribution.percentile(50), 1'000'000 + static_cast<double>(count) / 2, 2000);
  EXPECT_DOUBLE_EQ(distribution.mean(), 1'000'000 + static_cast<double>(count - 1) / 2);
}

}  // namespace
}  // namespace stator::simulator
