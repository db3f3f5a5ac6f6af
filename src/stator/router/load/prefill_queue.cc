// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load/prefill_queue.h"

#include <algorithm>
#include <cmath>

namespace stator::router {
namespace {

int64_t tokens_after(uint32_t tokens, Duration elapsed, Duration predicted) {
  const double done = std::clamp(
      static_cast<double>(elapsed.count()) / static_cast<double>(predicted.count()), 0.0, 1.0);
  return static_cast<int64_t>(std::ceil(tokens * (1 - done)));
}

}  // namespace

void PrefillQueue::add(Owner owner, uint32_t tokens, Duration predicted, TimePoint now) {
  if (entries_.empty()) {
    anchor_ = now;
  }
  entries_.push_back({owner, tokens, predicted});
  total_tokens_ += tokens;
  predicted_ += predicted > Duration::zero() ? 1 : 0;
}

uint32_t PrefillQueue::remove(Owner owner, TimePoint now) {
  const auto at = std::ranges::find(entries_, owner, &Entry::owner);
  if (at == entries_.end()) {
    return 0;
  }
  const Entry entry = *at;
  // The time that had been credited to an entry that is gone is not the next one's.
  anchor_ = at == entries_.begin() ? now : std::min(now, anchor_ + entry.predicted);
  entries_.erase(at);
  total_tokens_ -= entry.tokens;
  predicted_ -= entry.predicted > Duration::zero() ? 1 : 0;
  return entry.tokens;
}

int64_t PrefillQueue::tokens_left(TimePoint now) const {
  if (predicted_ == 0) {
    return total_tokens_;
  }
  Duration elapsed = now - anchor_;
  if (predicted_ < entries_.size()) {
    const Entry& front = entries_.front();
    return front.predicted == Duration::zero()
               ? total_tokens_
               : total_tokens_ - front.tokens +
                     tokens_after(front.tokens, elapsed, front.predicted);
  }
  int64_t left = total_tokens_;
  for (const Entry& entry : entries_) {
    left += tokens_after(entry.tokens, elapsed, entry.predicted) - entry.tokens;
    elapsed -= entry.predicted;
    if (elapsed <= Duration::zero()) {
      break;
    }
  }
  return left;
}

}  // namespace stator::router
