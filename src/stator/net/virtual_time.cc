// SPDX-License-Identifier: Apache-2.0
#include "stator/net/virtual_time.h"

#include <algorithm>

#include "stator/core/assert.h"

namespace stator::net {

void VirtualTime::after(Duration delay, Task task) {
  const TimePoint when = now() + std::max(delay, Duration::zero());
  events_.emplace(std::pair(when, next_event_++), std::move(task));
}

void VirtualTime::attach(Shard& shard) {
  shards_.push_back(&shard);
}

void VirtualTime::detach(Shard& shard) {
  std::erase(shards_, &shard);
}

void VirtualTime::on_loop(Shard& shard, Task task) {
  shard.run_by_hand(task);
}

/// Turns every loop until none has anything to do at this moment.
void VirtualTime::settle() {
  bool busy = true;
  for (int turns = 0; busy; ++turns) {
    STATOR_ASSERT(turns < kTurnsMax, "T1: a loop keeps itself busy without time passing");
    busy = false;
    // By index: what runs may attach shards.
    for (size_t i = 0; i < shards_.size(); ++i) {
      busy = shards_[i]->run_turn_by_hand() || busy;
    }
  }
}

void VirtualTime::run_until(TimePoint end) {
  while (true) {
    settle();
    TimePoint next = end;
    if (!events_.empty()) {
      next = std::min(next, events_.begin()->first.first);
    }
    for (const Shard* shard : shards_) {
      if (const auto timer = shard->timers_.next_deadline()) {
        next = std::min(next, *timer);
      }
    }
    const bool at_end = next >= end;
    clock_.advance(std::max(next - now(), Duration::zero()));
    while (!events_.empty() && events_.begin()->first.first <= now()) {
      auto event = events_.extract(events_.begin());
      event.mapped()();
      ++events_run_;
      settle();
    }
    if (at_end) {
      settle();
      return;
    }
  }
}

}  // namespace stator::net
