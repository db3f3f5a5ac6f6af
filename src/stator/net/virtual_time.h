// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/net/shard.h"

namespace stator::net {

/// Time that moves from event to event, and shards whose loops turn in between, all on the caller's
/// thread: what production code runs on in a simulation.
///
///   VirtualTime time;
///   net::Shard shard(0, time.clock(), metrics);
///   time.attach(shard);
///   time.after(1s, [&] { time.on_loop(shard, [&] { service.on_request(exchange); }); });
///   time.run_until(time.now() + 60s);
///
/// T1  Events run in order of (time, creation), timers of shards included; while something happens
///     at one moment, time stands still.
/// T2  The order of everything follows from the order of calls: the same program runs the same way.
class VirtualTime {
 public:
  VirtualTime() = default;
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  SimClock& clock() { return clock_; }
  TimePoint now() const { return clock_.now(); }

  /// An event; it cannot be taken back, so it must find out by itself whether it still matters.
  void after(Duration delay, Task task);

  /// From now on its loop turns here. It must never be started, and be detached before it goes.
  void attach(Shard& shard);
  void detach(Shard& shard);
  /// Runs `task` as the shard's loop would.
  void on_loop(Shard& shard, Task task);

  /// Runs everything due up to `end`, where the clock stands afterwards. Aborts if time does not
  /// get on: more than kTurnsMax turns at one moment.
  void run_until(TimePoint end);

  uint64_t events_run() const { return events_run_; }

  static constexpr int kTurnsMax = 100'000;

 private:
  void settle();

  SimClock clock_;
  std::map<std::pair<TimePoint, uint64_t>, Task> events_;
  uint64_t next_event_ = 0;
  uint64_t events_run_ = 0;
  std::vector<Shard*> shards_;
};

}  // namespace stator::net
