// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stator/core/random.h"

namespace stator::simulator {
namespace {

/// First tokens after about 100 ms, later by `later` ms.
RequestTimes make_times(uint64_t seed, double later, size_t count = 3000) {
  Random common(1);
  Random own(seed);
  RequestTimes times;
  for (size_t i = 0; i < count; ++i) {
    const double ms = 100 + 50 * common.uniform() + 20 * own.uniform() + later;
    RequestRecord record{.line = i + 1, .output_tokens = 1};
    record.first_token = record.last_token = TimePoint(Duration(static_cast<int64_t>(ms * 1e6)));
    times.add(record);
  }
  return times;
}

Difference ttft(const RequestTimes& first, const RequestTimes& second) {
  const auto differences = compare({}, first, {}, second);
  return *std::ranges::find(differences, "mean_ttft_ms", &Difference::name);
}

TEST(Compare, FindsADifferenceAndItsBounds) {
  const Difference one = ttft(make_times(2, 0), make_times(3, 2));

  EXPECT_TRUE(one.has_bounds);
  EXPECT_TRUE(one.significant());
  EXPECT_LT(one.low, 2);
  EXPECT_GT(one.high, 2);
  EXPECT_LT(one.high - one.low, 2);
}

TEST(Compare, TakesChanceForChanceAlmostAlways) {
  int significant = 0;
  for (uint64_t seed = 10; seed < 210; seed += 2) {
    significant += ttft(make_times(seed, 0), make_times(seed + 1, 0)).significant() ? 1 : 0;
  }

  EXPECT_LE(significant, 14);  // 5 expected
}

TEST(Compare, HasNoBoundsForAHandfulOfRequests) {
  EXPECT_FALSE(ttft(make_times(2, 0, 20), make_times(3, 9, 20)).has_bounds);
}

TEST(Compare, RequestsThatFailedInOneRunAreNotCompared) {
  RequestTimes first = make_times(2, 0);
  RequestTimes second = make_times(2, 0);
  RequestRecord failed{.line = 3001, .status = RequestStatus::kRejected};
  first.add(failed);
  failed.status = RequestStatus::kCompleted;
  failed.last_token = failed.first_token = TimePoint(std::chrono::hours(1));
  second.add(failed);

  EXPECT_EQ(ttft(first, second).high, 0);
}

}  // namespace
}  // namespace stator::simulator
