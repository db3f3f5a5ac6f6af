// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/lab/simulator/capped_time.h"

namespace stator::simulator {

inline Duration transfer_time(double seconds) {
  return capped_time(seconds * 1e9);
}

/// Hand-overs of KV between workers whose links they share: a worker sends all it sends, and
/// receives all it receives, at no more than its bandwidth, in equal parts; a hand-over goes as
/// fast as the more crowded of its two ends lets it. A pure core. O(hand-overs under way) per start
/// and end.
class Transfers {
 public:
  explicit Transfers(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  /// `id` is the caller's.
  struct Transfer {
    uint32_t id = 0;
    uint32_t source = 0;
    uint32_t target = 0;
    double bytes = 0;
  };
  void start(TimePoint now, const Transfer& transfer);
  /// When the next one ends.
  std::optional<TimePoint> next() const;
  /// Takes one out that has ended by now; the ones that began first go first.
  std::optional<uint32_t> pop(TimePoint now);
  /// Takes those from or to a worker out, in the order in which they began.
  std::vector<uint32_t> cancel(TimePoint now, uint32_t worker);

 private:
  struct Flow {
    Transfer transfer;  // bytes that are left
    double rate = 0;
    TimePoint end{};
  };
  void settle(TimePoint now);
  void share();
  void remove(size_t at);

  const double bytes_per_second_;
  std::vector<Flow> flows_;  // in the order of their beginnings
  FlatMap<uint32_t, uint32_t> sending_;
  FlatMap<uint32_t, uint32_t> receiving_;
  TimePoint settled_{};
};

}  // namespace stator::simulator
