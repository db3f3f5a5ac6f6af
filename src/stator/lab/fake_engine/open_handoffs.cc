// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/open_handoffs.h"

#include <algorithm>
#include <utility>

namespace stator::fake_engine {

OpenHandoffs::OpenHandoffs(uint32_t total_blocks, Duration lease, size_t open_max)
    : total_blocks_(std::max(total_blocks, 2U)), lease_(lease), open_max_(open_max) {}

HandoffOffer OpenHandoffs::offer(std::string request_id, uint32_t blocks, TimePoint now) {
  expire(now);
  while (open_.size() >= open_max_) {
    drop_oldest();
  }
  HandoffOffer out{.request_id = request_id, .block_ids = {}};
  for (uint32_t i = 0; i < blocks; ++i) {
    out.block_ids.push_back(next_block_);
    next_block_ = next_block_ + 1 < total_blocks_ ? next_block_ + 1 : 1;
  }
  if (open_.try_emplace(request_id, Open{.until = now + lease_, .blocks = blocks}).second) {
    pinned_blocks_ += blocks;
    order_.push_back(std::move(request_id));
  }
  return out;
}

ClaimOutcome OpenHandoffs::claim(std::string_view request_id, TimePoint now) {
  expire(now);
  const auto found = open_.find(request_id);
  if (found == open_.end()) {
    ++late_claims_;
    return ClaimOutcome::kStale;
  }
  pinned_blocks_ -= found->second.blocks;
  open_.erase(found);
  return ClaimOutcome::kFresh;
}

void OpenHandoffs::expire(TimePoint now) {
  while (!order_.empty()) {
    const auto found = open_.find(order_.front());
    if (found != open_.end() && found->second.until > now) {
      return;
    }
    drop_oldest();
  }
}

void OpenHandoffs::expire_all() {
  while (!order_.empty()) {
    drop_oldest();
  }
}

void OpenHandoffs::drop_oldest() {
  const auto found = open_.find(order_.front());
  if (found != open_.end()) {
    pinned_blocks_ -= found->second.blocks;
    open_.erase(found);
    ++expired_;
  }
  order_.pop_front();
}

}  // namespace stator::fake_engine
