// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/mutex.h"
#include "stator/net/shard.h"
#include "stator/router/router_service.h"

namespace stator::frontend {

/// Decisions for requests of one shard that waited in a router's queue, on their way from the
/// thread that made room to the shard's loop. Nothing is lost when the shard's own inbox is full:
/// what could not be announced is found at the next one, or by the owner's periodic take().
/// Bounded by the requests that wait.
class RoutedInbox : public std::enable_shared_from_this<RoutedInbox> {
 public:
  enum class For : uint8_t { kAnswer, kPrompt };
  struct Arrival {
    RequestId choice;
    Attempt attempt;
    Result<router::Decision> decision;
    For what = For::kAnswer;
  };
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_routed(Arrival arrival) = 0;
  };

  RoutedInbox(net::Shard& shard, Owner& owner) : shard_(shard), owner_(&owner) {}

  /// Any thread.
  void put(Arrival arrival) {
    {
      const MutexLock lock(mutex_);
      arrivals_.push_back(std::move(arrival));
    }
    // A refusal is counted by the shard; take() comes anyway.
    [[maybe_unused]] const bool posted = shard_.post([self = shared_from_this()] { self->take(); });
  }
  /// On the loop: hands over what has come.
  void take() {
    std::vector<Arrival> arrivals;
    {
      const MutexLock lock(mutex_);
      arrivals.swap(arrivals_);
    }
    for (Arrival& arrival : arrivals) {
      if (owner_ != nullptr) {
        owner_->on_routed(std::move(arrival));
      }
    }
  }
  /// On the loop: the owner goes. What comes later is dropped, and its load given back.
  void close() { owner_ = nullptr; }

 private:
  net::Shard& shard_;
  Owner* owner_;  // of the loop
  Mutex mutex_;
  std::vector<Arrival> arrivals_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::frontend
