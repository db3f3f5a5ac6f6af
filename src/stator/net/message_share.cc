// SPDX-License-Identifier: Apache-2.0
#include "stator/net/message_share.h"

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"

namespace stator::net {

MessageShare::MessageShare(std::shared_ptr<ByteBudget> budget, size_t bytes_max)
    : budget_(std::move(budget)),
      bytes_max_(bytes_max),
      lease_(budget_ != nullptr ? ByteLease(*budget_) : ByteLease()) {}

bool MessageShare::may_hold(size_t bytes) const {
  if (bytes > bytes_max_) {
    return false;
  }
  if (budget_ == nullptr || bytes <= ByteBudget::kFreeBytes) {
    return true;
  }
  // What this connection has counts as not free: connections stop at equal parts.
  return bytes <= budget_->limit_bytes() - std::min(budget_->used(), budget_->limit_bytes());
}

bool MessageShare::resize(size_t from_bytes, size_t to_bytes) {
  STATOR_ASSERT(from_bytes <= held_, "a share gives back no more than it holds");
  const size_t wanted = held_ - from_bytes + to_bytes;
  if (to_bytes <= from_bytes) {
    lease_.resize(wanted);
  } else if (!may_hold(wanted) || !lease_.try_resize(wanted)) {
    if (budget_ != nullptr) {
      budget_->count_refusal();
    }
    return false;
  }
  held_ = wanted;
  return true;
}

}  // namespace stator::net
