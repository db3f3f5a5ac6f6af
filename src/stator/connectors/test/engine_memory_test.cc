// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/engine_memory.h"

#include <gtest/gtest.h>

#include <numeric>

namespace stator::connectors {
namespace {

TEST(EngineMemory, ABlockIsItsRegionsOneBehindTheOther) {
  std::vector<uint8_t> keys(4 * 8);
  std::vector<uint8_t> values(4 * 16);
  std::iota(keys.begin(), keys.end(), uint8_t{0});
  std::iota(values.begin(), values.end(), uint8_t{100});
  const std::vector<Region> regions = {
      {.address = reinterpret_cast<uintptr_t>(keys.data()), .stride = 8, .bytes = 8},
      {.address = reinterpret_cast<uintptr_t>(values.data()), .stride = 16, .bytes = 4}};
  const auto memory = EngineMemory::create(regions, 4, 12);
  ASSERT_TRUE(memory);

  std::vector<std::byte> block(12);
  memory->gather(2, block);
  memory->scatter(0, block);

  EXPECT_EQ(keys[0], 16);
  EXPECT_EQ(keys[7], 23);
  EXPECT_EQ(values[3], 135);
  EXPECT_EQ(values[4], 104) << "what lies between is left alone";
  EXPECT_FALSE(memory->has(4));
}

TEST(EngineMemory, RegionsAddUpToABlock) {
  const Region region{.address = 4096, .stride = 8, .bytes = 8};
  const auto code = [](std::span<const Region> regions, uint64_t blocks, uint64_t bytes) {
    const auto made = EngineMemory::create(regions, blocks, bytes);
    return made ? Code::kInternal : made.error().code();
  };

  EXPECT_EQ(code(std::vector{region, region}, 4, 12), Code::kInvalidArgument);
  EXPECT_EQ(code({}, 4, 12), Code::kInvalidArgument);
  EXPECT_EQ(code(std::vector{region}, 0, 8), Code::kInvalidArgument);
  EXPECT_EQ(code(std::vector{Region{.address = 4096, .stride = 0, .bytes = 8}}, 4, 8),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace stator::connectors
