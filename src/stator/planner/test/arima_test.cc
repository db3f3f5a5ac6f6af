// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/arima.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stator/core/random.h"

namespace stator::planner {
namespace {

double normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

std::vector<double> autoregressive(double phi, size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<double> series(count);
  double last = 0;
  for (double& value : series) {
    last = phi * last + normal(random);
    value = last;
  }
  return series;
}

TEST(Arima, FindsAnAutoregression) {
  const std::vector<double> series = autoregressive(0.7, 200, 11);

  const auto model = fit_arima(series, {.p = 1});

  ASSERT_TRUE(model);
  EXPECT_NEAR(model->phi[0], 0.7, 0.12);
  EXPECT_NEAR(model->sigma2, 1, 0.25);
  const auto found = search_arima(series);
  ASSERT_TRUE(found);
  EXPECT_GE(found->order.p + found->order.q, 1U);
  EXPECT_EQ(found->order.d, 0U);
}

TEST(Arima, LikelihoodOfAnAutoregressionIsTheClosedForm) {
  const std::vector<double> series = autoregressive(0.5, 50, 3);
  const auto model = fit_arima(series, {.p = 1});
  ASSERT_TRUE(model);

  const double phi = model->phi[0], s2 = model->sigma2;
  double expected = -0.5 * (std::log(2 * std::numbers::pi * s2 / (1 - phi * phi)) +
                            series[0] * series[0] * (1 - phi * phi) / s2);
  for (size_t t = 1; t < series.size(); ++t) {
    const double error = series[t] - phi * series[t - 1];
    expected -= 0.5 * (std::log(2 * std::numbers::pi * s2) + error * error / s2);
  }

  EXPECT_NEAR(model->log_likelihood, expected, 1e-6);
}

TEST(Arima, ARandomWalkIsDifferencedOnce) {
  std::vector<double> series = autoregressive(0.0, 200, 5);
  for (size_t i = 1; i < series.size(); ++i) {
    series[i] += series[i - 1];
  }

  EXPECT_EQ(find_differences(series), 1U);
}

TEST(Arima, WhiteNoiseHasNoOrder) {
  const auto model = search_arima(autoregressive(0.0, 300, 9));

  ASSERT_TRUE(model);
  EXPECT_EQ(model->order.p + model->order.d + model->order.q, 0U);
}

TEST(Arima, AConstantSeriesStaysConstant) {
  const std::vector<double> series(30, 7.0);

  const auto model = search_arima(series);

  ASSERT_TRUE(model);
  EXPECT_DOUBLE_EQ(model->forecast(3)[2], 7.0);
}

TEST(Arima, AStraightLineGoesOn) {
  std::vector<double> series;
  for (int i = 0; i < 40; ++i) {
    series.push_back(3.0 + 2.0 * i);
  }

  const auto model = search_arima(series);

  ASSERT_TRUE(model);
  EXPECT_NEAR(model->forecast(2)[1], 3.0 + 2.0 * 41, 1e-6);
}

TEST(Arima, NothingToFitIsNothing) {
  EXPECT_FALSE(search_arima({}));
  EXPECT_FALSE(fit_arima(std::vector<double>{1.0, 2.0}, {.p = 3, .q = 2}));
}

}  // namespace
}  // namespace stator::planner
