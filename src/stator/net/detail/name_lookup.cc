// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/name_lookup.h"

#include <utility>

#include "stator/net/shard.h"

namespace stator::net::detail {

NameLookup::NameLookup(Shard& shard) : shard_(shard), thread_("name-lookup", [this] { run(); }) {}

NameLookup::~NameLookup() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void NameLookup::start(Endpoint where, Done done) {
  {
    const MutexLock lock(mutex_);
    wishes_.push_back({std::move(where), std::move(done)});
  }
  changed_.notify_one();
}

void NameLookup::run() {
  for (;;) {
    Wish wish;
    {
      MutexLock lock(mutex_);
      while (wishes_.empty() && !stopping_) {
        changed_.wait(lock);
      }
      if (stopping_) {
        return;
      }
      wish = std::move(wishes_.front());
      wishes_.pop_front();
    }
    shard_.post_past_bound(
        [done = std::move(wish.done), found = find_addresses(wish.where)]() mutable {
          done(std::move(found));
        });
  }
}

}  // namespace stator::net::detail
