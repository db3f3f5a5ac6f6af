// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/detail/call_reaper.h"

#include <utility>

namespace stator::continuity::detail {

CallReaper::CallReaper() : thread_("grpc-reaper", [this] { run(); }) {}

CallReaper::~CallReaper() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void CallReaper::begin() {
  const MutexLock lock(mutex_);
  ++running_;
}

void CallReaper::end(std::shared_ptr<void> call) {
  const MutexLock lock(mutex_);
  ended_.push_back(std::move(call));
  --running_;
  changed_.notify_one();  // under the lock: without it the reaper could be gone already
}

void CallReaper::run() {
  std::vector<std::shared_ptr<void>> calls;
  while (true) {
    {
      MutexLock lock(mutex_);
      while (ended_.empty() && !(stopping_ && running_ == 0)) {
        changed_.wait(lock);
      }
      if (ended_.empty()) {
        return;
      }
      calls.swap(ended_);
    }
    calls.clear();
  }
}

}  // namespace stator::continuity::detail
