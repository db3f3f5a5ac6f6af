// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/calibrated_timing.h"

#include <algorithm>
#include <cmath>

namespace stator::perf {
namespace {

constexpr double kForget = 0.995;  // half of the weight is of the last 140 passes
constexpr double kErrorForget = 0.98;
constexpr double kNoise = 0.05;  // of a measured time
constexpr double kLeast = 0.05;  // of what the given model says
// Features are scaled to about 1, and errors are relative: a correction of about once the given
// model's time is likely beforehand.
constexpr double kPriorVariance = 100;
constexpr double kVarianceMax = 1e6;  // without news forgetting must not blow it up

}  // namespace

CalibratedTiming::CalibratedTiming(const TimingModel& base) : base_(base) {
  for (size_t i = 0; i < kFeatures; ++i) {
    p_[i][i] = kPriorVariance;
  }
}

CalibratedTiming::Vector CalibratedTiming::features(const PassShape& s) {
  const bool prompts = s.prefill_new_tokens > 0, answers = s.decode_requests > 0;
  return {prompts ? 1.0 : 0.0,
          static_cast<double>(s.prefill_new_tokens) * 1e-2,
          static_cast<double>(s.prefill_pairs) * 1e-6,
          answers ? 1.0 : 0.0,
          static_cast<double>(s.decode_requests) * 1e-1,
          static_cast<double>(s.context_tokens) * 1e-4};
}

double CalibratedTiming::correction(const Vector& x, size_t begin) const {
  double sum = 0;
  for (size_t i = begin; i < begin + kFeatures / 2; ++i) {
    sum += theta_[i] * x[i];
  }
  return sum;
}

void CalibratedTiming::learn(const PassShape& shape, double milliseconds) {
  const double base = step_ms(base_, shape);
  if (!std::isfinite(milliseconds) || !(milliseconds > 0) || !std::isfinite(base) ||
      (shape.prefill_new_tokens == 0 && shape.decode_requests == 0)) {
    return;
  }
  Vector x = features(shape);
  const MutexLock lock(mutex_);
  const double expected =
      std::max(kLeast * base, base + correction(x, 0) + correction(x, kFeatures / 2));
  const bool odd = error_.passes >= kPassesMin &&
                   (milliseconds > kOutlier * expected || milliseconds * kOutlier < expected);
  if (odd) {
    return;
  }
  const double fade =
      error_.passes == 0 ? 0
                         : std::min(kErrorForget, 1 - 1.0 / static_cast<double>(error_.passes + 1));
  const auto mix = [&](double& mean, double predicted) {
    mean = fade * mean + (1 - fade) * 100 * std::abs(predicted - milliseconds) / milliseconds;
  };
  mix(error_.base_percent, base);
  mix(error_.calibrated_percent, error_.passes < kPassesMin ? base : expected);
  ++error_.passes;
  // Relative least squares: both sides over what a time is expected to be off by.
  const double weight = 1 / (kNoise * milliseconds);
  double residual = milliseconds - base;
  for (size_t i = 0; i < kFeatures; ++i) {
    residual -= theta_[i] * x[i];
  }
  residual *= weight;
  for (double& each : x) {
    each *= weight;
  }
  Vector px{};
  double scale = kForget;
  for (size_t i = 0; i < kFeatures; ++i) {
    for (size_t j = 0; j < kFeatures; ++j) {
      px[i] += p_[i][j] * x[j];
    }
  }
  for (size_t i = 0; i < kFeatures; ++i) {
    scale += x[i] * px[i];
  }
  double most = 0;
  for (size_t i = 0; i < kFeatures; ++i) {
    theta_[i] += px[i] / scale * residual;
    for (size_t j = 0; j < kFeatures; ++j) {
      p_[i][j] -= px[i] * px[j] / scale;
    }
    most = std::max(most, p_[i][i]);
  }
  if (most / kForget <= kVarianceMax) {
    for (Vector& row : p_) {
      for (double& each : row) {
        each /= kForget;
      }
    }
  }
}

CalibrationError CalibratedTiming::error() const {
  const MutexLock lock(mutex_);
  return error_;
}

CalibrationState CalibratedTiming::state() const {
  const MutexLock lock(mutex_);
  return {.theta = theta_, .passes = error_.passes};
}

void CalibratedTiming::set(const CalibrationState& state) {
  const MutexLock lock(mutex_);
  theta_ = state.theta;
  error_.passes = state.passes;
}

double CalibratedTiming::prefill_ms(const PassShape& shape) const {
  const double base = base_.prefill_ms(shape);
  const MutexLock lock(mutex_);
  if (shape.prefill_new_tokens == 0 || error_.passes < kPassesMin) {
    return base;
  }
  return std::max({0.0, kLeast * base, base + correction(features(shape), 0)});
}

double CalibratedTiming::decode_ms(const PassShape& shape) const {
  const double base = base_.decode_ms(shape);
  const MutexLock lock(mutex_);
  if (shape.decode_requests == 0 || error_.passes < kPassesMin) {
    return base;
  }
  return std::max({0.0, kLeast * base, base + correction(features(shape), kFeatures / 2)});
}

}  // namespace stator::perf
