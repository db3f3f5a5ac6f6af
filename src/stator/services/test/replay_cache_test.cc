// SPDX-License-Identifier: Apache-2.0
#include "stator/services/replay_cache.h"

#include <gtest/gtest.h>

namespace stator::services {
namespace {

SelectionRecord record(size_t hashes = 0) {
  SelectionRecord made{.partition = {"m"}};
  made.sequences.resize(hashes);
  return made;
}

TEST(ReplayCache, ForgetsTheOldestBeyondItsEntries) {
  ReplayCache cache({.entries_max = 2});
  cache.put("a", record(), {});
  cache.put("b", record(), {});
  cache.put("a", record(), {});  // the latest wins and is the newest
  cache.put("c", record(), {});
  EXPECT_EQ(cache.find("b", {}), nullptr);
  EXPECT_NE(cache.find("a", {}), nullptr);
  EXPECT_NE(cache.find("c", {}), nullptr);
}

TEST(ReplayCache, StaysWithinItsBytes) {
  ReplayCache cache({.bytes_max = 20'000});
  for (int i = 0; i < 100; ++i) {
    cache.put(std::to_string(i), record(500), {});
    EXPECT_LE(cache.bytes(), 20'000U);
  }
  EXPECT_EQ(cache.size(), 4U);
  cache.put("huge", record(5000), {});
  EXPECT_EQ(cache.find("huge", {}), nullptr);
}

TEST(ReplayCache, ForgetsWithAgeAndWhenUsed) {
  ReplayCache cache({});
  cache.put("a", record(), {});
  cache.put("b", record(), {});
  cache.erase("b");
  EXPECT_EQ(cache.find("b", {}), nullptr);
  EXPECT_NE(cache.find("a", TimePoint(std::chrono::seconds(119))), nullptr);
  EXPECT_EQ(cache.find("a", TimePoint(std::chrono::seconds(120))), nullptr);
  EXPECT_EQ(cache.bytes(), 0U);
}

}  // namespace
}  // namespace stator::services
