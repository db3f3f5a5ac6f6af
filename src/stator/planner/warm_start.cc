// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/warm_start.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace stator::planner {
namespace {

constexpr size_t kLeastWindows = 8;
constexpr size_t kForecastsMax = 48;
constexpr size_t kSkipped = 5;  // the most that any predictor needs before it says anything

double difference(double a, double b) {
  return std::abs(std::log1p(std::max(0.0, a)) - std::log1p(std::max(0.0, b)));
}

/// Names and settings as the reference's.
std::vector<PredictorScore> presets(const PredictorConfig& base) {
  std::vector<PredictorScore> out;
  const auto add = [&](std::string name, PredictorKind kind, auto change) {
    for (const bool log1p : {false, true}) {
      PredictorScore score{.name = log1p ? name + "_log1p" : name, .config = base};
      score.config.kind = kind;
      score.config.select = false;
      score.config.log1p = log1p;
      change(score.config);
      out.push_back(std::move(score));
      if (kind == PredictorKind::kConstant) {
        return;
      }
    }
  };
  const auto nothing = [](PredictorConfig&) {};
  add("constant", PredictorKind::kConstant, nothing);
  add("kalman", PredictorKind::kKalman, nothing);
  add("kalman_reactive", PredictorKind::kKalman, [](PredictorConfig& config) {
    config.kalman_q_level = 10;
    config.kalman_q_trend = 1;
    config.kalman_r = 5;
    config.kalman_min_points = 3;
  });
  add("arima", PredictorKind::kArima, nothing);
  add("seasonal", PredictorKind::kSeasonal, nothing);
  return out;
}

void sort_by_loss(std::vector<PredictorScore>& scores) {
  std::ranges::sort(scores, [](const PredictorScore& a, const PredictorScore& b) {
    return std::tie(a.loss, a.name) < std::tie(b.loss, b.name);
  });
}

size_t first_forecast(size_t count) {
  return std::max(kSkipped, count > kForecastsMax ? count - kForecastsMax : 0);
}

}  // namespace

std::vector<LoadWindow> bin_requests(std::span<const PastRequest> requests, double interval_s) {
  std::vector<LoadWindow> out;
  if (requests.empty() || !(interval_s > 0)) {
    return out;
  }
  double first = requests.front().at_s, last = first;
  for (const PastRequest& request : requests) {
    first = std::min(first, request.at_s);
    last = std::max(last, request.at_s);
  }
  const double count = std::floor((last - first) / interval_s) + 1;
  const double skipped = std::max(0.0, count - static_cast<double>(kWindowsMax));
  out.resize(static_cast<size_t>(count - skipped));
  for (const PastRequest& request : requests) {
    const double at = std::floor((request.at_s - first) / interval_s) - skipped;
    if (at < 0) {
      continue;
    }
    LoadWindow& window = out[std::min(static_cast<size_t>(at), out.size() - 1)];
    ++window.requests;
    window.input_tokens += request.input_tokens;
    window.output_tokens += request.output_tokens;
  }
  for (LoadWindow& window : out) {
    window.input_tokens /= std::max(1.0, window.requests);
    window.output_tokens /= std::max(1.0, window.requests);
  }
  return out;
}

LoadPredictor::LoadPredictor(const PredictorConfig& config)
    : requests_(make_predictor(config)),
      input_tokens_(make_predictor(config)),
      output_tokens_(make_predictor(config)) {}

void LoadPredictor::add(const LoadWindow& window) {
  requests_->add(window.requests);
  if (window.requests > 0) {
    input_tokens_->add(window.input_tokens);
    output_tokens_->add(window.output_tokens);
  } else if (input_tokens_->last() > 0) {
    input_tokens_->add(input_tokens_->last());
    output_tokens_->add(output_tokens_->last());
  }
}

LoadWindow LoadPredictor::next() const {
  return {.requests = requests_->forecast(1)[0],
          .input_tokens = input_tokens_->forecast(1)[0],
          .output_tokens = output_tokens_->forecast(1)[0]};
}

void LoadPredictor::warm_up(std::span<const LoadWindow> past) {
  for (const LoadWindow& window : past) {
    add(window);
  }
  for (Predictor* predictor : {requests_.get(), input_tokens_.get(), output_tokens_.get()}) {
    predictor->rearm();
  }
}

std::vector<PredictorScore> back_test(std::span<const LoadWindow> past,
                                      const PredictorConfig& base) {
  if (past.size() < kLeastWindows) {
    return {};
  }
  std::vector<PredictorScore> out = presets(base);
  const size_t first = first_forecast(past.size());
  for (PredictorScore& score : out) {
    LoadPredictor predictor(score.config);
    LoadWindow before;  // lengths of windows without requests
    for (size_t i = 0; i < past.size(); ++i) {
      const LoadWindow& real = past[i];
      before = real.requests > 0 ? real : before;
      if (i >= first) {
        const LoadWindow said = predictor.next();
        score.loss += 0.4 * difference(said.requests * said.input_tokens,
                                       real.requests * before.input_tokens) +
                      0.4 * difference(said.requests * said.output_tokens,
                                       real.requests * before.output_tokens) +
                      0.1 * difference(said.input_tokens, before.input_tokens) +
                      0.1 * difference(said.output_tokens, before.output_tokens);
      }
      predictor.add(real);
    }
    score.loss /= static_cast<double>(past.size() - first);
  }
  sort_by_loss(out);
  return out;
}

std::vector<PredictorScore> back_test(std::span<const double> series, const PredictorConfig& base) {
  if (series.size() < kLeastWindows) {
    return {};
  }
  std::vector<PredictorScore> out = presets(base);
  const size_t first = first_forecast(series.size());
  for (PredictorScore& score : out) {
    const auto predictor = make_predictor(score.config);
    for (size_t i = 0; i < series.size(); ++i) {
      score.loss += i < first ? 0 : difference(predictor->forecast(1)[0], series[i]);
      predictor->add(series[i]);
    }
    score.loss /= static_cast<double>(series.size() - first);
  }
  sort_by_loss(out);
  return out;
}

}  // namespace stator::planner
