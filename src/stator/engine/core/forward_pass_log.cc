// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/forward_pass_log.h"

#include <utility>

namespace stator::engine {

void ForwardPassLog::append(const ForwardPass& pass) {
  {
    const MutexLock lock(mutex_);
    passes_.push_back(pass);
    if (passes_.size() > kRecordsMax) {
      passes_.pop_front();
      ++overflow_;
    }
  }
  appended_.notify_one();
}

std::vector<ForwardPass> ForwardPassLog::take(Duration wait) {
  MutexLock lock(mutex_);
  appended_.wait_for(lock, wait, [this]() STATOR_REQUIRES(mutex_) { return !passes_.empty(); });
  std::vector<ForwardPass> taken(passes_.begin(), passes_.end());
  passes_.clear();
  return taken;
}

uint64_t ForwardPassLog::take_overflow() {
  const MutexLock lock(mutex_);
  return std::exchange(overflow_, 0);
}

}  // namespace stator::engine
