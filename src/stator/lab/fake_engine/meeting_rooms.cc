// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/meeting_rooms.h"

#include <utility>

namespace stator::fake_engine {

MeetingRooms::Entered MeetingRooms::wait(const std::string& room, std::function<void()> arrived) {
  const MutexLock lock(mutex_);
  if (rooms_.contains(room)) {
    return Entered::kDuplicate;
  }
  if (rooms_.size() >= kRoomsMax) {
    return Entered::kFull;
  }
  rooms_.emplace(room, std::move(arrived));
  return Entered::kWaiting;
}

void MeetingRooms::give_up(const std::string& room) {
  const MutexLock lock(mutex_);
  rooms_.erase(room);
}

bool MeetingRooms::arrive(const std::string& room) {
  std::function<void()> arrived;
  {
    const MutexLock lock(mutex_);
    const auto found = rooms_.find(room);
    if (found == rooms_.end()) {
      return false;
    }
    arrived = std::move(found->second);
    rooms_.erase(found);
  }
  arrived();
  return true;
}

size_t MeetingRooms::waiting() const {
  const MutexLock lock(mutex_);
  return rooms_.size();
}

}  // namespace stator::fake_engine
