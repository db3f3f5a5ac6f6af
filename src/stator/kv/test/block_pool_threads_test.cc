// SPDX-License-Identifier: Apache-2.0
// The state machine of blocks, driven by eight threads under the one lock that its owner takes,
// against a model.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/kv/block_pool.h"
#include "stator/kv/test/sequence_fixture.h"
#include "stator/net/thread.h"

namespace stator::kv {
namespace {

constexpr uint32_t kBlockSize = 4;
constexpr uint32_t kBlocks = 48;
constexpr int kThreads = 8;

uint64_t operations() {
  const char* given = std::getenv("STATOR_KV_OPERATIONS");
  return given == nullptr ? 80'000 : std::strtoull(given, nullptr, 10);
}

/// What each block that is held must hold: all tokens up to its end, and by how many chains.
class Model {
 public:
  void hold(BlockId block, const std::vector<TokenId>& prefix) {
    Held& held = held_[block.value()];
    ASSERT_TRUE(held.references == 0 || held.prefix == prefix)
        << "block " << block.value() << " is held for two contents";
    held.prefix = prefix;
    ++held.references;
  }
  void let_go(BlockId block) {
    if (--held_.at(block.value()).references == 0) {
      held_.erase(block.value());
    }
  }
  size_t blocks() const { return held_.size(); }

 private:
  struct Held {
    std::vector<TokenId> prefix;
    uint32_t references = 0;
  };
  std::map<uint32_t, Held> held_;
};

/// A pool with its lock, as an owner with several threads has it.
struct Shared {
  explicit Shared(Eviction eviction)
      : pool(kBlocks, BlockPool::Events::kRecord, nullptr, eviction) {}
  Mutex mutex;
  BlockPool pool STATOR_GUARDED_BY(mutex);
  Model model STATOR_GUARDED_BY(mutex);
};

struct Live {
  BlockChain chain;
  std::vector<TokenId> tokens;
};

std::vector<TokenId> draw_tokens(Random& random) {
  std::vector<TokenId> tokens;
  for (uint64_t i = 0, length = 1 + random.below(6); i < length; ++i) {
    tokens.insert(tokens.end(), kBlockSize, static_cast<TokenId>(random.below(3)));
  }
  return tokens;
}

std::vector<TokenId> first(const std::vector<TokenId>& tokens, size_t blocks) {
  return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(blocks * kBlockSize)};
}

/// Reset → Partial → Complete → Registered, or a match of what is registered or inactive.
Live begin(Shared& shared, std::vector<TokenId> tokens, bool blind) STATOR_REQUIRES(shared.mutex) {
  const TestSequence sequence(kBlockSize, tokens);
  BlockChain chain = blind ? BlockChain(shared.pool) : shared.pool.match_prefix(sequence.blocks());
  const size_t hits = chain.size();
  while (chain.size() < sequence.size() && shared.pool.available_blocks() > 0) {
    chain.append(shared.pool.allocate());
  }
  for (size_t i = hits; i < chain.size(); ++i) {
    chain.register_block(i, sequence[i]);
  }
  for (size_t i = 0; i < chain.size(); ++i) {
    shared.model.hold(chain.ids()[i], first(tokens, i + 1));
  }
  return {std::move(chain), std::move(tokens)};
}

void end(Shared& shared, Live live) STATOR_REQUIRES(shared.mutex) {
  for (const BlockId block : live.chain.ids()) {
    shared.model.let_go(block);
  }
  live.chain.clear();
}

void work(Shared& shared, uint64_t seed) {
  Random random(seed);
  std::vector<Live> live;
  for (uint64_t i = 0; i < operations() / kThreads; ++i) {
    const MutexLock lock(shared.mutex);
    if (live.empty() || (live.size() < 3 && random.below(2) == 0)) {
      live.push_back(begin(shared, draw_tokens(random), random.below(5) == 0));
    } else {
      const auto at = live.begin() + static_cast<ptrdiff_t>(random.below(live.size()));
      end(shared, std::move(*at));
      live.erase(at);
    }
    if (random.below(500) == 0) {
      shared.pool.reset();
    }
    shared.pool.take_events();
    shared.pool.check_invariants();
    ASSERT_EQ(shared.pool.used_blocks(), shared.model.blocks());
    ASSERT_EQ(shared.pool.used_blocks() + shared.pool.available_blocks(), kBlocks);
  }
  const MutexLock lock(shared.mutex);
  for (Live& one : live) {
    end(shared, std::move(one));
  }
}

TEST(BlockPoolThreads, EightThreadsUnderOneLockHoldWhatTheModelSays) {
  for (const Eviction eviction : {Eviction::kLru, Eviction::kLineage}) {
    Shared shared(eviction);
    {
      std::vector<net::Thread> threads;
      for (uint64_t seed = 1; seed <= kThreads; ++seed) {
        threads.emplace_back("kv-test", [&shared, seed] { work(shared, seed); });
      }
      for (net::Thread& thread : threads) {
        thread.join();
      }
    }
    const MutexLock lock(shared.mutex);
    EXPECT_EQ(shared.pool.used_blocks(), 0U);
    EXPECT_GT(shared.pool.counts().evictions, 100U);
    EXPECT_GT(shared.pool.counts().duplicates, 100U);
  }
}

}  // namespace
}  // namespace stator::kv
