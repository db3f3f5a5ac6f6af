// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "stator/net/byte_budget.h"

namespace stator::net {

/// What one connection holds of messages whose end has not come, charged to a budget that all
/// share: a client that never ends its messages cannot make the process grow without bound.
///
///   MessageShare share(budget, 32 << 20);   // one per connection
///   if (!share.resize(0, bytes)) { … }      // end the call that wants more
///
/// A connection holds at most its own bound, and at most as much as is still free. So N greedy
/// connections get 1/(N+1) of the budget each, and one more finds as much (Choudhury and Hahne,
/// "Dynamic queue length thresholds"), and nobody is shed for others, as other holders of a
/// ByteBudget are: a worker cannot tell a flood from a frontend's session, whose requests would be
/// lost with it. One thread at a time.
class MessageShare {
 public:
  /// Shared: connections may outlive the server that made the budget. Null: its own bound only.
  MessageShare(std::shared_ptr<ByteBudget> budget, size_t bytes_max);
  MessageShare(const MessageShare&) = delete;
  MessageShare& operator=(const MessageShare&) = delete;
  ~MessageShare() = default;

  /// A message of the connection grows or shrinks. False, and nothing changes, if it may not; the
  /// budget counts that.
  bool resize(size_t from_bytes, size_t to_bytes);
  size_t held_bytes() const { return held_; }

 private:
  bool may_hold(size_t bytes) const;

  const std::shared_ptr<ByteBudget> budget_;
  const size_t bytes_max_;
  ByteLease lease_;
  size_t held_ = 0;
};

}  // namespace stator::net
