// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/statistics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "stator/core/random.h"

namespace stator::loadgen {
namespace {

TEST(Summary, OfOneToFiveIsWhatNumpySays) {
  std::vector<double> values = {5, 1, 4, 2, 3};

  const Summary summary = summarize(values);

  EXPECT_EQ(summary.count, 5U);
  EXPECT_DOUBLE_EQ(summary.avg, 3);
  EXPECT_DOUBLE_EQ(summary.min, 1);
  EXPECT_DOUBLE_EQ(summary.max, 5);
  EXPECT_DOUBLE_EQ(summary.p25, 2);
  EXPECT_DOUBLE_EQ(summary.p90, 4.6);  // numpy.percentile([1,2,3,4,5], 90)
  EXPECT_DOUBLE_EQ(summary.p99, 4.96);
  EXPECT_DOUBLE_EQ(summary.std, std::sqrt(2.0));  // numpy.std, ddof 0
}

TEST(Summary, OfNothingIsZero) {
  std::vector<double> values;

  EXPECT_EQ(summarize(values).count, 0U);
  EXPECT_EQ(summarize(Histogram(), 1).p50, 0);
}

TEST(StudentT, MatchesTheTables) {
  // Two-sided 95 %, from any table of the distribution.
  EXPECT_NEAR(student_t(0.95, 1), 12.706, 1e-3);
  EXPECT_NEAR(student_t(0.95, 4), 2.776, 1e-3);
  EXPECT_NEAR(student_t(0.95, 29), 2.045, 1e-3);
  EXPECT_NEAR(student_t(0.99, 9), 3.250, 1e-3);
}

TEST(Confidence, OfFiveRuns) {
  const std::vector<double> runs = {10, 12, 11, 9, 13};

  const Confidence c = confidence_95(runs);

  EXPECT_DOUBLE_EQ(c.mean, 11);
  EXPECT_NEAR(c.std, 1.5811, 1e-4);
  EXPECT_NEAR(c.high - c.mean, 2.776 * 1.5811 / std::sqrt(5.0), 1e-3);
  EXPECT_NEAR(c.mean - c.low, c.high - c.mean, 1e-12);
}

TEST(Confidence, OfOneRunHasNoWidth) {
  const std::vector<double> runs = {7};

  const Confidence c = confidence_95(runs);

  EXPECT_EQ(c.low, 7);
  EXPECT_EQ(c.high, 7);
}

TEST(WarmUp, OfASteadySeriesIsNothing) {
  const std::vector<double> steady(50, 3.0);

  EXPECT_EQ(find_warm_up(steady), 0U);
}

TEST(WarmUp, IsTheTransientAtTheStart) {
  Random random(4);
  std::vector<double> series;
  for (int i = 0; i < 60; ++i) {
    const double transient = i < 12 ? 40 - 3 * i : 0;
    series.push_back(10 + transient + random.uniform());
  }

  const auto cut = find_warm_up(series);

  ASSERT_TRUE(cut.has_value());
  EXPECT_GE(*cut, 11U);
  EXPECT_LE(*cut, 18U);
}

TEST(WarmUp, NeverEndsInASeriesThatKeepsGrowing) {
  std::vector<double> series(80);
  std::iota(series.begin(), series.end(), 1.0);

  EXPECT_EQ(find_warm_up(series), std::nullopt);
}

TEST(WarmUp, NeedsTenValues) {
  const std::vector<double> series = {100, 1, 1, 1, 1, 1};

  EXPECT_EQ(find_warm_up(series), 0U);
}

}  // namespace
}  // namespace stator::loadgen
