// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace stator::engine::cpu {
namespace {

TEST(ThreadTeam, RunsEveryItemOnceInEveryLoop) {
  for (const uint32_t size : {1U, 2U, 4U}) {
    ThreadTeam team(size);
    EXPECT_EQ(team.size(), size);
    for (int64_t items = 0; items < 200; ++items) {
      std::vector<std::atomic<int>> counts(static_cast<size_t>(items));
      team.run(items, [&](int64_t item, uint32_t member) {
        EXPECT_LT(member, size);
        counts[static_cast<size_t>(item)].fetch_add(1);
      });
      for (const auto& count : counts) {
        ASSERT_EQ(count.load(), 1);
      }
    }
  }
}

TEST(ThreadTeam, AMemberIsOneThreadAtATime) {
  ThreadTeam team(3);
  std::vector<int64_t> sums(3);  // unsynchronised on purpose: each belongs to one member
  for (int loop = 0; loop < 1000; ++loop) {
    team.run(10, [&](int64_t item, uint32_t member) { sums[member] += item; });
  }
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 45000);
}

TEST(ThreadTeam, StopsWithoutEverHavingWorked) {
  const ThreadTeam team(4);
}

TEST(ThreadTeamDeathTest, RefusesASizeOfZero) {
  EXPECT_DEATH(ThreadTeam(0), "size out of range");
}

}  // namespace
}  // namespace stator::engine::cpu
