// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>

namespace stator::planner {

/// The rate at which requests come, and how sure that is: a Kalman filter of a level that wanders,
/// with the noise of a Poisson process whose requests come in bunches, so that few bunches move it
/// little. A level that is off for two windows in a row, by more than chance explains, is given up
/// at once. How large bunches are is taken from how much each window differs from the one before.
class ArrivalRate {
 public:
  /// `requests` came in `seconds` > 0.
  void add(double requests, double seconds);
  /// Requests per second.
  double mean() const { return level_; }
  /// Standard deviation of the rate `ahead_s` from now, as a part of the mean.
  double spread(double ahead_s) const;

 private:
  double wander() const;  ///< variance of the logarithm per second
  double bunch() const;   ///< requests that come together: variance of a window over its mean
  void measure(double requests, double seconds);

  double level_ = 0, variance_ = 0;
  bool known_ = false;
  double off_ = 0;                             // the sign of the last surprise
  double last_ = -1;                           // requests of the window before; -1: none
  double squares_ = 0, counts_ = 0;            // of differences between windows, and of requests
  double minute_s_ = 0, minute_requests_ = 0;  // that is not full yet
  std::deque<double> minutes_;                 // requests of the last ones
};

}  // namespace stator::planner
