// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/power.h"

#include <algorithm>
#include <cmath>

namespace stator::planner {
namespace {

/// So many workers of one pool fit beside what the other draws.
uint32_t beside(double other_watts, uint32_t current, uint32_t wanted, uint32_t least, double watts,
                double limit) {
  if (!(watts > 0)) {
    return wanted;
  }
  const double fits = std::floor((limit - other_watts) / watts);
  if (fits < least) {
    return std::min(current, wanted);
  }
  return static_cast<uint32_t>(std::min<double>(wanted, fits));
}

/// Both at once, by the part of what is wanted that fits.
PairSize both(PairSize current, PairSize wanted, PairSize least, const PowerBudget& budget) {
  const double room = budget.limit_watts - budget.draw(current);
  const double more = budget.draw(wanted) - budget.draw(current);
  if (room >= 0 && more > 0) {
    const auto part = [&](uint32_t from, uint32_t to) {
      return from + static_cast<uint32_t>(std::floor((to - from) * room / more));
    };
    return {part(current.prefill, wanted.prefill), part(current.decode, wanted.decode)};
  }
  // Above the limit already: nothing grows, and what can shrink does.
  const double scale = std::max(0.0, budget.limit_watts / budget.draw(wanted));
  const auto part = [&](uint32_t now, uint32_t of, uint32_t fewest) {
    const auto fits = static_cast<uint32_t>(std::floor(of * scale));
    return std::min({now, of, std::max(fewest, fits)});
  };
  return {part(current.prefill, wanted.prefill, least.prefill),
          part(current.decode, wanted.decode, least.decode)};
}

}  // namespace

PowerClamp clamp_power(PairSize current, PairSize wanted, PairSize least,
                       const PowerBudget& budget) {
  const double limit = budget.limit_watts;
  if (limit < 0) {
    return {.size = wanted};
  }
  const PairSize peak{std::max(current.prefill, wanted.prefill),
                      std::max(current.decode, wanted.decode)};
  const bool prompts_grow = wanted.prefill > current.prefill;
  const bool answers_grow = wanted.decode > current.decode;
  const bool opposing = (prompts_grow && wanted.decode < current.decode) ||
                        (answers_grow && wanted.prefill < current.prefill);
  if (opposing && budget.draw(peak) > limit) {
    PowerClamp out{.size = wanted, .staged = true};
    (prompts_grow ? out.size.prefill : out.size.decode) =
        prompts_grow ? current.prefill : current.decode;
    return out;
  }
  if (budget.draw(wanted) <= limit) {
    return {.size = wanted};
  }
  PowerClamp out{.size = wanted, .limited = true};
  if (prompts_grow == answers_grow) {
    out.size = both(current, wanted, least, budget);
  } else if (prompts_grow) {
    out.size.prefill = beside(wanted.decode * budget.decode_watts, current.prefill, wanted.prefill,
                              least.prefill, budget.prefill_watts, limit);
  } else {
    out.size.decode = beside(wanted.prefill * budget.prefill_watts, current.decode, wanted.decode,
                             least.decode, budget.decode_watts, limit);
  }
  return out;
}

}  // namespace stator::planner
