// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/arrival_rate.h"

#include <algorithm>
#include <cmath>

namespace stator::planner {
namespace {

constexpr double kMinute_s = 60;
constexpr size_t kMinutesMax = 60;
/// Before anything is known a load is taken to change so much from minute to minute; that weighs
/// as much as so many minutes.
constexpr double kUsualChange = 0.05;
constexpr double kUsualWeight = 5;
constexpr double kSurprise = 2.5;  // standard deviations
constexpr double kSpreadMax = 0.6;
constexpr double kBunchMax = 30;
constexpr double kWindows = 30;        // that bunches are measured over
constexpr double kUsualRequests = 20;  // that are taken to have come singly, before any is known

}  // namespace

double ArrivalRate::bunch() const {
  return std::clamp((squares_ + kUsualRequests) / (counts_ + kUsualRequests), 1.0, kBunchMax);
}

void ArrivalRate::measure(double requests, double seconds) {
  if (last_ >= 0) {
    const double keep = 1 - 1 / kWindows;
    squares_ = squares_ * keep + (requests - last_) * (requests - last_) / 2;
    counts_ = counts_ * keep + (requests + last_) / 2;
  }
  last_ = requests;
  minute_s_ += seconds;
  minute_requests_ += requests;
  if (minute_s_ >= kMinute_s) {
    minutes_.push_back(minute_requests_ * kMinute_s / minute_s_);
    minute_s_ = minute_requests_ = 0;
    if (minutes_.size() > kMinutesMax) {
      minutes_.pop_front();
    }
  }
}

double ArrivalRate::wander() const {
  double squares = kUsualWeight * kUsualChange * kUsualChange, count = kUsualWeight;
  const double together = bunch();
  for (size_t i = 1; i < minutes_.size(); ++i) {
    const double a = minutes_[i - 1] + 0.5, b = minutes_[i] + 0.5;
    // What chance alone explains is no change of the rate.
    squares += std::pow(std::log(b / a), 2) - together * (1 / a + 1 / b);
    ++count;
  }
  return std::max(squares / count, 1e-4) / kMinute_s;
}

void ArrivalRate::add(double requests, double seconds) {
  measure(requests, seconds);
  const double seen = requests / seconds;
  const double noise = bunch() * std::max(level_, 0.5 / seconds) / seconds;
  if (!known_) {
    known_ = requests > 0;
    level_ = seen;
    variance_ = std::max(seen, 0.5 / seconds) / seconds;
    return;
  }
  variance_ += wander() * level_ * level_ * seconds;
  const double error = seen - level_, all = variance_ + noise;
  const bool surprised = error * error > kSurprise * kSurprise * all;
  if (surprised && error * off_ > 0) {
    variance_ += error * error;
  }
  off_ = surprised ? error : 0;
  const double gain = variance_ / (variance_ + noise);
  level_ = std::max(0.0, level_ + gain * error);
  variance_ *= 1 - gain;
}

double ArrivalRate::spread(double ahead_s) const {
  const double own = level_ > 0 ? variance_ / (level_ * level_) : 0;
  return std::min(kSpreadMax, std::sqrt(own + wander() * ahead_s));
}

}  // namespace stator::planner
