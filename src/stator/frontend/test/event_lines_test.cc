// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/event_lines.h"

#include <gtest/gtest.h>

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint at(Duration since) {
  return TimePoint(1h) + since;
}

TEST(LineBudget, HoldsBackBeyondItsBurstAndSaysHowMany) {
  LineBudget budget;
  for (uint32_t i = 0; i < LineBudget::kLinesMax; ++i) {
    EXPECT_EQ(budget.take(at(0s)), 0U);
  }
  EXPECT_EQ(budget.take(at(1s)), std::nullopt);
  EXPECT_EQ(budget.take(at(9s)), std::nullopt);
  EXPECT_EQ(budget.take(at(10s)), 2U);
  EXPECT_EQ(budget.take(at(10s)), 0U);
}

TEST(MoveLog, SumsUpASecondOfMovesByPairAndCause) {
  MoveLog log;
  for (int i = 0; i < 3; ++i) {
    log.moved(WorkerId(1), WorkerId(2), "gone", at(0s));
  }
  log.moved(WorkerId(1), WorkerId(3), "gone", at(500ms));
  log.moved(WorkerId(1), WorkerId(3), "silent", at(500ms));
  EXPECT_TRUE(log.take(at(999ms)).empty());

  const auto lines = log.take(at(1s));

  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].from, WorkerId(1));
  EXPECT_EQ(lines[0].to, WorkerId(2));
  EXPECT_EQ(lines[0].streams, 3U);
  EXPECT_EQ(lines[2].why, "silent");
  EXPECT_TRUE(log.take(at(9s)).empty()) << "each move is told once";
}

TEST(MoveLog, IsBounded) {
  MoveLog log;
  uint64_t streams = 0;
  for (uint64_t i = 1; i <= 5000; ++i, ++streams) {
    log.moved(WorkerId(i), WorkerId(i + 1), "gone", at(0s));
  }

  const auto lines = log.take(at(1s));

  ASSERT_EQ(lines.size(), MoveLog::kLinesMax + 1);
  uint64_t told = 0;
  for (const auto& line : lines) {
    told += line.streams;
  }
  EXPECT_EQ(told, streams);
}

}  // namespace
}  // namespace stator::frontend
