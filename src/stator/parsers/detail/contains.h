// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>

namespace stator::parsers {

/// std::ranges::contains, which libstdc++ 12 does not have.
template <typename Range, typename Value, typename Projection = std::identity>
constexpr bool contains(const Range& range, const Value& value, Projection projection = {}) {
  return std::ranges::find(range, value, projection) != std::ranges::end(range);
}

}  // namespace stator::parsers
