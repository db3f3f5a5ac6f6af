// SPDX-License-Identifier: Apache-2.0
#include "stator/net/message_budget.h"

#include <utility>

#include "stator/core/assert.h"

namespace stator::net {

MessageBudget::Share::Share(std::shared_ptr<MessageBudget> budget, size_t bytes_max)
    : budget_(std::move(budget)), bytes_max_(bytes_max) {}

MessageBudget::Share::~Share() {
  budget_->held_.fetch_sub(held_, std::memory_order_relaxed);
}

bool MessageBudget::Share::resize(size_t from_bytes, size_t to_bytes) {
  STATOR_ASSERT(from_bytes <= held_, "a share gives back no more than it holds");
  if (to_bytes <= from_bytes) {
    held_ -= from_bytes - to_bytes;
    budget_->held_.fetch_sub(from_bytes - to_bytes, std::memory_order_relaxed);
    return true;
  }
  const size_t more = to_bytes - from_bytes;
  const size_t wanted = held_ + more;
  const size_t held_by_all = budget_->held_.fetch_add(more, std::memory_order_relaxed);
  // Against what was free before; connections that ask at the same time see each other's bytes.
  const size_t free =
      held_by_all < budget_->bytes_max_ ? budget_->bytes_max_ - held_by_all : size_t{0};
  if (wanted > bytes_max_ || wanted > free) {
    budget_->held_.fetch_sub(more, std::memory_order_relaxed);
    return false;
  }
  held_ = wanted;
  return true;
}

}  // namespace stator::net
