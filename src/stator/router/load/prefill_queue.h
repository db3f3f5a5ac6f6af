// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stator/core/clock.h"

namespace stator::router {

/// The requests of one worker that have not produced a token yet, in the order they were sent, and
/// how many of their prompt tokens are still to be computed. A pure core.
///
/// A request whose duration was predicted shrinks with time: the front one by elapsed / predicted.
/// When all of them were predicted, time beyond the front's end is spent on the next. One without a
/// prediction counts in full until its first token.
class PrefillQueue {
 public:
  using Owner = uint32_t;

  /// `predicted` zero: unknown. At most one entry per owner; `tokens` > 0.
  void add(Owner owner, uint32_t tokens, Duration predicted, TimePoint now);
  /// At the first token or when the request ends. Unknown owners are ignored. Returns its tokens.
  uint32_t remove(Owner owner, TimePoint now);

  /// Sum without decay.
  int64_t total_tokens() const { return total_tokens_; }
  int64_t tokens_left(TimePoint now) const;
  bool decays() const { return predicted_ > 0; }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Owner owner = 0;
    uint32_t tokens = 0;
    Duration predicted{};
  };

  std::vector<Entry> entries_;  // oldest first; bounded by the requests in flight
  int64_t total_tokens_ = 0;
  size_t predicted_ = 0;
  TimePoint anchor_{};  // when the front entry started
};

}  // namespace stator::router
