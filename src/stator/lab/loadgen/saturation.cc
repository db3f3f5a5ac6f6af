// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/saturation.h"

#include <algorithm>

namespace stator::loadgen {

std::optional<double> SaturationSearch::next_rate() const {
  constexpr double kRateMinShare = 1.0 / 1024;  // of the first rate: below it nothing is sustained
  if (steps_ >= options_.steps_max) {
    return std::nullopt;
  }
  if (steps_ == 0) {
    return options_.first_rate;
  }
  if (!unsustained_) {
    return sustained_ >= options_.rate_max
               ? std::nullopt
               : std::optional(std::min(options_.rate_max, 2 * sustained_));
  }
  if (sustained_ == 0) {
    const double lower = *unsustained_ / 2;
    return lower < options_.first_rate * kRateMinShare ? std::nullopt : std::optional(lower);
  }
  if (*unsustained_ - sustained_ <= options_.precision * *unsustained_) {
    return std::nullopt;
  }
  return (sustained_ + *unsustained_) / 2;
}

void SaturationSearch::add(double rate, bool sustained) {
  ++steps_;
  if (sustained) {
    sustained_ = std::max(sustained_, rate);
  } else {
    unsustained_ = unsustained_ ? std::min(*unsustained_, rate) : rate;
  }
}

}  // namespace stator::loadgen
