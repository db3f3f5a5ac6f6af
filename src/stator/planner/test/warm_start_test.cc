// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/warm_start.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stator/perf/polynomial_timing.h"
#include "stator/planner/planner_core.h"

namespace stator::planner {
namespace {

std::vector<LoadWindow> wave(size_t windows) {
  std::vector<LoadWindow> out;
  for (size_t i = 0; i < windows; ++i) {
    const double load = 100 + 60 * std::sin(static_cast<double>(i) * 2 * M_PI / 12);
    out.push_back({.requests = std::round(load), .input_tokens = 2000, .output_tokens = 200});
  }
  return out;
}

TEST(WarmStart, RequestsFallIntoWindowsFromTheFirstOn) {
  const PastRequest requests[] = {{.at_s = 1000, .input_tokens = 10, .output_tokens = 1},
                                  {.at_s = 1059, .input_tokens = 30, .output_tokens = 3},
                                  {.at_s = 1180, .input_tokens = 5, .output_tokens = 7}};

  const auto windows = bin_requests(requests, 60);

  ASSERT_EQ(windows.size(), 4U);
  EXPECT_EQ(windows[0].requests, 2);
  EXPECT_EQ(windows[0].input_tokens, 20);
  EXPECT_EQ(windows[1].requests + windows[2].requests, 0);
  EXPECT_EQ(windows[3].output_tokens, 7);
  EXPECT_TRUE(bin_requests({}, 60).empty());
}

TEST(WarmStart, LengthsOfIdleWindowsAreThoseOfBefore) {
  LoadPredictor predictor({.kind = PredictorKind::kConstant});

  predictor.add({.requests = 10, .input_tokens = 512, .output_tokens = 128});
  predictor.add({});

  EXPECT_EQ(predictor.next().requests, 0);
  EXPECT_EQ(predictor.next().input_tokens, 512);
}

TEST(WarmStart, IdleTimeAfterThePastIsSkipped) {
  LoadPredictor predictor({.kind = PredictorKind::kConstant});
  const LoadWindow past[] = {{.requests = 10, .input_tokens = 512, .output_tokens = 128}};

  predictor.warm_up(past);
  predictor.add({});

  EXPECT_EQ(predictor.next().requests, 10);
}

TEST(WarmStart, ABackTestPrefersWhatFollowsTheLoad) {
  const auto scores = back_test(wave(72), {});

  ASSERT_FALSE(scores.empty());
  EXPECT_EQ(scores.size(), 9U);
  EXPECT_TRUE(scores.front().name.starts_with("seasonal") ||
              scores.front().name.starts_with("arima"))
      << scores.front().name;
  for (size_t i = 1; i < scores.size(); ++i) {
    EXPECT_LE(scores[i - 1].loss, scores[i].loss);
  }
  EXPECT_TRUE(back_test(wave(7), {}).empty());
}

TEST(WarmStart, AWarmPlannerExpectsWhatThePastHad) {
  const perf::PolynomialTiming timing;
  PlannerConfig config{.policy = PolicyKind::kThroughput, .throughput_interval_s = 60};
  config.predictor.kind = PredictorKind::kSeasonal;
  config.predictor.seasonal_period = 12;
  const auto rate_after = [&](const PlannerConfig& of) {
    const auto core = PlannerCore::create(of, timing);
    Inputs inputs{.now_s = 60};
    inputs.traffic =
        Traffic{.duration_s = 60, .requests = 100, .input_tokens = 2000, .output_tokens = 200};
    inputs.decode = {.ready = 1, .expected = 1};
    return (*core)->tick(inputs).predicted_requests_per_s * 60;
  };
  PlannerConfig warm = config;
  warm.past = wave(72);

  EXPECT_NEAR(rate_after(config), 100, 1);  // one window says nothing else
  EXPECT_NEAR(rate_after(warm), 130, 10);   // 100 + 60 sin(2π/12)
}

}  // namespace
}  // namespace stator::planner
