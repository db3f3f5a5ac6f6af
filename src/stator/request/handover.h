// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/inference/handoff.h"
#include "stator/inference/sampling.h"

namespace stator::request {

/// How a hand-off ended; the label of its counter.
enum class HandoverEnd : uint8_t {
  kUsed,            ///< the answer began with the prompt that was handed over
  kAnswered,        ///< the prefill worker's one token was the whole answer
  kPrefillLost,     ///< the prefill worker refused, failed or vanished
  kNothingOffered,  ///< it answered, but gave nothing to go on from
  kTooLate,         ///< the lease might have run out
  kGiverGone,       ///< the prefill worker went before its prompt was fetched
  kNotTaken,        ///< the decode worker could not take it
  kTakerLost,       ///< the decode worker refused, stalled or vanished
  kAbandoned,       ///< the client left, or the request failed for another reason
};
inline constexpr size_t kHandoverEndCount = 9;
std::string_view describe(HandoverEnd end);

/// One prompt on its way from a prefill worker to a decode worker, from the moment the first is
/// asked. A pure core: events and the time in, the next step out.
///
///           begin()              on_offer()            take()              on_output()
///   kIdle ───────────► kPrefilling ─────────► kOffered ────────► kTaking ──────────────► kIdle
///                          │  together: take()                      ▲
///                          └────────────────────────────────────────┘
///   any ── a loss, a doubt, abandon() ──► kIdle
///
/// H1  What a giver offers leaves take() at most once.
/// H2  Nothing leaves it after half of the lease, or when the giver's life has ended; the first
///     output counts only if the taker accepted within three quarters of it. A worker keeps what it
///     accepted for seconds at most, so nothing is fetched after the lease.
/// H3  Each begin() has exactly one end, reported by take_end().
class Handover {
 public:
  struct Giver {
    WorkerKey worker;
    Incarnation life;
    std::string kind;
    std::string meeting_point;  ///< not empty: both workers are asked at once
  };
  enum class State : uint8_t { kIdle, kPrefilling, kOffered, kTaking };
  enum class Step : uint8_t {
    kNone,
    kRouteAnswer,  ///< choose a decode worker and take() for it
    kUseAnswer,    ///< what the prefill worker said is the answer
    kStartOver,    ///< nothing was sent to a decode worker yet: the request has to begin again
    kDropAnswer,   ///< the decode worker's work is worthless: cancel it, then begin again
  };

  Handover() = default;
  /// `id` names the transfer; the giver is asked now, or, if both are, when it is taken.
  void begin(uint64_t id, Giver giver, TimePoint now);

  State state() const { return state_; }
  bool active() const { return state_ != State::kIdle; }
  bool together() const { return !giver_.meeting_point.empty(); }
  uint64_t id() const { return id_; }
  TimePoint asked() const { return asked_; }
  const Giver& giver() const { return giver_; }

  /// The giver's last word came with an offer.
  Step on_offer(inference::Handoff handoff);
  /// It came without one.
  Step on_prefill_end(inference::FinishReason finish);
  Step on_prefill_lost();
  /// The giver's connection broke, or its engine stopped answering.
  Step on_giver_gone();
  /// What the decode worker gets, to be sent at once. None: it is too late, or another life of the
  /// giver; kIdle then. Both at once: what both get.
  std::optional<inference::Handoff> take(std::optional<Incarnation> giver_lives, TimePoint now);
  /// The decode worker has accepted.
  Step on_accepted(TimePoint now);
  /// The decode worker's first token: the prompt was fetched.
  void on_output();
  /// The decode worker is no longer at work. `fetching`: it says that the prompt did not arrive.
  void on_taker_lost(bool fetching);
  void abandon() { end(HandoverEnd::kAbandoned); }

  /// How it ended, once.
  std::optional<HandoverEnd> take_end();

 private:
  Step end(HandoverEnd how, Step step = Step::kNone);
  Step end_before_answer(HandoverEnd how);
  std::optional<TimePoint> part_of_lease(int percent) const;

  State state_ = State::kIdle;
  uint64_t id_ = 0;
  Giver giver_;
  TimePoint asked_{};
  inference::Handoff offer_;
  std::optional<HandoverEnd> end_;
};

}  // namespace stator::request
