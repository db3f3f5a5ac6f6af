// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load_lease.h"

#include <gtest/gtest.h>

#include <thread>
#include <type_traits>
#include <vector>

namespace stator::router {
namespace {

static_assert(std::is_nothrow_move_constructible_v<LoadLease>);
static_assert(std::is_nothrow_move_assignable_v<LoadLease>);
static_assert(!std::is_copy_constructible_v<LoadLease>);

TEST(LoadLease, TakesOnConstructionAndGivesBackOnDestruction) {
  const auto load = std::make_shared<WorkerLoad>();
  {
    const LoadLease lease(load, {.prefill_tokens = 100, .blocks = 7});
    EXPECT_EQ(load->requests, 1);
    EXPECT_EQ(load->prefill_tokens, 100);
    EXPECT_EQ(load->blocks, 7);
  }
  EXPECT_EQ(load->requests, 0);
  EXPECT_EQ(load->prefill_tokens, 0);
  EXPECT_EQ(load->blocks, 0);
}

TEST(LoadLease, MovingTransfersTheShareOnce) {
  const auto load = std::make_shared<WorkerLoad>();
  LoadLease first(load, {.prefill_tokens = 10, .blocks = 1});
  LoadLease second(std::move(first));
  first.release();
  EXPECT_EQ(load->requests, 1);
  second = LoadLease(load, {.prefill_tokens = 20, .blocks = 2});
  EXPECT_EQ(load->requests, 1);
  EXPECT_EQ(load->prefill_tokens, 20);
}

TEST(LoadLease, PrefillEndsOnce) {
  const auto load = std::make_shared<WorkerLoad>();
  LoadLease lease(load, {.prefill_tokens = 10, .blocks = 1});
  lease.mark_prefill_completed();
  lease.mark_prefill_completed();
  EXPECT_EQ(load->prefill_tokens, 0);
  EXPECT_EQ(load->requests, 1);
}

TEST(LoadLease, OutputBlocksAreGivenBackToo) {
  const auto load = std::make_shared<WorkerLoad>();
  LoadLease lease(load, {.prefill_tokens = 0, .blocks = 1});
  lease.add_blocks(3);
  EXPECT_EQ(load->blocks, 4);
  lease.release();
  EXPECT_EQ(load->blocks, 0);
  lease.add_blocks(1);
  EXPECT_EQ(load->blocks, 0);
}

TEST(LoadLease, OutlivesTheTableThatMadeIt) {
  LoadLease lease;
  {
    const auto load = std::make_shared<WorkerLoad>();
    lease = LoadLease(load, {.prefill_tokens = 1, .blocks = 1});
  }
  lease.release();
  EXPECT_TRUE(lease.empty());
}

TEST(LoadLease, LoadsBalanceAcrossThreads) {
  const auto load = std::make_shared<WorkerLoad>();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([load] {
      for (int i = 0; i < 5'000; ++i) {
        LoadLease lease(load, {.prefill_tokens = i, .blocks = 2});
        lease.add_blocks(1);
        lease.mark_prefill_completed();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(load->requests, 0);
  EXPECT_EQ(load->blocks, 0);
}

TEST(LoadLeaseDeathTest, ALoadThatWouldGoNegativeIsABug) {
  const auto load = std::make_shared<WorkerLoad>();
  LoadLease lease(load, {.prefill_tokens = 5, .blocks = 1});
  load->prefill_tokens = 1;
  EXPECT_DEATH(lease.release(), "L1");
  load->prefill_tokens = 5;
}

}  // namespace
}  // namespace stator::router
