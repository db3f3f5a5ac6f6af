// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "stator/core/clock.h"
#include "stator/json/value.h"

namespace stator::op {

/// Whether the object has this status already.
bool is_stored_status(const json::Value& object, const json::Value& status);

/// Whether this is waited for: a condition, a state or a phase that is another one than before.
/// Counts of replicas, and that a new object is not ready yet, are no news.
bool is_news(const json::Value* before, const json::Value& after);

/// When a status is worth a write to the API server: news at once; the rest, of which a graph that
/// starts has a dozen, once for all that happened in a while. Thread-safe; an entry for each object
/// whose status waits.
class StatusPace {
 public:
  static constexpr Duration kFirst = std::chrono::seconds(1);   ///< an object without a status
  static constexpr Duration kCounts = std::chrono::seconds(2);  ///< where only counts moved

  /// Zero: write it now. Else: ask again after so long. `before` may be null.
  Duration wait(const std::string& key, const json::Value* before, const json::Value& after,
                TimePoint now);
  void forget(const std::string& key);

 private:
  std::mutex mutex_;
  std::map<std::string, TimePoint> due_;
};

/// The newest status of objects whose stored one lags behind: what depends on it reads it here.
/// Thread-safe; an entry for each object there is.
class NewestStatuses {
 public:
  /// Puts it into a copy of the object, if there is a newer one of the same object.
  void overlay(json::Value& object) const;
  /// True if it says something else than before.
  bool remember(const json::Value& object, const json::Value& status);
  void forget(const std::string& key);

 private:
  struct Entry {
    std::string uid;
    json::Value status;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace stator::op
