// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index_bench.h"

#include <gtest/gtest.h>

#include "stator/router/index/chain_index.h"

namespace stator::router {
namespace {

const std::vector<std::vector<uint64_t>> kPrompts = {{0, 1, 2},    {0, 1, 2, 3}, {0, 4},
                                                     {0, 1, 5, 6}, {7},          {0, 1, 2, 3, 8}};

TEST(IndexBench, EveryIndexFindsTheSameBlocks) {
  const SystemClock clock;
  for (const bool opaque : {false, true}) {
    const IndexBench bench(kPrompts, {.workers = 2, .blocks_per_hash = 3, .opaque_names = opaque});
    const auto chains = ChainIndex::create({.bytes_max = 1 << 20});
    ASSERT_TRUE(chains);
    ExactIndex oracle;
    bench.store_all(**chains, clock);
    bench.store_all(oracle, clock);
    EXPECT_EQ((*chains)->holder_blocks(), bench.blocks());
    EXPECT_EQ(oracle.holder_blocks(), bench.blocks());
    const auto routed = TtlIndex::create({.bytes_max = 1 << 20});
    ASSERT_TRUE(routed);
    bench.route_all(**routed, clock);
    EXPECT_EQ((*routed)->holder_blocks(), bench.blocks());
    const uint64_t expected = bench.look_up_all(oracle, clock).score_sum;
    EXPECT_GT(expected, 0U);
    EXPECT_EQ(bench.look_up_all(**chains, clock).score_sum, expected);
    EXPECT_EQ(bench.look_up_all(**routed, clock).score_sum, expected);
  }
}

TEST(IndexBench, ChurnEndsWhereItBegan) {
  const SystemClock clock;
  const IndexBench bench(kPrompts, {.workers = 3, .blocks_per_hash = 2});
  const auto chains = ChainIndex::create({.bytes_max = 1 << 20});
  ASSERT_TRUE(chains);
  bench.store_all(**chains, clock);
  const uint64_t before = bench.look_up_all(**chains, clock).score_sum;
  Random random(1);
  bench.churn(**chains, random, 200);
  EXPECT_EQ((*chains)->holder_blocks(), bench.blocks());
  EXPECT_EQ(bench.look_up_all(**chains, clock).score_sum, before);
}

}  // namespace
}  // namespace stator::router
