// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "stator/core/random.h"
#include "stator/planner/fleet_model.h"
#include "stator/planner/inputs.h"

namespace stator::planner {

/// What requests came lately, and new ones drawn like them: stretches of consecutive requests with
/// their gaps, so that those that came in bunches come in bunches. Where only means are known:
/// single requests at random, lengths of prompts as wide as an exponential distribution.
class RecentRequests {
 public:
  void add(const Traffic& traffic);
  /// Whether any request has ended yet.
  bool known() const { return mean_input_ > 0; }
  double mean_input() const { return mean_input_; }
  double mean_output() const { return mean_output_; }
  double hit_rate() const { return hit_rate_; }
  /// `rate` per second from now to then, at most `most`.
  std::vector<ModelRequest> draw(double rate, double horizon_s, size_t most, Random& random) const;

  static constexpr size_t kKeptMax = 2048;

 private:
  void insert(const RequestLength& request);
  void sum(const RequestLength& request, double sign);
  std::vector<ModelRequest> draw_means(double rate, double horizon_s, size_t most,
                                       Random& random) const;

  std::deque<RequestLength> kept_;              // as they came
  double input_ = 0, output_ = 0, cached_ = 0;  // sums over those
  double hit_rate_ = 0, mean_input_ = 0, mean_output_ = 0;
};

}  // namespace stator::planner
