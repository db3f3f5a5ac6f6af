// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "stator/core/mutex.h"
#include "stator/perf/timing_model.h"

namespace stator::perf {

/// How well a model foretells passes, before each was learned from.
struct CalibrationError {
  uint64_t passes = 0;
  double base_percent = 0;        ///< mean absolute error of the model as it was given, lately
  double calibrated_percent = 0;  ///< of the corrected one
};

/// What was learned, as a value: a journal keeps it.
struct CalibrationState {
  std::array<double, 6> theta{};
  uint64_t passes = 0;
};

/// A step model that learns from passes which were measured: the given model, plus a linear
/// correction in what a pass computes, found by recursive least squares with forgetting.
///
///   prefill: a₀ + a₁·new tokens + a₂·pairs      decode: b₀ + b₁·sequences + b₂·context
///
/// Errors are weighted by 1/time, so that a pass of 5 ms counts as much as one of 500 ms. Until
/// kPassesMin passes were seen the given model answers alone. A part is never predicted below a
/// twentieth of what the given model says, nor below 0: few, similar passes must not turn a slope
/// around. A pass that took more than kOutlier times, or less than 1/kOutlier of, what is expected
/// is not learned from once there is something to expect (a debugger, a paused machine).
/// Source: Ljung, System Identification (1999), 11.2.
///
/// Thread-safe.
class CalibratedTiming final : public TimingModel {
 public:
  static constexpr uint64_t kPassesMin = 5;
  static constexpr double kOutlier = 20;

  /// `base` outlives the object.
  explicit CalibratedTiming(const TimingModel& base);

  /// One pass took so long. Not a number, 0 and less are ignored, as are passes of nothing.
  void learn(const PassShape& shape, double milliseconds) STATOR_EXCLUDES(mutex_);
  CalibrationError error() const STATOR_EXCLUDES(mutex_);
  CalibrationState state() const STATOR_EXCLUDES(mutex_);
  /// Answers as another object, with that state, does. Does not take over what that one would
  /// learn from the next pass.
  void set(const CalibrationState& state) STATOR_EXCLUDES(mutex_);

  double prefill_ms(const PassShape& shape) const override STATOR_EXCLUDES(mutex_);
  double decode_ms(const PassShape& shape) const override STATOR_EXCLUDES(mutex_);
  bool reads_context() const override { return true; }

 private:
  static constexpr size_t kFeatures = 6;
  using Vector = std::array<double, kFeatures>;
  static Vector features(const PassShape& shape);
  double correction(const Vector& x, size_t begin) const STATOR_REQUIRES(mutex_);

  const TimingModel& base_;
  mutable Mutex mutex_;
  Vector theta_ STATOR_GUARDED_BY(mutex_){};
  std::array<Vector, kFeatures> p_ STATOR_GUARDED_BY(mutex_){};
  CalibrationError error_ STATOR_GUARDED_BY(mutex_);
};

/// The one place that says how long a pass takes: planner, simulator and configurator ask it.
inline double step_ms(const TimingModel& engine, const PassShape& pass) {
  return engine.prefill_ms(pass) + engine.decode_ms(pass);
}

}  // namespace stator::perf
