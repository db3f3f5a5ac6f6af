// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/event_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <tuple>

#include "stator/core/random.h"
#include "stator/net/thread.h"

namespace stator::kv {
namespace {

using blocks::ExternalHash;
using blocks::LocalHash;
using Events = std::vector<KvEvent>;

KvEventData stores(std::optional<uint64_t> parent, std::initializer_list<uint64_t> hashes) {
  BlocksStored out;
  if (parent) {
    out.parent = ExternalHash(*parent);
  }
  for (const uint64_t hash : hashes) {
    out.blocks.push_back({.external = ExternalHash(hash), .local = LocalHash(hash + 1000)});
  }
  return out;
}

KvEventData removes(std::initializer_list<uint64_t> hashes) {
  BlocksRemoved out;
  for (const uint64_t hash : hashes) {
    out.blocks.emplace_back(hash);
  }
  return out;
}

std::vector<uint64_t> ids(const EventLog::ReadResult& result) {
  std::vector<uint64_t> out;
  for (const KvEvent& event : std::get<Events>(result)) {
    out.push_back(event.event_id);
  }
  return out;
}

/// Stored blocks with their parents, as a reader that follows the rules of the log sees them.
class Reader {
 public:
  /// Reads what is there; starts over from a snapshot on a gap.
  void catch_up(const EventLog& log) {
    for (;;) {
      const auto read = log.read_from(next_, 7);
      if (const auto* events = std::get_if<Events>(&read)) {
        if (events->empty()) {
          return;
        }
        for (const KvEvent& event : *events) {
          EXPECT_EQ(event.event_id, next_) << "E1: ids are dense";
          std::visit([this](const auto& data) { apply(data); }, event.data);
          ++next_;
        }
      } else {
        ++gaps_;
        const EventLog::Snapshot snapshot = log.snapshot();
        blocks_.clear();
        for (const BlocksStored& run : snapshot.stored) {
          apply(run);
        }
        next_ = snapshot.last_id + 1;
      }
    }
  }
  uint64_t next() const { return next_; }
  int gaps() const { return gaps_; }
  const std::map<uint64_t, uint64_t>& blocks() const { return blocks_; }

 private:
  void apply(const BlocksStored& stored) {
    uint64_t parent = stored.parent ? stored.parent->value() : 0;
    for (const StoredBlock& block : stored.blocks) {
      EXPECT_TRUE(parent == 0 || blocks_.contains(parent)) << "a child came before its parent";
      blocks_[block.external.value()] = parent;
      parent = block.external.value();
    }
  }
  void apply(const BlocksRemoved& removed) {
    for (const ExternalHash block : removed.blocks) {
      blocks_.erase(block.value());
    }
  }
  void apply(const AllCleared&) { blocks_.clear(); }

  uint64_t next_ = 1;
  int gaps_ = 0;
  std::map<uint64_t, uint64_t> blocks_;  // external hash → parent, 0 = none
};

class CountingListener final : public EventLogListener {
 public:
  void on_events_available() noexcept override { ++calls; }
  std::atomic<int> calls{0};
};

TEST(EventLog, IdsAreDenseFromOne) {
  EventLog log(3);
  EXPECT_EQ(log.last_id(), 0U);
  EXPECT_EQ(log.append(stores(std::nullopt, {1})), 1U);
  EXPECT_EQ(log.append(std::vector<KvEventData>{removes({1}), AllCleared{}}), 3U);

  const auto read = log.read_from(1, 10);

  EXPECT_EQ(ids(read), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(std::get<Events>(read)[0].dp_rank, 3U);
  EXPECT_EQ(std::get<Events>(read)[2].data, KvEventData(AllCleared{}));
}

TEST(EventLog, ReadsInBoundedBatches) {
  EventLog log;
  for (uint64_t hash = 1; hash <= 5; ++hash) {
    log.append(stores(std::nullopt, {hash}));
  }
  EXPECT_EQ(ids(log.read_from(0, 2)), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(ids(log.read_from(3, 2)), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(ids(log.read_from(5, 2)), (std::vector<uint64_t>{5}));
  EXPECT_TRUE(ids(log.read_from(6, 2)).empty());
}

TEST(EventLog, AnEmptyBatchIsNoEvent) {
  EventLog log;
  CountingListener listener;
  ASSERT_TRUE(log.subscribe(1, &listener));
  EXPECT_EQ(log.append(std::vector<KvEventData>{}), 0U);
  EXPECT_EQ(listener.calls, 0);
  log.unsubscribe(&listener);
}

TEST(EventLog, AReaderBehindTheRingSeesAGap) {
  EventLog log(0, {.events_max = 3});
  for (uint64_t hash = 1; hash <= 5; ++hash) {
    log.append(stores(std::nullopt, {hash}));
  }
  EXPECT_EQ(std::get<EventLog::Gap>(log.read_from(2, 10)),
            (EventLog::Gap{.oldest_id = 3, .last_id = 5}));
  EXPECT_EQ(ids(log.read_from(3, 10)), (std::vector<uint64_t>{3, 4, 5}));
}

TEST(EventLog, AReaderFromAnotherLifeSeesAGap) {
  EventLog log;
  log.append(stores(std::nullopt, {1}));
  EXPECT_TRUE(std::holds_alternative<EventLog::Gap>(log.read_from(3, 1)));
  EXPECT_EQ(std::get<EventLog::Gap>(EventLog().read_from(2, 1)),
            (EventLog::Gap{.oldest_id = 1, .last_id = 0}));
}

TEST(EventLog, TheRingIsBoundedInBlocksToo) {
  EventLog log(0, {.events_max = 100, .blocks_max = 4});
  log.append(stores(std::nullopt, {1, 2, 3}));
  log.append(removes({3, 2}));
  EXPECT_EQ(std::get<EventLog::Gap>(log.read_from(1, 10)),
            (EventLog::Gap{.oldest_id = 2, .last_id = 2}));
}

TEST(EventLog, AnEventLargerThanTheRingLeavesOnlyTheSnapshot) {
  EventLog log(0, {.events_max = 100, .blocks_max = 2});
  log.append(stores(std::nullopt, {1, 2, 3}));
  EXPECT_EQ(std::get<EventLog::Gap>(log.read_from(1, 10)),
            (EventLog::Gap{.oldest_id = 2, .last_id = 1}));
  // E3: the mirror is full after two blocks, so the snapshot under-counts.
  const auto snapshot = log.snapshot();
  ASSERT_EQ(snapshot.stored.size(), 1U);
  EXPECT_EQ(snapshot.stored[0].blocks.size(), 2U);
  EXPECT_EQ(snapshot.last_id, 1U);
}

TEST(EventLog, TheSnapshotIsRunsWithParentsFirst) {
  EventLog log(5);
  log.append(stores(std::nullopt, {1, 2, 3}));
  log.append(stores(1, {8, 9}));
  log.append(stores(std::nullopt, {20}));
  log.append(removes({3}));

  const EventLog::Snapshot snapshot = log.snapshot();

  EXPECT_EQ(snapshot.last_id, 4U);
  EXPECT_TRUE(
      std::ranges::all_of(snapshot.stored, [](const auto& run) { return run.dp_rank == 5; }));
  EXPECT_EQ(snapshot.stored.size(), 3U);
  EventLog replayed(5);
  for (const BlocksStored& run : snapshot.stored) {
    replayed.append(run);
  }
  EXPECT_EQ(replayed.snapshot().stored, snapshot.stored);
  Reader reader;
  reader.catch_up(replayed);
  EXPECT_EQ(reader.blocks(),
            (std::map<uint64_t, uint64_t>{{1, 0}, {2, 1}, {8, 1}, {9, 8}, {20, 0}}));
}

TEST(EventLog, UnreachableBlocksAreNotInTheSnapshot) {
  EventLog log;
  log.append(stores(std::nullopt, {1, 2, 3}));
  log.append(removes({2}));      // 3 hangs in the air
  log.append(stores(77, {78}));  // behind a block nobody announced
  const auto snapshot = log.snapshot();
  ASSERT_EQ(snapshot.stored.size(), 1U);
  EXPECT_EQ(snapshot.stored[0].blocks.size(), 1U);
}

TEST(EventLog, RanksAndTiersAreToldApart) {
  const auto event = [](uint32_t rank, StorageTier tier, KvEventData data) {
    return KvEvent{.dp_rank = rank, .tier = tier, .data = std::move(data)};
  };
  const auto run = [](uint64_t block, std::optional<ExternalHash> parent = std::nullopt) {
    return BlocksStored{parent, {{ExternalHash(block), LocalHash(block)}}};
  };
  EventLog log;
  log.append(std::vector{event(0, StorageTier::kDevice, run(1)),
                         event(1, StorageTier::kDevice, run(1)),
                         event(0, StorageTier::kHostPinned, run(2, ExternalHash(1))),
                         event(1, StorageTier::kHostPinned, run(3, ExternalHash(9))),
                         event(0, StorageTier::kDisk, run(4, ExternalHash(2)))});

  using Place = std::tuple<uint32_t, StorageTier, uint64_t>;
  const auto places = [&] {
    std::vector<Place> out;
    for (const auto& each : log.snapshot().stored) {
      out.emplace_back(each.dp_rank, each.tier, each.blocks.front().external.value());
    }
    return out;
  };
  EXPECT_EQ(places(), (std::vector<Place>{{0, StorageTier::kDevice, 1},
                                          {0, StorageTier::kHostPinned, 2},
                                          {0, StorageTier::kDisk, 4},
                                          {1, StorageTier::kDevice, 1}}));

  log.append(std::vector{event(1, StorageTier::kDevice, BlocksRemoved{{ExternalHash(1)}}),
                         event(0, StorageTier::kHostPinned, AllCleared{})});

  EXPECT_TRUE(places().empty());
}

TEST(EventLog, AllClearedEmptiesTheSnapshotButIdsGoOn) {
  EventLog log;
  log.append(stores(std::nullopt, {1}));
  log.append(AllCleared{});
  EXPECT_TRUE(log.snapshot().stored.empty());
  EXPECT_EQ(log.append(stores(std::nullopt, {1})), 3U);
}

TEST(EventLog, WakesListenersOncePerBatch) {
  EventLog log;
  CountingListener listener;
  ASSERT_TRUE(log.subscribe(1, &listener));
  EXPECT_EQ(listener.calls, 0);
  log.append(std::vector<KvEventData>{stores(std::nullopt, {1}), removes({1})});
  EXPECT_EQ(listener.calls, 1);
  log.unsubscribe(&listener);
  log.append(AllCleared{});
  EXPECT_EQ(listener.calls, 1);
}

TEST(EventLog, ALateOrConfusedSubscriberIsWokenAtOnce) {
  EventLog log;
  log.append(stores(std::nullopt, {1}));
  CountingListener behind;
  CountingListener current;
  CountingListener ahead;
  ASSERT_TRUE(log.subscribe(1, &behind));
  ASSERT_TRUE(log.subscribe(2, &current));
  ASSERT_TRUE(log.subscribe(9, &ahead));
  EXPECT_EQ(behind.calls, 1);
  EXPECT_EQ(current.calls, 0);
  EXPECT_EQ(ahead.calls, 1);
  log.unsubscribe(&behind);
  log.unsubscribe(&current);
  log.unsubscribe(&ahead);
}

TEST(EventLog, RefusesDoubleAndSurplusSubscriptions) {
  EventLog log(0, {.listeners_max = 1});
  CountingListener first;
  CountingListener second;
  ASSERT_TRUE(log.subscribe(1, &first));
  EXPECT_EQ(log.subscribe(1, &first).error().code(), Code::kAlreadyExists);
  EXPECT_EQ(log.subscribe(1, &second).error().code(), Code::kOverloaded);
  log.unsubscribe(&second);  // unknown: ignored
  log.unsubscribe(&first);
  EXPECT_TRUE(log.subscribe(1, &second));
}

/// Random but legal history: stores behind live blocks, removes leaves, clears now and then.
class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}
  KvEventData next() {
    const uint64_t dice = random_.below(200);
    if (dice == 0) {
      parents_.clear();
      return AllCleared{};
    }
    if (dice < 90 && !parents_.empty()) {
      const uint64_t leaf = any_leaf();
      parents_.erase(leaf);
      return removes({leaf});
    }
    const bool root = parents_.empty() || random_.below(3) == 0;
    const uint64_t parent =
        root ? 0
             : std::next(parents_.begin(), static_cast<ptrdiff_t>(random_.below(parents_.size())))
                   ->first;
    const uint64_t first = ++last_hash_;
    const uint64_t second = ++last_hash_;
    parents_[first] = parent;
    parents_[second] = first;
    return stores(root ? std::nullopt : std::optional(parent), {first, second});
  }
  const std::map<uint64_t, uint64_t>& blocks() const { return parents_; }

 private:
  uint64_t any_leaf() const {
    std::set<uint64_t> inner;
    for (const auto& [hash, parent] : parents_) {
      inner.insert(parent);
    }
    for (const auto& [hash, parent] : parents_) {
      if (!inner.contains(hash)) {
        return hash;
      }
    }
    return 0;
  }
  Random random_;
  uint64_t last_hash_ = 0;
  std::map<uint64_t, uint64_t> parents_;
};

TEST(EventLog, AReaderThatFallsBehindConvergesToTheTruth) {
  EventLog log(0, {.events_max = 16});
  Writer writer(42);
  Reader prompt;
  Reader sleepy;
  Reader late;
  for (int step = 0; step < 2000; ++step) {
    log.append(writer.next());
    prompt.catch_up(log);
    ASSERT_EQ(prompt.blocks(), writer.blocks());
    if (step % 50 == 0) {
      sleepy.catch_up(log);
      ASSERT_EQ(sleepy.blocks(), writer.blocks());
    }
  }
  late.catch_up(log);
  EXPECT_EQ(late.blocks(), writer.blocks());
  EXPECT_EQ(prompt.gaps(), 0);
  EXPECT_GT(sleepy.gaps(), 10);
  EXPECT_EQ(late.gaps(), 1);
}

TEST(EventLog, ConcurrentReadersAndSubscribersSeeOneHistory) {
  EventLog log(0, {.events_max = 64});
  Writer writer(7);
  std::atomic<bool> done{false};
  std::vector<Reader> readers(3);
  {
    std::vector<net::Thread> threads;
    for (Reader& reader : readers) {
      threads.emplace_back("reader", [&log, &reader, &done] {
        CountingListener listener;
        while (!done.load()) {
          EXPECT_TRUE(log.subscribe(reader.next(), &listener));
          reader.catch_up(log);
          log.unsubscribe(&listener);
        }
      });
    }
    for (int step = 0; step < 5000; ++step) {
      log.append(writer.next());
    }
    done = true;
  }
  for (Reader& reader : readers) {
    reader.catch_up(log);
    EXPECT_EQ(reader.blocks(), writer.blocks());
    EXPECT_EQ(reader.next(), log.last_id() + 1);
  }
}

}  // namespace
}  // namespace stator::kv
