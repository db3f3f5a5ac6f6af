// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/handoff_course.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "stator/core/random.h"

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;
using State = HandoffCourse::State;
using Step = HandoffCourse::Step;

constexpr uint64_t kId = 77;
constexpr Incarnation kLife{5};
constexpr TimePoint kStart{100s};

uint64_t test_seed() {
  const char* given = std::getenv("STATOR_TEST_SEED");  // NOLINT(concurrency-mt-unsafe): one thread
  return given == nullptr ? 20261122 : std::strtoull(given, nullptr, 10);
}

HandoffCourse::Giver giver(std::string meeting_point = "") {
  return {.worker = {WorkerId(1), 0},
          .life = kLife,
          .kind = "k",
          .meeting_point = std::move(meeting_point)};
}

engine::Handoff offer(uint32_t lease_ms = 30'000, uint32_t computed_ms = 2'000) {
  return {.id = kId,
          .kind = "k",
          .payload = R"({"x":1})",
          .lease_ms = lease_ms,
          .computed_ms = computed_ms};
}

HandoffCourse asked(std::string meeting_point = "") {
  HandoffCourse course;
  course.begin(kId, giver(std::move(meeting_point)), kStart);
  return course;
}

HandoffCourse offered(engine::Handoff with = offer()) {
  HandoffCourse course = asked();
  EXPECT_EQ(course.on_offer(std::move(with)), Step::kRouteAnswer);
  return course;
}

HandoffCourse taking() {
  HandoffCourse course = offered();
  EXPECT_TRUE(course.take(kLife, kStart + 3s).has_value());
  return course;
}

void expect_end(HandoffCourse& course, HandoffEnd how) {
  EXPECT_EQ(course.state(), State::kIdle);
  EXPECT_EQ(course.take_end(), how);
  EXPECT_EQ(course.take_end(), std::nullopt) << "H3: one end";
}

TEST(HandoffCourse, APromptGoesFromOneWorkerToTheOther) {
  HandoffCourse course = offered();

  const auto taken = course.take(kLife, kStart + 3s);

  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(*taken, offer());
  EXPECT_EQ(course.on_accepted(kStart + 3s), Step::kNone);
  course.on_output();
  expect_end(course, HandoffEnd::kUsed);
}

TEST(HandoffCourse, BothWorkersAreToldWhereToMeet) {
  HandoffCourse course = asked("10.0.0.5:8998");

  const auto told = course.take(kLife, kStart);

  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(*told, (engine::Handoff{.id = kId, .kind = "k", .payload = "10.0.0.5:8998"}));
  EXPECT_EQ(course.on_prefill_end(api::FinishReason::kLength), Step::kNone);
  EXPECT_EQ(course.state(), State::kTaking) << "the answer is still to come";
  EXPECT_EQ(course.on_accepted(kStart + 1h), Step::kNone) << "no lease";
  course.on_output();
  expect_end(course, HandoffEnd::kUsed);
}

// The six points at which a worker may die, and what follows.

TEST(HandoffCourse, ThePrefillWorkerDiesBeforeItsResult) {
  HandoffCourse course = asked();
  EXPECT_EQ(course.on_giver_gone(), Step::kStartOver);
  expect_end(course, HandoffEnd::kPrefillLost);
  HandoffCourse refused = asked();
  EXPECT_EQ(refused.on_prefill_lost(), Step::kStartOver);
  expect_end(refused, HandoffEnd::kPrefillLost);
}

TEST(HandoffCourse, ThePrefillWorkerDiesBeforeItsPromptIsSentOn) {
  HandoffCourse course = offered();
  EXPECT_EQ(course.on_giver_gone(), Step::kStartOver);
  expect_end(course, HandoffEnd::kGiverGone);
  for (const std::optional<Incarnation> lives : {std::optional<Incarnation>(), {Incarnation(6)}}) {
    HandoffCourse unseen = offered();
    EXPECT_EQ(unseen.take(lives, kStart + 3s), std::nullopt) << "H2";
    expect_end(unseen, HandoffEnd::kGiverGone);
  }
}

TEST(HandoffCourse, ThePrefillWorkerDiesWhileItsPromptIsFetched) {
  HandoffCourse course = taking();
  EXPECT_EQ(course.on_giver_gone(), Step::kDropAnswer);
  expect_end(course, HandoffEnd::kGiverGone);
  HandoffCourse told = taking();
  told.on_taker_lost(/*fetching=*/true);
  expect_end(told, HandoffEnd::kNotTaken);
  HandoffCourse together = asked("h:1");
  ASSERT_TRUE(together.take(kLife, kStart));
  EXPECT_EQ(together.on_prefill_lost(), Step::kDropAnswer) << "or the other waits for ever";
  expect_end(together, HandoffEnd::kPrefillLost);
}

TEST(HandoffCourse, TheDecodeWorkerDiesBeforeItIsAsked) {
  HandoffCourse course = offered();
  EXPECT_EQ(course.state(), State::kOffered) << "another one may take it";
  EXPECT_TRUE(course.take(kLife, kStart + 3s));
}

TEST(HandoffCourse, TheDecodeWorkerDiesBeforeItsFirstToken) {
  HandoffCourse course = taking();
  course.on_taker_lost(/*fetching=*/false);
  expect_end(course, HandoffEnd::kTakerLost);
}

TEST(HandoffCourse, TheDecodeWorkerDiesLater) {
  HandoffCourse course = taking();
  course.on_output();
  course.on_taker_lost(false);
  expect_end(course, HandoffEnd::kUsed);
}

TEST(HandoffCourse, NothingIsUsedNearTheEndOfItsLease) {
  // Computed for 2 s, then kept for 30 s: sent within half of that, accepted within three quarters.
  const TimePoint kept_from = kStart + 2s;
  HandoffCourse course = offered();
  EXPECT_EQ(course.take(kLife, kept_from + 15s), std::nullopt);
  expect_end(course, HandoffEnd::kTooLate);

  HandoffCourse in_time = offered();
  ASSERT_TRUE(in_time.take(kLife, kept_from + 15s - 1ns));
  EXPECT_EQ(in_time.on_accepted(kept_from + 22500ms - 1ns), Step::kNone);
  EXPECT_EQ(in_time.on_accepted(kept_from + 22500ms), Step::kDropAnswer);
  expect_end(in_time, HandoffEnd::kTooLate);

  HandoffCourse for_ever = offered(offer(0));
  EXPECT_TRUE(for_ever.take(kLife, kStart + 24h));
}

TEST(HandoffCourse, AnAnswerThatIsOverAfterOneTokenNeedsNobodyElse) {
  HandoffCourse course = asked();
  EXPECT_EQ(course.on_prefill_end(api::FinishReason::kStop), Step::kUseAnswer);
  expect_end(course, HandoffEnd::kAnswered);
}

TEST(HandoffCourse, AnOfferThatIsNotOursIsNone) {
  HandoffCourse course = asked();
  EXPECT_EQ(course.on_prefill_end(api::FinishReason::kLength), Step::kStartOver);
  expect_end(course, HandoffEnd::kNothingOffered);
  for (const bool id : {true, false}) {
    engine::Handoff other = offer();
    id ? void(other.id = 78) : void(other.kind = "another");
    HandoffCourse each = asked();
    EXPECT_EQ(each.on_offer(std::move(other)), Step::kStartOver);
    expect_end(each, HandoffEnd::kNothingOffered);
  }
}

/// Any order of events: nothing is taken twice, every beginning has one end, and what is idle stays
/// so.
TEST(HandoffCourse, AnyOrderOfEventsKeepsTheInvariants) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE("STATOR_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  for (int run = 0; run < 20'000; ++run) {
    const bool together = random.below(2) == 0;
    HandoffCourse course = asked(together ? "h:1" : "");
    TimePoint now = kStart;
    int taken = 0;
    int ends = 0;
    for (int i = 0; i < 12; ++i) {
      now += std::chrono::milliseconds(random.below(6'000));
      const State before = course.state();
      switch (random.below(9)) {
        case 0:
          course.on_offer(offer());
          break;
        case 1:
          course.on_prefill_end(random.below(2) == 0 ? api::FinishReason::kLength
                                                     : api::FinishReason::kStop);
          break;
        case 2:
          course.on_prefill_lost();
          break;
        case 3:
          course.on_giver_gone();
          break;
        case 4:
        case 5:
          if (before == State::kOffered || (together && before == State::kPrefilling)) {
            const auto got = course.take(kLife, now);
            taken += got ? 1 : 0;
            EXPECT_TRUE(!got || together || now < kStart + 17s) << "H2";
          }
          break;
        case 6:
          course.on_accepted(now);
          break;
        case 7:
          course.on_output();
          break;
        default:
          course.on_taker_lost(random.below(2) == 0);
          break;
      }
      ends += course.take_end() ? 1 : 0;
      ASSERT_EQ(ends, course.active() ? 0 : 1) << "H3";
      ASSERT_TRUE(before != State::kIdle || course.state() == State::kIdle);
    }
    course.abandon();
    ends += course.take_end() ? 1 : 0;
    ASSERT_EQ(ends, 1);
    ASSERT_LE(taken, 1) << "H1";
  }
}

}  // namespace
}  // namespace stator::frontend
