// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "stator/core/clock.h"

namespace stator::kube {

/// Keys that need work. A key is worked on by one thread at a time; a key added meanwhile is worked
/// on again afterwards. Failures wait twice as long each time, from 5 ms to a minute. Holds each
/// key once, so it is bounded by the objects there are. Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(Clock& clock) : clock_(clock) {}

  void add(const std::string& key);
  /// Not before `delay` has passed.
  void add_after(const std::string& key, Duration delay);
  /// The next key, or nothing after stop().
  std::optional<std::string> take();
  /// The key's work is over; after a failure it comes again.
  void done(const std::string& key, bool success);
  void stop();
  size_t size() const;

 private:
  Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> ready_;
  std::map<std::string, TimePoint> later_;
  std::set<std::string> working_;
  std::set<std::string> again_;
  std::map<std::string, uint32_t> failures_;
  bool stopped_ = false;
};

}  // namespace stator::kube
