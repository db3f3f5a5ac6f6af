// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/eviction_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::kv {
namespace {

std::vector<uint32_t> take_all(EvictionOrder& order) {
  std::vector<uint32_t> out;
  while (const auto block = order.take()) {
    out.push_back(*block);
  }
  return out;
}

TEST(EvictionOrder, NamesReadBack) {
  for (size_t i = 0; i < kEvictions; ++i) {
    EXPECT_EQ(find_eviction(to_string(static_cast<Eviction>(i))), static_cast<Eviction>(i));
  }
  EXPECT_FALSE(find_eviction("newest"));
}

TEST(EvictionOrder, MultiLruTakesTheLeastHitLevelAndWithinItTheOldest) {
  EvictionOrder order(Eviction::kMultiLru, 8);
  order.insert(0, {.hits = 20, .released = 1});
  order.insert(1, {.hits = 2, .released = 2});
  order.insert(2, {.hits = 9, .released = 3});
  order.insert(3, {.hits = 0, .released = 5});
  order.insert(4, {.hits = 3, .released = 4});

  EXPECT_THAT(take_all(order), testing::ElementsAre(1, 3, 4, 2, 0));
}

TEST(EvictionOrder, LineageTakesWhatWasRegisteredFirst) {
  EvictionOrder order(Eviction::kLineage, 8);
  order.insert(5, {.registered = 7});
  order.insert(6, {.registered = 3});
  order.insert(7, {.registered = 5});

  EXPECT_THAT(take_all(order), testing::ElementsAre(6, 7, 5));
}

TEST(EvictionOrder, ValueKeepsWhatIsUsedAndWhatIsDeepAndForgetsOldWorth) {
  EvictionOrder order(Eviction::kValue, 8);
  order.insert(0, {.hits = 0, .depth = 0});
  order.insert(1, {.hits = 0, .depth = 640});
  order.insert(2, {.hits = 4, .depth = 0});

  EXPECT_EQ(order.take(), 0);
  EXPECT_EQ(order.take(), 2);
  for (uint32_t round = 0; round < 16; ++round) {  // what comes later is worth what went, and more
    order.insert(3, {.hits = 1, .depth = 0});
    if (order.take() == 1) {
      return;
    }
  }
  FAIL() << "an idle block stays for ever";
}

TEST(EvictionOrder, WhatIsErasedIsNotTaken) {
  EvictionOrder order(Eviction::kLineage, 4);
  order.insert(0, {.registered = 1});
  order.insert(1, {.registered = 2});
  order.erase(0);
  order.erase(3);

  EXPECT_THAT(take_all(order), testing::ElementsAre(1));
  order.insert(0, {.registered = 1});
  order.clear();
  EXPECT_EQ(order.take(), std::nullopt);
}

}  // namespace
}  // namespace stator::kv
