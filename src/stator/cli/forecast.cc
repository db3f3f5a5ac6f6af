// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "stator/app/option_number.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/planner/predictor.h"
#include "stator/planner/warm_start.h"

namespace stator::cli {
namespace {

constexpr size_t kStepsMax = 100'000;

}  // namespace

Status run_forecast(Invocation& invocation) {
  planner::PredictorConfig config;
  const auto named = invocation.options.find("--predictor");
  if (named != invocation.options.end()) {
    STATOR_CHECK(planner::choose_predictor(named->second, config), "--predictor");
  }
  size_t steps = 1;
  config.window = 4096;
  STATOR_CHECK(read_number<size_t>(invocation, "--steps", 1, kStepsMax, steps));
  STATOR_CHECK(read_number(invocation, "--q-level", 0.0, 1e12, config.kalman_q_level));
  STATOR_CHECK(read_number(invocation, "--q-trend", 0.0, 1e12, config.kalman_q_trend));
  STATOR_CHECK(read_number(invocation, "--r", 0.0, 1e12, config.kalman_r));
  STATOR_CHECK(read_number<size_t>(invocation, "--min-points", 1, 1000, config.kalman_min_points));
  STATOR_CHECK(read_number<size_t>(invocation, "--period", 2, 2048, config.seasonal_period));
  STATOR_CHECK(read_number<size_t>(invocation, "--window", 8, 100'000, config.window));
  config.log1p = invocation.options.contains("--log1p");
  STATOR_TRY(const std::vector<double> series, planner::parse_series(app::read_input()),
             "standard input");
  if (series.empty()) {
    return Error(
        Code::kInvalidArgument,
        "standard input has no values: one number per line, or the last of several columns");
  }
  if (config.select) {
    const auto scores = planner::back_test(series, config);
    if (scores.empty()) {
      return Error(Code::kInvalidArgument, "--predictor auto needs at least 8 values");
    }
    config = scores.front().config;
    app::print_status(fmt::format("{} (loss {:.4f})\n", scores.front().name, scores.front().loss));
  }
  const auto predictor = planner::make_predictor(config);
  for (const double value : series) {
    predictor->add(value);
  }
  const std::vector<double> forecast = predictor->forecast(steps);
  if (invocation.options.contains("--json")) {
    print(fmt::format(
        "{{\"predictor\":\"{}\",\"observations\":{},\"last\":{},\"steps\":{},\"forecast\":[{}]}}\n",
        planner::name_of(config.kind), series.size(), predictor->last(), steps,
        fmt::join(forecast, ",")));
  } else {
    print(fmt::format("{}\n", fmt::join(forecast, "\n")));
  }
  return {};
}

}  // namespace stator::cli
