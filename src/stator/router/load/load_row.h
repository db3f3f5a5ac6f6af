// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace stator::router {

/// How one worker is loaded, as a decision sees it. Whole numbers, kept as what costs are made of.
struct LoadRow {
  double prefill_tokens = 0;
  double active_blocks = 0;
  double active_requests = 0;
  friend bool operator==(const LoadRow&, const LoadRow&) = default;
};

}  // namespace stator::router
