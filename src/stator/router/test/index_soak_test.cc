// SPDX-License-Identifier: Apache-2.0
// A day of a busy fleet against an index that is far too small for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/core/random.h"
#include "stator/router/index/index_service.h"
#include "stator/router/index/pretend_engine.h"

namespace stator::router {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr uint64_t kBudget = 512ULL << 10;
constexpr uint64_t kEngines = 12;
constexpr size_t kEngineBlocks = 4000;
constexpr int kEventsPerStep = 4;
constexpr Duration kStep = seconds(2);

/// 170,000 events, one lookup each four; every hour an engine restarts under a new id.
class Day {
 public:
  explicit Day(std::vector<Naming> namings)
      : namings_(std::move(namings)),
        index_(*IndexService::create({.bytes_max = kBudget}, clock_, metrics_)) {
    for (uint64_t i = 0; i < kEngines; ++i) {
      engines_.push_back(start());
    }
  }

  /// The most memory seen after any event.
  uint64_t run() {
    uint64_t most = 0;
    TimePoint restart = clock_.now() + hours(1);
    for (const TimePoint end = clock_.now() + hours(24); clock_.now() < end;
         clock_.advance(kStep)) {
      for (int i = 0; i < kEventsPerStep; ++i) {
        PretendEngine& engine = engines_[random_.below(engines_.size())];
        const bool full = engine.held_blocks() > kEngineBlocks;
        const auto event = full ? engine.evict(200, random_)
                                : engine.store(random_prompt(random_, /*long_one_in=*/40));
        if (event) {
          index_->apply(engine.key(), *event);
          most = std::max(most, bytes());
        }
      }
      (void)index_->find_longest_match(sequences_of(random_prompt(random_)));
      if (clock_.now() >= restart) {
        restart += hours(1);
        PretendEngine& gone = engines_[random_.below(engines_.size())];
        index_->remove_worker(gone.key());
        gone = start();
      }
    }
    return most;
  }

  uint64_t bytes() {
    return static_cast<uint64_t>(
        metrics_.gauge("stator_router_index_bytes", "memory of the KV index").value());
  }
  uint64_t evicted() {
    return metrics_
        .counter("stator_router_index_evicted_blocks_total",
                 "(block, holder) pairs forgotten for the index' memory bound")
        .value();
  }
  IndexService& index() { return *index_; }
  PretendEngine& engine() { return engines_.front(); }

 private:
  PretendEngine start() {
    const WorkerKey key{WorkerId(++last_id_), 0};
    index_->add_worker(key);
    return {key, namings_[last_id_ % namings_.size()]};
  }

  const std::vector<Naming> namings_;
  SimClock clock_;
  Metrics metrics_;
  Random random_{7};
  std::unique_ptr<IndexService> index_;
  std::vector<PretendEngine> engines_;
  uint64_t last_id_ = 0;
};

/// What a worker reports is found at once, however full the index is.
void expect_alive(Day& day) {
  const std::vector<uint64_t> fresh = {mix64(1), mix64(2), mix64(3), mix64(4)};
  day.index().apply(day.engine().key(), *day.engine().store(fresh));
  const auto found = day.index().find_longest_match(sequences_of(fresh));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().blocks, 4U);
}

TEST(IndexSoak, ADayOfEventsStaysWithinTheBudget) {
  Day day({Naming::kSequenceHash, Naming::kSharedOpaque});

  EXPECT_LE(day.run(), kBudget);

  EXPECT_GT(day.evicted(), 100'000U);
  EXPECT_GT(day.index().holder_blocks(), 5'000U);
  expect_alive(day);
}

TEST(IndexSoak, NamesThatDisagreeExceedItOnceAndByLittle) {
  Day day({Naming::kSharedOpaque, Naming::kPrivateOpaque, Naming::kCounter});

  // 20 bytes per block of the one worker that is found to disagree at that moment.
  EXPECT_LE(day.run(), kBudget + 20 * (kEngineBlocks + 400));

  EXPECT_GT(day.evicted(), 100'000U);
  EXPECT_GT(day.index().holder_blocks(), 5'000U);
  expect_alive(day);
}

}  // namespace
}  // namespace stator::router
