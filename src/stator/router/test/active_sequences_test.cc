// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load/active_sequences.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "stator/core/random.h"

namespace stator::router {
namespace {

using namespace std::chrono_literals;
using blocks::SequenceHash;

constexpr uint32_t kBlock = 16;

/// A chain of `length` blocks whose first `shared` are those of every other chain of `family`.
std::vector<SequenceHash> chain(uint64_t family, uint64_t own, uint32_t shared, uint32_t length) {
  std::vector<SequenceHash> hashes;
  uint64_t hash = family;
  for (uint32_t i = 0; i < length; ++i) {
    hash = mix64(hash ^ (i < shared ? 0 : mix64(own + 1000)));
    hashes.emplace_back(hash);
  }
  return hashes;
}

class ActiveSequencesTest : public ::testing::Test {
 protected:
  ActiveSequences::Ticket add(LoadSlot slot, std::span<const SequenceHash> prompt,
                              uint32_t expected = 0) {
    Booking booking{.slot = slot,
                    .prompt_tokens = static_cast<uint32_t>(prompt.size()) * kBlock,
                    .prompt = prompt};
    if (expected > 0) {
      booking.expected_output_tokens = expected;
    }
    return loads_.add(booking, now_);
  }

  /// One after the other, on a worker that takes `slowness` times 20 ms and 0.3 ms a prompt token,
  /// and 8 ms a further token.
  void run_requests(LoadSlot slot, uint32_t count, double slowness) {
    const auto time = [&](double ms) {
      return std::chrono::duration_cast<Duration>(
          std::chrono::duration<double, std::milli>(ms * slowness));
    };
    for (uint32_t i = 1; i <= count; ++i) {
      const uint32_t tokens = 100 * (i % 10 + 1);
      const auto ticket =
          loads_.add({.slot = slot, .prompt_tokens = tokens, .prefill_tokens = tokens}, now_);
      now_ += time(20 + tokens * 0.3);
      loads_.first_token(ticket, now_);
      now_ += time(31 * 8);
      loads_.output_grew(ticket, 32, 2, now_);
      loads_.free(ticket, now_);
    }
  }

  void run_slow_and_fast(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      run_requests(a_, 2, 3);
      run_requests(b_, 2, 1);
    }
  }
  double times_slower() const {
    return loads_.rates().of(a_).ttft_ms_per_token / loads_.rates().of(b_).ttft_ms_per_token;
  }

  double active_blocks(LoadSlot slot) const { return loads_.row(slot, now_).active_blocks; }

  ActiveSequences loads_;
  TimePoint now_{};
  LoadSlot a_ = loads_.add_worker();
  LoadSlot b_ = loads_.add_worker();
};

TEST_F(ActiveSequencesTest, ASharedPrefixCountsOncePerWorker) {
  const auto first = add(a_, chain(1, 1, 10, 15));
  const auto second = add(a_, chain(1, 2, 10, 15));
  EXPECT_EQ(active_blocks(a_), 20);
  EXPECT_EQ(active_blocks(b_), 0);
  const auto elsewhere = add(b_, chain(1, 1, 10, 15));
  EXPECT_EQ(active_blocks(b_), 15);
  loads_.free(first, now_);
  EXPECT_EQ(active_blocks(a_), 15);
  loads_.free(second, now_);
  loads_.free(elsewhere, now_);
  EXPECT_EQ(active_blocks(a_), 0);
  EXPECT_EQ(loads_.trie_nodes(), 0U);
}

TEST_F(ActiveSequencesTest, TellsHowMuchOfAPromptIsInUseAlready) {
  const auto first = add(a_, chain(1, 1, 10, 15));
  const auto second = add(b_, chain(1, 2, 10, 12));
  std::vector<uint32_t> depths;
  loads_.find_held(chain(1, 1, 10, 30), depths);
  EXPECT_EQ(depths[a_], 15U);
  EXPECT_EQ(depths[b_], 10U);
  loads_.find_held(chain(1, 9, 4, 8), depths);
  EXPECT_EQ(depths[a_], 4U);
  loads_.find_held(chain(2, 1, 4, 8), depths);
  EXPECT_EQ(depths[a_], 0U);
  loads_.free(first, now_);
  loads_.free(second, now_);
}

TEST_F(ActiveSequencesTest, ARequestNearItsEndWeighsLittle) {
  const auto ticket = add(a_, chain(1, 1, 0, 4), 100);
  EXPECT_EQ(active_blocks(a_), 4);
  loads_.first_token(ticket, now_);
  loads_.output_grew(ticket, 50, 4, now_);
  EXPECT_EQ(active_blocks(a_), 4) << "four output and four exclusive blocks, half each";
  loads_.output_grew(ticket, 200, 9, now_);
  EXPECT_EQ(active_blocks(a_), 0) << "longer than expected: any moment now";
  loads_.free(ticket, now_);
  EXPECT_EQ(active_blocks(a_), 0);
}

TEST_F(ActiveSequencesTest, WhatOthersShareKeepsItsWeight) {
  const auto ending = add(a_, chain(1, 1, 6, 10), 100);
  const auto other = add(a_, chain(1, 2, 6, 10));
  loads_.output_grew(ending, 100, 0, now_);
  EXPECT_EQ(active_blocks(a_), 10) << "only its own four blocks are on their way out";
  loads_.free(other, now_);
  EXPECT_EQ(active_blocks(a_), 0) << "now all ten are";
  loads_.free(ending, now_);
}

TEST_F(ActiveSequencesTest, BlocksThatAreNotSharedCountTwice) {
  const auto prompt = chain(1, 1, 0, 5);
  const auto first =
      loads_.add({.slot = a_, .prompt_tokens = 80, .prompt = prompt, .shares_prefix = false}, now_);
  const auto second =
      loads_.add({.slot = a_, .prompt_tokens = 80, .prompt = prompt, .shares_prefix = false}, now_);
  EXPECT_EQ(active_blocks(a_), 10);
  loads_.free(first, now_);
  loads_.free(second, now_);
  EXPECT_EQ(active_blocks(a_), 0);
}

TEST_F(ActiveSequencesTest, APartialLastBlockCounts) {
  const auto prompt = chain(1, 1, 0, 2);
  const auto ticket = loads_.add({.slot = a_, .prompt_tokens = 33, .prompt = prompt}, now_);
  EXPECT_EQ(active_blocks(a_), 3);
  loads_.free(ticket, now_);
}

TEST_F(ActiveSequencesTest, APredictedPromptShrinksWithTime) {
  const auto ticket = loads_.add(
      {.slot = a_, .prompt_tokens = 1000, .prefill_tokens = 1000, .predicted_prefill = 100ms},
      now_);
  const std::array slots = {b_, a_};
  std::array<LoadRow, 2> rows;
  loads_.read(slots, now_ + 25ms, rows);
  EXPECT_EQ(rows[0].prefill_tokens, 0);
  EXPECT_EQ(rows[1].prefill_tokens, 750);
  loads_.free(ticket, now_);
  loads_.read(slots, now_, rows);
  EXPECT_EQ(rows[1].prefill_tokens, 0);
}

TEST_F(ActiveSequencesTest, EqualWorkersLookEqualWhateverTheyHappenToDo) {
  for (int i = 0; i < 100; ++i) {
    run_requests(a_, 2, 1.15);
    run_requests(b_, 2, 0.95);
  }
  EXPECT_EQ(loads_.rates().of(a_), loads_.rates().of(b_));
}

TEST_F(ActiveSequencesTest, AWorkerOfHalfTheSpeedIsFoundOut) {
  for (int i = 0; i < 100; ++i) {
    run_requests(a_, 2, 2);
    run_requests(b_, 2, 1);
  }
  const WorkerRates::Rates slow = loads_.rates().of(a_);
  const WorkerRates::Rates fast = loads_.rates().of(b_);
  EXPECT_NEAR(slow.ttft_ms_per_token / fast.ttft_ms_per_token, 2, 0.1);
  EXPECT_NEAR(slow.itl_base_ms / fast.itl_base_ms, 2, 0.1);

  for (int i = 0; i < 500; ++i) {
    run_requests(a_, 2, 1);
    run_requests(b_, 2, 1);
  }
  EXPECT_EQ(loads_.rates().of(a_), loads_.rates().of(b_)) << "what was long ago is forgotten";
}

TEST_F(ActiveSequencesTest, AWorkerThatGetsNoRequestsIsNotSlowForGood) {
  loads_.keep_grid();
  run_slow_and_fast(100);
  ASSERT_GT(times_slower(), 2.5);
  EXPECT_EQ(loads_.grid()->floors().size(), 2U);

  for (int second = 0; second < 30; ++second) {
    now_ += 1s;
    loads_.age_rates(now_);
  }
  EXPECT_EQ(times_slower(), 1);
  EXPECT_EQ(loads_.grid()->floors().size(), 1U) << "the grid hears of it, too";
}

TEST_F(ActiveSequencesTest, OneRequestTellsAWorkerThatIsSlowByNature) {
  run_slow_and_fast(100);
  now_ += 60s;
  loads_.age_rates(now_);
  ASSERT_EQ(times_slower(), 1);

  run_requests(b_, 1, 1);
  run_requests(a_, 1, 3);
  EXPECT_GT(times_slower(), 2);
}

TEST_F(ActiveSequencesTest, AFewRequestsTellAWorkerThatHasRecovered) {
  run_slow_and_fast(100);
  for (int i = 0; i < 60; ++i) {
    run_requests(a_, 1, 1);
    run_requests(b_, 1, 1);
  }
  EXPECT_LT(times_slower(), 1.5);
}

TEST_F(ActiveSequencesTest, AnotherRoutersBookingIsLoadButTeachesNothing) {
  const WorkerRates::Rates before = loads_.rates().of(a_);

  const auto ticket = loads_.add(
      {.slot = a_, .prompt_tokens = 160, .prefill_tokens = 160, .announced = false}, now_);
  EXPECT_EQ(loads_.row(a_, now_).prefill_tokens, 160);
  EXPECT_EQ(loads_.first_token(ticket, now_), std::nullopt) << "both may be heard at once";

  EXPECT_EQ(loads_.row(a_, now_).prefill_tokens, 0);
  EXPECT_EQ(loads_.row(a_, now_).active_blocks, 10);
  loads_.free(ticket, now_);
  EXPECT_EQ(loads_.row(a_, now_).active_blocks, 0);
  EXPECT_EQ(loads_.rates().of(a_), before);
}

TEST_F(ActiveSequencesTest, LearnsHowFastAWorkerIs) {
  run_requests(a_, 200, 1);
  const WorkerRates::Rates learned = loads_.rates().of(a_);
  EXPECT_NEAR(learned.ttft_base_ms, 20, 0.5);
  EXPECT_NEAR(learned.ttft_ms_per_token, 0.3, 0.005);
  EXPECT_NEAR(learned.itl_base_ms + learned.itl_ms_per_request, 8, 0.1);
  const LoadSlot newcomer = loads_.add_worker();
  EXPECT_NEAR(loads_.rates().of(newcomer).ttft_ms_per_token, 0.3, 0.005)
      << "a new one starts as the average of the others";
}

/// The same bookkeeping with sets, to compare with.
struct Model {
  std::map<SequenceHash, int> prompt;
  int64_t other = 0;
  int64_t prefill = 0;
  int64_t requests = 0;
};

TEST_F(ActiveSequencesTest, AgreesWithPlainSetsUnderRandomOperations) {
  struct Live {
    ActiveSequences::Ticket ticket;
    LoadSlot slot = 0;
    std::vector<SequenceHash> prompt;
    int64_t own = 0;
    uint32_t prefill = 0;
    uint32_t output = 0;
  };
  Random random(20);
  std::map<LoadSlot, Model> models;
  std::vector<Live> live;
  const auto drop = [&](size_t i) {
    Live& gone = live[i];
    Model& model = models[gone.slot];
    loads_.free(gone.ticket, now_);
    for (const SequenceHash hash : gone.prompt) {
      model.prompt[hash] -= 1;
      if (model.prompt[hash] == 0) {
        model.prompt.erase(hash);
      }
    }
    model.other -= gone.own;
    model.prefill -= gone.prefill;
    --model.requests;
    std::swap(gone, live.back());
    live.pop_back();
  };
  for (int step = 0; step < 30'000; ++step) {
    const uint64_t action = random.below(10);
    if (action < 5 && live.size() < 200) {
      const LoadSlot slot = random.below(2) == 0 ? a_ : b_;
      const auto shared = static_cast<uint32_t>(random.below(12));
      const auto prompt = chain(random.below(3), random.below(6), shared,
                                shared + static_cast<uint32_t>(random.below(8)));
      const auto prefill = static_cast<uint32_t>(random.below(100));
      Live entry{.slot = slot, .prompt = prompt, .own = 1, .prefill = prefill};
      entry.ticket = loads_.add({.slot = slot,
                                 .prompt_tokens = static_cast<uint32_t>(prompt.size()) * kBlock + 1,
                                 .prefill_tokens = prefill,
                                 .prompt = prompt},
                                now_);
      Model& model = models[slot];
      for (const SequenceHash hash : prompt) {
        ++model.prompt[hash];
      }
      ++model.other;
      model.prefill += prefill;
      ++model.requests;
      live.push_back(std::move(entry));
    } else if (!live.empty()) {
      const size_t i = random.below(live.size());
      if (action < 7) {
        loads_.first_token(live[i].ticket, now_);
        models[live[i].slot].prefill -= std::exchange(live[i].prefill, 0);
      } else if (action < 8) {
        live[i].output += 20;
        loads_.output_grew(live[i].ticket, live[i].output, 1, now_);
        ++live[i].own;
        ++models[live[i].slot].other;
      } else {
        drop(i);
      }
    }
    for (const LoadSlot slot : {a_, b_}) {
      const Model& model = models[slot];
      ASSERT_EQ(active_blocks(slot),
                static_cast<double>(model.prompt.size()) + static_cast<double>(model.other));
      ASSERT_EQ(loads_.row(slot, now_).prefill_tokens, static_cast<double>(model.prefill));
      ASSERT_EQ(loads_.row(slot, now_).active_requests, static_cast<double>(model.requests));
    }
  }
  while (!live.empty()) {
    drop(live.size() - 1);
  }
  EXPECT_EQ(active_blocks(a_), 0);
  EXPECT_EQ(active_blocks(b_), 0);
  EXPECT_EQ(loads_.total_requests(), 0);
  EXPECT_EQ(loads_.trie_nodes(), 0U);
}

TEST_F(ActiveSequencesTest, WeightedBlocksReturnToZeroToo) {
  Random random(21);
  std::vector<ActiveSequences::Ticket> live;
  for (int step = 0; step < 20'000; ++step) {
    if (live.size() < 50 && random.below(2) == 0) {
      live.push_back(
          add(a_, chain(1, random.below(9), 5, 5 + static_cast<uint32_t>(random.below(9))), 77));
    } else if (!live.empty()) {
      const size_t i = random.below(live.size());
      if (random.below(3) != 0) {
        loads_.output_grew(live[i], static_cast<uint32_t>(random.below(90)), 1, now_);
      } else {
        loads_.free(live[i], now_);
        std::swap(live[i], live.back());
        live.pop_back();
      }
    }
    ASSERT_GE(active_blocks(a_), 0);
  }
  for (const auto ticket : live) {
    loads_.free(ticket, now_);
  }
  EXPECT_EQ(active_blocks(a_), 0);
}

TEST(PrefillQueue, WithoutPredictionsCountsInFullUntilTheFirstToken) {
  PrefillQueue queue;
  queue.add(1, 1000, {}, TimePoint());
  EXPECT_EQ(queue.tokens_left(TimePoint(10s)), 1000);
  EXPECT_EQ(queue.remove(1, TimePoint(10s)), 1000U);
  EXPECT_EQ(queue.remove(1, TimePoint(10s)), 0U);
  EXPECT_EQ(queue.tokens_left(TimePoint(10s)), 0);
}

TEST(PrefillQueue, TheFrontShrinksWithItsPredictedTime) {
  PrefillQueue queue;
  queue.add(1, 4096, 800ms, TimePoint());
  EXPECT_EQ(queue.tokens_left(TimePoint(200ms)), 3072);
  EXPECT_EQ(queue.tokens_left(TimePoint(2s)), 0);
}

TEST(PrefillQueue, SurplusTimeGoesToTheNextWhenAllArePredicted) {
  PrefillQueue queue;
  queue.add(1, 100, 100ms, TimePoint());
  queue.add(2, 200, 100ms, TimePoint());
  EXPECT_EQ(queue.tokens_left(TimePoint(50ms)), 250);
  EXPECT_EQ(queue.tokens_left(TimePoint(150ms)), 100);
  queue.add(3, 70, {}, TimePoint());
  EXPECT_EQ(queue.tokens_left(TimePoint(150ms)), 270) << "only the front's time is known to count";
}

TEST(PrefillQueue, ANewFrontStartsWhenItBecomesOne) {
  PrefillQueue queue;
  queue.add(1, 100, 100ms, TimePoint());
  queue.add(2, 200, 100ms, TimePoint());
  queue.remove(1, TimePoint(400ms));
  EXPECT_EQ(queue.tokens_left(TimePoint(400ms)), 200);
  EXPECT_EQ(queue.tokens_left(TimePoint(450ms)), 100);
}

TEST(PrefillQueue, RemovingALaterOneTakesItsTimeAway) {
  PrefillQueue queue;
  queue.add(1, 100, 100ms, TimePoint());
  queue.add(2, 100, 60ms, TimePoint());
  queue.add(3, 100, 100ms, TimePoint());
  queue.remove(2, TimePoint(80ms));
  EXPECT_EQ(queue.tokens_left(TimePoint(80ms)), 180) << "anchored 60 ms later: 20 ms have passed";
  queue.remove(3, TimePoint(90ms));
  EXPECT_EQ(queue.tokens_left(TimePoint(90ms)), 100) << "capped at now";
}

TEST(LineFit, IgnoresWhatIsNoMeasurement) {
  LineFit fit(5, 2);
  EXPECT_FALSE(fit.observe(1, std::nan("")));
  EXPECT_FALSE(fit.observe(-1, 3));
  EXPECT_FALSE(fit.observe(1, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(fit.base(), 5);
  EXPECT_EQ(fit.slope(), 2);
}

TEST(LineFit, FollowsAWorkerThatBecomesSlower) {
  LineFit fit(0, 0);
  Random random(5);
  for (int i = 0; i < 2000; ++i) {
    const double x = random.uniform();
    fit.observe(x, i < 1000 ? 10 + x : 40 + 3 * x);
  }
  EXPECT_NEAR(fit.base(), 40, 1);
  EXPECT_NEAR(fit.slope(), 3, 1);
}

TEST(LineFit, StaysFiniteWhenEverythingIsTheSame) {
  LineFit fit(0, 0);
  for (int i = 0; i < 100'000; ++i) {
    fit.observe(0.5, 7);
  }
  EXPECT_NEAR(fit.base() + 0.5 * fit.slope(), 7, 1e-6);
  fit.observe(100, 7);
  EXPECT_TRUE(std::isfinite(fit.slope()));
}

}  // namespace
}  // namespace stator::router
