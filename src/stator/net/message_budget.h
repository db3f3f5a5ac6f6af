// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace stator::net {

/// Bytes that a process holds of messages whose end has not come, over all connections that share
/// the budget: a client that never ends its messages cannot make the process grow without bound.
///
///   MessageBudget::Share share(budget, 32 << 20);   // one per connection
///   if (!share.resize(0, bytes)) { … }              // end the call that wants more
///
/// A connection holds at most its own bound, and at most as much as is still free. So N greedy
/// connections get 1/(N+1) of the budget each, and one more finds as much (Choudhury and Hahne,
/// "Dynamic queue length thresholds"), and nobody is shed for others, as ByteBudget's holders are:
/// a worker cannot tell a flood from a frontend's session, whose requests would be lost with it.
/// Thread-safe.
class MessageBudget {
 public:
  explicit MessageBudget(size_t bytes_max) : bytes_max_(bytes_max) {}
  MessageBudget(const MessageBudget&) = delete;
  MessageBudget& operator=(const MessageBudget&) = delete;

  size_t held_bytes() const { return held_.load(std::memory_order_relaxed); }

  /// What one connection holds; gives it back in the end. One thread at a time.
  class Share {
   public:
    /// Shared: connections may outlive the server that made the budget.
    Share(std::shared_ptr<MessageBudget> budget, size_t bytes_max);
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share();

    /// A message of the connection grows or shrinks. False, and nothing changes, if it may not.
    bool resize(size_t from_bytes, size_t to_bytes);
    size_t held_bytes() const { return held_; }

   private:
    const std::shared_ptr<MessageBudget> budget_;
    const size_t bytes_max_;
    size_t held_ = 0;
  };

 private:
  const size_t bytes_max_;
  std::atomic<size_t> held_{0};
};

}  // namespace stator::net
