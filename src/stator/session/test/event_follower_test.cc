// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/event_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "stator/kv_events/event_cursor.h"
#include "stator/session/test/worker_harness.h"

namespace stator::session {
namespace {

using blocks::ExternalHash;
using blocks::LocalHash;
using test::Carrier;

kv::BlocksStored stored(uint64_t first, uint64_t count) {
  kv::BlocksStored run;
  for (uint64_t block = first; block < first + count; ++block) {
    run.blocks.push_back({ExternalHash(block), LocalHash(block * 7)});
  }
  return run;
}

/// What a router would know: the blocks a worker has.
class Mirror final : public kv_events::KvEventsListener {
 public:
  void on_snapshot(WorkerId /*worker*/, std::vector<kv::KvEvent> blocks) override {
    const MutexLock lock(mutex_);
    ++snapshots_;
    blocks_.clear();
    for (const kv::KvEvent& event : blocks) {
      apply(event);
    }
    changed_.notify_all();
  }
  void on_events(WorkerId /*worker*/, std::vector<kv::KvEvent> events) override {
    const MutexLock lock(mutex_);
    for (const kv::KvEvent& event : events) {
      EXPECT_TRUE(last_id_ == 0 || event.event_id == last_id_ + 1 || snapshots_ > 1);
      last_id_ = event.event_id;
      apply(event);
    }
    changed_.notify_all();
  }

  bool wait_blocks(const std::set<uint64_t>& wanted) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&]() STATOR_REQUIRES(mutex_) { return blocks_ == wanted; });
  }
  int snapshots() {
    const MutexLock lock(mutex_);
    return snapshots_;
  }

 private:
  void apply(const kv::KvEvent& event) STATOR_REQUIRES(mutex_) {
    if (const auto* run = std::get_if<kv::BlocksStored>(&event.data)) {
      for (const kv::StoredBlock& block : run->blocks) {
        EXPECT_EQ(block.local.value(), block.external.value() * 7);
        blocks_.insert(block.external.value());
      }
    } else if (const auto* removed = std::get_if<kv::BlocksRemoved>(&event.data)) {
      for (const ExternalHash block : removed->blocks) {
        blocks_.erase(block.value());
      }
    } else {
      blocks_.clear();
    }
  }
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::set<uint64_t> blocks_ STATOR_GUARDED_BY(mutex_);
  uint64_t last_id_ STATOR_GUARDED_BY(mutex_) = 0;
  int snapshots_ STATOR_GUARDED_BY(mutex_) = 0;
};

class EventFollowerTest : public testing::TestWithParam<Carrier> {
 protected:
  void TearDown() override {
    harness_.on_loop([&] { follower_.reset(); });
  }
  void follow() {
    harness_.on_loop([&] {
      follower_ = harness_.connector().follow_events(harness_.record(), harness_.shard(), mirror_);
    });
  }
  kv::EventLog& log() { return harness_.engine().events(); }

  Mirror mirror_;
  test::WorkerHarness harness_{GetParam()};
  std::unique_ptr<kv_events::EventFollower> follower_;
};

INSTANTIATE_TEST_SUITE_P(Carriers, EventFollowerTest,
                         testing::Values(Carrier::kInProcess, Carrier::kGrpc), test::carrier_name);

TEST_P(EventFollowerTest, StartsWithASnapshotAndGoesOnWithEvents) {
  log().append(stored(1, 3));
  follow();
  ASSERT_TRUE(mirror_.wait_blocks({1, 2, 3}));
  log().append(kv::BlocksRemoved{{ExternalHash(2)}});
  log().append(stored(9, 1));

  EXPECT_TRUE(mirror_.wait_blocks({1, 3, 9}));
  EXPECT_EQ(mirror_.snapshots(), 1);
}

TEST_P(EventFollowerTest, SeesAClearedCache) {
  log().append(stored(1, 3));
  follow();
  ASSERT_TRUE(mirror_.wait_blocks({1, 2, 3}));
  harness_.engine().reset_prefix_cache();
  EXPECT_TRUE(mirror_.wait_blocks({}));
}

TEST_P(EventFollowerTest, ConvergesWhenTheLogWrapsFasterThanItReads) {
  follow();
  std::set<uint64_t> wanted;
  for (uint64_t block = 1; block <= 5000; ++block) {  // the fake engine's ring holds 64 events
    log().append(stored(block, 1));
    wanted.insert(block);
  }
  EXPECT_TRUE(mirror_.wait_blocks(wanted));
}

TEST_P(EventFollowerTest, HearsNothingAfterItsEnd) {
  follow();
  log().append(stored(1, 1));
  ASSERT_TRUE(mirror_.wait_blocks({1}));
  harness_.on_loop([&] { follower_.reset(); });
  log().append(stored(2, 1));
  harness_.on_loop([] {});
  EXPECT_TRUE(mirror_.wait_blocks({1}));
}

TEST(GrpcEventFollower, ResumesWithoutASnapshotAfterALostConnection) {
  test::WorkerHarness harness(Carrier::kGrpc);
  Mirror mirror;
  std::unique_ptr<kv_events::EventFollower> follower;
  kv::EventLog& log = harness.engine().events();
  log.append(stored(1, 2));
  harness.on_loop([&] {
    follower = harness.connector().follow_events(harness.record(), harness.shard(), mirror);
  });
  ASSERT_TRUE(mirror.wait_blocks({1, 2}));
  WorkerServerOptions same_port;
  same_port.port = harness.server().port();
  harness.stop_worker();
  log.append(stored(3, 1));
  harness.start_server(same_port);

  EXPECT_TRUE(mirror.wait_blocks({1, 2, 3}));
  EXPECT_EQ(mirror.snapshots(), 1);
  harness.on_loop([&] { follower.reset(); });
}

TEST(GrpcEventFollower, TakesASnapshotOfANewLife) {
  test::WorkerHarness harness(Carrier::kGrpc);
  Mirror mirror;
  std::unique_ptr<kv_events::EventFollower> follower;
  harness.engine().events().append(stored(1, 2));
  harness.on_loop([&] {
    follower = harness.connector().follow_events(harness.record(), harness.shard(), mirror);
  });
  ASSERT_TRUE(mirror.wait_blocks({1, 2}));
  WorkerServerOptions same_port;
  same_port.port = harness.server().port();
  harness.stop_worker();
  harness.record().incarnation = Incarnation(101);
  harness.engine().events().append(kv::BlocksRemoved{{ExternalHash(2)}});
  harness.start_server(same_port);

  EXPECT_TRUE(mirror.wait_blocks({1}));
  EXPECT_EQ(mirror.snapshots(), 2);
  harness.on_loop([&] { follower.reset(); });
}

TEST(EventCursor, SplitsALargeSnapshotAndKeepsParentsFirst) {
  kv::EventLog log;
  constexpr uint64_t kBlocks = 2 * kv_events::EventCursor::kChunkBlocks + 5;
  log.append(stored(1, kBlocks));
  kv_events::EventCursor cursor(log, Incarnation(1), 0);

  using Kind = kv_events::EventsChunk::Kind;
  uint64_t next = 1;
  const Kind kinds[] = {Kind::kSnapshot, Kind::kSnapshot, Kind::kSnapshotLast};
  for (const Kind kind : kinds) {
    const auto chunk = cursor.next();
    ASSERT_TRUE(chunk.has_value());
    EXPECT_EQ(chunk->kind, kind);
    for (const kv::KvEvent& event : chunk->events) {
      const auto& run = std::get<kv::BlocksStored>(event.data);
      EXPECT_EQ(run.parent.has_value(), next != 1);
      EXPECT_EQ(run.blocks.front().external.value(), next);
      next += run.blocks.size();
    }
  }
  EXPECT_EQ(next, kBlocks + 1);
  EXPECT_FALSE(cursor.next().has_value());
}

TEST(EventAssembler, RefusesEventsThatDoNotContinueAndStartsOver) {
  Mirror mirror;
  kv_events::EventAssembler assembler(WorkerId(1), mirror);
  using Kind = kv_events::EventsChunk::Kind;
  EXPECT_FALSE(assembler.take({Incarnation(1), Kind::kEvents, 1, {}}).has_value())
      << "no snapshot yet";
  EXPECT_TRUE(assembler.take({Incarnation(1), Kind::kSnapshotLast, 4, {}}).has_value());
  EXPECT_EQ(assembler.resume_from(), 5U);
  kv::KvEvent event;
  event.event_id = 6;
  event.data = kv::AllCleared();
  EXPECT_EQ(assembler.take({Incarnation(1), Kind::kEvents, 6, {event}}).error().code(),
            Code::kCorrupt);
  EXPECT_EQ(assembler.resume_from(), 0U);
}

}  // namespace
}  // namespace stator::session
