// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "stator/planner/arima.h"
#include "stator/planner/kalman.h"
#include "stator/planner/seasonal.h"

namespace stator::planner {
namespace {

constexpr std::array<std::pair<std::string_view, PredictorKind>, 4> kNames = {
    {{"constant", PredictorKind::kConstant},
     {"kalman", PredictorKind::kKalman},
     {"arima", PredictorKind::kArima},
     {"seasonal", PredictorKind::kSeasonal}}};
constexpr size_t kArimaMinPoints = 5;

/// What all kinds share: which values count, ln(1 + x), no negative loads.
class BasePredictor : public Predictor {
 public:
  explicit BasePredictor(const PredictorConfig& config) : config_(config) {}

  void add(double value) final {
    if (!std::isfinite(value)) {
      value = 0;
    }
    if (skips_zeros_ && value == 0) {
      return;
    }
    skips_zeros_ = false;
    was_negative_ |= value < 0;
    last_ = value;
    ++count_;
    take(config_.log1p ? std::log1p(std::max(value, 0.0)) : value);
  }
  std::vector<double> forecast(size_t steps) const final {
    std::vector<double> out;
    if (count_ >= min_points()) {
      out = project(steps);
    }
    if (out.size() != steps ||
        !std::ranges::all_of(out, [](double x) { return std::isfinite(x); })) {
      return std::vector<double>(steps, last_);
    }
    for (double& value : out) {
      value = config_.log1p ? std::expm1(value) : value;
      value = config_.clamp && !was_negative_ ? std::max(value, 0.0) : value;
    }
    return out;
  }
  double last() const final { return last_; }
  void rearm() final { skips_zeros_ = true; }

 protected:
  virtual void take(double value) = 0;
  virtual std::vector<double> project(size_t steps) const = 0;
  virtual size_t min_points() const = 0;
  const PredictorConfig& config() const { return config_; }

 private:
  const PredictorConfig config_;
  bool skips_zeros_ = true;
  bool was_negative_ = false;
  double last_ = 0;
  size_t count_ = 0;
};

class ConstantPredictor final : public BasePredictor {
 public:
  using BasePredictor::BasePredictor;

 private:
  void take(double value) override { value_ = value; }
  std::vector<double> project(size_t steps) const override {
    return std::vector<double>(steps, value_);
  }
  size_t min_points() const override { return 1; }
  double value_ = 0;
};

class KalmanPredictor final : public BasePredictor {
 public:
  explicit KalmanPredictor(const PredictorConfig& config)
      : BasePredictor(config),
        filter_(config.kalman_q_level, config.kalman_q_trend, config.kalman_r) {}

 private:
  void take(double value) override { filter_.add(value); }
  std::vector<double> project(size_t steps) const override {
    std::vector<double> out(steps);
    for (size_t i = 0; i < steps; ++i) {
      out[i] = filter_.forecast(i + 1);
    }
    return out;
  }
  size_t min_points() const override { return config().kalman_min_points; }
  KalmanTrend filter_;
};

/// The most recent values.
class WindowPredictor : public BasePredictor {
 public:
  using BasePredictor::BasePredictor;

 protected:
  void take(double value) final {
    values_.push_back(value);
    if (values_.size() > std::max<size_t>(config().window, 8)) {
      values_.pop_front();
    }
  }
  std::vector<double> values() const { return {values_.begin(), values_.end()}; }

 private:
  std::deque<double> values_;
};

class ArimaPredictor final : public WindowPredictor {
 public:
  using WindowPredictor::WindowPredictor;

 private:
  std::vector<double> project(size_t steps) const override {
    std::vector<double> series = values();
    if (std::ranges::all_of(series, [&](double x) { return x == series.front(); })) {
      return std::vector<double>(steps, series.front());
    }
    const auto model = search_arima(series);
    if (!model) {
      return {};
    }
    const bool differences_only = model->order.d > 0 && model->order.p == 0 && model->order.q == 0;
    const bool positive = std::ranges::all_of(series, [](double x) { return x >= 0; });
    if (config().arima_log1p_fallback && differences_only && !config().log1p && positive) {
      std::ranges::transform(series, series.begin(), [](double x) { return std::log1p(x); });
      if (const auto in_logarithms = search_arima(series)) {
        std::vector<double> out = in_logarithms->forecast(steps);
        std::ranges::transform(out, out.begin(), [](double x) { return std::expm1(x); });
        return out;
      }
    }
    return model->forecast(steps);
  }
  size_t min_points() const override { return kArimaMinPoints; }
};

class SeasonalPredictor final : public WindowPredictor {
 public:
  using WindowPredictor::WindowPredictor;

 private:
  std::vector<double> project(size_t steps) const override {
    const std::vector<double> series = values();
    const size_t period =
        config().seasonal_period > 0 ? config().seasonal_period : find_period(series);
    if (period < 2 || series.size() < 2 * period) {
      KalmanTrend filter(config().kalman_q_level, config().kalman_q_trend, config().kalman_r);
      for (const double value : series) {
        filter.add(value);
      }
      std::vector<double> out(steps);
      for (size_t i = 0; i < steps; ++i) {
        out[i] = filter.forecast(i + 1);
      }
      return out;
    }
    return fit_seasonal(series, period).forecast(steps);
  }
  size_t min_points() const override { return config().kalman_min_points; }
};

std::optional<double> parse_number(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\"");
  if (begin == std::string_view::npos) {
    return {};
  }
  text = text.substr(begin, text.find_last_not_of(" \t\"\r") - begin + 1);
  if (text == "NaN" || text == "nan") {
    return std::nan("");
  }
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) {
    return {};
  }
  return value;
}

}  // namespace

Result<PredictorKind> find_predictor(std::string_view name) {
  const auto* const found =
      std::ranges::find(kNames, name, [](const auto& entry) { return entry.first; });
  if (found == kNames.end()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("the predictor must be constant, kalman, arima, seasonal or auto, not '{}'",
                    name));
  }
  return found->second;
}

Status choose_predictor(std::string_view name, PredictorConfig& config) {
  config.select = name == "auto";
  if (config.select) {
    return {};
  }
  STATOR_TRY(config.kind, find_predictor(name == "prophet" ? "seasonal" : name));
  return {};
}

std::string_view name_of(PredictorKind kind) {
  return std::ranges::find(kNames, kind, [](const auto& entry) { return entry.second; })->first;
}

std::unique_ptr<Predictor> make_predictor(const PredictorConfig& config) {
  switch (config.kind) {
    case PredictorKind::kConstant:
      return std::make_unique<ConstantPredictor>(config);
    case PredictorKind::kKalman:
      return std::make_unique<KalmanPredictor>(config);
    case PredictorKind::kSeasonal:
      return std::make_unique<SeasonalPredictor>(config);
    case PredictorKind::kArima:
      break;
  }
  return std::make_unique<ArimaPredictor>(config);
}

Result<std::vector<double>> parse_series(std::string_view text) {
  std::vector<double> series;
  size_t line_number = 0;
  bool first = true;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++line_number;
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') {
      continue;
    }
    const std::string_view bare = line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
    const size_t separator = bare.find_last_of(",;\t ");
    const auto value =
        parse_number(separator == std::string_view::npos ? bare : bare.substr(separator + 1));
    const bool is_header = first && !value;
    first = false;
    if (is_header) {
      continue;
    }
    if (!value) {
      return Error(Code::kInvalidArgument, fmt::format("line {}: '{}' does not end in a number",
                                                       line_number, bare.substr(0, 80)));
    }
    if (series.size() >= kSeriesMax) {
      return Error(Code::kInvalidArgument, fmt::format("more than {} values", kSeriesMax));
    }
    series.push_back(*value);
  }
  return series;
}

}  // namespace stator::planner
