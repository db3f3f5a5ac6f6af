// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/view_hub.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/random.h"
#include "stator/net/shard.h"

namespace stator::discovery {
namespace {

InstanceRecord make_record(uint64_t worker, uint64_t incarnation, std::string address) {
  InstanceRecord record;
  record.key.worker = WorkerId(worker);
  record.incarnation = Incarnation(incarnation);
  record.address = std::move(address);
  return record;
}

InstanceChange put(uint64_t worker, uint64_t incarnation = 1, std::string address = "a:1") {
  auto record =
      std::make_shared<const InstanceRecord>(make_record(worker, incarnation, std::move(address)));
  return {record->key, record};
}

InstanceChange gone(uint64_t worker) {
  return {make_record(worker, 1, "").key, nullptr};
}

struct Sizes {
  size_t removed, updated, added;
  friend bool operator==(const Sizes&, const Sizes&) = default;
};
Sizes sizes(const ViewDiff& diff) {
  return {diff.removed.size(), diff.updated.size(), diff.added.size()};
}

TEST(AdvanceView, TheLastChangeOfAKeyCounts) {
  InstanceView view;
  EXPECT_EQ(sizes(advance_view(view, std::vector{put(1), gone(1)}, {})), (Sizes{0, 0, 0}));
  EXPECT_EQ(sizes(advance_view(view, std::vector{put(1), put(1, 1, "b:2")}, {})), (Sizes{0, 0, 1}));
  EXPECT_EQ(view.begin()->second->address, "b:2");
  EXPECT_EQ(sizes(advance_view(view, std::vector{put(1, 1, "b:2")}, {})), (Sizes{0, 0, 0}));
  EXPECT_EQ(sizes(advance_view(view, std::vector{put(1, 1, "c:3")}, {})), (Sizes{0, 1, 0}));
  EXPECT_EQ(sizes(advance_view(view, std::vector{gone(1), gone(2)}, {})), (Sizes{1, 0, 0}));
  EXPECT_TRUE(view.empty());
}

TEST(AdvanceView, ANewLifeIsARemovalAndAnAddition) {
  InstanceView view;
  advance_view(view, std::vector{put(1, 1)}, {});

  const ViewDiff diff = advance_view(view, std::vector{put(1, 2)}, {});

  ASSERT_EQ(sizes(diff), (Sizes{1, 0, 1}));
  EXPECT_EQ(diff.removed[0]->incarnation, Incarnation(1));
  EXPECT_EQ(diff.added[0]->incarnation, Incarnation(2));
}

TEST(AdvanceView, WhatTheQueryDoesNotMatchIsNotKept) {
  InstanceView view;

  EXPECT_EQ(sizes(advance_view(view, std::vector{put(1)},
                               {.namespace_name = {}, .component = "other", .endpoint = {}})),
            (Sizes{0, 0, 0}));
  EXPECT_TRUE(view.empty());
}

/// Keeps what it is told, and checks that the calls make sense.
struct Listener final : DiscoveryListener {
  void on_synced() override { synced = true; }
  void on_added(const InstanceRecord& record) override {
    EXPECT_TRUE(known.emplace(record.key, record).second);
  }
  void on_updated(const InstanceRecord& record) override { known.at(record.key) = record; }
  void on_removed(const InstanceRecord& last) override { EXPECT_EQ(known.erase(last.key), 1U); }
  std::map<InstanceKey, InstanceRecord> known;
  bool synced = false;
};

/// Whatever the order of changes, and however far a watcher falls behind, it ends with the view.
TEST(ViewHub, WatchersFollowWhateverTheLogStillHas) {
  const char* given = ::getenv("STATOR_TEST_SEED");  // NOLINT(concurrency-mt-unsafe): one thread
  const uint64_t seed = given == nullptr ? Random::from_entropy().next() : std::stoull(given);
  SCOPED_TRACE("STATOR_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  SystemClock clock;
  Metrics metrics;
  net::ShardSet shards(1, clock, metrics);
  shards.start();
  net::Shard& shard = shards.shard(0);
  const auto on_loop = [&](auto task) { ASSERT_TRUE(shard.run_and_wait([&] { task(); })); };
  ViewHub hub(64);
  Listener listener;
  std::unique_ptr<Watch> watch;
  on_loop([&] { watch = hub.watch({}, shard, listener); });

  for (int round = 0; round < 200; ++round) {
    on_loop([&] {  // while the loop is busy changes pile up, some rounds more than the log holds
      const uint64_t changes = random.below(150);
      for (uint64_t i = 0; i < changes; ++i) {
        const uint64_t worker = 1 + random.below(40);
        hub.apply({random.below(3) == 0
                       ? gone(worker)
                       : put(worker, 1 + random.below(2), std::to_string(random.below(4)))});
      }
    });
    on_loop([] {});
  }

  const auto records = hub.list({});
  on_loop([&] {
    EXPECT_TRUE(listener.synced);
    ASSERT_EQ(listener.known.size(), records.size());
    for (const InstanceRecord& record : records) {
      EXPECT_EQ(listener.known.at(record.key), record);
    }
    watch.reset();
  });
  EXPECT_EQ(hub.size(), records.size());
  shards.stop();
}

}  // namespace
}  // namespace stator::discovery
