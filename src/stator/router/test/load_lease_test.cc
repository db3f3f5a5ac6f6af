// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load_lease.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <type_traits>
#include <vector>

namespace stator::router {
namespace {

static_assert(std::is_nothrow_move_constructible_v<LoadLease>);
static_assert(std::is_nothrow_move_assignable_v<LoadLease>);
static_assert(!std::is_copy_constructible_v<LoadLease>);

class LoadLeaseTest : public ::testing::Test {
 protected:
  LoadRow row() const {
    const std::array slots = {slot_};
    std::array<LoadRow, 1> rows;
    book_->read(slots, rows);
    return rows[0];
  }
  LoadLease take(uint32_t prompt_tokens, uint32_t prefill_tokens) {
    return book_->take(
        {.slot = slot_, .prompt_tokens = prompt_tokens, .prefill_tokens = prefill_tokens});
  }
  void expect_idle() const {
    EXPECT_EQ(row().active_requests, 0);
    EXPECT_EQ(row().active_blocks, 0);
    EXPECT_EQ(row().prefill_tokens, 0);
  }

  SimClock clock_;
  std::shared_ptr<LoadBook> book_ = LoadBook::make(clock_);
  LoadSlot slot_ = book_->add_worker();
};

TEST_F(LoadLeaseTest, TakesOnConstructionAndGivesBackOnDestruction) {
  {
    const LoadLease lease = take(100, 60);
    EXPECT_EQ(row().active_requests, 1);
    EXPECT_EQ(row().prefill_tokens, 60);
    EXPECT_EQ(row().active_blocks, 7);
  }
  expect_idle();
}

TEST_F(LoadLeaseTest, MovingTransfersTheShareOnce) {
  LoadLease first = take(16, 10);
  LoadLease second(std::move(first));
  first.release();
  EXPECT_EQ(row().active_requests, 1);
  second = take(32, 20);
  EXPECT_EQ(row().active_requests, 1);
  EXPECT_EQ(row().prefill_tokens, 20);
}

TEST_F(LoadLeaseTest, PrefillEndsOnce) {
  LoadLease lease = take(16, 10);
  lease.mark_prefill_completed();
  lease.mark_prefill_completed();
  EXPECT_EQ(row().prefill_tokens, 0);
  EXPECT_EQ(row().active_requests, 1);
}

TEST_F(LoadLeaseTest, OutputFillsBlocksThatAreGivenBackToo) {
  LoadLease lease = take(16, 0);
  lease.add_output_tokens(16);
  EXPECT_EQ(row().active_blocks, 2);
  lease.add_output_tokens(1);
  EXPECT_EQ(row().active_blocks, 3);
  lease.release();
  expect_idle();
  lease.add_output_tokens(100);
  expect_idle();
}

TEST_F(LoadLeaseTest, OutlivesTheRouterThatTookIt) {
  LoadLease lease = take(16, 16);
  book_->remove_worker(slot_);
  book_.reset();
  lease.release();
  EXPECT_TRUE(lease.empty());
}

TEST_F(LoadLeaseTest, ASlotIsReusedOnlyAfterItsLastRequestEnded) {
  LoadLease lease = take(16, 16);
  book_->remove_worker(slot_);
  EXPECT_NE(book_->add_worker(), slot_);
  lease.release();
  EXPECT_EQ(book_->add_worker(), slot_);
}

TEST_F(LoadLeaseTest, WhoWaitsForCapacityIsToldWhenSomeIsFreed) {
  int told = 0;
  book_->set_listener([&] { ++told; });
  take(16, 16).release();
  EXPECT_EQ(told, 0) << "nobody waits";
  book_->set_watched(true);
  LoadLease lease = take(16, 16);
  lease.mark_prefill_completed();
  EXPECT_EQ(told, 1);
  lease.release();
  EXPECT_EQ(told, 2);
}

TEST_F(LoadLeaseTest, LoadsBalanceAcrossThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (uint32_t i = 0; i < 5'000; ++i) {
        LoadLease lease = take(i, i);
        lease.add_output_tokens(17);
        lease.mark_prefill_completed();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  expect_idle();
}

}  // namespace
}  // namespace stator::router
