// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "stator/core/clock.h"
#include "stator/core/random.h"

namespace stator::continuity {

/// Whether one instance should be sent work, by what became of the work it was sent. A pure core.
///
///   kClosed ── failures ──► kOpen ── time is up ──► kHalfOpen ── 2 good probes ──► kClosed
///                             ▲                        │
///                             └────── failed probe ────┘   (twice as long each time)
///
/// B1  Opens after `failures_in_a_row` failures, or when half of at least `failures_of` outcomes in
///     the window failed, or at once on evidence that the instance is hung.
/// B2  While half open at most one probe is out.
/// B3  The time open doubles with each opening from `open_min` to `open_max`, ±20 %; a minute
///     closed takes one doubling back.
class CircuitBreaker {
 public:
  enum class State : uint8_t { kClosed, kHalfOpen, kOpen };
  struct Options {
    Duration window = std::chrono::seconds(10);
    uint32_t failures_in_a_row = 5;
    uint32_t failures_of = 20;
    Duration open_min = std::chrono::seconds(5);
    Duration open_max = std::chrono::seconds(60);
    uint32_t probes = 2;
  };
  explicit CircuitBreaker(Options options) : options_(options) {}

  /// Outcomes of requests; ignored unless closed. True if it opened.
  void succeeded(TimePoint now);
  bool failed(TimePoint now, Random& random);
  /// The instance does not move: no need to count.
  void hung(TimePoint now, Random& random);

  /// True once per probe to send: the time open is up and no probe is out.
  bool take_probe(TimePoint now);
  /// What became of it. True if the breaker closed.
  bool probed(bool good, TimePoint now, Random& random);

  State state() const { return state_; }
  uint32_t openings() const { return openings_; }
  TimePoint open_until() const { return open_until_; }

 private:
  struct Outcome {
    TimePoint at;
    bool good;
  };
  void open(TimePoint now, Random& random);
  void note(TimePoint now, bool good);

  static constexpr size_t kOutcomesMax = 256;  // of the window: enough to tell a half

  const Options options_;
  State state_ = State::kClosed;
  std::deque<Outcome> window_;
  uint32_t bad_in_window_ = 0;
  uint32_t bad_in_a_row_ = 0;
  uint32_t openings_ = 0;  // in a row, see B3
  uint32_t good_probes_ = 0;
  bool probe_out_ = false;
  TimePoint open_until_{};
  TimePoint closed_at_{};
};

}  // namespace stator::continuity
