// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/result.h"
#include "stator/net/timer_queue.h"

namespace stator::net {

/// Requests go before background work.
enum class WorkPriority : uint8_t { kRequest, kBackground };

/// Who orders work; 0 for this process itself, whose work no client's share bounds.
using WorkClient = uint64_t;

/// A task and what decides when it is its turn.
struct Work {
  WorkPriority priority = WorkPriority::kRequest;
  size_t bytes = 0;  ///< of input: memory it keeps while it waits, and how long it will take
  WorkClient client = 0;
  Task run;
  TimePoint since{};  ///< waiting
};

/// Decides whose work is next: clients take turns by the bytes they have had, and a client's short
/// tasks go before its long ones. So nobody waits for the rest of what another has ordered, and a
/// page of text not for a book.
///
/// Q1  Every kOldestEvery-th task taken is the one that waits longest, whatever its length, client
///     and priority: each task is taken after at most kOldestEvery times as many others as waited
///     before it.
/// Q2  Otherwise the next task is of the best priority that waits; among its clients, of the one
///     whose bytes served, this task included, are least; of that client, the shortest; of equals,
///     the oldest.
/// Q3  A client that comes (back) has had as much as the one served last: waiting earns no credit.
/// Q4  At most tasks_max tasks and bytes_max bytes wait; of one client at most kClientShare of
///     either. A task that alone is over the bytes is taken when nothing else (of its client)
///     waits.
///
/// O(log n) but for the choice of a client, which looks at all that have work: 5 ns each. No lock,
/// no clock.
class WorkQueue {
 public:
  struct Limits {
    size_t tasks_max = 4096;
    size_t bytes_max = size_t{256} << 20;
    size_t short_bytes = 0;  ///< tasks of at most so many bytes are short ones
  };
  static constexpr uint32_t kOldestEvery = 8;
  /// Large, since everybody behind one gateway is one client; the rest is for the others.
  static constexpr double kClientShare = 0.75;
  /// What a task costs beside its bytes.
  static constexpr uint64_t kTaskBytes = 4096;

  explicit WorkQueue(Limits limits) : limits_(limits) {}

  enum class Room : uint8_t { kYes, kFull, kClientFull };
  /// Whether Q4 lets this in now.
  Room room_for(const Work& work) const;
  /// Requires room.
  void push(Work work);
  enum class Which : uint8_t { kAny, kShort };
  /// The next task of those; Q1 is about kAny only.
  std::optional<Work> take(Which which = Which::kAny);
  bool has(Which which) const {
    return which == Which::kShort ? short_tasks_ > 0 : !tasks_.empty();
  }

  size_t size() const { return tasks_.size(); }
  size_t bytes() const { return bytes_; }
  /// Clients that are remembered, with work or without.
  size_t clients() const { return lanes_[0].clients.size() + lanes_[1].clients.size(); }

 private:
  using Serial = uint64_t;
  struct Client {
    uint64_t served = 0;                          // bytes, on the lane's scale
    size_t bytes = 0;                             // waiting
    std::set<std::pair<size_t, Serial>> waiting;  // by bytes, then age
  };
  /// The work of one priority.
  struct Lane {
    FlatMap<WorkClient, Client> clients;  // without work too, while ahead of `clock`
    uint64_t clock = 0;                   // served of the client served last, before it was
  };

  Lane& lane_of(const Work& work) { return lanes_[static_cast<size_t>(work.priority)]; }
  /// Q2 in one lane; nothing when it has none of those.
  std::optional<Serial> choose(const Lane& lane, Which which) const;
  std::optional<Serial> choose(Which which) const;
  Work remove(Serial serial);
  static void forget_idle(Lane& lane);

  const Limits limits_;
  std::map<Serial, Work> tasks_;  // by age
  std::array<Lane, 2> lanes_;     // by WorkPriority
  size_t bytes_ = 0;
  size_t short_tasks_ = 0;
  Serial last_serial_ = 0;
  uint32_t taken_ = 0;
};

}  // namespace stator::net
