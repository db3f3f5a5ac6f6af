// SPDX-License-Identifier: Apache-2.0
#include "stator/net/message_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace stator::net {
namespace {

TEST(MessageBudget, AConnectionHoldsNoMoreThanItsOwnBound) {
  auto budget = std::make_shared<MessageBudget>(1000);
  MessageBudget::Share share(budget, 100);

  EXPECT_TRUE(share.resize(0, 60));
  EXPECT_FALSE(share.resize(0, 41));
  EXPECT_TRUE(share.resize(60, 100));
  EXPECT_EQ(share.held_bytes(), 100U);
  EXPECT_EQ(budget->held_bytes(), 100U);
}

TEST(MessageBudget, GreedyConnectionsLeaveAsMuchForTheNext) {
  auto budget = std::make_shared<MessageBudget>(1200);
  std::vector<std::unique_ptr<MessageBudget::Share>> greedy;
  for (int i = 0; i < 3; ++i) {
    greedy.push_back(std::make_unique<MessageBudget::Share>(budget, 1000));
    while (greedy.back()->resize(0, 10)) {
    }
  }

  MessageBudget::Share next(budget, 1000);
  EXPECT_LE(budget->held_bytes(), 1200U);
  EXPECT_TRUE(next.resize(0, 60));
}

TEST(MessageBudget, WhatIsGivenBackIsFree) {
  auto budget = std::make_shared<MessageBudget>(100);
  {
    MessageBudget::Share share(budget, 100);
    EXPECT_TRUE(share.resize(0, 50));
    EXPECT_FALSE(share.resize(50, 101));
    EXPECT_TRUE(share.resize(50, 20));
    EXPECT_EQ(budget->held_bytes(), 20U);
  }
  EXPECT_EQ(budget->held_bytes(), 0U);
}

}  // namespace
}  // namespace stator::net
