// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/mutex.h"

namespace stator::discovery {

/// What a listener was told, one line each, for tests that wait for it. Any thread.
class NoteLog {
 public:
  void note(std::string line) {
    const MutexLock lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  /// False after a minute without so many of that line.
  bool wait_for(const std::string& line, int times = 1) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&]() STATOR_REQUIRES(mutex_) {
      return std::ranges::count(lines_, line) >= times;
    });
  }
  std::vector<std::string> lines() {
    const MutexLock lock(mutex_);
    return lines_;
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::string> lines_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::discovery
