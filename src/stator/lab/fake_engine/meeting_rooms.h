// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "stator/core/flat_map.h"
#include "stator/core/mutex.h"

namespace stator::fake_engine {

/// Prefill legs that wait for their decode leg, by bootstrap room. Thread-safe.
///
/// R1  A room is waited for by at most one leg; it is taken once.
/// R2  At most kRoomsMax legs wait.
class MeetingRooms {
 public:
  static constexpr size_t kRoomsMax = 4'096;

  enum class Entered : uint8_t { kWaiting, kDuplicate, kFull };
  Entered wait(const std::string& room, std::function<void()> arrived);
  void give_up(const std::string& room);
  /// Lets the waiting leg go; false when nobody waits there (yet).
  bool arrive(const std::string& room);
  size_t waiting() const;

 private:
  mutable Mutex mutex_;
  FlatMap<std::string, std::function<void()>> rooms_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::fake_engine
