// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/ttl_index.h"

#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::router {
namespace {

using blocks::SequenceHash;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr WorkerKey kA{WorkerId(1), 0};
constexpr WorkerKey kB{WorkerId(2), 0};

TimePoint at(Duration since_start) {
  return TimePoint(std::chrono::hours(1) + since_start);
}

std::unique_ptr<TtlIndex> make_index(const TtlIndex::Config& config = {}) {
  auto index = TtlIndex::create(config);
  EXPECT_TRUE(index) << index.error().message();
  return std::move(*index);
}

/// Blocks of a conversation: the same number shares the first `turn` blocks of every later turn.
std::vector<SequenceHash> prompt(uint64_t conversation, size_t blocks) {
  std::vector<SequenceHash> out;
  for (size_t i = 0; i < blocks; ++i) {
    const blocks::LocalHash local(mix64(conversation * 10'000 + i + 1));
    out.push_back(out.empty() ? blocks::chain(local) : blocks::chain(out.back(), local));
  }
  return out;
}

uint32_t overlap(const TtlIndex& index, WorkerKey worker, std::span<const SequenceHash> blocks) {
  for (const Overlap& found : index.find_longest_match(blocks)) {
    if (found.worker == worker) {
      return found.blocks;
    }
  }
  return 0;
}

TEST(TtlIndex, SupposesThatAWorkerKeepsWhatItWasSent) {
  const auto index = make_index();
  index->record(kA, prompt(1, 10), at(seconds(0)));
  index->record(kB, prompt(1, 4), at(seconds(1)));

  EXPECT_EQ(overlap(*index, kA, prompt(1, 12)), 10U);
  EXPECT_EQ(overlap(*index, kB, prompt(1, 12)), 4U);
  EXPECT_EQ(overlap(*index, kA, prompt(2, 12)), 0U);
  EXPECT_EQ(index->holder_blocks(), 14U);
}

TEST(TtlIndex, ForgetsWhatWasNotUsedForItsTimeToLive) {
  const auto index = make_index({.ttl = seconds(10)});
  index->record(kA, prompt(1, 10), at(seconds(0)));
  index->record(kA, prompt(1, 4), at(seconds(6)));  // refreshes the first four only

  index->expire(at(seconds(10)));
  EXPECT_EQ(overlap(*index, kA, prompt(1, 10)), 10U);
  index->expire(at(seconds(10) + milliseconds(200)));
  EXPECT_EQ(overlap(*index, kA, prompt(1, 10)), 4U);
  index->expire(at(seconds(17)));
  EXPECT_EQ(overlap(*index, kA, prompt(1, 10)), 0U);
  EXPECT_EQ(index->holder_blocks(), 0U);
  EXPECT_EQ(index->stats().expired_blocks, 10U);
}

TEST(TtlIndex, TimeThatSeemsToGoBackExpiresNothing) {
  const auto index = make_index({.ttl = seconds(10)});
  index->record(kA, prompt(1, 10), at(seconds(5)));
  index->expire(at(seconds(0)));
  EXPECT_EQ(overlap(*index, kA, prompt(1, 10)), 10U);
}

TEST(TtlIndex, AWorkerHasRoomForSoManyBlocksAndLosesTheLastOfTheOldest) {
  const auto index = make_index({.blocks_per_worker_max = 20});
  index->record(kA, prompt(1, 12), at(seconds(0)));
  index->record(kA, prompt(2, 12), at(seconds(1)));

  EXPECT_EQ(overlap(*index, kA, prompt(1, 12)), 8U);
  EXPECT_EQ(overlap(*index, kA, prompt(2, 12)), 12U);
  index->record(kA, prompt(3, 50), at(seconds(2)));
  EXPECT_EQ(overlap(*index, kA, prompt(3, 50)), 20U);
  EXPECT_EQ(index->holder_blocks(), 20U);
  EXPECT_EQ(index->stats().pruned_blocks, 4U + 50U);
}

TEST(TtlIndex, StaysWithinItsBytesForEver) {
  constexpr uint64_t kBudget = 4 << 20;
  const auto index = make_index({.ttl = seconds(3600), .bytes_max = kBudget});
  Random random(3);
  for (int i = 0; i < 20'000; ++i) {
    const WorkerKey worker{WorkerId(1 + random.below(50)), 0};
    index->record(worker, prompt(random.below(5000), 1 + random.below(60)), at(milliseconds(i)));
    ASSERT_LE(index->memory_bytes(), kBudget) << i;
  }
  EXPECT_GT(index->stats().pruned_blocks, 10'000U);
  EXPECT_GT(index->holder_blocks(), 10'000U);
}

TEST(TtlIndex, AWorkerThatLeftOrWasClearedIsForgotten) {
  const auto index = make_index();
  for (const WorkerKey worker : {kA, kB}) {
    index->record(worker, prompt(1, 10), at(seconds(0)));
  }
  index->remove_worker(kA);
  EXPECT_EQ(overlap(*index, kA, prompt(1, 10)), 0U);
  EXPECT_EQ(overlap(*index, kB, prompt(1, 10)), 10U);
  EXPECT_EQ(index->apply(kB, {.data = kv::AllCleared{}}), Applied::kOk);
  EXPECT_EQ(index->holder_blocks(), 0U);
  index->record(kA, prompt(1, 3), at(seconds(1)));
  EXPECT_EQ(overlap(*index, kA, prompt(1, 10)), 3U);
}

TEST(TtlIndex, CountsHowOftenAPrefixWasSent) {
  const auto index = make_index({.ttl = seconds(10)});
  const auto story = prompt(1, 6);
  const auto beginning = std::span(story).first(2);
  index->record(kA, story, at(seconds(0)));
  index->record(kA, beginning, at(seconds(1)));
  index->record(kB, story, at(seconds(8)));

  EXPECT_EQ(index->frequencies(story), (std::vector<uint64_t>{3, 3, 2, 2, 2, 2}));

  index->expire(at(seconds(14)));  // nothing of A's has been used for ten seconds
  EXPECT_EQ(index->frequencies(story), (std::vector<uint64_t>{1, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(index->frequencies(prompt(2, 3)).empty());
}

TEST(TtlIndex, DoesNotLearnFromEvents) {
  const auto index = make_index();
  kv::BlocksStored run;
  run.blocks = {{blocks::ExternalHash(1), blocks::LocalHash(1)}};
  EXPECT_EQ(index->apply(kA, {.event_id = 1, .data = run}), Applied::kNotFollowed);
  EXPECT_EQ(index->holder_blocks(), 0U);
}

TEST(TtlIndex, RefusesATimeToLiveBelowItsTick) {
  EXPECT_EQ(TtlIndex::create({.ttl = milliseconds(1)}).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace stator::router
