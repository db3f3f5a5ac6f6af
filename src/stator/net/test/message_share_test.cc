// SPDX-License-Identifier: Apache-2.0
#include "stator/net/message_share.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace stator::net {
namespace {

constexpr size_t kKi = 1024;

class MessageShareTest : public testing::Test {
 protected:
  std::shared_ptr<ByteBudget> make_budget(size_t bytes) {
    return std::make_shared<ByteBudget>("test", bytes, metrics_);
  }
  Metrics metrics_;
};

TEST_F(MessageShareTest, AConnectionHoldsNoMoreThanItsOwnBound) {
  const auto budget = make_budget(1000 * kKi);
  MessageShare share(budget, 100 * kKi);

  EXPECT_TRUE(share.resize(0, 60 * kKi));
  EXPECT_FALSE(share.resize(0, 41 * kKi));
  EXPECT_EQ(budget->refusals(), 1U);
  EXPECT_TRUE(share.resize(60 * kKi, 100 * kKi));
  EXPECT_EQ(share.held_bytes(), 100 * kKi);
  EXPECT_EQ(budget->used(), 112 * kKi) << "in steps of 16 KiB";
}

TEST_F(MessageShareTest, GreedyConnectionsLeaveAsMuchForTheNext) {
  const auto budget = make_budget(1200 * kKi);
  std::vector<std::unique_ptr<MessageShare>> greedy;
  for (int i = 0; i < 3; ++i) {
    greedy.push_back(std::make_unique<MessageShare>(budget, 1000 * kKi));
    while (greedy.back()->resize(0, 10 * kKi)) {
    }
  }

  EXPECT_LE(greedy[0]->held_bytes(), 600 * kKi);
  MessageShare next(budget, 1000 * kKi);
  EXPECT_LE(budget->used(), 1200 * kKi);
  EXPECT_TRUE(next.resize(0, 60 * kKi));
}

TEST_F(MessageShareTest, WhatIsGivenBackIsFree) {
  const auto budget = make_budget(100 * kKi);
  {
    MessageShare share(budget, 100 * kKi);
    EXPECT_TRUE(share.resize(0, 50 * kKi));
    EXPECT_FALSE(share.resize(50 * kKi, 101 * kKi));
    EXPECT_TRUE(share.resize(50 * kKi, 20 * kKi));
    EXPECT_EQ(budget->used(), 32 * kKi);
  }
  EXPECT_EQ(budget->used(), 0U);
}

TEST_F(MessageShareTest, WithoutABudgetOnlyItsOwnBoundCounts) {
  MessageShare share(nullptr, 10);

  EXPECT_TRUE(share.resize(0, 10));
  EXPECT_FALSE(share.resize(0, 1));
}

}  // namespace
}  // namespace stator::net
