// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/tier_lanes.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>

#include "stator/core/random.h"
#include "stator/engine/core/engine_service.h"
#include "stator/engine/handoff/test/byte_runner.h"
#include "stator/kv/event_log.h"

namespace stator::engine {
namespace {

constexpr uint32_t kBlocks = 64;

/// What all stores of a test hold, and what is wrong with them.
struct Shelf {
  Mutex mutex;
  std::condition_variable_any changed;
  std::map<kv::LineageHash, std::vector<std::byte>> records STATOR_GUARDED_BY(mutex);
  bool blocked STATOR_GUARDED_BY(mutex) = false;  // reads wait
  bool spoiled STATOR_GUARDED_BY(mutex) = false;  // reads have a wrong bit
  uint32_t reads STATOR_GUARDED_BY(mutex) = 0;

  void set(bool blocked_now, bool spoiled_now) {
    const MutexLock lock(mutex);
    blocked = blocked_now;
    spoiled = spoiled_now;
    changed.notify_all();
  }
  void wait_for_reads(uint32_t count) {
    MutexLock lock(mutex);
    while (reads < count) {
      changed.wait(lock);
    }
  }
  uint32_t reads_so_far() {
    const MutexLock lock(mutex);
    return reads;
  }
};

class ShelfStore final : public storage::BlockStore {
 public:
  explicit ShelfStore(Shelf& shelf, std::string_view tier = "store") : shelf_(shelf), tier_(tier) {}
  std::string_view tier() const override { return tier_; }
  Result<size_t> count(std::span<const storage::BlockName> names) override {
    const MutexLock lock(shelf_.mutex);
    size_t found = 0;
    while (found < names.size() && shelf_.records.contains(names[found].lineage)) {
      ++found;
    }
    return found;
  }
  Status get(const storage::BlockName& name, std::span<std::byte> record) override {
    MutexLock lock(shelf_.mutex);
    ++shelf_.reads;
    shelf_.changed.notify_all();
    while (shelf_.blocked) {
      shelf_.changed.wait(lock);
    }
    std::ranges::copy(shelf_.records.at(name.lineage), record.begin());
    record.back() ^= std::byte{shelf_.spoiled};
    return {};
  }
  Status put(const storage::BlockName& name, std::span<const std::byte> record) override {
    const MutexLock lock(shelf_.mutex);
    shelf_.records[name.lineage].assign(record.begin(), record.end());
    return {};
  }

 private:
  Shelf& shelf_;
  const std::string_view tier_;
};

/// An engine over the shelf.
struct Node {
  explicit Node(Shelf& shelf, Duration timeout = std::chrono::hours(1), uint32_t io_threads = 4,
                std::string_view tier = "store") {
    std::vector<std::unique_ptr<storage::BlockStore>> stores;
    stores.push_back(std::make_unique<ShelfStore>(shelf, tier));
    tiers = std::make_shared<storage::LowerTiers>(
        storage::LowerTiersOptions{.space = {std::byte{1}},
                                   .block_bytes = ByteRunner::kBytes,
                                   .block_tokens = ByteRunner::kBlock,
                                   .io_threads = io_threads},
        nullptr, std::move(stores), clock, metrics);
    std::vector<std::unique_ptr<ModelRunner>> runners;
    runners.push_back(std::make_unique<ByteRunner>(kBlocks, kBlocks));
    engine = std::move(*make_engine({.kind = "bytes",
                                     .name = "e",
                                     .block_size = ByteRunner::kBlock,
                                     .total_blocks = kBlocks,
                                     .host_blocks = kBlocks,
                                     .tier_load_timeout = timeout,
                                     .max_num_seqs = 8,
                                     .max_num_batched_tokens = 16},
                                    std::move(runners), clock, metrics, {}, {.lower = tiers}));
    STATOR_ASSERT(engine->start(), "a test's engine starts");
    session = engine->open_session(sink);
  }
  ~Node() { engine->stop(); }

  inference::RequestKey submit(uint64_t id, std::vector<TokenId> tokens) {
    const inference::RequestKey key{.request = RequestId(id), .attempt = Attempt()};
    inference::EngineRequest request{.key = key, .tokens = std::move(tokens)};
    request.stop.max_tokens = 4;
    request.stop.ignore_eos = true;
    STATOR_ASSERT(engine->submit(session, std::move(request)), "accepted");
    return key;
  }
  KeepingSink::Heard ask(uint64_t id, std::vector<TokenId> tokens) {
    return sink.wait_for_end(submit(id, std::move(tokens)));
  }
  uint64_t count(std::string_view metric) {
    return metrics.counter(metric, "", {{"engine", "e"}}).value();
  }

  SystemClock clock;
  Metrics metrics;
  KeepingSink sink;
  std::shared_ptr<storage::LowerTiers> tiers;
  std::unique_ptr<Engine> engine;
  SessionId session;
};

std::vector<TokenId> prompt(uint64_t seed, size_t length) {
  Random random(seed);
  std::vector<TokenId> tokens(length);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random.next() % 1000);
  }
  return tokens;
}

/// Fills the shelf and gives the answer.
std::vector<TokenId> compute(Shelf& shelf, const std::vector<TokenId>& tokens) {
  Node node(shelf);
  const auto heard = node.ask(1, tokens);
  node.engine->stop();
  node.tiers->settle();
  return heard.tokens;
}

TEST(TierLanes, BlocksOfLowerTiersAreAPrefixAndTheSameAnswer) {
  Shelf shelf;
  const auto tokens = prompt(1, 41);
  const auto expected = compute(shelf, tokens);
  Node node(shelf);

  const auto heard = node.ask(1, tokens);

  EXPECT_EQ(heard.tokens, expected);
  EXPECT_EQ(heard.cached_tokens, 40);
  EXPECT_EQ(node.count("stator_kv_onboarded_tokens_total"), 40);
}

TEST(TierLanes, ALoadThatIsLateIsComputedAndItsBlocksServeLater) {
  Shelf shelf;
  const auto tokens = prompt(2, 41);
  const auto expected = compute(shelf, tokens);
  shelf.set(true, false);
  Node node(shelf, std::chrono::milliseconds(1));

  const auto heard = node.ask(1, tokens);
  shelf.set(false, false);

  EXPECT_EQ(heard.tokens, expected);
  EXPECT_EQ(heard.cached_tokens, 0);
  EXPECT_EQ(node.count("stator_kv_onboard_late_total"), 1);
  EXPECT_EQ(node.ask(2, tokens).tokens, expected);
}

TEST(TierLanes, DamagedBlocksAreComputed) {
  Shelf shelf;
  const auto tokens = prompt(3, 41);
  const auto expected = compute(shelf, tokens);
  shelf.set(false, true);
  Node node(shelf);

  const auto heard = node.ask(1, tokens);

  EXPECT_EQ(heard.tokens, expected);
  EXPECT_EQ(heard.cached_tokens, 0);
}

TEST(TierLanes, ADamagedBlockInTheMiddleLeavesAShorterPrefix) {
  Shelf shelf;
  const auto tokens = prompt(13, 41);
  const auto expected = compute(shelf, tokens);
  {
    const MutexLock lock(shelf.mutex);
    for (auto& [name, record] : shelf.records) {
      record.back() ^= std::byte{name.position() == 6 ? uint8_t{1} : uint8_t{0}};
    }
  }
  Node node(shelf);

  const auto heard = node.ask(1, tokens);

  EXPECT_EQ(heard.tokens, expected);
  EXPECT_EQ(heard.cached_tokens, 24);
}

/// All of its blocks are there, but somebody must compute the first new token.
TEST(TierLanes, TheLastTokenOfAPromptIsAlwaysComputed) {
  Shelf shelf;
  const auto tokens = prompt(14, 40);
  const auto expected = compute(shelf, tokens);
  Node node(shelf);

  const auto heard = node.ask(1, tokens);

  EXPECT_EQ(heard.tokens, expected);
  EXPECT_EQ(heard.cached_tokens, 36);
}

TEST(TierLanes, ARequestThatIsCancelledWhileItWaitsLeavesNothing) {
  Shelf shelf;
  const auto tokens = prompt(4, 41);
  const auto expected = compute(shelf, tokens);
  shelf.set(true, false);
  Node node(shelf);
  const inference::RequestKey key = node.submit(1, tokens);
  shelf.wait_for_reads(1);

  node.engine->cancel(node.session, key);
  shelf.set(false, false);

  EXPECT_EQ(node.ask(2, tokens).tokens, expected);
  EXPECT_EQ(node.engine->load().waiting, 0);
}

TEST(TierLanes, AnEngineStopsWhileLoadsAreUnderWay) {
  Shelf shelf;
  const auto tokens = prompt(5, 41);
  compute(shelf, tokens);
  shelf.set(true, false);
  Node node(shelf);
  node.submit(1, tokens);
  shelf.wait_for_reads(1);
  net::Thread opener("opener", [&shelf] { shelf.set(false, false); });

  node.engine->stop();

  EXPECT_EQ(node.sink.wait_for_end({.request = RequestId(1), .attempt = Attempt()}).failure.empty(),
            false);
}

TEST(TierLanes, EqualPromptsShareOneLoad) {
  Shelf shelf;
  const auto tokens = prompt(6, 41);
  const auto expected = compute(shelf, tokens);
  shelf.set(true, false);
  Node node(shelf, std::chrono::hours(1), 16);
  std::vector<inference::RequestKey> keys;
  for (uint64_t id = 1; id <= 4; ++id) {
    keys.push_back(node.submit(id, tokens));
  }
  shelf.wait_for_reads(10);
  while (node.engine->load().waiting < 4) {
  }

  shelf.set(false, false);

  for (const inference::RequestKey& key : keys) {
    EXPECT_EQ(node.sink.wait_for_end(key).tokens, expected);
  }
  EXPECT_EQ(shelf.reads_so_far(), 10) << "ten blocks, each read once";
  EXPECT_EQ(node.count("stator_kv_shared_loads_total"), 3);
}

/// Blocks of the tier by what the engine's events add up to.
size_t told(Engine& engine, kv::StorageTier tier) {
  size_t blocks = 0;
  for (const kv::EventLog::Run& run : engine.events().snapshot().stored) {
    blocks += run.tier == tier ? run.blocks.size() : 0;
  }
  return blocks;
}

void wait_until_told(Engine& engine, kv::StorageTier tier, size_t blocks) {
  const SystemClock clock;
  for (const TimePoint until = clock.now() + std::chrono::minutes(2);
       told(engine, tier) != blocks && clock.now() < until;) {
  }
  ASSERT_EQ(told(engine, tier), blocks);
}

TEST(TierLanes, RoutersHearWhatAnObjectStoreHolds) {
  Shelf shelf;
  const auto tokens = prompt(8, 41);
  Node node(shelf, std::chrono::hours(1), 4, "object");
  node.ask(1, tokens);
  wait_until_told(*node.engine, kv::StorageTier::kExternal, 11);

  // A reset empties all tiers for routers; what lies below is told again.
  node.engine->reset_prefix_cache();
  node.ask(2, prompt(9, 41));
  wait_until_told(*node.engine, kv::StorageTier::kExternal, 22);
}

TEST(TierLanes, AnObjectThatIsGoneIsToldToBeGone) {
  Shelf shelf;
  const auto tokens = prompt(10, 41);
  Node node(shelf, std::chrono::hours(1), 4, "object");
  node.ask(1, tokens);
  wait_until_told(*node.engine, kv::StorageTier::kExternal, 11);
  node.tiers->changes().removed(kv::StorageTier::kExternal, [&] {
    const MutexLock lock(shelf.mutex);
    return std::ranges::max_element(shelf.records, {},
                                    [](const auto& record) { return record.first.position(); })
        ->first;
  }());
  wait_until_told(*node.engine, kv::StorageTier::kExternal, 10);
}

}  // namespace
}  // namespace stator::engine
