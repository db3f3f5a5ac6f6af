// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stator/core/clock.h"

namespace stator::simulator {

/// A fleet during one stretch of time.
struct TimelinePoint {
  double begin_s = 0;  ///< virtual, from 0
  double arrivals_per_s = 0;
  double requests_per_s = 0;       ///< completed
  double output_tokens_per_s = 0;  ///< of requests completed
  double cached_ratio = 0;  ///< of prompt tokens admitted; the stretch before if there are none
  double queued = 0;        ///< in the router, on average over the time; so are the following
  double waiting = 0;       ///< in engines
  double running = 0;
  double kv_use = 0;  ///< part of all KV blocks that are in use
  double workers = 0;
};

/// What a fleet did over time, in at most kPointsMax stretches of equal length: when they no longer
/// suffice, two become one. Sums are whole numbers, so that it does not matter into how many calls
/// a time is cut.
class Timeline {
 public:
  static constexpr size_t kPointsMax = 240;

  struct Gauges {
    uint64_t queued = 0;
    uint64_t waiting = 0;
    uint64_t running = 0;
    uint64_t blocks_in_use = 0;
    uint64_t blocks = 0;
    uint64_t workers = 0;
  };

  /// `gauges` held from the time of the last call until `now`.
  void advance(TimePoint now, const Gauges& gauges);
  // At the time of the last advance().
  void count_arrival() { ++current().arrivals; }
  void count_end(uint32_t output_tokens) {
    ++current().completed;
    current().output_tokens += output_tokens;
  }
  void count_admission(uint64_t prompt_tokens, uint64_t cached_tokens) {
    current().prompt_tokens += prompt_tokens;
    current().cached_tokens += cached_tokens;
  }

  std::vector<TimelinePoint> points() const;

 private:
  using Sum = unsigned __int128;  // gauge times nanoseconds
  struct Stretch {
    uint64_t arrivals = 0, completed = 0, output_tokens = 0, prompt_tokens = 0, cached_tokens = 0;
    Sum queued = 0, waiting = 0, running = 0, blocks_in_use = 0, blocks = 0, workers = 0;
    void add(const Stretch& other);
  };

  Stretch& current();
  void move_on();
  void halve();

  std::vector<Stretch> stretches_;
  Duration width_ = std::chrono::milliseconds(10);
  TimePoint now_{};
  size_t at_ = 0;    // which stretch current() is
  TimePoint end_{};  // of that stretch
};

}  // namespace stator::simulator
