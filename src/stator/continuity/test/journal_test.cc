// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace stator::continuity {
namespace {

using Step = Journal::Step;
using Verdict = Journal::Verdict;
using Tokens = std::vector<TokenId>;

WorkerKey worker(uint64_t id) {
  return {WorkerId(id), 0};
}

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    stop_.max_tokens = 100;
    stop_.eos_token_ids = {2};
    stop_.stop_token_ids = {50};
  }
  Journal make(JournalLimits limits = {}, Replay replay = Replay::kAlways) {
    return Journal({.prompt_tokens = 10, .stop = &stop_, .replay = replay, .limits = limits});
  }
  static Verdict take(Journal& journal, uint32_t attempt, uint32_t offset, const Tokens& tokens) {
    return journal.take(Attempt(static_cast<uint16_t>(attempt)), offset, tokens).verdict;
  }
  static Tokens output(const Journal& journal) {
    return {journal.output().begin(), journal.output().end()};
  }

  inference::StopConditions stop_;
};

TEST_F(JournalTest, AcceptsContiguousTokensOfTheCurrentAttempt) {
  Journal journal = make();
  EXPECT_TRUE(journal.attempt_is_fresh());
  EXPECT_EQ(take(journal, 0, 0, {11, 12}), Verdict::kAccepted);
  EXPECT_EQ(take(journal, 0, 2, {13}), Verdict::kAccepted);
  EXPECT_EQ(take(journal, 0, 3, {}), Verdict::kAccepted);
  EXPECT_EQ(output(journal), (Tokens{11, 12, 13}));
  EXPECT_FALSE(journal.attempt_is_fresh());
}

TEST_F(JournalTest, TokensOfOurOwnBeginANewAttempt) {
  Journal journal = make();
  take(journal, 0, 0, {11, 12});

  EXPECT_EQ(journal.interject(Tokens{90, 91}), Step::kResubmit);
  EXPECT_EQ(journal.attempt(), Attempt(1));
  EXPECT_TRUE(journal.attempt_is_fresh());
  EXPECT_EQ(take(journal, 0, 2, {13}), Verdict::kStale);
  EXPECT_EQ(take(journal, 1, 4, {14}), Verdict::kAccepted);
  EXPECT_EQ(output(journal), (Tokens{11, 12, 90, 91, 14}));
  EXPECT_EQ(journal.migrations(), 0U);
}

TEST_F(JournalTest, TokensOfOurOwnCountAgainstMaxTokens) {
  stop_.max_tokens = 3;
  Journal journal = make();
  take(journal, 0, 0, {11, 12});
  EXPECT_EQ(journal.interject(Tokens{90, 91}), Step::kFinishLength);

  Journal pinned = make({}, Replay::kNever);
  take(pinned, 0, 0, {11});
  EXPECT_EQ(pinned.interject(Tokens{90}), Step::kGiveUp);
}

TEST_F(JournalTest, AGapBreaksTheAttempt) {
  Journal journal = make();
  EXPECT_EQ(take(journal, 0, 1, {11}), Verdict::kBroken);
  EXPECT_TRUE(journal.output().empty());
}

TEST_F(JournalTest, RepeatedTokensAreDroppedIfTheyAreTheSame) {
  Journal journal = make();
  take(journal, 0, 0, {11, 12, 13});

  EXPECT_EQ(take(journal, 0, 0, {11, 12}), Verdict::kStale);
  const auto overlapping = journal.take(Attempt(0), 2, Tokens{13, 14});
  EXPECT_EQ(overlapping.verdict, Verdict::kAccepted);
  EXPECT_EQ(overlapping.skip, 1U);
  EXPECT_EQ(take(journal, 0, 2, {99, 15}), Verdict::kBroken);
  EXPECT_EQ(output(journal), (Tokens{11, 12, 13, 14}));
}

TEST_F(JournalTest, LateOutputOfALostAttemptIsFenced) {
  Journal journal = make();
  take(journal, 0, 0, {11});
  ASSERT_EQ(journal.lose(Loss::kVanished, worker(1)), Step::kResubmit);

  EXPECT_EQ(journal.attempt(), Attempt(1));
  EXPECT_TRUE(journal.attempt_is_fresh());
  EXPECT_EQ(take(journal, 0, 1, {12}), Verdict::kStale);
  EXPECT_EQ(take(journal, 1, 1, {12}), Verdict::kAccepted);
  EXPECT_EQ(output(journal), (Tokens{11, 12}));
}

TEST_F(JournalTest, NothingIsAcceptedAfterTheEnd) {
  Journal journal = make();
  take(journal, 0, 0, {11});
  journal.finish();
  EXPECT_EQ(take(journal, 0, 1, {12}), Verdict::kStale);
  EXPECT_EQ(journal.lose(Loss::kVanished, worker(1)), Step::kGiveUp);
  EXPECT_EQ(output(journal), (Tokens{11}));
}

TEST_F(JournalTest, GivesUpWhenTheLimitIsSpent) {
  Journal journal = make({.migrations_max = 2});
  EXPECT_EQ(journal.lose(Loss::kVanished, worker(1)), Step::kResubmit);
  EXPECT_EQ(journal.lose(Loss::kStalled, worker(2)), Step::kResubmit);
  EXPECT_EQ(journal.avoided().size(), 2U);
  EXPECT_EQ(journal.lose(Loss::kVanished, worker(3)), Step::kGiveUp);
  EXPECT_TRUE(journal.exhausted());
  EXPECT_EQ(journal.workers_killed(), 2U) << "a stall kills nobody";
}

TEST_F(JournalTest, LimitZeroSwitchesMigrationOff) {
  Journal journal = make({.migrations_max = 0});
  EXPECT_EQ(journal.lose(Loss::kVanished, worker(1)), Step::kGiveUp);
}

TEST_F(JournalTest, RefusalsAndHandOffsDoNotSpendTheLimit) {
  Journal journal = make({.migrations_max = 1, .refusals_max = 3});
  EXPECT_EQ(journal.lose(Loss::kRefused, worker(1)), Step::kResubmit);
  EXPECT_EQ(journal.lose(Loss::kHandedOff, worker(2)), Step::kResubmit);
  EXPECT_EQ(journal.migrations(), 0U);
  EXPECT_EQ(journal.refusals(), 2U);
  EXPECT_EQ(journal.lose(Loss::kVanished, worker(3)), Step::kResubmit);
  EXPECT_EQ(journal.lose(Loss::kRefused, worker(4)), Step::kResubmit);
  EXPECT_EQ(journal.lose(Loss::kRefused, worker(5)), Step::kGiveUp);
}

TEST_F(JournalTest, WhatOnlyLacksItsLastWordIsFinishedHere) {
  Journal full = make();
  take(full, 0, 0, Tokens(100, 11));
  EXPECT_EQ(full.lose(Loss::kVanished, worker(1)), Step::kFinishLength);

  Journal eos = make();
  take(eos, 0, 0, {11, 2});
  EXPECT_EQ(eos.lose(Loss::kVanished, worker(1)), Step::kFinishStop);

  Journal stopped = make({.migrations_max = 0});
  take(stopped, 0, 0, {11, 50});
  EXPECT_EQ(stopped.lose(Loss::kVanished, worker(1)), Step::kFinishStop);
}

TEST_F(JournalTest, AnEosThatDoesNotEndIsReplayed) {
  stop_.ignore_eos = true;
  Journal ignored = make();
  take(ignored, 0, 0, {11, 2});
  EXPECT_EQ(ignored.lose(Loss::kVanished, worker(1)), Step::kResubmit);

  stop_.ignore_eos = false;
  stop_.min_tokens = 5;
  Journal early = make();
  take(early, 0, 0, {11, 2});
  EXPECT_EQ(early.lose(Loss::kVanished, worker(1)), Step::kResubmit);
}

TEST_F(JournalTest, SomeRequestsCannotBeReplayed) {
  Journal pinned = make({}, Replay::kNever);
  EXPECT_EQ(pinned.lose(Loss::kRefused, worker(1)), Step::kGiveUp);
  EXPECT_FALSE(pinned.exhausted());

  Journal shaped = make({}, Replay::kBeforeFirstToken);
  EXPECT_EQ(shaped.lose(Loss::kVanished, worker(1)), Step::kResubmit);
  take(shaped, 1, 0, {11});
  EXPECT_EQ(shaped.lose(Loss::kVanished, worker(2)), Step::kGiveUp);
}

TEST_F(JournalTest, TooLongIsStrictlyLonger) {
  Journal journal = make({.tokens_max = 12});
  take(journal, 0, 0, {11, 12});
  EXPECT_FALSE(journal.too_long());
  EXPECT_EQ(journal.lose(Loss::kVanished, worker(1)), Step::kResubmit);
  take(journal, 1, 2, {13});
  EXPECT_TRUE(journal.too_long());
  EXPECT_EQ(journal.lose(Loss::kVanished, worker(2)), Step::kGiveUp);
}

TEST_F(JournalTest, KilledWorkersAreCountedOnce) {
  Journal journal = make({.migrations_max = 5});
  journal.lose(Loss::kVanished, worker(1));
  journal.lose(Loss::kVanished, worker(1));
  journal.lose(Loss::kVanished, worker(2));
  EXPECT_EQ(journal.workers_killed(), 2U);
  journal.forgive();
  EXPECT_TRUE(journal.avoided().empty());
  EXPECT_EQ(journal.workers_killed(), 2U);
}

// Any mix of losses, late and repeated output: the accepted stream is the undisturbed one.
TEST_F(JournalTest, TheStreamIsTheSameWhateverHappens) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto truth = [](size_t index) { return static_cast<TokenId>(mix64(index) % 1000 + 100); };
    Journal journal = make({.migrations_max = 1000, .refusals_max = 1000});
    struct Late {
      Attempt attempt;
      uint32_t offset;
    };
    std::vector<Late> late;
    while (journal.generated() < 60) {
      const uint64_t dice = random.below(10);
      uint32_t begin = journal.generated();
      if (dice == 0) {
        late.push_back({journal.attempt(), begin});
        const auto loss = static_cast<Loss>(random.below(5));
        ASSERT_EQ(journal.lose(loss, worker(random.below(9))), Step::kResubmit);
        continue;
      }
      Attempt attempt = journal.attempt();
      if (dice == 1 && !late.empty()) {
        attempt = late.back().attempt;
        begin = late.back().offset;
      } else if (dice == 2) {
        begin -= static_cast<uint32_t>(random.below(begin + 1));
      }
      Tokens tokens;
      for (uint64_t i = 0; i <= random.below(4); ++i) {
        tokens.push_back(truth(begin + i));
      }
      ASSERT_NE(journal.take(attempt, begin, tokens).verdict, Verdict::kBroken);
    }
    for (size_t i = 0; i < journal.generated(); ++i) {
      ASSERT_EQ(journal.output()[i], truth(i)) << i;
    }
  }
}

TEST(MigrationBackoff, TheFirstIsImmediateAndTheRestBounded) {
  Random random(7);
  EXPECT_EQ(migration_backoff(1, random), Duration::zero());
  Duration longest{};
  for (uint32_t nth = 2; nth < 200; ++nth) {
    const Duration wait = migration_backoff(nth, random);
    EXPECT_LE(wait, std::chrono::seconds(1));
    EXPECT_LE(wait, std::chrono::milliseconds(25) * (1LL << std::min(nth, 10U)));
    longest = std::max(longest, wait);
  }
  EXPECT_GT(longest, std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace stator::continuity
