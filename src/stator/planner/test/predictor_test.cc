// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/predictor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "stator/planner/kalman.h"
#include "stator/planner/seasonal.h"

namespace stator::planner {
namespace {

std::vector<double> forecast(const PredictorConfig& config, std::span<const double> series,
                             size_t steps) {
  const auto predictor = make_predictor(config);
  for (const double value : series) {
    predictor->add(value);
  }
  return predictor->forecast(steps);
}

TEST(Predictor, ConstantRepeatsTheLastValue) {
  const std::vector<double> series = {3, 5, 4};

  EXPECT_EQ(forecast({.kind = PredictorKind::kConstant}, series, 2), (std::vector<double>{4, 4}));
}

TEST(Predictor, KalmanFollowsThreeStepsWorkedByHand) {
  // q = (1, 0), r = 1, P0 = 1000: after the second value the gain of the level is 2001/2002.
  KalmanTrend filter(1, 1e-12, 1);
  filter.add(10);
  filter.add(12);

  EXPECT_NEAR(filter.level(), 10 + 2 * 2001.0 / 2002.0, 1e-9);
  EXPECT_NEAR(filter.trend(), 2 * 1000.0 / 2002.0, 1e-9);
  EXPECT_NEAR(filter.forecast(2), filter.level() + 2 * filter.trend(), 1e-12);
}

TEST(Predictor, ForecastingDoesNotAdvanceTheFilter) {
  const auto predictor = make_predictor({.kind = PredictorKind::kKalman});
  for (const double value : {1.0, 2.0, 4.0, 8.0, 9.0, 11.0}) {
    predictor->add(value);
  }

  const auto first = predictor->forecast(3);

  EXPECT_EQ(predictor->forecast(3), first);
}

TEST(Predictor, SkipsZerosBeforeTheFirstLoad) {
  const auto predictor = make_predictor({.kind = PredictorKind::kKalman, .kalman_min_points = 2});
  for (const double value : {0.0, 0.0, std::nan(""), 5.0, 5.0}) {
    predictor->add(value);
  }
  EXPECT_NEAR(predictor->forecast(1)[0], 5, 1e-9);

  predictor->rearm();
  predictor->add(0);

  EXPECT_EQ(predictor->last(), 5);
}

TEST(Predictor, ALoadIsNeverForecastNegative) {
  const std::vector<double> falling = {50, 40, 30, 20, 10, 1};

  for (const double value : forecast({.kind = PredictorKind::kKalman}, falling, 10)) {
    EXPECT_GE(value, 0);
  }
  EXPECT_LT(forecast({.kind = PredictorKind::kKalman, .clamp = false}, falling, 10).back(), 0);
}

TEST(Predictor, FewValuesGiveTheLastOne) {
  const std::vector<double> series = {3, 9};

  for (const auto kind :
       {PredictorKind::kKalman, PredictorKind::kArima, PredictorKind::kSeasonal}) {
    EXPECT_EQ(forecast({.kind = kind}, series, 1), std::vector<double>{9}) << name_of(kind);
    EXPECT_EQ(forecast({.kind = kind}, {}, 1), std::vector<double>{0}) << name_of(kind);
  }
}

TEST(Predictor, ASeasonIsFoundAndContinued) {
  std::vector<double> series;
  for (int i = 0; i < 24 * 6; ++i) {
    series.push_back(100 + 40 * std::sin(2 * std::numbers::pi * i / 24) + 0.1 * i);
  }

  EXPECT_EQ(find_period(series), 24U);
  const auto next = forecast({.kind = PredictorKind::kSeasonal}, series, 24);

  for (size_t i = 0; i < next.size(); ++i) {
    const double at = static_cast<double>(series.size() + i);
    EXPECT_NEAR(next[i], 100 + 40 * std::sin(2 * std::numbers::pi * at / 24) + 0.1 * at, 3);
  }
}

TEST(Predictor, Log1pNeverMeetsANegativeNumber) {
  const std::vector<double> series = {1, 0, 3, 2, 5, 4, 7};

  for (const double value : forecast({.kind = PredictorKind::kArima, .log1p = true}, series, 4)) {
    EXPECT_TRUE(std::isfinite(value));
    EXPECT_GE(value, 0);
  }
}

TEST(ParseSeries, ReadsLinesColumnsAndHeaders) {
  const auto series = parse_series("time,load\n0,1.5\n\n# note\n1,2e1\r\n2;-3\n4 NaN\n");

  ASSERT_TRUE(series) << series.error().message();
  ASSERT_EQ(series->size(), 4U);
  EXPECT_EQ((*series)[1], 20);
  EXPECT_EQ((*series)[2], -3);
  EXPECT_TRUE(std::isnan((*series)[3]));
}

TEST(ParseSeries, NamesTheLine) {
  const auto series = parse_series("1\n2\nthree\n");

  ASSERT_FALSE(series);
  EXPECT_NE(series.error().message().find("line 3"), std::string::npos);
}

}  // namespace
}  // namespace stator::planner
