// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <set>

#include "stator/core/random.h"

namespace stator::engine {
namespace {

using blocks::SequenceHash;
using Hashes = std::vector<SequenceHash>;

/// Members of a family have their first `shared` blocks in common.
Hashes make_chain(uint64_t family, uint64_t member, size_t shared, size_t length) {
  Hashes chain;
  uint64_t hash = mix64(family + 100);
  for (size_t i = 0; i < length; ++i) {
    hash = mix64(hash ^ mix64(i < shared ? 0 : member + 1));
    chain.emplace_back(hash);
  }
  return chain;
}

TEST(PrefixCache, ServesAPrefixAgainAfterItsHolderLeft) {
  PrefixCache cache(10);
  PrefixCache::Removed removed;
  const Hashes chain = make_chain(1, 0, 4, 6);
  cache.release(cache.extend(PrefixCache::kNone, chain, 0, removed).leaf);

  const PrefixCache::Match match = cache.match(make_chain(1, 1, 4, 8));

  EXPECT_EQ(match.blocks, 4);
  EXPECT_EQ(match.idle_blocks, 4);
  EXPECT_EQ(cache.idle(), 6);
  EXPECT_EQ(cache.in_use(), 0);
  EXPECT_TRUE(removed.empty());
}

TEST(PrefixCache, EvictsTailsOfTheOldestFirst) {
  PrefixCache cache(6);
  PrefixCache::Removed removed;
  const Hashes old = make_chain(1, 0, 0, 3);
  const Hashes young = make_chain(2, 0, 0, 3);
  cache.release(cache.extend(PrefixCache::kNone, old, 0, removed).leaf);
  cache.release(cache.extend(PrefixCache::kNone, young, 0, removed).leaf);

  cache.take_nameless(4, removed);

  EXPECT_EQ(removed, (Hashes{old[2], old[1], old[0], young[2]}));
  EXPECT_EQ(cache.match(young).blocks, 2);
}

TEST(PrefixCache, CountsIdleBlocksOfAMatchAsNotAvailable) {
  PrefixCache cache(4);
  PrefixCache::Removed removed;
  const Hashes chain = make_chain(1, 0, 0, 3);
  cache.release(cache.extend(PrefixCache::kNone, chain, 0, removed).leaf);

  const PrefixCache::Match match = cache.match(chain);

  EXPECT_TRUE(cache.can_take(match, 1));
  EXPECT_FALSE(cache.can_take(match, 2));
  EXPECT_TRUE(cache.can_take({}, 4));
}

TEST(PrefixCache, KeepsOneCopyOfEqualContent) {
  PrefixCache cache(10);
  PrefixCache::Removed removed;
  const Hashes chain = make_chain(1, 0, 0, 4);
  const auto first =
      cache.extend(PrefixCache::kNone, PrefixCache::Chain(chain).first(2), 0, removed);
  const auto second =
      cache.extend(PrefixCache::kNone, PrefixCache::Chain(chain).first(2), 0, removed);
  const auto longer = cache.extend(second.leaf, chain, 2, removed);

  EXPECT_EQ(first.shared, 0);
  EXPECT_EQ(second.shared, 2);
  EXPECT_EQ(longer.shared, 0);
  EXPECT_EQ(cache.in_use(), 4);
  cache.release(first.leaf);
  EXPECT_EQ(cache.in_use(), 4);
  cache.release(longer.leaf);
  EXPECT_EQ(cache.in_use(), 0);
  EXPECT_EQ(cache.idle(), 4);
}

/// One entry per block, in the obvious way.
class BlockByBlock {
 public:
  explicit BlockByBlock(size_t capacity) : capacity_(capacity) {}

  size_t match(const Hashes& chain) const {
    size_t count = 0;
    while (count < chain.size() && holders_.contains(chain[count])) {
      ++count;
    }
    return count;
  }
  size_t idle_among(const Hashes& chain, size_t count) const {
    return static_cast<size_t>(
        std::count_if(chain.begin(), chain.begin() + static_cast<ptrdiff_t>(count),
                      [&](SequenceHash hash) { return holders_.at(hash) == 0; }));
  }
  void take(const Hashes& chain, size_t from, size_t to, Hashes& removed) {
    for (size_t i = from; i < to; ++i) {
      if (holders_.contains(chain[i])) {
        if (holders_[chain[i]]++ == 0) {
          idle_.remove(chain[i]);
        }
      }
    }
    for (size_t i = from; i < to; ++i) {
      if (!holders_.contains(chain[i])) {
        if (holders_.size() == capacity_) {
          removed.push_back(idle_.front());
          holders_.erase(idle_.front());
          idle_.pop_front();
        }
        holders_[chain[i]] = 1;
      }
    }
  }
  void release(const Hashes& chain) {
    for (size_t i = chain.size(); i-- > 0;) {
      if (--holders_[chain[i]] == 0) {
        idle_.push_back(chain[i]);
      }
    }
  }
  size_t in_use() const { return holders_.size() - idle_.size(); }
  size_t idle() const { return idle_.size(); }

 private:
  size_t capacity_;
  std::map<SequenceHash, uint32_t> holders_;
  std::list<SequenceHash> idle_;  // oldest first
};

struct Holder {
  Hashes chain;
  size_t held = 0;
  PrefixCache::Run leaf = PrefixCache::kNone;
};

class PrefixCacheAgainstBlocks : public testing::TestWithParam<uint64_t> {};

TEST_P(PrefixCacheAgainstBlocks, BehavesLikeOneEntryPerBlock) {
  constexpr uint32_t kCapacity = 60;
  Random random(GetParam());
  PrefixCache cache(kCapacity);
  BlockByBlock model(kCapacity);
  std::vector<Holder> holders;
  for (int step = 0; step < 3000; ++step) {
    PrefixCache::Removed removed;
    Hashes expected;
    const uint64_t action = random.below(3);
    if (action == 0) {
      Holder holder{.chain = make_chain(random.below(3), random.below(4), random.below(12),
                                        1 + random.below(20))};
      const PrefixCache::Match match = cache.match(holder.chain);
      ASSERT_EQ(match.blocks, model.match(holder.chain));
      ASSERT_EQ(match.idle_blocks, model.idle_among(holder.chain, match.blocks));
      holder.held = random.below(match.blocks + 1);
      holder.leaf = cache.acquire(holder.chain, static_cast<uint32_t>(holder.held));
      model.take(holder.chain, 0, holder.held, expected);
      holders.push_back(std::move(holder));
    } else if (action == 1 && !holders.empty()) {
      Holder& holder = holders[random.below(holders.size())];
      const size_t to = holder.held + random.below(holder.chain.size() - holder.held + 1);
      if (cache.can_take({}, static_cast<uint32_t>(to - holder.held))) {
        model.take(holder.chain, holder.held, to, expected);
        holder.leaf = cache
                          .extend(holder.leaf, PrefixCache::Chain(holder.chain).first(to),
                                  static_cast<uint32_t>(holder.held), removed)
                          .leaf;
        holder.held = to;
      }
    } else if (!holders.empty()) {
      std::swap(holders[random.below(holders.size())], holders.back());
      Holder& holder = holders.back();
      holder.chain.resize(holder.held);
      model.release(holder.chain);
      cache.release(holder.leaf);
      holders.pop_back();
    }
    ASSERT_EQ(removed, expected) << "step " << step;
    ASSERT_EQ(cache.in_use(), model.in_use());
    ASSERT_EQ(cache.idle(), model.idle());
    ASSERT_EQ(cache.in_use() + cache.idle() + cache.free(), kCapacity);
  }
  for (const Holder& holder : holders) {
    cache.release(holder.leaf);
  }
  EXPECT_EQ(cache.in_use(), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PrefixCacheAgainstBlocks, testing::Range<uint64_t>(1, 21));

}  // namespace
}  // namespace stator::engine
