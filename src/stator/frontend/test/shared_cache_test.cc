// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/shared_cache.h"

#include <gtest/gtest.h>

namespace stator::frontend {
namespace {

TEST(SharedCache, CountsTheBeginningThatRangesCover) {
  EXPECT_EQ(read_shared_ranges(R"({"ranges":[]})"), 0U);
  EXPECT_EQ(read_shared_ranges(R"({"ranges":[[0,12],[20,24]]})"), 12U);
  EXPECT_EQ(read_shared_ranges(R"({"ranges":[[0,3],[3,5],[4,9]]})"), 9U);
  EXPECT_EQ(read_shared_ranges(R"({"ranges":[[2,9]]})"), 0U);
}

TEST(SharedCache, TakesNothingElse) {
  for (const char* const body :
       {"", "{}", "[]", R"({"ranges":1})", R"({"ranges":[1]})", R"({"ranges":[[1]]})",
        R"({"ranges":[[3,1]]})", R"({"ranges":[[-1,1]]})", R"({"ranges":[[0,99999999999]]})",
        R"({"ranges":[["0","1"]]})"}) {
    EXPECT_EQ(read_shared_ranges(body), std::nullopt) << body;
  }
}

TEST(SharedCache, RefusesAnAddressThatCannotBeOne) {
  SystemClock clock;
  Metrics metrics;
  EXPECT_FALSE(SharedCache::start({.url = "ftp://x"}, clock, metrics));
  EXPECT_FALSE(SharedCache::start({.url = "x:1", .timeout = Duration::zero()}, clock, metrics));
}

}  // namespace
}  // namespace stator::frontend
