// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/range_list.h"

#include <gtest/gtest.h>

namespace stator::transfer {
namespace {

Region region(uint64_t addr, uint64_t len, std::byte key) {
  return {.desc = {.addr = addr, .len = len}, .key = {key}};
}

TEST(RangeList, FindsTheRegionOfEachRangeAlsoWhereTheyOverlap) {
  std::vector<Region> regions = {region(4000, 1000, std::byte{3}), region(0, 10'000, std::byte{1}),
                                 region(4000, 100, std::byte{2})};
  sort_regions(regions);
  const auto holder = [&](uint64_t addr, uint64_t len) {
    const Region* const found = find_covering(regions, MemType::kDram, {.addr = addr, .len = len});
    return found == nullptr ? std::byte{0} : found->key[0];
  };
  EXPECT_EQ(holder(0, 10'000), std::byte{1});
  EXPECT_NE(holder(4050, 20), std::byte{0});
  EXPECT_NE(holder(4500, 400), std::byte{2});
  EXPECT_NE(holder(4500, 400), std::byte{0});
  EXPECT_EQ(holder(4500, 501), std::byte{1}) << "only the widest goes so far";
  EXPECT_EQ(holder(9'990, 11), std::byte{0});
  EXPECT_EQ(holder(UINT64_MAX - 5, 100), std::byte{0});
  EXPECT_EQ(find_covering(regions, MemType::kVram, {.addr = 0, .len = 1}), nullptr);
  EXPECT_EQ(find_covering({}, MemType::kDram, {.addr = 0, .len = 1}), nullptr);
}

TEST(RangeList, RunsOfAnyLengthsAreTheRangesThatTheyStandFor) {
  const std::vector<Region> regions = {region(1'000, 1'000'000, std::byte{7})};
  std::vector<StridedDesc> runs;
  std::vector<Desc> written_out;
  for (const uint64_t count : {3, 3, 1, 8, 2}) {
    const StridedDesc run{
        .addr = 1'000 + 10'000 * runs.size(), .len = 64, .stride = 100, .count = count};
    runs.push_back(run);
    for (uint64_t i = 0; i < count; ++i) {
      written_out.push_back({.addr = run.addr + i * 100, .len = 64});
    }
  }
  RangeList list("b", MemType::kDram);
  for (const StridedDesc& run : runs) {
    ASSERT_TRUE(list.add_run(run, regions));
  }
  ASSERT_EQ(list.size(), written_out.size());
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i], written_out[i]) << i;
    EXPECT_EQ(list.region(i)->key[0], std::byte{7});
  }
}

TEST(RangeList, RefusesRunsThatLeaveTheRegistrationOrTheAddressSpace) {
  const std::vector<Region> regions = {region(0, 1'000, std::byte{7})};
  RangeList list("", MemType::kDram);
  EXPECT_TRUE(list.add_run({.addr = 0, .len = 100, .stride = 300, .count = 4}, regions));
  for (const StridedDesc& run :
       {StridedDesc{.addr = 0, .len = 101, .stride = 300, .count = 4},
        StridedDesc{.addr = 0, .len = 100, .stride = 300, .count = 0},
        StridedDesc{.addr = 0, .len = 100, .stride = UINT64_MAX / 2, .count = 4},
        StridedDesc{.addr = UINT64_MAX - 10, .len = 100, .stride = 1, .count = 1}}) {
    EXPECT_FALSE(list.add_run(run, regions)) << run.len << ' ' << run.stride;
  }
  EXPECT_EQ(list.size(), 4U);
}

TEST(Pairs, SlicesAndPiecesAreThePairsTheyName) {
  const std::vector<Region> regions = {region(0, 10'000, std::byte{7})};
  RangeList local("", MemType::kDram);
  RangeList remote("b", MemType::kDram);
  std::vector<Desc> ranges;
  for (uint64_t i = 0; i < 10; ++i) {
    ranges.push_back({.addr = i * 1'000, .len = 500});
  }
  ASSERT_TRUE(local.add(ranges, regions));
  ASSERT_TRUE(remote.add(ranges, regions));
  const std::vector<uint32_t> from = {9, 8, 7, 6};
  const std::vector<uint32_t> to = {0, 2, 4, 6};
  const Pairs all(local, from, remote, to);
  ASSERT_EQ(all.size(), 4U);
  const Pairs some = all.slice(1, 3);
  ASSERT_EQ(some.size(), 2U);
  EXPECT_EQ(some[1].local.addr, 7'000U);
  EXPECT_EQ(some[1].remote.addr, 4'000U);
  const Pair piece = some.piece(0, 100, 50)[0];
  EXPECT_EQ(piece.local, (Desc{.addr = 8'100, .len = 50}));
  EXPECT_EQ(piece.remote, (Desc{.addr = 2'100, .len = 50}));
  EXPECT_EQ(Pairs(local, remote, 10).slice(3, 10)[6].remote.addr, 9'000U);
}

}  // namespace
}  // namespace stator::transfer
