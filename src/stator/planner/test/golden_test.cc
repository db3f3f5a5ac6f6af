// SPDX-License-Identifier: Apache-2.0
// Forecasts of filterpy and pmdarima for the same series: testdata/make_golden.py.
#include <gtest/gtest.h>

#include <cmath>

#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/planner/predictor.h"

namespace stator::planner {
namespace {

std::vector<double> numbers(const json::Value& value) {
  std::vector<double> out;
  for (const json::Value& element : value.elements()) {
    out.push_back(element.as_double().value_or(std::nan("")));
  }
  return out;
}

json::Value golden() {
  const auto text = io::read_file(STATOR_SOURCE_DIR "/src/stator/planner/testdata/forecasts.json");
  return *json::parse(*text);
}

std::vector<double> forecast(PredictorKind kind, std::span<const double> series, size_t steps) {
  const auto predictor = make_predictor({.kind = kind});
  for (const double value : series) {
    predictor->add(value);
  }
  return predictor->forecast(steps);
}

TEST(Golden, KalmanEqualsFilterpy) {
  const json::Value rows = golden();
  ASSERT_EQ(rows.size(), 20U);
  for (const json::Value& row : rows.elements()) {
    const auto expected = numbers(*row.find("kalman"));
    const auto got =
        forecast(PredictorKind::kKalman, numbers(*row.find("series")), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(got[i], expected[i], 1e-9);
    }
  }
}

TEST(Golden, ArimaLosesNoMoreThanPmdarima) {
  const json::Value rows = golden();
  double ratios = 0;
  for (const json::Value& row : rows.elements()) {
    const auto series = numbers(*row.find("series"));
    const auto first = static_cast<size_t>(*row.find("first")->as_uint64());
    double loss = 0;
    for (size_t n = first; n < series.size(); ++n) {
      const std::span<const double> seen(series.data(), n);
      loss += std::abs(forecast(PredictorKind::kArima, seen, 1)[0] - series[n]) /
              static_cast<double>(series.size() - first);
    }
    const double theirs = *row.find("arima_loss")->as_double();
    EXPECT_LE(loss, 1.03 * theirs);
    ratios += loss / theirs;
  }

  EXPECT_LE(ratios / static_cast<double>(rows.size()), 1.01);
}

}  // namespace
}  // namespace stator::planner
