// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/work_queue.h"

#include <algorithm>

namespace stator::kube {
namespace {

using namespace std::chrono_literals;

constexpr Duration kBackOffFirst = 5ms;
constexpr Duration kBackOffMax = 60s;

}  // namespace

void WorkQueue::add(const std::string& key) {
  const std::lock_guard lock(mutex_);
  later_.erase(key);
  if (working_.contains(key)) {
    again_.insert(key);
  } else if (ready_.insert(key).second) {
    changed_.notify_one();
  }
}

void WorkQueue::add_after(const std::string& key, Duration delay) {
  const std::lock_guard lock(mutex_);
  const TimePoint due = clock_.now() + delay;
  const auto [it, is_new] = later_.emplace(key, due);
  it->second = is_new ? due : std::min(it->second, due);
  changed_.notify_one();
}

std::optional<std::string> WorkQueue::take() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const TimePoint now = clock_.now();
    Duration pause = 1s;
    for (auto it = later_.begin(); it != later_.end();) {
      if (it->second > now) {
        pause = std::min<Duration>(pause, it->second - now);
        ++it;
        continue;
      }
      (working_.contains(it->first) ? again_ : ready_).insert(it->first);
      it = later_.erase(it);
    }
    if (!ready_.empty()) {
      std::string key = *ready_.begin();
      ready_.erase(ready_.begin());
      working_.insert(key);
      return key;
    }
    changed_.wait_for(lock, pause);
  }
  return std::nullopt;
}

void WorkQueue::done(const std::string& key, bool success) {
  const std::lock_guard lock(mutex_);
  working_.erase(key);
  if (again_.erase(key) > 0) {
    ready_.insert(key);
    changed_.notify_one();
  }
  if (success) {
    failures_.erase(key);
    return;
  }
  const uint32_t failures = std::min(failures_[key]++, 14U);
  const TimePoint due =
      clock_.now() + std::min<Duration>(kBackOffFirst * (1 << failures), kBackOffMax);
  later_.emplace(key, due);
  changed_.notify_one();
}

void WorkQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

size_t WorkQueue::size() const {
  const std::lock_guard lock(mutex_);
  return ready_.size() + later_.size() + working_.size();
}

}  // namespace stator::kube
