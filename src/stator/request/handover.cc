// SPDX-License-Identifier: Apache-2.0
#include "stator/request/handover.h"

#include <array>
#include <utility>

#include "stator/core/assert.h"

namespace stator::request {
namespace {

// H2: parts of the lease, in percent.
constexpr int kSendWithin = 50;
constexpr int kAcceptWithin = 75;

}  // namespace

std::string_view describe(HandoverEnd end) {
  constexpr std::array<std::string_view, kHandoverEndCount> kNames = {
      "used",       "answered_by_prefill", "prefill_lost", "nothing_offered", "too_late",
      "giver_gone", "not_taken",           "taker_lost",   "abandoned"};
  return kNames[static_cast<size_t>(end)];
}

void Handover::begin(uint64_t id, Giver giver, TimePoint now) {
  STATOR_ASSERT(!active(), "H3: a hand-off begins when the last one has ended");
  id_ = id;
  giver_ = std::move(giver);
  asked_ = now;
  offer_ = {};
  end_.reset();
  state_ = State::kPrefilling;
}

Handover::Step Handover::end(HandoverEnd how, Step step) {
  if (!active()) {
    return Step::kNone;
  }
  state_ = State::kIdle;
  offer_ = {};
  end_ = how;
  return step;
}

Handover::Step Handover::end_before_answer(HandoverEnd how) {
  return end(how, state_ == State::kTaking ? Step::kDropAnswer : Step::kStartOver);
}

Handover::Step Handover::on_offer(inference::Handoff handoff) {
  if (state_ != State::kPrefilling || together()) {
    return Step::kNone;
  }
  if (handoff.id != id_ || handoff.kind != giver_.kind) {
    return end_before_answer(HandoverEnd::kNothingOffered);
  }
  offer_ = std::move(handoff);
  state_ = State::kOffered;
  return Step::kRouteAnswer;
}

Handover::Step Handover::on_prefill_end(inference::FinishReason finish) {
  if (state_ != State::kPrefilling || together()) {
    return Step::kNone;  // its part is done, the answer is the other one's
  }
  if (finish == inference::FinishReason::kStop) {
    return end(HandoverEnd::kAnswered, Step::kUseAnswer);
  }
  return end_before_answer(HandoverEnd::kNothingOffered);
}

Handover::Step Handover::on_prefill_lost() {
  return state_ == State::kPrefilling || (state_ == State::kTaking && together())
             ? end_before_answer(HandoverEnd::kPrefillLost)
             : Step::kNone;
}

Handover::Step Handover::on_giver_gone() {
  return state_ == State::kPrefilling ? end_before_answer(HandoverEnd::kPrefillLost)
                                      : end_before_answer(HandoverEnd::kGiverGone);
}

/// A lease of 0 ends never. It began when the giver had computed the prompt, not before
/// `computed_ms` were over.
std::optional<TimePoint> Handover::part_of_lease(int percent) const {
  if (offer_.lease_ms == 0) {
    return std::nullopt;
  }
  const std::chrono::milliseconds lease(offer_.lease_ms);
  return asked_ + std::chrono::milliseconds(offer_.computed_ms) + lease * percent / 100;
}

std::optional<inference::Handoff> Handover::take(std::optional<Incarnation> giver_lives,
                                                 TimePoint now) {
  STATOR_ASSERT(state_ == State::kOffered || (state_ == State::kPrefilling && together()),
                "H1: taken once, when it is there");
  if (giver_lives != giver_.life) {
    end(HandoverEnd::kGiverGone);
    return std::nullopt;
  }
  if (const auto limit = part_of_lease(kSendWithin); limit && now >= *limit) {
    end(HandoverEnd::kTooLate);
    return std::nullopt;
  }
  state_ = State::kTaking;
  if (together()) {
    return inference::Handoff{.id = id_, .kind = giver_.kind, .payload = giver_.meeting_point};
  }
  inference::Handoff taken = offer_;
  taken.payload = std::move(offer_.payload);  // the times are still needed
  offer_.payload.clear();
  return taken;
}

Handover::Step Handover::on_accepted(TimePoint now) {
  const auto limit = part_of_lease(kAcceptWithin);
  return state_ == State::kTaking && limit && now >= *limit
             ? end(HandoverEnd::kTooLate, Step::kDropAnswer)
             : Step::kNone;
}

void Handover::on_output() {
  if (state_ == State::kTaking) {
    end(HandoverEnd::kUsed);
  }
}

void Handover::on_taker_lost(bool fetching) {
  if (state_ == State::kTaking) {
    end(fetching ? HandoverEnd::kNotTaken : HandoverEnd::kTakerLost);
  }
}

std::optional<HandoverEnd> Handover::take_end() {
  return std::exchange(end_, std::nullopt);
}

}  // namespace stator::request
