// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace stator {

/// Upper bounds of a histogram's buckets that grow by a factor: first, first · factor, ….
///
///   constexpr auto kHashingMs = geometric_bounds<15>(0.001, 2);
template <size_t Count>
constexpr std::array<double, Count> geometric_bounds(double first, double factor) {
  std::array<double, Count> bounds{};
  double bound = first;
  for (double& each : bounds) {
    each = bound;
    bound *= factor;
  }
  return bounds;
}

}  // namespace stator
