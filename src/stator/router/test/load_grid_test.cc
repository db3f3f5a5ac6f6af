// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load/load_grid.h"

#include <gtest/gtest.h>

#include <map>

#include "stator/core/random.h"

namespace stator::router {
namespace {

/// Every slot is in exactly one cell, below which no side of its load is.
void check(const LoadGrid& grid, const std::map<LoadSlot, LoadRow>& rows) {
  size_t members = 0;
  for (size_t cell = 0; cell < grid.floors().size(); ++cell) {
    const LoadRow& floor = grid.floors()[cell];
    EXPECT_FALSE(grid.members(cell).empty()) << "a cell without members costs for nothing";
    for (const LoadSlot slot : grid.members(cell)) {
      const LoadRow& row = rows.at(slot);
      for (const auto side :
           {&LoadRow::prefill_tokens, &LoadRow::active_blocks, &LoadRow::active_requests}) {
        EXPECT_LE(floor.*side, row.*side);
        EXPECT_GE(floor.*side * 1.125, row.*side);
        EXPECT_TRUE(!grid.alike(cell) || floor.*side == row.*side);
      }
      ++members;
    }
  }
  EXPECT_EQ(members, rows.size());
}

TEST(LoadGrid, HoldsEveryWorkerInOneCellHoweverTheyMove) {
  Random random(7);
  LoadGrid grid;
  std::map<LoadSlot, LoadRow> rows;
  for (int step = 0; step < 20'000; ++step) {
    const auto slot = static_cast<LoadSlot>(random.below(200));
    if (random.below(8) == 0) {
      grid.remove(slot);
      rows.erase(slot);
    } else {
      const uint64_t scale = 1ULL << random.below(20);
      rows[slot] = {.prefill_tokens = static_cast<double>(random.below(scale)),
                    .active_blocks = static_cast<double>(random.below(scale)),
                    .active_requests = static_cast<double>(random.below(40))};
      grid.place(slot, rows[slot], {.ttft = random.below(20) == 0 ? 2.0F : 1.0F});
    }
    if (step % 500 == 0) {
      check(grid, rows);
    }
  }
  check(grid, rows);
  for (LoadSlot slot = 0; slot < 200; ++slot) {
    grid.remove(slot);
  }
  EXPECT_TRUE(grid.floors().empty());
}

TEST(LoadGrid, SpeedsAreOfTheWholeCell) {
  LoadGrid grid;
  grid.place(0, {}, {});
  grid.place(1, {}, {.ttft = 2});
  ASSERT_EQ(grid.floors().size(), 2U);
  EXPECT_NE(grid.factors()[0], grid.factors()[1]);
  grid.place(1, {}, {});
  ASSERT_EQ(grid.floors().size(), 1U);
  EXPECT_EQ(grid.members(0).size(), 2U);
}

}  // namespace
}  // namespace stator::router
