// SPDX-License-Identifier: Apache-2.0
#include "stator/request/handover.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "stator/core/random.h"

namespace stator::request {
namespace {

using namespace std::chrono_literals;
using State = Handover::State;
using Step = Handover::Step;

constexpr uint64_t kId = 77;
constexpr Incarnation kLife{5};
constexpr TimePoint kStart{100s};

uint64_t test_seed() {
  const char* given = std::getenv("STATOR_TEST_SEED");  // NOLINT(concurrency-mt-unsafe): one thread
  return given == nullptr ? 20261122 : std::strtoull(given, nullptr, 10);
}

Handover::Giver giver(std::string meeting_point = "") {
  return {.worker = {WorkerId(1), 0},
          .life = kLife,
          .kind = "k",
          .meeting_point = std::move(meeting_point)};
}

inference::Handoff offer(uint32_t lease_ms = 30'000, uint32_t computed_ms = 2'000) {
  return {.id = kId,
          .kind = "k",
          .payload = R"({"x":1})",
          .lease_ms = lease_ms,
          .computed_ms = computed_ms};
}

Handover asked(std::string meeting_point = "") {
  Handover handover;
  handover.begin(kId, giver(std::move(meeting_point)), kStart);
  return handover;
}

Handover offered(inference::Handoff with = offer()) {
  Handover handover = asked();
  EXPECT_EQ(handover.on_offer(std::move(with)), Step::kRouteAnswer);
  return handover;
}

Handover taking() {
  Handover handover = offered();
  EXPECT_TRUE(handover.take(kLife, kStart + 3s).has_value());
  return handover;
}

void expect_end(Handover& handover, HandoverEnd how) {
  EXPECT_EQ(handover.state(), State::kIdle);
  EXPECT_EQ(handover.take_end(), how);
  EXPECT_EQ(handover.take_end(), std::nullopt) << "H3: one end";
}

TEST(Handover, APromptGoesFromOneWorkerToTheOther) {
  Handover handover = offered();

  const auto taken = handover.take(kLife, kStart + 3s);

  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(*taken, offer());
  EXPECT_EQ(handover.on_accepted(kStart + 3s), Step::kNone);
  handover.on_output();
  expect_end(handover, HandoverEnd::kUsed);
}

TEST(Handover, BothWorkersAreToldWhereToMeet) {
  Handover handover = asked("10.0.0.5:8998");

  const auto told = handover.take(kLife, kStart);

  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(*told, (inference::Handoff{.id = kId, .kind = "k", .payload = "10.0.0.5:8998"}));
  EXPECT_EQ(handover.on_prefill_end(inference::FinishReason::kLength), Step::kNone);
  EXPECT_EQ(handover.state(), State::kTaking) << "the answer is still to come";
  EXPECT_EQ(handover.on_accepted(kStart + 1h), Step::kNone) << "no lease";
  handover.on_output();
  expect_end(handover, HandoverEnd::kUsed);
}

// The six points at which a worker may die, and what follows.

TEST(Handover, ThePrefillWorkerDiesBeforeItsResult) {
  Handover handover = asked();
  EXPECT_EQ(handover.on_giver_gone(), Step::kStartOver);
  expect_end(handover, HandoverEnd::kPrefillLost);
  Handover refused = asked();
  EXPECT_EQ(refused.on_prefill_lost(), Step::kStartOver);
  expect_end(refused, HandoverEnd::kPrefillLost);
}

TEST(Handover, ThePrefillWorkerDiesBeforeItsPromptIsSentOn) {
  Handover handover = offered();
  EXPECT_EQ(handover.on_giver_gone(), Step::kStartOver);
  expect_end(handover, HandoverEnd::kGiverGone);
  for (const std::optional<Incarnation> lives : {std::optional<Incarnation>(), {Incarnation(6)}}) {
    Handover unseen = offered();
    EXPECT_EQ(unseen.take(lives, kStart + 3s), std::nullopt) << "H2";
    expect_end(unseen, HandoverEnd::kGiverGone);
  }
}

TEST(Handover, ThePrefillWorkerDiesWhileItsPromptIsFetched) {
  Handover handover = taking();
  EXPECT_EQ(handover.on_giver_gone(), Step::kDropAnswer);
  expect_end(handover, HandoverEnd::kGiverGone);
  Handover told = taking();
  told.on_taker_lost(/*fetching=*/true);
  expect_end(told, HandoverEnd::kNotTaken);
  Handover together = asked("h:1");
  ASSERT_TRUE(together.take(kLife, kStart));
  EXPECT_EQ(together.on_prefill_lost(), Step::kDropAnswer) << "or the other waits for ever";
  expect_end(together, HandoverEnd::kPrefillLost);
}

TEST(Handover, TheDecodeWorkerDiesBeforeItIsAsked) {
  Handover handover = offered();
  EXPECT_EQ(handover.state(), State::kOffered) << "another one may take it";
  EXPECT_TRUE(handover.take(kLife, kStart + 3s));
}

TEST(Handover, TheDecodeWorkerDiesBeforeItsFirstToken) {
  Handover handover = taking();
  handover.on_taker_lost(/*fetching=*/false);
  expect_end(handover, HandoverEnd::kTakerLost);
}

TEST(Handover, TheDecodeWorkerDiesLater) {
  Handover handover = taking();
  handover.on_output();
  handover.on_taker_lost(false);
  expect_end(handover, HandoverEnd::kUsed);
}

TEST(Handover, NothingIsUsedNearTheEndOfItsLease) {
  // Computed for 2 s, then kept for 30 s: sent within half of that, accepted within three quarters.
  const TimePoint kept_from = kStart + 2s;
  Handover handover = offered();
  EXPECT_EQ(handover.take(kLife, kept_from + 15s), std::nullopt);
  expect_end(handover, HandoverEnd::kTooLate);

  Handover in_time = offered();
  ASSERT_TRUE(in_time.take(kLife, kept_from + 15s - 1ns));
  EXPECT_EQ(in_time.on_accepted(kept_from + 22500ms - 1ns), Step::kNone);
  EXPECT_EQ(in_time.on_accepted(kept_from + 22500ms), Step::kDropAnswer);
  expect_end(in_time, HandoverEnd::kTooLate);

  Handover for_ever = offered(offer(0));
  EXPECT_TRUE(for_ever.take(kLife, kStart + 24h));
}

TEST(Handover, AnAnswerThatIsOverAfterOneTokenNeedsNobodyElse) {
  Handover handover = asked();
  EXPECT_EQ(handover.on_prefill_end(inference::FinishReason::kStop), Step::kUseAnswer);
  expect_end(handover, HandoverEnd::kAnswered);
}

TEST(Handover, AnOfferThatIsNotOursIsNone) {
  Handover handover = asked();
  EXPECT_EQ(handover.on_prefill_end(inference::FinishReason::kLength), Step::kStartOver);
  expect_end(handover, HandoverEnd::kNothingOffered);
  for (const bool id : {true, false}) {
    inference::Handoff other = offer();
    id ? void(other.id = 78) : void(other.kind = "another");
    Handover each = asked();
    EXPECT_EQ(each.on_offer(std::move(other)), Step::kStartOver);
    expect_end(each, HandoverEnd::kNothingOffered);
  }
}

/// Any order of events: nothing is taken twice, every beginning has one end, and what is idle stays
/// so.
TEST(Handover, AnyOrderOfEventsKeepsTheInvariants) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE("STATOR_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  for (int run = 0; run < 20'000; ++run) {
    const bool together = random.below(2) == 0;
    Handover handover = asked(together ? "h:1" : "");
    TimePoint now = kStart;
    int taken = 0;
    int ends = 0;
    for (int i = 0; i < 12; ++i) {
      now += std::chrono::milliseconds(random.below(6'000));
      const State before = handover.state();
      switch (random.below(9)) {
        case 0:
          handover.on_offer(offer());
          break;
        case 1:
          handover.on_prefill_end(random.below(2) == 0 ? inference::FinishReason::kLength
                                                       : inference::FinishReason::kStop);
          break;
        case 2:
          handover.on_prefill_lost();
          break;
        case 3:
          handover.on_giver_gone();
          break;
        case 4:
        case 5:
          if (before == State::kOffered || (together && before == State::kPrefilling)) {
            const auto got = handover.take(kLife, now);
            taken += got ? 1 : 0;
            EXPECT_TRUE(!got || together || now < kStart + 17s) << "H2";
          }
          break;
        case 6:
          handover.on_accepted(now);
          break;
        case 7:
          handover.on_output();
          break;
        default:
          handover.on_taker_lost(random.below(2) == 0);
          break;
      }
      ends += handover.take_end() ? 1 : 0;
      ASSERT_EQ(ends, handover.active() ? 0 : 1) << "H3";
      ASSERT_TRUE(before != State::kIdle || handover.state() == State::kIdle);
    }
    handover.abandon();
    ends += handover.take_end() ? 1 : 0;
    ASSERT_EQ(ends, 1);
    ASSERT_LE(taken, 1) << "H1";
  }
}

}  // namespace
}  // namespace stator::request
