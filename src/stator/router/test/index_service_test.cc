// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/index_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::router {
namespace {

using blocks::SequenceHash;
using kv::StorageTier;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr WorkerKey kA{WorkerId(1), 0};
constexpr WorkerKey kB{WorkerId(2), 0};

/// A service with two workers, and a prompt of ten blocks.
struct Fixture {
  explicit Fixture(const IndexConfig& config = {}, std::string_view snapshot = {}) {
    for (uint64_t i = 0; i < 10; ++i) {
      locals.emplace_back(mix64(i + 1));
      prompt.push_back(prompt.empty() ? blocks::chain(locals.back())
                                      : blocks::chain(prompt.back(), locals.back()));
    }
    auto made = IndexService::create(config, clock, metrics);
    EXPECT_TRUE(made) << made.error().message();
    index = std::move(*made);
    EXPECT_TRUE(index->restore(snapshot));
    index->add_worker(kA);
    index->add_worker(kB);
  }
  kv::KvEvent stored(size_t from, size_t to, StorageTier tier = StorageTier::kDevice) const {
    kv::BlocksStored run;
    if (from > 0) {
      run.parent = blocks::ExternalHash(prompt[from - 1].value());
    }
    for (size_t i = from; i < to; ++i) {
      run.blocks.push_back({blocks::ExternalHash(prompt[i].value()), locals[i]});
    }
    return {.event_id = 1, .tier = tier, .data = std::move(run)};
  }
  Overlap overlap(WorkerKey worker) const {
    for (const Overlap& found : index->find_longest_match(prompt)) {
      if (found.worker == worker) {
        return found;
      }
    }
    return {.worker = worker};
  }

  SimClock clock;
  Metrics metrics;
  std::vector<blocks::LocalHash> locals;
  std::vector<SequenceHash> prompt;
  std::unique_ptr<IndexService> index;
};

TEST(IndexService, FollowsTheEventsOfWorkersItKnows) {
  Fixture test;
  EXPECT_EQ(test.index->apply(kA, test.stored(0, 6)), Applied::kOk);
  EXPECT_EQ(test.index->apply({WorkerId(3), 0}, test.stored(0, 6)), Applied::kUnknownWorker);
  test.index->on_routed(kB, test.prompt);  // says nothing about what B holds now

  EXPECT_EQ(test.overlap(kA).blocks, 6U);
  EXPECT_EQ(test.index->find_longest_match(test.prompt).size(), 1U);
  test.index->remove_worker(kA);
  EXPECT_EQ(test.index->holder_blocks(), 0U);
  EXPECT_EQ(test.index->apply(kA, test.stored(0, 6)), Applied::kUnknownWorker);
}

TEST(IndexService, AWorkerThatTellsNothingIsGuessedWhileOthersStayExact) {
  Fixture test;
  constexpr WorkerKey kSilent{WorkerId(3), 0};
  test.index->add_worker(kSilent, Source::kDecisions);
  test.index->apply(kA, test.stored(0, 6));
  test.index->on_routed(kA, test.prompt);
  test.index->on_routed(kSilent, std::span(test.prompt).first(4));

  EXPECT_EQ(test.overlap(kA).blocks, 6U);
  EXPECT_EQ(test.overlap(kSilent).blocks, 4U);
  EXPECT_EQ(test.index->holder_blocks(), 10U);
  EXPECT_EQ(test.index->trust(kA), Trust::kExact);
  EXPECT_EQ(test.index->trust(kSilent), Trust::kApproximate);
  EXPECT_EQ(test.index->apply(kSilent, test.stored(0, 6)), Applied::kNotFollowed);
  EXPECT_THAT(test.metrics.render(),
              HasSubstr("stator_router_index_workers{trust=\"approximate\"} 1\n"));

  test.clock.advance(seconds(121));
  EXPECT_EQ(test.overlap(kSilent).blocks, 0U);
  EXPECT_EQ(test.overlap(kA).blocks, 6U);

  test.index->on_routed(kSilent, test.prompt);
  test.index->remove_worker(kSilent);
  EXPECT_EQ(test.overlap(kSilent).blocks, 0U);
  EXPECT_EQ(test.index->holder_blocks(), 6U);
}

TEST(IndexService, RanksOfAWorkerAreTheirOwnAndStartOverTogether) {
  Fixture test;
  constexpr WorkerKey kSecond{WorkerId(1), 1};
  test.index->add_worker(kSecond);
  test.index->apply(kA, test.stored(0, 6));
  test.index->apply(kSecond, test.stored(0, 3));
  EXPECT_EQ(test.index->apply({WorkerId(1), 2}, test.stored(0, 6)), Applied::kUnknownWorker);
  test.index->apply(kB, test.stored(0, 2));

  EXPECT_EQ(test.overlap(kA).blocks, 6U);
  EXPECT_EQ(test.overlap(kSecond).blocks, 3U);
  test.index->apply(kSecond, {.dp_rank = 1, .data = kv::AllCleared{}});
  EXPECT_EQ(test.overlap(kA).blocks, 6U);
  EXPECT_EQ(test.overlap(kSecond).blocks, 0U);

  test.index->apply(kSecond, test.stored(0, 3));
  const std::vector<kv::KvEvent> cleared = {
      {.dp_rank = IndexService::kAllRanks, .data = kv::AllCleared{}}};
  test.index->apply(WorkerId(1), cleared);
  EXPECT_EQ(test.overlap(kA).blocks, 0U);
  EXPECT_EQ(test.overlap(kSecond).blocks, 0U);
  EXPECT_EQ(test.overlap(kB).blocks, 2U);
}

TEST(IndexService, ABatchIsWhatItsEventsAreOneByOne) {
  constexpr WorkerKey kSecond{WorkerId(1), 1};
  Fixture batched;
  Fixture single;
  batched.index->add_worker(kSecond);
  single.index->add_worker(kSecond);
  std::vector<kv::KvEvent> events;
  for (uint32_t round = 0; round < 3; ++round) {
    events.push_back(batched.stored(0, 4));
    events.push_back(batched.stored(4, 6 + round));
    events.back().dp_rank = kSecond.dp_rank;  // its parent is at the other rank
    events.push_back({.dp_rank = kSecond.dp_rank, .data = kv::AllCleared{}});
  }
  events.push_back(batched.stored(0, 3));
  events.back().dp_rank = kSecond.dp_rank;

  batched.index->apply(WorkerId(1), events);
  for (const kv::KvEvent& event : events) {
    single.index->apply({WorkerId(1), event.dp_rank}, event);
  }

  for (const WorkerKey worker : {kA, kSecond}) {
    EXPECT_EQ(batched.overlap(worker).blocks, single.overlap(worker).blocks);
    EXPECT_EQ(batched.index->trust(worker), single.index->trust(worker));
  }
  EXPECT_EQ(batched.index->holder_blocks(), single.index->holder_blocks());
  EXPECT_EQ(batched.overlap(kSecond).blocks, 3U);
}

TEST(IndexService, ALongBatchIsAppliedInParts) {
  Fixture test;
  std::vector<kv::KvEvent> events(IndexService::kBatchBlocks + 1,
                                  {.dp_rank = kA.dp_rank, .data = kv::AllCleared{}});
  events.push_back(test.stored(0, 6));
  events.back().dp_rank = kA.dp_rank;

  test.index->apply(kA.worker, events);

  EXPECT_EQ(test.overlap(kA).blocks, 6U);
  EXPECT_EQ(test.metrics
                .counter("dynamo_component_kv_cache_events_applied", "",
                         {{"event_type", "cleared"}, {"status", "ok"}})
                .value(),
            IndexService::kBatchBlocks + 1);
}

TEST(IndexService, OddEventsAreCountedByKind) {
  Fixture test;
  const auto warnings = [&](const char* kind) {
    return test.metrics.counter("kv_cache_event_warnings", "", {{"warning_kind", kind}}).value();
  };
  test.index->apply(kA, test.stored(0, 6));
  EXPECT_EQ(warnings("duplicate_store"), 0U);
  test.index->apply(kA, test.stored(4, 8));
  EXPECT_EQ(warnings("duplicate_store"), 2U);
  EXPECT_EQ(test.index->holder_blocks(), 8U);
  test.index->apply({WorkerId(1), 7}, test.stored(0, 1));
  EXPECT_EQ(warnings("undeclared_rank"), 1U);

  kv::BlocksStored renamed;
  for (size_t i = 0; i < 4; ++i) {
    renamed.blocks.push_back({blocks::ExternalHash(i + 1), test.locals[i]});
  }
  test.index->apply(kB, {.event_id = 1, .data = std::move(renamed)});
  EXPECT_EQ(warnings("block_hash_mismatch"), 1U);
  EXPECT_EQ(test.overlap(kB).blocks, 4U);
}

/// A look at it takes five milliseconds.
class SlowClock final : public Clock {
 public:
  TimePoint now() const override { return now_ += std::chrono::milliseconds(5); }
  WallTime wall_now() const override { return WallTime(now_.time_since_epoch()); }

 private:
  mutable TimePoint now_{};
};

TEST(IndexService, SaysHowLongEventsTakeUntilTheyCount) {
  const Fixture test;
  const SlowClock clock;
  Metrics metrics;
  const auto index = *IndexService::create({}, clock, metrics);
  index->add_worker(kA);
  index->apply(kA, test.stored(0, 3));
  index->apply(kA, test.stored(3, 6));

  const std::string text = metrics.render();
  EXPECT_NE(text.find("stator_router_index_apply_ms_bucket{le=\"1\"} 0\n"), std::string::npos);
  EXPECT_NE(text.find("stator_router_index_apply_ms_bucket{le=\"10\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("stator_router_index_waiting_events 0\n"), std::string::npos);
}

TEST(IndexService, WorkersThatShouldTellAndDoNotAreShown) {
  Fixture test;
  const Gauge silent =
      test.metrics.gauge("dynamo_component_router_kv_event_source_mismatch_workers", "");
  EXPECT_EQ(silent.value(), 2);
  test.index->add_worker({WorkerId(3), 0}, Source::kDecisions);
  EXPECT_EQ(silent.value(), 2) << "nothing is expected of this one";
  test.index->apply(kA, {.data = kv::AllCleared{}});
  EXPECT_EQ(silent.value(), 1);
  test.index->remove_worker(kB);
  EXPECT_EQ(silent.value(), 0);
}

TEST(IndexService, TrustCanBeReadWithoutAskingAgain) {
  Fixture test;
  const std::atomic<Trust>* trust = test.index->trust_of(kA);
  ASSERT_NE(trust, nullptr);
  EXPECT_EQ(*trust, Trust::kExact);
  test.index->apply(kA, test.stored(5, 6));  // its parent is missing
  EXPECT_EQ(*trust, Trust::kDegraded);
  EXPECT_EQ(test.index->trust_of({WorkerId(9), 0}), nullptr);
}

TEST(IndexService, LowerTiersGoOnBehindTheDevice) {
  Fixture test;
  test.index->apply(kA, test.stored(0, 4));
  EXPECT_EQ(test.index->apply(kA, test.stored(4, 7, StorageTier::kHostPinned)), Applied::kOk);
  EXPECT_EQ(test.index->apply(kA, test.stored(7, 9, StorageTier::kDisk)), Applied::kOk);

  EXPECT_EQ(test.overlap(kA),
            (Overlap{.worker = kA, .blocks = 4, .host_blocks = 3, .disk_blocks = 2}));
  test.index->apply(kA, {.event_id = 2, .data = kv::AllCleared{}});
  EXPECT_EQ(test.overlap(kA), Overlap{.worker = kA});
}

TEST(IndexService, AWorkerWhoseEventsWereLostIsDegradedUntilItStartsOver) {
  Fixture test;
  EXPECT_EQ(test.index->trust(kA), Trust::kExact);
  EXPECT_EQ(test.index->apply(kA, test.stored(4, 6)), Applied::kUnknownParent);
  EXPECT_EQ(test.index->trust(kA), Trust::kDegraded);
  EXPECT_EQ(test.index->trust(kB), Trust::kExact);
  EXPECT_THAT(test.metrics.render(),
              HasSubstr("stator_router_index_workers{trust=\"degraded\"} 1"));
  test.index->apply(kA, {.event_id = 2, .data = kv::AllCleared{}});
  EXPECT_EQ(test.index->trust(kA), Trust::kExact);
}

TEST(IndexService, WithoutEventsItGuessesFromDecisionsForAWhile) {
  Fixture test({.kind = "ttl", .ttl = seconds(60)});
  EXPECT_EQ(test.index->trust(kA), Trust::kApproximate);
  EXPECT_EQ(test.index->apply(kA, test.stored(0, 6)), Applied::kNotFollowed);
  test.index->on_routed(kA, test.prompt);
  EXPECT_EQ(test.overlap(kA).blocks, 10U);
  test.clock.advance(seconds(61));  // and nothing else happens: the lookup itself must notice
  EXPECT_EQ(test.overlap(kA).blocks, 0U);
  test.index->on_routed({WorkerId(3), 0}, test.prompt);
  EXPECT_EQ(test.index->holder_blocks(), 0U);
}

TEST(IndexService, APredictionBridgesTheTimeUntilTheEvent) {
  Fixture test({.predicted_ttl = seconds(2)});
  test.index->apply(kA, test.stored(0, 4));
  test.index->on_routed(kA, test.prompt);
  test.index->on_routed(kB, std::span(test.prompt).first(3));
  EXPECT_EQ(test.overlap(kA).blocks, 10U);
  EXPECT_EQ(test.overlap(kB).blocks, 3U);
  test.clock.advance(seconds(3));
  EXPECT_EQ(test.overlap(kA).blocks, 4U);
  EXPECT_EQ(test.overlap(kB).blocks, 0U);
}

TEST(IndexService, CountsEventsUnderTheNamesOthersUse) {
  Fixture test;
  test.index->apply(kA, test.stored(0, 6));
  test.index->apply(kA, test.stored(8, 9));
  const std::string text = test.metrics.render();
  EXPECT_THAT(text, HasSubstr("dynamo_component_kv_cache_events_applied{event_type=\"stored\","
                              "status=\"ok\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("dynamo_component_kv_cache_events_applied{event_type=\"stored\","
                              "status=\"parent_block_not_found\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("stator_router_index_blocks 6\n"));
}

TEST(IndexService, TwoModelsShareTheGauges) {
  Fixture test;
  test.index->apply(kA, test.stored(0, 6));
  {
    auto other = IndexService::create({}, test.clock, test.metrics);
    (*other)->add_worker(kA);
    (*other)->apply(kA, test.stored(0, 3));
    EXPECT_THAT(test.metrics.render(), HasSubstr("stator_router_index_blocks 9\n"));
    EXPECT_THAT(test.metrics.render(),
                HasSubstr("stator_router_index_workers{trust=\"exact\"} 3\n"));
  }
  EXPECT_THAT(test.metrics.render(), HasSubstr("stator_router_index_blocks 6\n"));
  EXPECT_THAT(test.metrics.render(), HasSubstr("stator_router_index_workers{trust=\"exact\"} 2\n"));
}

TEST(IndexService, ARestoredWorkerIsDegradedUntilItStartsOver) {
  Fixture before;
  before.index->apply(kA, before.stored(0, 10));
  Fixture after({}, before.index->save());

  EXPECT_EQ(after.overlap(kA).blocks, 10U);
  EXPECT_EQ(after.index->trust(kA), Trust::kDegraded);
  EXPECT_EQ(after.index->trust(kB), Trust::kExact);

  after.index->apply(kA, {.event_id = 1, .data = kv::AllCleared{}});
  after.index->apply(kA, after.stored(0, 4));

  EXPECT_EQ(after.overlap(kA).blocks, 4U);
  EXPECT_EQ(after.index->trust(kA), Trust::kExact);
}

TEST(IndexService, ARestoredWorkerThatDoesNotComeBackIsForgotten) {
  Fixture before;
  constexpr WorkerKey kGone{WorkerId(9), 0};
  before.index->add_worker(kGone);
  before.index->apply(kGone, before.stored(0, 10));
  before.index->apply(kA, before.stored(0, 3));
  Fixture after({.snapshot_grace = seconds(30)}, before.index->save());

  after.clock.advance(seconds(29));
  after.index->tick();
  EXPECT_EQ(after.index->holder_blocks(), 13U);

  after.clock.advance(seconds(1));
  after.index->tick();
  EXPECT_EQ(after.index->holder_blocks(), 3U);
  EXPECT_EQ(after.overlap(kGone).blocks, 0U);
  EXPECT_EQ(after.overlap(kA).blocks, 3U);
}

TEST(IndexService, ADamagedSnapshotChangesNothing) {
  Fixture before;
  before.index->apply(kA, before.stored(0, 10));
  std::string content = before.index->save();
  content.pop_back();
  Fixture after;

  EXPECT_EQ(after.index->restore(content).error().code(), Code::kCorrupt);

  after.index->apply(kA, after.stored(0, 2));
  EXPECT_EQ(after.overlap(kA).blocks, 2U);
}

TEST(IndexService, RefusesWhatItDoesNotKnow) {
  SimClock clock;
  Metrics metrics;
  EXPECT_EQ(IndexService::create({.kind = "guess"}, clock, metrics).error().code(),
            Code::kInvalidArgument);
  const auto error = IndexService::create({.predicted_ttl = Duration(1)}, clock, metrics).error();
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(error.message()), HasSubstr("router.predicted_ttl"));
}

}  // namespace
}  // namespace stator::router
